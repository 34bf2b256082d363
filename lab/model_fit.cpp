#include "lab/model_fit.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "check/text.h"
#include "generator/error.h"
#include "lab/rates_table.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

// Weight of the errors beside the loss: by four folds of the role fit, the one of 0.25, 0.6 and 1.5 whose choices
// on problems not fitted lose least.
constexpr double kErrorShare = 1.5;
constexpr llvm::StringLiteral kUnmoved = "no recording moves it; ";

// A problem's part of the objective.
double of_space(const RecordedSpace& space, const std::vector<double>& predicted, double closeness) {
  const double first = *std::min_element(predicted.begin(), predicted.end());
  double best = HUGE_VAL;
  for (const RecordedSpace::Row& row : space.rows) best = std::min(best, row.us);
  double chosen = 0, shares = 0, errors = 0, weights = 0;
  for (size_t i = 0; i < predicted.size(); ++i) {
    const double share = std::exp(-(predicted[i] / first - 1) / closeness);
    chosen += share * space.rows[i].us;
    shares += share;
    const double weight = best / space.rows[i].us;
    errors += weight * std::fabs(std::log(predicted[i] / space.rows[i].us));
    weights += weight;
  }
  return std::log(chosen / shares / best) + kErrorShare * errors / weights;
}

// The differences of two tables.
class Changed {
 public:
  Changed(const Rates& before, const Rates& after)
      : before_(before), after_(after), device_(!(before.device() == after.device())) {}
  // `before`, a space's predictions, with those anew of rows that read what changed; nullopt: no row does.
  std::optional<std::vector<double>> predicted(const RecordedSpace& space,
                                               const std::vector<double>& before) {
    std::optional<std::vector<double>> out;
    const DeviceModel device = by(after_, space);
    for (size_t i = 0; i < before.size(); ++i) {
      if (!reads(space.rows[i].work)) continue;
      if (!out) out = before;
      (*out)[i] = predict(space.rows[i].work, *space.target, device).seconds * 1e6;
    }
    return out;
  }
  // Is any prediction of the space another one?
  bool moves(const RecordedSpace& space) {
    const DeviceModel before = by(before_, space), after = by(after_, space);
    return llvm::any_of(space.rows, [&](const RecordedSpace::Row& row) {
      return reads(row.work) && predict(row.work, *space.target, before).seconds !=
                                    predict(row.work, *space.target, after).seconds;
    });
  }

 private:
  static DeviceModel by(const Rates& rates, const RecordedSpace& space) {
    DeviceModel device = model_of(*space.target);
    device.rates = &rates;
    return device;
  }
  bool reads(const Work& work) {
    return device_ || loop(work.rates) ||
           llvm::any_of(work.passes, [&](const Pass& each) { return pass(each.rates); });
  }
  bool loop(llvm::StringRef name) {
    const auto [found, is_new] = loops_.try_emplace(name);
    if (is_new) found->second = !(before_.loop(name) == after_.loop(name));
    return found->second;
  }
  bool pass(llvm::StringRef name) {
    const auto [found, is_new] = passes_.try_emplace(name);
    if (is_new) found->second = !(before_.pass(name) == after_.pass(name));
    return found->second;
  }
  const Rates &before_, &after_;
  bool device_;
  std::map<llvm::StringRef, bool> loops_, passes_;  // by the section's name
};

// The objective of one table after another: only candidates that read a changed section are predicted anew.
class Objective {
 public:
  Objective(const Rates& rates, const std::vector<const RecordedSpace*>& spaces, double closeness)
      : rates_(rates), closeness_(closeness) {
    for (const RecordedSpace* space : spaces) {
      const std::vector<double> predicted = predicted_us(*space, &rates);
      spaces_.push_back({space, predicted, of_space(*space, predicted, closeness)});
    }
  }
  double value() const {
    double sum = 0;
    for (const Known& known : spaces_) sum += known.value;
    return sum / static_cast<double>(spaces_.size());
  }
  double with(const Rates& rates) const {
    Changed changed(rates_, rates);
    double sum = 0;
    for (const Known& known : spaces_) {
      const auto predicted = changed.predicted(*known.space, known.predicted);
      sum += predicted ? of_space(*known.space, *predicted, closeness_) : known.value;
    }
    return sum / static_cast<double>(spaces_.size());
  }
  void set(const Rates& rates) {
    Changed changed(rates_, rates);
    for (Known& known : spaces_) {
      auto predicted = changed.predicted(*known.space, known.predicted);
      if (!predicted) continue;
      known.predicted = std::move(*predicted);
      known.value = of_space(*known.space, known.predicted, closeness_);
    }
    rates_ = rates;
  }

 private:
  struct Known {
    const RecordedSpace* space;
    std::vector<double> predicted;
    double value;
  };

  Rates rates_;
  double closeness_;
  std::vector<Known> spaces_;
};

std::vector<const RecordedSpace*> of_role_fit(const std::vector<RecordedSpace>& spaces) {
  std::vector<const RecordedSpace*> out;
  for (const RecordedSpace& space : spaces)
    if (space.role == "fit") out.push_back(&space);
  return out;
}

// The files with recordings whose predictions a rate moves, empty where none does: "tests/data/samples/h200_forward.zst,
// h200_decode.zst: role fit". Of folders with a file each, the folder.
std::string source_of(const Rates& rates, const std::vector<Rates>& others,
                      const std::vector<const RecordedSpace*>& spaces) {
  namespace fs = std::filesystem;
  std::map<std::string, int> count;
  for (const RecordedSpace* space : spaces) ++count[space->file];
  std::set<std::string> files;
  std::set<std::string> folders;
  std::vector<Changed> changes;
  changes.reserve(others.size());
  for (const Rates& other : others) changes.emplace_back(rates, other);
  for (const RecordedSpace* space : spaces) {
    if (llvm::none_of(changes, [&](Changed& changed) { return changed.moves(*space); })) continue;
    if (count[space->file] > 1)
      files.insert(space->file);
    else
      folders.insert(fs::path(space->file).parent_path().string());
  }
  std::string out;
  for (const std::string& file : files) out += out.empty() ? file : ", " + fs::path(file).filename().string();
  for (const std::string& folder : folders) out += (out.empty() ? "" : ", ") + folder;
  return out.empty() ? "" : out + ": role fit";
}

double rounded(double value) { return std::strtod(format("%.3g", value).c_str(), nullptr); }

bool is_share(llvm::StringRef name) {
  return name.endswith("_share") || name.endswith("_most") || name == "usable_l2";
}

// Times as long as without: never less than 1.
bool is_times(llvm::StringRef name) {
  return name == "alone" || name == "doubt" || name == "shift" || name == "split_lines" ||
         name == "f32_products" || name == "two_stages";
}

// Predictions of recordings know no compiler's report: their spills are the estimate's guesses.
bool is_of_spills(llvm::StringRef name) { return name.contains("spill") || name == "local_bytes"; }

class Descent {
 public:
  Descent(const std::string& table, const Rates& rates, const std::vector<const RecordedSpace*>& spaces,
          const FitOptions& options)
      : table_(table),
        all_(rates.all().begin(), rates.all().end()),
        spaces_(spaces),
        options_(options),
        losses_(rates, spaces, options.closeness),
        objective_(losses_.value() + prior()) {}
  double objective() const { return objective_; }
  double loss() const { return losses_.value(); }

  // One pass over all rates; how many changed.
  int sweep() {
    int changed = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].kind == Rate::Kind::kDatasheet || all_[i].value <= 0 || is_of_spills(all_[i].name) ||
          all_[i].section == "dense")  // fitted to peers (lab/dense_check.h)
        continue;
      bool moved = false;
      while (improve(i)) moved = true;
      changed += moved ? 1 : 0;
    }
    return changed;
  }

  RatesFit result(const Rates& before) {
    RatesFit out;
    for (size_t i = 0; i < all_.size(); ++i) {
      const Rate& old = before.all()[i];
      if (all_[i].value != old.value) {
        out.changes.push_back({old.section, old.name, old.unit, old.value, all_[i].value});
        all_[i].kind = Rate::Kind::kFitted;
      }
      if (all_[i].kind == Rate::Kind::kFitted && all_[i].section != "dense") name_recordings(i);
    }
    out.table = table_.text();
    out.after = losses_.value();
    return out;
  }

 private:
  // As its source, the recordings that the rate moves. One that none of them moves was not fitted to them.
  void name_recordings(size_t at) {
    Rate& rate = all_[at];
    const double value = rate.value;
    std::vector<Rates> others;
    for (const double factor : {1.5, 1 / 1.5}) {
      rate.value = value * factor;
      RatesTable other = table_;
      other.set(all_, at);
      others.push_back(llvm::cantFail(Rates::parse(other.text())));
    }
    rate.value = value;
    const std::string source = source_of(llvm::cantFail(Rates::parse(table_.text())), others, spaces_);
    if (source.empty()) {
      rate.kind = Rate::Kind::kAssumed;
      if (!llvm::StringRef(rate.source).startswith(kUnmoved)) rate.source = (kUnmoved + rate.source).str();
    } else {
      rate.source = source;
    }
    table_.set(all_, at);
  }

  // The penalty for the distance from the first values.
  double prior() const {
    double sum = 0;
    for (const Rate& rate : all_)
      if (rate.first > 0) sum += std::pow(std::log(rate.value / rate.first), 2);
    return options_.prior * sum;
  }

  // The best of a few steps up and down, where it pays.
  bool improve(size_t at) {
    const double before = all_[at].value;
    double best_value = before, best = objective_ - options_.least;
    for (const double factor : {1.02, 1.07, 1.2, 1.5}) {
      for (const double step : {factor, 1 / factor}) {
        const double value = rounded(before * step);
        if (value == before || (is_share(all_[at].name) && value > 1) ||
            (is_times(all_[at].name) && value < 1))
          continue;
        const double objective = try_value(at, value);
        if (objective >= best) continue;
        best = objective;
        best_value = value;
      }
    }
    all_[at].value = best_value;
    if (best_value == before) return false;
    table_.set(all_, at);
    losses_.set(llvm::cantFail(Rates::parse(table_.text())));
    objective_ = best;
    return true;
  }

  double try_value(size_t at, double value) {
    const double before = std::exchange(all_[at].value, value);
    RatesTable tried = table_;
    tried.set(all_, at);
    const double objective = losses_.with(llvm::cantFail(Rates::parse(tried.text()))) + prior();
    all_[at].value = before;
    return objective;
  }

  RatesTable table_;
  std::vector<Rate> all_;
  const std::vector<const RecordedSpace*>& spaces_;
  const FitOptions& options_;
  Objective losses_;
  double objective_;
};

}  // namespace

double fit_objective(const Rates& rates, const std::vector<RecordedSpace>& spaces,
                     const FitOptions& options) {
  return Objective(rates, of_role_fit(spaces), options.closeness).value();
}

llvm::Expected<RatesFit> fit_rates(const std::string& table, const std::vector<RecordedSpace>& spaces,
                                   const FitOptions& options) {
  auto rates = Rates::parse(table);
  if (!rates) return rates.takeError();
  const std::vector<const RecordedSpace*> fit = of_role_fit(spaces);
  std::set<std::string> devices;
  for (const RecordedSpace* space : fit) devices.insert(space->target->model_device.str());
  if (devices.empty())
    return make_error(ErrorKind::kBadRequest, "no recording there has the role fit; name others");
  if (devices.size() > 1)
    return make_error(ErrorKind::kBadRequest, "recordings of several devices, " + *devices.begin() + " and " +
                                                  *devices.rbegin() + "; name those of one");
  Descent descent(table, *rates, fit, options);
  const double before = descent.loss();
  for (int sweep = 0; sweep < options.sweeps; ++sweep) {
    const int changed = descent.sweep();
    if (options.progress) options.progress(sweep, descent.objective());
    if (changed == 0) break;
  }
  RatesFit out = descent.result(*rates);
  out.before = before;
  return out;
}

llvm::Expected<ModelFigures> cross_validate(const std::string& table, std::vector<RecordedSpace> spaces,
                                            int folds, const FitOptions& options) {
  // Problems of one size are of one fold: the ops of a size, and its dtypes, are nearly each other's copies.
  const auto size_of = [](const Problem& p) { return std::tuple(p.T, p.D, p.B, p.H, p.K); };
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>, int> fold_of;
  llvm::erase_if(spaces, [](const RecordedSpace& space) { return space.role != "fit"; });
  for (const RecordedSpace& space : spaces) fold_of[size_of(space.problem)] = 0;
  int next = 0;
  for (auto& [size, fold] : fold_of) fold = next++ % folds;
  auto rates = Rates::parse(table);
  if (!rates) return rates.takeError();
  std::vector<Rate> all = rates->all().vec();
  RatesTable begun(table);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].value = all[i].first;
    begun.set(all, i);
  }
  std::vector<UntunedChoice> choices;
  for (int fold = 0; fold < folds; ++fold) {
    for (RecordedSpace& space : spaces) space.role = fold_of[size_of(space.problem)] == fold ? "held" : "fit";
    auto fit = fit_rates(begun.text(), spaces, options);
    if (!fit) return fit.takeError();
    const Rates fitted = llvm::cantFail(Rates::parse(fit->table));
    llvm::append_range(choices, check_model(spaces, "held", false, &fitted).choices);
  }
  ModelFigures out;
  out.untuned = losses_of(choices);
  out.choices = std::move(choices);
  return out;
}

}  // namespace trigen
