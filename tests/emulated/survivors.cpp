#include "survivors.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <regex>
#include <sstream>

namespace trigen::mutations {
namespace {

constexpr char kHead[] =
    R"(# Mutants that nothing notices (tests/emulated/README.md says how this file is made): beneath each reason the
# mutants' kind, change and template line, and the kernels of mutations.txt where they survive. #3/8: the third of
# eight such instructions of the line; same: no bit of an output changes; near: bits change, and the gate takes
# the outputs for right. Last the share of mutants that were found, by kernel and kind.
)";

std::string rest_of(std::istringstream& words) {
  std::string rest;
  std::getline(words >> std::ws, rest);
  return rest;
}

// "wgmma_forward #3/8 same"
bool read_place(const std::string& text, Survivor* survivor) {
  std::istringstream words(text);
  std::string number, kind;
  if (!(words >> survivor->subject >> number >> kind)) return false;
  if (std::sscanf(number.c_str(), "#%d/%d", &survivor->number, &survivor->count) != 2) return false;
  --survivor->number;
  survivor->kind = kind == "near" ? Verdict::kNear : Verdict::kSame;
  return kind == "near" || kind == "same";
}

}  // namespace

std::string Survivor::finder() const {
  static const std::regex claim("found by (\\w+): .*");
  std::smatch match;
  return std::regex_match(reason, match, claim) ? match[1].str() : "";
}

bool Survivor::operator==(const Survivor& other) const {
  return subject == other.subject && name == other.name && number == other.number && count == other.count &&
         kind == other.kind;
}

std::vector<Survivor> SurvivorTable::of(const std::string& subject) const {
  std::vector<Survivor> out;
  for (const Survivor& one : survivors)
    if (one.subject == subject) out.push_back(one);
  return out;
}

void SurvivorTable::replace(const std::string& subject, std::vector<Survivor> found,
                            const std::map<std::string, Rate>& rate) {
  for (Survivor& one : found) {
    one.reason = kUnexplained;
    for (const Survivor& old : survivors) {
      if (old.name != one.name || old.reason == kUnexplained) continue;
      if (one.reason == kUnexplained || old.subject == subject) one.reason = old.reason;
      if (old.subject == subject && old.number == one.number) break;
    }
  }
  survivors.erase(std::remove_if(survivors.begin(), survivors.end(),
                                 [&](const Survivor& old) { return old.subject == subject; }),
                  survivors.end());
  survivors.insert(survivors.end(), found.begin(), found.end());
  rates[subject] = rate;
}

llvm::Expected<SurvivorTable> read_survivors(const std::string& path) {
  std::ifstream in(path);
  if (!in) return make_error(ErrorKind::kBadRequest, path + ": cannot be read");
  SurvivorTable table;
  std::string name;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string first;
    if (line[0] == '#' || !(words >> first)) continue;
    bool good = true;
    if (line.rfind("    ", 0) == 0) {
      Survivor one;
      one.name = name;
      one.line = number;
      good = !name.empty() && !table.reasons.empty() && read_place(line, &one);
      if (good) one.reason = table.reasons.back();
      table.survivors.push_back(one);
    } else if (line.rfind("  ", 0) == 0) {
      name = line.substr(2);
    } else if (first == "because") {
      static const std::regex claim("(never|found by \\w+): .+|(?!never|found by ).+");
      table.reasons.push_back(rest_of(words));
      name.clear();
      good = std::regex_match(table.reasons.back(), claim);
    } else if (first == "compiler") {
      table.compiler = rest_of(words);
    } else if (first == "rate") {
      std::string subject, kind, of;
      Rate rate;
      good = static_cast<bool>(words >> subject >> kind >> rate.killed >> of >> rate.made) && of == "of";
      table.rates[subject][kind] = rate;
    } else {
      good = false;
    }
    if (!good)
      return make_error(ErrorKind::kBadRequest, path + ":" + std::to_string(number) + ": '" + line +
                                                    "' is no compiler, because (never: TEXT, found by "
                                                    "KERNEL: TEXT or TEXT), mutant, kernel or rate");
  }
  return table;
}

llvm::Error write_survivors(const std::string& path, const SurvivorTable& table) {
  std::ofstream out(path);
  out << kHead << "\ncompiler " << table.compiler << "\n";
  std::vector<std::string> reasons = table.reasons;
  if (std::find(reasons.begin(), reasons.end(), kUnexplained) == reasons.end())
    reasons.push_back(kUnexplained);
  for (const std::string& reason : reasons) {
    std::map<std::string, std::vector<const Survivor*>> by_name;
    for (const Survivor& one : table.survivors)
      if (one.reason == reason) by_name[one.name].push_back(&one);
    if (by_name.empty()) continue;
    out << "\nbecause " << reason << "\n";
    for (auto& [name, all] : by_name) {
      out << "  " << name << "\n";
      std::sort(all.begin(), all.end(), [](const Survivor* a, const Survivor* b) {
        return std::tie(a->subject, a->number) < std::tie(b->subject, b->number);
      });
      for (const Survivor* one : all)
        out << "    " << one->subject << " #" << one->number + 1 << "/" << one->count << " "
            << (one->kind == Verdict::kNear ? "near" : "same") << "\n";
    }
  }
  out << "\n";
  for (const auto& [subject, kinds] : table.rates)
    for (const auto& [kind, rate] : kinds)
      out << "rate " << subject << " " << kind << " " << rate.killed << " of " << rate.made << "\n";
  out.flush();
  if (!out) return make_error(ErrorKind::kBadRequest, path + ": cannot be written");
  return llvm::Error::success();
}

}  // namespace trigen::mutations
