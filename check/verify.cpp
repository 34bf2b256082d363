#include "check/verify.h"

#include <algorithm>

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
  auto second = bench.download(/*again=*/true);
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

// A plan that prepares w, behind a run on `inputs`: once more with w_unchanged, w poisoned and nothing else of the workspace
// to be relied on.
llvm::Error verify_unchanged(const Plan& plan, Workbench& bench, trigen_args args, const Integers& integers,
                             int run, HostBuffers inputs, CheckResult& result) {
  const auto w = static_cast<size_t>(bench.list().find(Role::kW) - bench.list().tensors.data());
  std::fill(inputs[w].begin(), inputs[w].end(), std::byte{kPoison});
  if (auto error = bench.put_inputs(inputs)) return error;
  if (auto error = bench.poison(/*keep_workspace=*/true)) return error;
  args.w_unchanged = 1;
  if (auto error = plan.run(args, bench.stream())) return error;
  auto outputs = bench.download();
  if (!outputs) return outputs.takeError();
  CheckResult again = result;
  integers.check(run, *outputs, again);
  if (again.ok) return llvm::Error::success();
  result.ok = false;
  result.failure = "with w_unchanged: " + again.failure;
  return llvm::Error::success();
}

// Runs on inputs of small integers, all outputs compared.
llvm::Error verify_integers(const Plan& plan, Workbench& bench, const trigen_args& args,
                            CheckResult& result) {
  const Integers integers(bench.problem(), bench.list());
  for (int run = 0; run < integers.runs() && result.ok; ++run) {
    const HostBuffers inputs = integers.inputs(run);
    if (auto error = bench.put_inputs(inputs)) return error;
    if (auto error = bench.poison()) return error;
    if (auto error = plan.run(args, bench.stream())) return error;
    auto outputs = bench.download();
    if (!outputs) return outputs.takeError();
    integers.check(run, *outputs, result);
    if (result.ok && run + 1 == integers.runs() && plan.executable().prepared_bytes() > 0)
      if (auto error = verify_unchanged(plan, bench, args, integers, run, inputs, result)) return error;
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
  if (auto error = verify_integers(plan, bench, *args, *result)) return error;
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
