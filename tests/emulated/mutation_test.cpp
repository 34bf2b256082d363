// A kernel that lacks one synchronising instruction is wrong: the emulated device reports a fault or gives
// another answer in at least one completion order, whichever instruction it is. mutations.txt lists the
// kernels, and the instructions that are redundant there.
#include <gtest/gtest.h>

#include <cstdio>

#include "mutations.h"

namespace trigen::mutations {

// In a test's name.
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.choice << " " << subject.problem; }

namespace {

std::vector<Subject> subjects() {
  auto read = read_subjects(TRIGEN_MUTATION_LIST);
  if (read) return *read;
  ADD_FAILURE() << llvm::toString(read.takeError());
  return {};
}

class Mutation : public ::testing::TestWithParam<Subject> {};

TEST_P(Mutation, IsFound) {
  const Subject& subject = GetParam();
  auto device = Device::open("emulated:sm_90a");  // runs every older target's PTX, too
  ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
  auto store = Store::open({});
  auto created = Patient::create(subject, **device, *store);
  if (!created) {
    const ErrorText error = take_error(created.takeError());
    if (error.kind == ErrorKind::kNoCompiler) GTEST_SKIP() << error.message;
    FAIL() << error.message;
  }
  Patient& patient = **created;
  for (const char* order : {"late", "early", "random:1"}) EXPECT_EQ(patient.run(patient.ptx(), order), "");

  std::map<std::string, std::vector<Removal>> by_kind;
  for (const Removal& removal : find_removals(patient.ptx())) by_kind[removal.kind].push_back(removal);
  EXPECT_FALSE(by_kind.empty());
  for (const auto& [kind, removals] : by_kind) {
    const auto expected = subject.keeps.find(kind);
    const int most = expected == subject.keeps.end() ? 0 : expected->second;
    int survived = 0;
    std::string names;
    for (const Removal& removal : removals) {
      const std::string found = patient.find(without(patient.ptx(), removal));
      std::printf("%-28s %3d  line %5d  %s\n", kind.c_str(), removal.ordinal, removal.line,
                  found.substr(0, found.find('\n')).substr(0, 160).c_str());
      if (!found.empty()) continue;
      ++survived;
      names += "\n  " + std::to_string(removal.line) + ": " + removal.instruction;
    }
    EXPECT_LE(survived, most) << kind << " can be taken away unnoticed:" << names;
    EXPECT_GE(survived, most) << kind << ": more were expected to be redundant; mutations.txt is out of date";
  }
  for (const auto& [kind, count] : subject.keeps)
    EXPECT_TRUE(by_kind.count(kind) != 0) << kind << " is not in the kernel; mutations.txt is out of date";
}

std::string name_of(const ::testing::TestParamInfo<Subject>& info) {
  const Subject& subject = info.param;
  return subject.target + "_" + subject.choice.substr(0, subject.choice.find(':')) + "_" +
         subject.problem.substr(0, subject.problem.find(',')) + "_line" + std::to_string(subject.line);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Mutation, ::testing::ValuesIn(subjects()), name_of);

}  // namespace
}  // namespace trigen::mutations
