#include "lab/dense_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cache/host.h"
#include "check/text.h"
#include "generator/error.h"
#include "generator/ops.h"
#include "lab/rates_table.h"
#include "lab/table_result.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "tuner/statistics.h"

namespace trigen {
namespace {

constexpr double kMostError = 0.5;  // of a row, in the objective
constexpr double kWrong = 1.02;     // times that differ by less are alike in two runs
constexpr double kWithin = 1.15;

// The rates name the files that they were fitted to.
bool is_held(llvm::StringRef path) {
  for (const Rate& rate : rates_of(*llvm::cantFail(find_gpu("H200"))).all())
    if (rate.section == "dense" && rate.kind == Rate::Kind::kFitted)
      return !llvm::StringRef(rate.source).contains(path.substr(path.rfind('/') + 1));
  return true;
}

// The triangular product is no dense one.
bool is_dense(const std::string& arm) {
  return arm.rfind("cublas", 0) == 0 && arm.find("trmm") == std::string::npos;
}

bool lacks_im2col(const Problem& p, const TableResult& result) {
  return p.K > 1 && result.peer.find("im2col") == std::string::npos &&
         llvm::none_of(result.arms,
                       [](const TableArm& arm) { return arm.name.find("im2col") != std::string::npos; });
}

DeviceModel device_of(const DenseRow& row, const Rates* rates) {
  DeviceModel device = model_of(*row.gpu);
  if (rates != nullptr) device.rates = rates;
  return device;
}

DenseFigures::Verdicts verdicts_of(const std::vector<const DenseRow*>& rows, const Rates* rates,
                                   bool predicted) {
  DenseFigures::Verdicts out;
  for (const DenseRow* row : rows) {
    const double us = predicted ? row->untuned_us : row->tuned_us;
    const double said = predicted ? row->predicted_us : row->tuned_us;
    if (us <= 0 || said <= 0) continue;
    ++out.rows;
    const DenseVerdict verdict =
        verdict_of({said * 1e-6, !predicted, estimated_us(*row, rates) * 1e-6, false});
    out.close += verdict == DenseVerdict::kClose ? 1 : 0;
    out.wrong_triangle += verdict == DenseVerdict::kTriangle && us > kWrong * row->dense_us ? 1 : 0;
    out.wrong_dense += verdict == DenseVerdict::kDense && row->dense_us > kWrong * us ? 1 : 0;
  }
  return out;
}

double objective(const std::vector<const DenseRow*>& rows, const Rates& rates) {
  double sum = 0;
  for (const DenseRow* row : rows)
    sum += std::min(kMostError, std::fabs(std::log(estimated_us(*row, &rates) / row->dense_us)));
  return sum / static_cast<double>(rows.size());
}

}  // namespace

llvm::Expected<std::vector<DenseRow>> read_dense_rows(const std::vector<std::string>& paths) {
  std::vector<DenseRow> out;
  for (const std::string& path : paths) {
    auto text = cache::read_input(path, "", "name what `trigen-lab sweep` wrote, JSON lines");
    if (!text) return text.takeError();
    const bool held = is_held(path);
    std::map<std::pair<std::string, std::string>, size_t> seen;  // device, problem
    llvm::SmallVector<llvm::StringRef, 0> lines;
    llvm::StringRef(*text).split(lines, '\n');
    for (const llvm::StringRef line : lines) {
      const auto result = read_json_line(line.str());
      if (!result || result->got <= 0 || (result->over != "cublas" && result->over != "pass")) continue;
      auto problem = parse_problem(result->problem);
      auto gpu = find_gpu(result->device);
      if (!problem || !gpu) {  // steps, rows of decode, GPUs without a row
        llvm::consumeError(problem.takeError());
        llvm::consumeError(gpu.takeError());
        continue;
      }
      DenseRow row;
      row.problem = *problem, row.gpu = *gpu, row.device = result->device, row.file = path;
      for (const TableArm& arm : result->arms) {
        if (!is_dense(arm.name) || (row.dense_us > 0 && arm.median_s * 1e6 >= row.dense_us)) continue;
        row.dense_us = arm.median_s * 1e6;
        row.peer = arm.name;
      }
      if (result->arms.empty() && is_dense(result->peer))
        row.dense_us = result->peer_seconds * 1e6, row.peer = result->peer;
      if (row.dense_us <= 0 || !is_whole_product(problem->op)) continue;
      if (lacks_im2col(*problem, *result)) continue;
      row.held = held;
      const auto [at, fresh] = seen.emplace(std::pair(row.device, to_string(*problem)), out.size());
      if (fresh) out.push_back(std::move(row));
      DenseRow& kept = out[at->second];
      if (result->table == "untuned") {
        kept.untuned_us = result->seconds * 1e6;
        const DeviceModel model = model_of(**gpu);
        // A prediction is of the kernel that was timed, while it still is the model's choice.
        auto ranked = list_candidates(*problem, **find_target((*gpu)->name), nullptr, &model);
        if (!ranked) return ranked.takeError();
        if (!ranked->empty() && describe(ranked->front()) == result->kernel)
          kept.predicted_us = predict(ranked->front(), model).seconds * 1e6;
      } else if (result->table == "tuned") {
        kept.tuned_us = result->seconds * 1e6;
      }
    }
  }
  // A fitted problem is no test in a later run of it.
  const auto fitted = [&, all = out](const DenseRow& row) {
    return row.held && llvm::any_of(all, [&](const DenseRow& other) {
             const Problem &a = row.problem, &b = other.problem;
             return !other.held && a.B == b.B && a.H == b.H && a.T == b.T && a.D == b.D && a.K == b.K;
           });
  };
  llvm::erase_if(out, fitted);
  if (out.empty())
    return make_error(ErrorKind::kBadRequest,
                      "no row there has cuBLAS's times; name what `trigen-lab sweep` wrote, JSON lines");
  return out;
}

double estimated_us(const DenseRow& row, const Rates* rates) {
  return dense_seconds(row.problem, *row.gpu, device_of(row, rates)) * 1e6;
}

std::vector<DenseFigures> dense_figures(const std::vector<DenseRow>& rows, const Rates* rates) {
  std::map<std::pair<std::string, bool>, std::vector<const DenseRow*>> groups;
  for (const DenseRow& row : rows) groups[{row.gpu->model_device.str(), row.held}].push_back(&row);
  std::vector<DenseFigures> out;
  for (const auto& [key, of] : groups) {
    DenseFigures f;
    f.gpu = key.first, f.held = key.second, f.rows = of.size();
    std::vector<double> logs, errors;
    for (const DenseRow* row : of) {
      logs.push_back(std::log(estimated_us(*row, rates) / row->dense_us));
      errors.push_back(std::fabs(logs.back()));
    }
    f.within = static_cast<double>(llvm::count_if(errors, [](double e) { return e <= std::log(kWithin); })) /
               static_cast<double>(of.size());
    std::sort(errors.begin(), errors.end());
    f.nine_in_ten = errors[(errors.size() - 1) * 9 / 10];
    f.error = summarize(errors).median;
    f.bias = summarize(logs).median;
    f.predicted = verdicts_of(of, rates, true);
    f.timed = verdicts_of(of, rates, false);
    out.push_back(std::move(f));
  }
  return out;
}

llvm::Expected<DenseFit> fit_dense(const std::string& table, const std::vector<DenseRow>& rows) {
  auto rates = Rates::parse(table);
  if (!rates) return rates.takeError();
  std::vector<const DenseRow*> fit;
  std::set<std::string> files;
  for (const DenseRow& row : rows) {
    if (row.held) continue;
    fit.push_back(&row);
    files.insert(row.file.substr(row.file.rfind('/') + 1));
  }
  if (fit.empty())
    return make_error(ErrorKind::kBadRequest,
                      "every row there is held out: no file there is one that [dense] of the rates names");
  std::vector<Rate> all(rates->all().begin(), rates->all().end());
  RatesTable text(table);
  const auto with = [&](size_t at, double value) {
    std::vector<Rate> tried = all;
    tried[at].value = value;
    RatesTable other = text;
    other.set(tried, at);
    return objective(fit, llvm::cantFail(Rates::parse(other.text())));
  };
  DenseFit out;
  double best = out.before = objective(fit, *rates);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].section != "dense" || all[i].kind != Rate::Kind::kFitted) continue;
      double value = all[i].value;
      for (const double factor : {1.01, 1.03, 1.1, 1.3}) {
        for (const double step : {factor, 1 / factor}) {
          const double tried = std::strtod(format("%.3g", all[i].value * step).c_str(), nullptr);
          if (tried > 1 && llvm::StringRef(all[i].name).endswith("_share")) continue;
          const double now = with(i, tried);
          if (now < best - 1e-5) best = now, value = tried;
        }
      }
      if (value == all[i].value) continue;
      moved = true;
      all[i].value = all[i].first = value;
      text.set(all, i);
    }
  }
  const std::string source = "bench/results/" + llvm::join(files, ", ") + ": role fit";
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].section != "dense" || all[i].kind != Rate::Kind::kFitted) continue;
    all[i].source = source;
    text.set(all, i);
  }
  out.after = best;
  out.table = text.text();
  return out;
}

}  // namespace trigen
