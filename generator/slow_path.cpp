#include "generator/slow_path.h"

#include <llvm/ADT/STLExtras.h>

#include "generator/cost/cost.h"

namespace trigen {
namespace {

// Does any family with Hopper's own instructions take the problem? Some have a generic kernel for it and no
// tiles of its size: so small a problem is no slow path.
bool hopper_serves(const Problem& problem, const Target& target) {
  return llvm::any_of(families(), [&](const Family* family) {
    return family->serves(target) && family->name().startswith("wgmma") &&
           (family->generic_config(problem, target) || !family->configs(problem, target).empty());
  });
}

// Would f16 take the tensor cores that bf16 does not have here, and take half the time or less?
bool f16_gains(const Candidate& candidate, const Target& target) {
  constexpr double kGain = 2;
  Problem f16 = candidate.problem;
  f16.dtype = DType::kF16;
  if (f16.wdtype == DType::kBF16) f16.wdtype = DType::kF16;
  auto ranked = rank_candidates(f16, target);
  if (!ranked) {
    llvm::consumeError(ranked.takeError());
    return false;
  }
  const DeviceModel model = model_of(target);
  return predict(candidate, model).seconds >= kGain * predict(ranked->front(), model).seconds;
}

}  // namespace

std::string slow_path_warning(const Candidate& candidate, const Target& target) {
  const Problem& problem = candidate.problem;
  const std::string name = target.name.str(), kernel = candidate.family->name().str();
  if (!is_whole_product(problem.op)) return "";  // reads memory, whatever multiplies
  if (kernel == "simt" && problem.dtype == DType::kBF16 && !target.bf16_mma)
    return f16_gains(candidate, target) ? "bf16 runs without tensor cores on " + name +
                                              ", which has none for it: several times slower than f16, which "
                                              "they take"
                                        : "";
  if (kernel == "simt" && problem.math == Math::kF16x3)
    return "math=f16x3 has tensor-core kernels on Hopper (sm_90a) alone: " + name +
           " runs it on its FP32 units, as math=simt";
  if (!candidate.family->name().startswith("mma_")) return "";
  if (target.compute_capability / 10 == 10)
    return name + " runs " + kernel +
           ", mma.sync kernels: trigen has none for this GPU's own tensor-core instructions (tcgen05), and "
           "these reach "
           "a fraction of its rate; compare with a dense product";
  if (target.compute_capability == 90 && !candidate.target->wgmma)
    return "kernels of " + candidate.target->name.str() +
           " run on a Hopper without its own instructions (wgmma): " + kernel +
           " reaches two thirds of the tensor cores' rate at most; leave TRIGEN_TARGET unset";
  if (target.wgmma && !hopper_serves(problem, target))
    return kernel +
           " serves a problem that no kernel with Hopper's own instructions (wgmma) takes: two thirds of the "
           "tensor cores' rate at most (`trigen emit --explain PROBLEM` says which rule is in the way)";
  return "";
}

}  // namespace trigen
