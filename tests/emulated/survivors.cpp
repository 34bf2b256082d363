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
# eight such instructions of the line, in each of the kernels before it; same: no bit of an output changes; near: bits
# change, and the gate takes the outputs for right. Last the share of mutants that were found, by kernel and kind.
)";
constexpr llvm::StringLiteral kPlaces = " @ ";  // between a mutant and its kernels

std::string rest_of(std::istringstream& words) {
  std::string rest;
  std::getline(words >> std::ws, rest);
  return rest;
}

// "simt sm80 #1/2 same, wgmma_forward #3/8 near": adds a survivor each, like `one` but for the kernel's part.
bool read_places(llvm::StringRef text, Survivor one, std::vector<Survivor>* out) {
  llvm::SmallVector<llvm::StringRef, 8> places, words;
  text.split(places, ", ");
  for (const llvm::StringRef place : places) {
    words.clear();
    place.split(words, ' ');
    if (words.size() < 3) return false;
    const llvm::StringRef kind = words.pop_back_val();
    const std::string number = words.pop_back_val().str();
    if (std::sscanf(number.c_str(), "#%d/%d", &one.number, &one.count) != 2) return false;
    if (kind != "near" && kind != "same") return false;
    --one.number;
    one.kind = kind == "near" ? Verdict::kNear : Verdict::kSame;
    for (const llvm::StringRef subject : words) {
      if (subject.empty()) return false;
      one.subject = subject.str();
      out->push_back(one);
    }
  }
  return true;
}

// "sync 3 of 8, bound 1 of 2"
bool read_rates(llvm::StringRef text, std::map<std::string, Rate>* rates) {
  llvm::SmallVector<llvm::StringRef, 8> kinds, words;
  text.split(kinds, ", ");
  for (const llvm::StringRef kind : kinds) {
    words.clear();
    kind.split(words, ' ');
    if (words.size() != 4 || words[2] != "of") return false;
    Rate& rate = (*rates)[words[0].str()];
    if (words[1].getAsInteger(10, rate.killed) || words[3].getAsInteger(10, rate.made)) return false;
  }
  return true;
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
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string first;
    if (line[0] == '#' || !(words >> first)) continue;
    bool good = true;
    if (line.rfind("  ", 0) == 0) {
      const auto [name, places] = llvm::StringRef(line).drop_front(2).rsplit(kPlaces);
      Survivor one;
      one.name = name.str();
      one.line = number;
      good = !table.reasons.empty();
      if (good) one.reason = table.reasons.back();
      good = good && read_places(places, one, &table.survivors);
    } else if (first == "because") {
      static const std::regex claim("(never|found by \\w+): .+|(?!never|found by ).+");
      table.reasons.push_back(rest_of(words));
      good = std::regex_match(table.reasons.back(), claim);
    } else if (first == "compiler") {
      table.compiler = rest_of(words);
    } else if (first == "rate") {
      std::string subject;
      words >> subject;
      good = read_rates(rest_of(words), &table.rates[subject]);
    } else {
      good = false;
    }
    if (!good)
      return make_error(ErrorKind::kBadRequest, path + ":" + std::to_string(number) + ": '" + line +
                                                    "' is no compiler, because (never: TEXT, found by "
                                                    "KERNEL: TEXT or TEXT), mutant with kernels or rate");
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
      // Kernels of one place and kind stand together, in the order of their names.
      std::sort(all.begin(), all.end(), [](const Survivor* a, const Survivor* b) {
        return std::tie(a->count, a->number, a->kind, a->subject) <
               std::tie(b->count, b->number, b->kind, b->subject);
      });
      out << "  " << name << kPlaces.str();
      for (size_t i = 0; i < all.size(); ++i) {
        const Survivor& one = *all[i];
        out << one.subject << " ";
        const Survivor* next = i + 1 < all.size() ? all[i + 1] : nullptr;
        if (next != nullptr &&
            std::tie(next->count, next->number, next->kind) == std::tie(one.count, one.number, one.kind))
          continue;
        out << "#" << one.number + 1 << "/" << one.count << (one.kind == Verdict::kNear ? " near" : " same")
            << (next != nullptr ? ", " : "\n");
      }
    }
  }
  out << "\n";
  for (const auto& [subject, kinds] : table.rates) {
    out << "rate " << subject;
    const char* between = " ";
    for (const auto& [kind, rate] : kinds) {
      out << between << kind << " " << rate.killed << " of " << rate.made;
      between = ", ";
    }
    out << "\n";
  }
  out.flush();
  if (!out) return make_error(ErrorKind::kBadRequest, path + ": cannot be written");
  return llvm::Error::success();
}

}  // namespace trigen::mutations
