#include "tuner/model_fit.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "check/text.h"
#include "generator/error.h"
#include "llvm/ADT/SmallVector.h"

namespace trigen {
namespace {

// A table as lines, of which some hold rates.
class Table {
 public:
  explicit Table(const std::string& text) {
    llvm::SmallVector<llvm::StringRef, 128> lines;
    llvm::StringRef(text).split(lines, '\n');
    for (const llvm::StringRef line : lines) {
      const llvm::StringRef said = line.split('#').first.trim();
      if (!said.empty() && said.front() != '[') rates_.push_back(lines_.size());
      lines_.push_back(line.str());
    }
  }
  // The rates' lines in the order of Rates::all().
  size_t count() const { return rates_.size(); }
  void set(const std::vector<Rate>& all, size_t at) {
    const Rate& r = all[at];
    const char* kinds[] = {"datasheet", "fitted", "assumed"};
    lines_[rates_[at]] = format("%-15s %-6s %-8s %-10s %s", r.name.c_str(), format("%.4g", r.value).c_str(),
                                r.unit.c_str(), kinds[static_cast<int>(r.kind)], r.source.c_str());
  }
  std::string text() const {
    std::string out;
    for (size_t i = 0; i < lines_.size(); ++i) out += (i > 0 ? "\n" : "") + lines_[i];
    return out;
  }

 private:
  std::vector<std::string> lines_;
  std::vector<size_t> rates_;
};

// What a problem adds to the objective.
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
  return std::log(chosen / shares / best) + errors / weights / 4;
}

// The files with recordings whose predictions a rate moves: "tests/data/samples/h200_forward.txt,
// h200_decode.txt: role fit". Of folders with a file each, the folder.
std::string source_of(const Rates& without, const Rates& with, const std::vector<RecordedSpace>& spaces) {
  namespace fs = std::filesystem;
  std::map<std::string, int> count;
  for (const RecordedSpace& space : spaces) ++count[space.file];
  std::set<std::string> files;
  std::set<std::string> folders;
  for (const RecordedSpace& space : spaces) {
    if (space.role != "fit" || predicted_us(space, &without) == predicted_us(space, &with)) continue;
    if (count[space.file] > 1)
      files.insert(space.file);
    else
      folders.insert(fs::path(space.file).parent_path().string());
  }
  std::string out;
  for (const std::string& file : files) out += out.empty() ? file : ", " + fs::path(file).filename().string();
  for (const std::string& folder : folders) out += (out.empty() ? "" : ", ") + folder;
  return (out.empty() ? "recordings" : out) + ": role fit";
}

double rounded(double value) { return std::strtod(format("%.3g", value).c_str(), nullptr); }

bool is_share(llvm::StringRef name) {
  return name.endswith("_share") || name.endswith("_most") || name == "usable_l2";
}

class Descent {
 public:
  Descent(std::string table, const Rates& rates, const std::vector<RecordedSpace>& spaces,
          const FitOptions& options)
      : table_(table), all_(rates.all().begin(), rates.all().end()), spaces_(spaces), options_(options) {
    for (const Rate& rate : all_) first_.push_back(rate.value);
    objective_ = fit_objective(rates, spaces_, options_);
  }
  double objective() const { return objective_; }

  // One pass over all rates; how many changed.
  int sweep() {
    int changed = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].kind == Rate::Kind::kDatasheet || all_[i].value <= 0) continue;
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
      if (all_[i].value == old.value) continue;
      Table without = table_;
      Rate same = old;
      std::swap(all_[i], same);
      without.set(all_, i);
      std::swap(all_[i], same);
      all_[i].kind = Rate::Kind::kFitted;
      all_[i].source = source_of(llvm::cantFail(Rates::parse(without.text())),
                                 llvm::cantFail(Rates::parse(table_.text())), spaces_);
      table_.set(all_, i);
      out.changes.push_back({old.section, old.name, old.unit, old.value, all_[i].value});
    }
    out.table = table_.text();
    out.after = fit_objective(llvm::cantFail(Rates::parse(out.table)), spaces_, options_);
    return out;
  }

 private:
  // The best of a few steps up and down, where it pays.
  bool improve(size_t at) {
    const double before = all_[at].value;
    double best_value = before, best = objective_ - options_.least;
    for (const double factor : {1.02, 1.07, 1.2, 1.5}) {
      for (const double step : {factor, 1 / factor}) {
        const double value = rounded(before * step);
        if (value == before || (is_share(all_[at].name) && value > 1)) continue;
        const double objective = try_value(at, value);
        if (objective >= best) continue;
        best = objective;
        best_value = value;
      }
    }
    all_[at].value = best_value;
    if (best_value == before) return false;
    table_.set(all_, at);
    objective_ = best;
    return true;
  }

  double try_value(size_t at, double value) {
    const double before = std::exchange(all_[at].value, value);
    Table tried = table_;
    tried.set(all_, at);
    double prior = 0;
    for (size_t i = 0; i < all_.size(); ++i)
      if (first_[i] > 0) prior += std::pow(std::log(all_[i].value / first_[i]), 2);
    all_[at].value = before;
    return fit_objective(llvm::cantFail(Rates::parse(tried.text())), spaces_, options_) +
           options_.prior * prior;
  }

  Table table_;
  std::vector<Rate> all_;
  std::vector<double> first_;
  const std::vector<RecordedSpace>& spaces_;
  const FitOptions& options_;
  double objective_ = 0;
};

}  // namespace

double fit_objective(const Rates& rates, const std::vector<RecordedSpace>& spaces,
                     const FitOptions& options) {
  double sum = 0;
  double problems = 0;
  for (const RecordedSpace& space : spaces) {
    if (space.role != "fit") continue;
    sum += of_space(space, predicted_us(space, &rates), options.closeness);
    ++problems;
  }
  return sum / problems;
}

llvm::Expected<RatesFit> fit_rates(const std::string& table, const std::vector<RecordedSpace>& spaces,
                                   const FitOptions& options) {
  auto rates = Rates::parse(table);
  if (!rates) return rates.takeError();
  std::set<std::string> devices;
  for (const RecordedSpace& space : spaces)
    if (space.role == "fit") devices.insert(space.target->model_device.str());
  if (devices.empty())
    return make_error(ErrorKind::kBadRequest, "no recording there has the role fit; name others");
  if (devices.size() > 1)
    return make_error(ErrorKind::kBadRequest, "recordings of several devices, " + *devices.begin() + " and " +
                                                  *devices.rbegin() + "; name those of one");
  Descent descent(table, *rates, spaces, options);
  const double before = descent.objective();
  for (int sweep = 0; sweep < options.sweeps; ++sweep) {
    const int changed = descent.sweep();
    if (options.progress) options.progress(sweep, descent.objective());
    if (changed == 0) break;
  }
  RatesFit out = descent.result(*rates);
  out.before = before;
  return out;
}

}  // namespace trigen
