// Machine code of Volta and later, as nvdisasm prints it: instructions with the compiler's control words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

// The compiler's control bits for the scheduler, in every 128-bit instruction's upper bits (arXiv 1804.06826,
// section 2.1): 4 bits of stall count, a bit of yield, 3 bits each of write and read barrier, 6 of the barriers
// to wait for, 4 of operands to keep.
struct Control {
  static constexpr int kNoBarrier = 7;
  int stall = 0;                   // cycles until the warp's next instruction may start
  bool yield = false;              // prefer another warp next
  int write_barrier = kNoBarrier;  // falls when the result is there
  int read_barrier = kNoBarrier;   // falls when the operands were read
  int wait = 0;                    // bit i: barrier i must have fallen
  int reuse = 0;                   // bit i: keep the operand of slot i beside the register file

  static Control of(uint64_t upper_word);
};

struct Instruction {
  uint32_t address = 0;
  std::string guard;     // "@!P0", or nothing
  std::string opcode;    // with its modifiers: "HMMA.884.F32.F32.STEP0"
  std::string operands;  // "R4, R68.reuse.ROW, R2.ROW, R4"
  Control control;
  int64_t target = -1;  // of a branch: the place in its function's list

  // "HMMA" is, "HMMA.884" is, "HMM" is not.
  bool is(llvm::StringRef name) const;
  bool has(llvm::StringRef modifier) const;  // "F32", between points
  // Registers that are read, in the order of the slots; without the first operand, which is written.
  std::vector<int> sources() const;
};

struct MachineFunction {
  std::string name;
  std::vector<Instruction> instructions;
};

// The text of `nvdisasm -c -hex`. Errors: bad request, with the line that is none of such a text.
llvm::Expected<std::vector<MachineFunction>> parse_machine_code(llvm::StringRef text);

}  // namespace trigen
