// The registers of warpgroup products: which instructions touch them between two wgmma.fence, and which an
// unfinished product still uses. (PTX ISA, "Asynchronous wgmma Instructions: wgmma.fence", "wgmma.mma_async")
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trigen::emulator {

struct Inst;
struct Program;
struct Warp;

// One of an instruction's operands that a product uses too, or that moves carry there.
struct Touch {
  uint16_t index = 0;
  bool writes = false;
  bool of_product = false;  // a product itself uses the register, no move is needed
};

// The state of such a register in one warp.
struct RegisterUse {
  uint16_t last = 0;     // kClean, kTouched, or the kind of the product that used it since the fence
  bool sum = false;      // an unfinished product adds to it
  bool operand = false;  // an unfinished product reads A from it
  static constexpr uint16_t kClean = 0, kTouched = 1, kOperand = 2, kSum = 3;  // kSum + shape
};

/// Finds the registers of the kernel's products and hangs Inst::touches on every instruction that has some.
/// Call once all slots are final.
void find_product_registers(Program& program);

/// Before an instruction that is no product: the registers of unfinished products must not be touched.
/// Carries the products out where an accumulator is touched: a plain move is what the compiler puts between
/// products; the assembler makes it wait, and so does this.
void touch_product_registers(Warp& warp, const Inst& inst);
/// The fault of the registers of a product that begins now, "" for none; notes their use.
std::string use_product_registers(Warp& warp, const Inst& product);
/// wgmma.fence
void fence_product_registers(Warp& warp);
/// After products were queued or carried out.
void mark_pending_registers(Warp& warp);

}  // namespace trigen::emulator
