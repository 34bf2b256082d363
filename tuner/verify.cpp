#include "tuner/verify.h"

namespace trigen {

llvm::Expected<CheckResult> verify_launch(Workbench& bench, const Reference& reference,
                                          const std::function<llvm::Error()>& launch, bool repeat) {
  if (auto error = bench.poison()) return error;
  if (auto error = launch()) return error;
  auto first = bench.download();
  if (!first) return first.takeError();
  CheckResult result = reference.check(*first);
  if (!repeat || !result.ok) return result;
  if (auto error = bench.poison()) return error;
  if (auto error = launch()) return error;
  auto second = bench.download();
  if (!second) return second.takeError();
  if (*first != *second) {
    result.ok = false;
    result.failure =
        "two runs on the same inputs gave different bits; a barrier or an initialisation is missing";
  }
  return result;
}

llvm::Expected<CheckResult> verify(const Plan& plan, Workbench& bench, const Reference& reference) {
  auto args = bench.args(0, plan.workspace_bytes());
  if (!args) return args.takeError();
  return verify_launch(
      bench, reference, [&] { return plan.run(*args, bench.stream()); }, true);
}

}  // namespace trigen
