#include "check/verify.h"

#include "check/integers.h"

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

namespace {

// The same inputs and outputs by arrays of pointers, of the last matrix first. Its place says which of a matrix's sums are taken in parts,
// so that the bits may be others than by strides.
llvm::Error verify_pointers(const Plan& plan, Workbench& bench, const Reference& reference,
                            CheckResult& result) {
  if (!takes_pointers(bench.problem())) return llvm::Error::success();
  auto args = bench.args_of_pointers(0, plan.workspace_bytes());
  if (!args) return args.takeError();
  const auto launch = [&] { return plan.run(*args, bench.stream()); };
  auto pointers = verify_launch(bench, reference, launch, false);
  if (!pointers) return pointers.takeError();
  if (pointers->ok) return llvm::Error::success();
  result = *pointers;
  result.failure = "by arrays of pointers: " + result.failure;
  return llvm::Error::success();
}

// The launch on inputs of small integers, all outputs compared.
llvm::Error verify_integers(Workbench& bench, const std::function<llvm::Error()>& launch,
                            CheckResult& result) {
  const Integers integers(bench.problem(), bench.list());
  for (int run = 0; run < integers.runs() && result.ok; ++run) {
    const HostBuffers inputs = integers.inputs(run);
    if (auto error = bench.put_inputs(inputs)) return error;
    if (auto error = bench.poison()) return error;
    if (auto error = launch()) return error;
    auto outputs = bench.download();
    if (!outputs) return outputs.takeError();
    integers.check(run, *outputs, result);
    if (auto error = bench.put_inputs(bench.inputs())) return error;
  }
  return llvm::Error::success();
}

}  // namespace

llvm::Expected<CheckResult> verify(const Plan& plan, Workbench& bench, const Reference& reference) {
  auto args = bench.args(0, plan.workspace_bytes());
  if (!args) return args.takeError();
  const auto launch = [&] { return plan.run(*args, bench.stream()); };
  // The emulated device repeats itself, and reports races as such.
  auto result = verify_launch(bench, reference, launch, !bench.device().info().emulated);
  if (!result || !result->ok) return result;
  if (auto error = verify_pointers(plan, bench, reference, *result)) return error;
  if (!result->ok) return result;
  if (auto error = verify_integers(bench, launch, *result)) return error;
  return result;
}

std::vector<Rows> rows_to_check(const Problem& p) {
  std::vector<Rows> out = {longest_rows(p)};
  if (!op_row(p.op).takes(kRowsField)) return out;
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
