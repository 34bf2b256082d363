// trigen-lab, run as a developer runs it.
#include "tests/unit/cli_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Lab : public Program {
 protected:
  Lab() { program_ = TRIGEN_LAB; }
};

TEST_F(Lab, BadRequestsSayWhatIsAllowed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"replay", "/no/recording.txt"}, "no such file or directory; name files or folders that"},
      {{"replay", "/dev/zero"}, "cannot read the recording /dev/zero: it has more than 64 MiB"},
      {{"replay", "--share", "nan", "x"}, "'nan' is no decimal number"},
      {{"sweep", "1", "--print-problems", "--half", "third"}, "allowed are reported and fitting"},
      {{"sweep", "1", "--print-problems", "--unseen", "/no/list"}, "cannot read /no/list"},
      {{"sweep", "1", "--print-problems", "--unseen", "/dev/zero"},
       "cannot read /dev/zero: it has more than 64 MiB"},
      {{"tables", "/dev/zero"}, "cannot read the tables /dev/zero: it has more than 64 MiB"},
      {{"verify", "--families", "some", kProblem}, "allowed is all"},
      {{"verify", "--random", "3", kProblem}, "problem excludes --random"},
      {{"verify", "--random", "0"}, "--random"},
      {{"model", "check", "/dev/zero"}, "cannot read the recording /dev/zero: it has more than 64 MiB"},
      {{"model", "dense", "/dev/zero"}, "cannot read /dev/zero: it has more than 64 MiB"},
      {{"tun"}, "unknown command 'tun'; allowed are tables"},
      {{"timeline", kProblem}, "the clock needs a target; name one with --arch"},
  };
  for (const auto& [arguments, text] : table) {
    const Finished done = run(arguments);
    EXPECT_EQ(done.code, 2) << arguments.front() << done.err;
    EXPECT_THAT(done.err, HasSubstr(text));
    EXPECT_EQ(done.out, "") << arguments.front();
  }
}

TEST_F(Lab, TheProblemsOfTablesCanBeTuned) {
  const std::string list = folder_ + "/list.txt";
  std::ofstream(list)
      << "[one] One\nforward,dtype=f16,B=2,T=64,D=64 | ask=1.2\n"
         "[two] Two\nforward,dtype=f16,B=2,T=64,D=64,epilogue=gelu | over=plain at_most=1.1\n";
  EXPECT_EQ(run({"tables", list, "--print-problems", "--only", "one"}).out,
            "forward,dtype=f16,B=2,T=64,D=64\n");
  EXPECT_EQ(run({"tables", list, "--print-problems"}).out,
            "forward,dtype=f16,B=2,T=64,D=64\nforward,dtype=f16,B=2,T=64,D=64,epilogue=gelu\n");
}

// A claim that can fail: what is asked is missed by two problems, which are named; what they lose is met.
TEST_F(Lab, ModelCheckFailsWhereMoreIsLostThanAsked) {
  const std::string data = TRIGEN_SOURCE "/tests/data/samples";
  const Finished missed = run({"model", "check", data, "--role", "check", "--ask", "2,8,20"});
  EXPECT_EQ(missed.code, 1);
  EXPECT_THAT(missed.err, AllOf(HasSubstr("missed"), HasSubstr("grad_input,dtype=f32,B=192,H=1,T=80,D=384")));
  EXPECT_THAT(missed.out, HasSubstr("untuned choice, where it was timed"));
  EXPECT_EQ(run({"model", "check", data, "--role", "check", "--ask", "2,9,50"}).code, 0);
  EXPECT_NE(run({"model", "check", data, "--ask", "2,8"}).code, 0);
  const Finished ampere = run({"model", "check", data, "--role", "check", "--families", "mma_sm80,simt"});
  EXPECT_EQ(ampere.code, 0) << ampere.err;
  EXPECT_THAT(ampere.out, Not(HasSubstr("wgmma")));
  EXPECT_THAT(run({"model", "check", data, "--families", "mma_sm8"}).err, HasSubstr("mma_sm80"));
}

// Choices were made on recordings and on the rows of earlier runs: no later sweep reports their sizes.
TEST_F(Lab, ASweepLeavesOutWhatWasRecordedAndTimed) {
  const auto draw = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"sweep", "3", "--print-problems"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished done = run(arguments);
    EXPECT_EQ(done.code, 0) << done.err;
    std::vector<std::string> lines;
    std::istringstream text(done.out);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  };
  const std::vector<std::string> all = draw({});
  ASSERT_EQ(all.size(), 3U);
  const std::string recorded = folder_ + "/recorded.txt", timed = folder_ + "/timed.jsonl";
  std::ofstream(recorded) << "trigen recording 1\nproblem " << all[0]
                          << "\ncandidates 1\n1 chosen 1 1 1 1 1 10 simt:tile=1\n";
  std::ofstream(timed) << R"({"part": "step"})"
                       << "\n"
                       << R"({"table": "step", "problem": ")" << all[1] << " + " << all[1] << "\"}\n";
  const std::vector<std::string> rest = draw({"--unseen", recorded, "--unseen", timed});
  ASSERT_EQ(rest.size(), 3U);
  EXPECT_EQ(rest[0], all[2]);
}

TEST_F(Lab, RandomProblemsNameTheirSeed) {
  NEEDS_COMPILER("sm_80");
  const std::vector<std::string> request = {"verify",   "--random",      "3", "--seed", "7",
                                            "--device", "emulated:sm_80"};
  const Finished done = run(request);
  if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
  EXPECT_EQ(done.code, 0) << done.out << done.err;
  EXPECT_THAT(done.err, HasSubstr("random problems of seed 7"));
  EXPECT_THAT(done.out, HasSubstr("3 passed, 0 failed, 0 skipped"));
}

}  // namespace
}  // namespace trigen
