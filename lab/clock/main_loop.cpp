#include "lab/clock/main_loop.h"

#include "generator/error.h"

namespace trigen {
namespace {

bool multiplies(const Instruction& one) { return one.is("HMMA") || one.is("FFMA"); }

bool goes_on(const Instruction& one) {
  return one.guard.empty() && one.operands.find(',') == std::string::npos;
}

struct Span {
  size_t begin = 0, end = 0;  // places of the loop's first instruction and of its branch back
  size_t products = 0;
};

std::vector<Span> loops_of(const MachineFunction& function) {
  std::vector<Span> out;
  for (size_t i = 0; i < function.instructions.size(); ++i) {
    const int64_t target = function.instructions[i].target;
    // A branch to itself ends every function's padding.
    if (target < 0 || target >= static_cast<int64_t>(i)) continue;
    Span span{static_cast<size_t>(target), i};
    for (size_t j = span.begin; j <= i; ++j) span.products += multiplies(function.instructions[j]) ? 1 : 0;
    if (span.products > 0) out.push_back(span);
  }
  return out;
}

// Branches forward out of the loop or within it that are always taken are followed.
std::vector<Instruction> turn_of(const MachineFunction& function, const Span& span) {
  std::vector<Instruction> out;
  for (size_t i = span.begin; i <= span.end;) {
    const Instruction& one = function.instructions[i];
    out.push_back(one);
    const auto target = static_cast<size_t>(one.target);
    const bool jump = one.target > static_cast<int64_t>(i) && target <= span.end && goes_on(one);
    i = jump ? target : i + 1;
  }
  return out;
}

}  // namespace

llvm::Expected<MainLoop> main_loop(const std::vector<MachineFunction>& functions) {
  const MachineFunction* best_function = nullptr;
  Span best;
  for (const MachineFunction& function : functions) {
    const std::vector<Span> loops = loops_of(function);
    for (const Span& loop : loops) {
      const bool inner = llvm::none_of(loops, [&](const Span& other) {
        return &other != &loop && other.begin >= loop.begin && other.end <= loop.end &&
               other.end - other.begin < loop.end - loop.begin;
      });
      if (!inner || loop.products <= best.products) continue;
      best = loop;
      best_function = &function;
    }
  }
  if (best_function == nullptr)
    return make_error(ErrorKind::kUnsupported,
                      "no loop of the machine code multiplies by HMMA or FFMA; the clock reads the tile "
                      "families' kernels: mma_sm70, mma_sm75, mma_sm80 and simt");
  MainLoop out;
  out.function = best_function->name;
  out.begin = best_function->instructions[best.begin].address;
  out.end = best_function->instructions[best.end].address;
  out.body = turn_of(*best_function, best);
  for (const Instruction& one : out.body) out.tensor |= one.is("HMMA");
  out.products = best.products;
  return out;
}

}  // namespace trigen
