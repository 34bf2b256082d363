// A kernel with a fault planted in it is wrong, and something must say so: the emulated device by a report, or
// the correctness gate. mutations.txt lists the kernels, survivors.txt the faults that nothing notices, each
// with the reason, or as unexplained; any other survivor fails, and so does a listed one that is found now.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../thorough.h"
#include "survivors.h"

namespace trigen::mutations {

// In a test's name.
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.choice << " " << subject.problem; }

namespace {

// Of a quick run: one of so many kernels of a family, and of their mutants.
constexpr int kKernelShare = 3, kSyncShare = 48, kValueShare = 96;

std::vector<Subject> subjects() {
  auto read = read_subjects(TRIGEN_MUTATION_LIST);
  if (read) return *read;
  ADD_FAILURE() << llvm::toString(read.takeError());
  return {};
}

// The place of a kernel among its family's.
int place_in_family(const Subject& subject) {
  const auto family = [](const Subject& one) {
    return llvm::StringRef(one.choice).take_until([](char c) { return c == ':' || c == ','; });
  };
  const std::vector<Subject> all = subjects();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const Subject& one) {
    return one.line < subject.line && family(one) == family(subject);
  }));
}

// The table to be written, instead of a comparison with the one that is checked in.
const char* written_table() { return std::getenv("TRIGEN_MUTATION_WRITE"); }

std::vector<Mutant> all_mutants(const Subject& subject, const Listing& listing) {
  std::vector<Mutant> out;
  int others = 0;  // mutants of other kinds than sync
  for (Mutant& mutant : find_mutants(listing))
    if (mutant.kind == "sync" || (subject.values > 0 && others++ % subject.values == 0))
      out.push_back(std::move(mutant));
  return out;
}

// The entry of the survivor that `mutant` is said to be; null: it should be found.
const Survivor* entry_of(const Mutant& mutant, const std::vector<Survivor>& listed) {
  for (const Survivor& one : listed)
    if (one.name == mutant.name() && one.number == mutant.number) return &one;
  return nullptr;
}

// The part that this run takes: of every kind shares of those that should be found, one at least, and of the
// survivors. Not the same part of every kernel.
std::vector<Mutant> part_of(const std::vector<Mutant>& all, int line, const std::vector<Survivor>& listed) {
  if (written_table() != nullptr) return all;
  std::map<std::pair<std::string, bool>, std::vector<Mutant>> groups;
  for (const Mutant& mutant : all)
    groups[{mutant.kind, entry_of(mutant, listed) != nullptr}].push_back(mutant);
  std::vector<Mutant> out;
  for (const auto& [which, group] : groups) {
    const int share = which.first == "sync" ? kSyncShare : kValueShare,
              count = static_cast<int>(group.size());
    const int first = which.second || count >= share ? line : -(line % count);
    for (int i = 0; i < count; ++i)
      if (takes(first + i, share)) out.push_back(group[i]);
  }
  return out;
}

// The findings of this run for one subject.
struct Findings {
  std::vector<Survivor> survivors;
  std::vector<Mutant> tried;
  std::map<std::string, Rate> rates;
};

Findings try_mutants(const std::vector<Mutant>& part, const Subject& subject, Patient& patient,
                     const std::vector<Survivor>& listed) {
  Findings out;
  for (const Mutant& mutant : part) {
    const Survivor* entry = entry_of(mutant, listed);
    // A trap that goes unnoticed says that every other change there does, too.
    const bool trap = entry != nullptr && entry->never_runs() && written_table() == nullptr;
    const Verdict verdict = patient.judge(trap ? as_traps(patient.listing(), mutant) : mutant);
    EXPECT_TRUE(!trap || verdict.kind == Verdict::kSame)
        << "survivors.txt:" << entry->line
        << ": 'because never', and a trap there is noticed: " << verdict.found;
    EXPECT_NE(verdict.kind, Verdict::kRefused) << mutant.name() << ": " << verdict.found;
    out.tried.push_back(mutant);
    Rate& rate = out.rates[mutant.kind];
    ++rate.made;
    std::printf("%s #%d/%d line %zu (%s): %s\n", mutant.name().c_str(), mutant.number + 1, mutant.count,
                mutant.edits[0].line + 1,
                llvm::StringRef(patient.listing().lines[mutant.edits[0].line].text).trim().str().c_str(),
                verdict.kind == Verdict::kNear   ? "NEAR"
                : verdict.kind == Verdict::kSame ? "SAME"
                                                 : verdict.found.substr(0, 160).c_str());
    if (verdict.kind == Verdict::kKilled)
      ++rate.killed;
    else if (verdict.kind != Verdict::kRefused)
      out.survivors.push_back({"", subject.name, mutant.name(), mutant.number, mutant.count, verdict.kind});
  }
  return out;
}

std::string in_words(const Survivor& one) {
  return one.name + " #" + std::to_string(one.number + 1) + "/" + std::to_string(one.count) +
         (one.kind == Verdict::kNear ? " (near)" : " (same bits)");
}

// Reasons that name this kernel as the one that finds their mutant. Its survivors are all in the table, or its
// own test fails.
void check_finds(const std::string& subject, const std::vector<Mutant>& all, const SurvivorTable& table) {
  const std::vector<Survivor> listed = table.of(subject);
  for (const Survivor& one : table.survivors) {
    if (one.finder() != subject) continue;
    const auto same = [&](const auto& other) { return other.name == one.name; };
    EXPECT_TRUE(
        std::any_of(all.begin(), all.end(), [&](const Mutant& it) { return it.name() == one.name; }) &&
        std::none_of(listed.begin(), listed.end(), same))
        << "survivors.txt:" << one.line << ": 'because found by " << subject
        << "', which has no such mutant or does not find them all: " << one.name;
  }
}

void compare(const Subject& subject, const Findings& found, const SurvivorTable& table) {
  const std::vector<Survivor> listed = table.of(subject.name);
  const std::vector<Subject> kernels = subjects();
  for (const Survivor& one : listed)
    EXPECT_TRUE(one.finder().empty() ||
                std::any_of(kernels.begin(), kernels.end(),
                            [&](const Subject& kernel) { return kernel.name == one.finder(); }))
        << "survivors.txt:" << one.line << ": no kernel of mutations.txt is " << one.finder();
  for (const Survivor& one : found.survivors)
    EXPECT_TRUE(std::find(listed.begin(), listed.end(), one) != listed.end())
        << "goes unnoticed and is not in survivors.txt: " << in_words(one);
  for (const Survivor& one : listed) {
    const bool tried = std::any_of(found.tried.begin(), found.tried.end(), [&](const Mutant& mutant) {
      return mutant.name() == one.name && mutant.number == one.number;
    });
    if (tried || thorough()) {
      EXPECT_TRUE(std::find(found.survivors.begin(), found.survivors.end(), one) != found.survivors.end())
          << "is in survivors.txt and was found, or does not exist: " << in_words(one);
    }
  }
  const auto rates = table.rates.find(subject.name);
  if (rates != table.rates.end())
    for (const auto& [kind, rate] : rates->second) {
      const auto here = found.rates.find(kind);
      EXPECT_TRUE(rate.killed == 0 || (here != found.rates.end() && here->second.killed > 0))
          << "no mutant of the kind " << kind << " was tried and found";
    }
  if (!thorough()) return;
  EXPECT_TRUE(rates != table.rates.end() && rates->second == found.rates)
      << "the rates of survivors.txt are not this run's";
}

class Mutation : public ::testing::TestWithParam<Subject> {};

TEST_P(Mutation, IsFound) {
  const Subject& subject = GetParam();
  TRIGEN_LEAVES_OUT(written_table() == nullptr && !takes(place_in_family(subject), kKernelShare));
  auto device = Device::open("emulated:sm_90a");  // runs every older target's PTX, too
  ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
  auto created = Patient::create(subject, **device);
  if (!created) {
    const ErrorText error = take_error(created.takeError());
    if (error.kind == ErrorKind::kNoCompiler) GTEST_SKIP() << error.message;
    FAIL() << error.message;
  }
  Patient& patient = **created;
  for (const char* order : {"late", "early", "random:1", "shuffled:3"})
    EXPECT_EQ(patient.run(patient.listing().ptx(), order), "");
  const std::string path = written_table() != nullptr ? written_table() : TRIGEN_MUTATION_SURVIVORS;
  auto table = read_survivors(path);
  ASSERT_TRUE(static_cast<bool>(table)) << llvm::toString(table.takeError());
  if (written_table() == nullptr && table->compiler != patient.compiler())
    GTEST_SKIP() << "survivors.txt is of " << table->compiler << ", here is " << patient.compiler();
  const std::vector<Mutant> all = all_mutants(subject, patient.listing());
  const std::vector<Survivor> listed = table->of(subject.name);
  const Findings found = try_mutants(part_of(all, subject.line, listed), subject, patient, listed);
  EXPECT_FALSE(found.tried.empty());
  if (written_table() == nullptr) {
    check_finds(subject.name, all, *table);
    return compare(subject, found, *table);
  }
  table->compiler = patient.compiler();
  table->replace(subject.name, found.survivors, found.rates);
  auto error = write_survivors(path, *table);
  EXPECT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Mutation, ::testing::ValuesIn(subjects()),
                         [](const ::testing::TestParamInfo<Subject>& info) { return info.param.name; });

}  // namespace
}  // namespace trigen::mutations
