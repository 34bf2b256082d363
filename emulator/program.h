// A kernel decoded once: instructions with their handler and the byte offsets ("slots") of their operands in
// a warp's register file. A slot holds one register of all 32 lanes side by side: 2, 4 or 8 bytes a lane, or,
// for a predicate, one 32-bit lane mask. Immediates are slots too, filled when a warp starts.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "emulator/product_registers.h"
#include "emulator/ptx_ast.h"

namespace trigen::emulator {

struct Warp;
struct Inst;
/// Executes one instruction for the lanes in `mask` (never 0).
using ExecFn = void (*)(Warp& warp, const Inst& inst, uint32_t mask);

inline constexpr uint32_t kNoSlot = 0xffffffffu;
inline constexpr uint32_t kFullMask = 0xffffffffu;

enum class Flow : uint8_t {
  kNext,         // executes and goes on
  kBranch,       // may split the warp
  kBranchTable,  // brx.idx
  kExit,
  kCollective,  // waits until all lanes of its member mask stand here (op[0]: member mask slot, kNoSlot: all
                // lanes)
  kBlocking     // the handler may set Warp::wait, and is called again later
};

// Instruction classes that are counted apart. Names in counters.cpp.
enum class InstClass : uint8_t {
  kInteger,
  kFloat,
  kHalf,
  kDouble,
  kConvert,
  kMove,
  kCompare,
  kControl,
  kLoad,
  kStore,
  kAtomic,
  kWarp,
  kMatrixMove,
  kMatrix,
  kAsyncCopy,
  kBarrier,
  kOther,
  kCount
};

struct Inst {
  ExecFn fn = nullptr;
  uint32_t op[8] = {kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  const uint32_t* list = nullptr;  // long operand lists (vectors, matrix fragments)
  uint32_t list_count = 0;
  uint32_t list_written = 0;  // the first of them that the instruction writes
  uint32_t guard = kNoSlot;
  bool guard_negated = false;
  bool leader = false;   // first instruction of a basic block
  bool product = false;  // wgmma.mma_async; list: accumulators, which it writes, then A's registers
  Flow flow = Flow::kNext;
  InstClass cls = InstClass::kOther;
  uint8_t width = 0;      // bytes of one element in memory
  uint8_t reg_width = 0;  // bytes of one lane's register
  uint8_t vec = 1;
  Space space = Space::kGeneric;
  uint32_t order = 0;   // leaders: rank of the block in the reconvergence order
  uint32_t target = 0;  // branch target
  int64_t imm = 0;      // address offset, or what the handler wants
  uint64_t aux = 0;
  int line = 0;
  uint32_t text = 0;                            // index into Program::texts
  const std::vector<Touch>* touches = nullptr;  // of registers that products use
};

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNWarpId,
  kSmId,
  kNSmId,
  kGridId,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  kDynamicShared,
  kTotalShared,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNClusterIdX,
  kNClusterIdY,
  kNClusterIdZ,
  kClusterCtaIdX,
  kClusterCtaIdY,
  kClusterCtaIdZ,
  kClusterNCtaIdX,
  kClusterNCtaIdY,
  kClusterNCtaIdZ,
  kClusterCtaRank,
  kClusterNCtaRank,
  kIsExplicitCluster
};

struct SpecialSlot {
  Special what;
  uint32_t slot;
  uint8_t width;
};

struct ParameterLayout {
  uint32_t offset;
  uint32_t bytes;
};

struct Program {
  std::string name;
  std::vector<Inst> code;
  std::deque<std::vector<uint32_t>> lists;
  std::deque<std::string> texts;
  uint32_t register_bytes = 0;     // size of one warp's register file
  uint32_t constant_begin = 0;     // the constant slots are [constant_begin, register_bytes)
  std::vector<uint8_t> constants;  // their image
  std::vector<SpecialSlot> specials;
  std::deque<std::vector<Touch>> touches;
  uint32_t product_registers = 0;  // Touch::index is below
  uint32_t static_shared = 0;      // bytes of static shared memory
  uint32_t dynamic_align = 16;     // alignment of the extern shared arrays
  uint32_t shared_base = 0;        // address of the first byte of a block's shared memory
  uint32_t local_bytes = 0;        // per thread
  uint32_t parameter_bytes = 0;
  std::vector<ParameterLayout> parameters;
  uint32_t max_threads = 1024;
  uint32_t required_threads[3] = {0, 0, 0};
  uint32_t required_cluster[3] = {0, 0, 0};
  bool orders_threads = false;  // has ordered accesses, or fences beside atomics: they may order threads
};

/// Makes a kernel's Program. Global and constant variables are looked up with `symbols`.
struct SymbolTable {
  virtual ~SymbolTable() = default;
  /// Address of a module-level global or constant variable; 0 when there is none of that name.
  virtual uint64_t address_of(const std::string& name) const = 0;
};

/// `target`, `arch_specific`: of the module (sm_90a: 90, true); `device`: compute capability of the device,
/// times ten.
std::unique_ptr<Program> decode_kernel(const ModuleAst& module, const Function& kernel,
                                       const SymbolTable& symbols, int target, int device,
                                       bool arch_specific);

/// Marks leaders and gives every basic block its rank in a weak topological order, so that running the
/// lowest-ranked lanes first makes diverged lanes meet again at the earliest common block. (Bourdoncle,
/// "Efficient chaotic iteration strategies with widenings", 1993: loops stay contiguous, so lanes that left a
/// loop wait for those still in it.)
void order_blocks(Program& program);

}  // namespace trigen::emulator
