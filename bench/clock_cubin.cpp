// The clock on kernels that are not trigen's: the main loop of any cubin, as one JSON line. docs/clock.md holds
// published kernels' figures against it.
//
//   build/bench/clock_cubin sm_80 gemm.cubin 8 1 [KERNEL]       8 warps of a block, 1 block on an SM
//
// KERNEL: a part of the function's name, where the cubin has several. Shared memory is taken as free of bank
// conflicts, and a turn's tiles as coming from the L2.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "generator/error.h"
#include "lab/clock/clock.h"
#include "lab/clock/disassembler.h"
#include "llvm/Support/MemoryBuffer.h"

namespace trigen {
namespace {

// Multiply-adds of a warp's turn.
double products_of(const MainLoop& loop) {
  double sum = 0;
  for (const Instruction& one : loop.body) {
    const SmRates unit{.tensor_products = 1};
    if (one.is("HMMA")) sum += tensor_cycles(one, unit);
    if (one.is("FFMA")) sum += 32;
  }
  return sum;
}

llvm::Error run(llvm::ArrayRef<const char*> args) {
  auto target = find_target(args[0]);
  if (!target) return target.takeError();
  const SmRates* const rates = sm_rates_of(**target);
  if (rates == nullptr)
    return make_error(ErrorKind::kUnsupported, "the clock has no timings of " + (*target)->name +
                                                   "; lab/clock/sm_rates.txt has those it knows");
  auto file = llvm::MemoryBuffer::getFile(args[1]);
  if (!file) return bad_request(llvm::Twine("cannot read ") + args[1] + "; name a cubin");
  auto functions = disassemble((*file)->getBuffer());
  if (!functions) return functions.takeError();
  if (args.size() > 4)
    llvm::erase_if(*functions,
                   [&](const MachineFunction& one) { return one.name.find(args[4]) == std::string::npos; });
  auto loop = main_loop(*functions);
  if (!loop) return loop.takeError();
  const int warps = std::atoi(args[2]), blocks = std::atoi(args[3]);
  if (warps < 1 || blocks < 1 || warps * blocks > 64)
    return bad_request("warps and blocks make 1 to 64 warps of an SM");
  const LoopTiming timing = clock_loop({.loop = *loop,
                                        .rates = *rates,
                                        .warps = warps,
                                        .blocks = blocks,
                                        .l2_bytes = l2_bytes_of(*rates, (*target)->sms)});
  if (timing.cycles <= 0)
    return make_error(ErrorKind::kUnsupported, "the clock cannot follow the main loop of " + loop->function);
  nlohmann::ordered_json out = {{"kernel", loop->function},
                                {"target", (*target)->name.str()},
                                {"instructions", loop->body.size()},
                                {"cycles", timing.cycles},
                                {"products_per_cycle", products_of(*loop) * warps * blocks / timing.cycles},
                                {"bound", timing.bound().name}};
  for (const Busy& busy : timing.busy) out["busy"][busy.name] = busy.cycles / timing.cycles;
  for (int i = 0; i < kIdles; ++i)
    out["idle"][name_of(static_cast<Idle>(i))] = timing.idle[i] / timing.cycles;
  std::printf("%s\n", out.dump().c_str());
  return llvm::Error::success();
}

}  // namespace
}  // namespace trigen

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: clock_cubin ARCH CUBIN WARPS BLOCKS [KERNEL]\n");
    return 2;
  }
  const llvm::ArrayRef<const char*> args(const_cast<const char**>(argv) + 1, static_cast<size_t>(argc) - 1);
  if (llvm::Error error = trigen::run(args)) {
    std::fprintf(stderr, "clock_cubin: error: %s\n", trigen::take_error(std::move(error)).message.c_str());
    return 1;
  }
  return 0;
}
