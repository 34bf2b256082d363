#include "emulator/product_registers.h"

#include <unordered_map>

#include "emulator/exec.h"

namespace trigen::emulator {

void finish_products(Warp& warp);  // exec_wgmma.cpp

namespace {

constexpr uint64_t kShapeMask = 0x3ff;  // of a product's aux: N, and whether sums are f16

bool is_plain_move(const Inst& inst) {
  return inst.cls == InstClass::kMove && inst.list_count == 0 && inst.op[0] != kNoSlot &&
         inst.op[1] != kNoSlot && inst.op[2] == kNoSlot;
}

template <class F>
void for_operands(const Inst& inst, F&& body) {
  for (int i = 0; i < 8; ++i)
    if (inst.op[i] != kNoSlot) body(inst.op[i] & ~1u, i == 0);
  for (uint32_t i = 0; i < inst.list_count; ++i) body(inst.list[i] & ~1u, i < inst.list_written);
}

}  // namespace

void find_product_registers(Program& program) {
  std::unordered_map<uint32_t, Touch> found;
  for (const Inst& inst : program.code)
    if (inst.product)
      for (uint32_t i = 0; i < inst.list_count; ++i)
        found.emplace(inst.list[i] & ~1u, Touch{static_cast<uint16_t>(found.size()), false, true});
  if (found.empty()) return;
  // Registers whose values moves carry into a product's.
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    for (const Inst& inst : program.code)
      if (is_plain_move(inst) && found.count(inst.op[0] & ~1u) != 0 && inst.op[1] < program.constant_begin)
        found.emplace(inst.op[1] & ~1u, Touch{static_cast<uint16_t>(found.size()), false, false});
  }
  program.product_registers = static_cast<uint32_t>(found.size());
  for (Inst& inst : program.code) {
    if (inst.flow == Flow::kBranch || inst.flow == Flow::kBranchTable || inst.flow == Flow::kExit) continue;
    std::vector<Touch> touches;
    for_operands(inst, [&](uint32_t slot, bool writes) {
      auto at = found.find(slot);
      if (at == found.end()) return;
      touches.push_back(at->second);
      touches.back().writes = writes;
    });
    if (touches.empty()) continue;
    program.touches.push_back(std::move(touches));
    inst.touches = &program.touches.back();
  }
}

void touch_product_registers(Warp& warp, const Inst& inst) {
  const bool move = is_plain_move(inst);
  bool sum = false, operand = false;
  for (const Touch& touch : *inst.touches) {
    const RegisterUse& use = warp.register_uses[touch.index];
    sum = sum || use.sum;
    operand = operand || (use.operand && touch.writes && !move);
  }
  if (sum && !move)
    warp.report(Fault::kAsyncHazard, 0,
                "an accumulator of a warpgroup product is used before wgmma.wait_group");
  else if (operand)
    warp.report(Fault::kAsyncHazard, 0,
                "a register that a warpgroup product reads A from is written before wgmma.wait_group");
  if (sum || operand) finish_products(warp);
  if (move) {
    // Its own target last: a move carries on what was done to its source.
    uint16_t last = RegisterUse::kTouched;  // a constant, or a register that no product ever sees
    for (const Touch& touch : *inst.touches)
      if (!touch.writes) last = warp.register_uses[touch.index].last;
    for (const Touch& touch : *inst.touches)
      if (touch.writes) warp.register_uses[touch.index].last = last;
    return;
  }
  for (const Touch& touch : *inst.touches)
    if (touch.writes || touch.of_product) warp.register_uses[touch.index].last = RegisterUse::kTouched;
}

std::string use_product_registers(Warp& warp, const Inst& product) {
  const uint16_t shape = static_cast<uint16_t>(RegisterUse::kSum + (product.aux & kShapeMask));
  std::string wrong;
  if (!warp.products_fenced) wrong = "the warp's first warpgroup product comes without wgmma.fence";
  warp.products_fenced = true;  // one report is enough
  // Address operands come first; the list's registers are the last list_count touches.
  const std::vector<Touch>& touches = *product.touches;
  const size_t first = touches.size() - product.list_count;
  for (size_t i = first; i < touches.size(); ++i) {
    RegisterUse& use = warp.register_uses[touches[i].index];
    const bool sum = i - first < product.list_written;
    const uint16_t kind = sum ? shape : RegisterUse::kOperand;
    if (wrong.empty() && use.last != RegisterUse::kClean && use.last != kind)
      wrong = std::string(sum ? "an accumulator" : "a register of A") +
              (use.last == RegisterUse::kTouched ? " was touched by other instructions"
                                                 : " was used by a product of another shape") +
              " and no wgmma.fence came since";
    use.last = kind;
  }
  return wrong;
}

void fence_product_registers(Warp& warp) {
  warp.products_fenced = true;
  for (RegisterUse& use : warp.register_uses) use.last = RegisterUse::kClean;
}

void mark_pending_registers(Warp& warp) {
  for (RegisterUse& use : warp.register_uses) use.sum = use.operand = false;
  for (const PendingProduct& product : warp.products) {
    const std::vector<Touch>& touches = *product.inst->touches;
    const size_t first = touches.size() - product.inst->list_count;
    for (size_t i = first; i < touches.size(); ++i) {
      RegisterUse& use = warp.register_uses[touches[i].index];
      (i - first < product.inst->list_written ? use.sum : use.operand) = true;
    }
  }
}

}  // namespace trigen::emulator
