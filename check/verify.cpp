#include "check/verify.h"

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

std::vector<Rows> rows_to_check(const Problem& p) {
  std::vector<Rows> out = {longest_rows(p)};
  if (p.op != Op::kDecode) return out;
  const auto add = [&](Rows rows) {
    for (const Rows& other : out)
      if (other.first == rows.first && other.count == rows.count) return;
    out.push_back(rows);
  };
  add({0, 1});
  const int64_t count = std::max<int64_t>(1, p.rows - 1);
  add({std::min(p.T / 2, p.T - count), count});
  return out;
}

}  // namespace trigen
