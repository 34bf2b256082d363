// `trigen tune` without a device, as a user runs it.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "generator/problem.h"
#include "generator/problem_lists.h"
#include "llvm/ADT/STLExtras.h"
#include "tests/thorough.h"
#include "tests/unit/cli_testing.h"

namespace trigen {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Program, TuneWithoutADeviceSaysPredicted) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished done = run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "2", kProblem});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("predicted"), Not(HasSubstr("measured"))));
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("dense"), HasSubstr(" us est.")));  // a dense product's time beside it
  EXPECT_THAT(done.err, AllOf(HasSubstr("the choice is the model's"), Not(HasSubstr("is as fast"))));
  const Finished list = run({"cache", "ls", "--binaries"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, AllOf(HasSubstr("forward,dtype=f16,B=2,H=1,T=64,D=64,K=1,pad=0"),
                              HasSubstr("predicted"), HasSubstr("nvrtc")));
  const Finished show = run({"cache", "show", kProblem});
  EXPECT_EQ(show.code, 0) << show.err;
  EXPECT_THAT(show.out, HasSubstr("none: predicted by the model"));
  const Finished json =
      run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "2", "--json", kProblem});
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"provenance\": \"predicted\""),
                              HasSubstr("\"outcome\": \"chosen\""), HasSubstr("\"dense\": \"estimated\"")));
  // nothing is compiled where that is forbidden: the cache has the binaries already, another problem's it has
  // not
  EXPECT_EQ(
      run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "2", kProblem}, {"TRIGEN_NO_JIT=1"})
          .code,
      0);
  const Finished miss =
      run({"tune", "--no-device", "--arch", "sm_70", "forward,dtype=f16,B=2,T=72,D=64"}, {"TRIGEN_NO_JIT=1"});
  EXPECT_EQ(miss.code, 1);
  EXPECT_THAT(miss.err, HasSubstr("T=72"));
}

// Several targets in one command, each checked: a process has one emulated device.
TEST_F(Program, TunesAndVerifiesSeveralTargets) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished tuned =
      run({"tune", "--no-device", "--arch", "sm_70,sm_80", "--candidates", "1", "--json", kProblem});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const nlohmann::json reports = nlohmann::json::parse(tuned.out);
  ASSERT_EQ(reports.size(), 2u) << tuned.out;
  EXPECT_EQ(reports[0]["target"], "sm_70");
  EXPECT_EQ(reports[1]["target"], "sm_80");
  const Finished verified = run({"verify", "--no-jit", "--build-only", "--arch", "sm_70,sm_80", kProblem});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_EQ(run({"verify", "--no-jit", "--build-only", "--arch", "sm_75,sm_80", kProblem}).code, 1);
  std::ofstream(folder_ + "/problems") << kProblem << "\n";
  const Finished piped =
      run({"tune", "--no-device", "--arch", "sm_70,sm_80", "--candidates", "1", "--problems", "-"}, {},
          [&] { (void)!std::freopen((folder_ + "/problems").c_str(), "r", stdin); });
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_THAT(piped.err,
              AllOf(HasSubstr("tuning 1 problem for sm_70: "), HasSubstr("tuning 1 problem for sm_80: ")));
}

// tf32 needs sm_80: the part of the list that is its first such problem.
TEST_F(Program, AShippedListThatIsNamedAsAFileSaysWhatLeavesOutWhatNoFamilyMakes) {
  const auto list = llvm::cantFail(parse_problem_list(llvm::cantFail(shipped_problem_list("mixers"))));
  const auto tf32 = llvm::find_if(list, [](const Problem& problem) { return problem.math == Math::kTF32; });
  const std::string part = std::to_string(tf32 - list.begin()) + "/" + std::to_string(list.size());
  const Finished done =
      run({"tune", "--no-device", "--arch", "sm_70", "--problems", "mixers", "--shard", part});
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.err, HasSubstr("\n  use another arch, dtype or size, or --list mixers in place of "
                                  "--problems mixers, which leaves such problems out\n"));
}

// Notes that a user of the choice must have, in words.
TEST_F(Program, TuneSaysWhereDenseIsAsFastAndWhatIsSlow) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished done = run(
      {"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", "forward,dtype=bf16,B=4,T=256,D=64"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("bf16 runs without tensor cores on sm_70"),
                    HasSubstr("a dense product on the masked weight is faster: "), HasSubstr("(estimated)")));
}

// --json has what the text has.
TEST_F(Program, TunesNotesAreInItsJsonToo) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished done = run({"tune", "--json", "--no-device", "--arch", "sm_70", "--candidates", "1",
                             "forward,dtype=bf16,B=4,T=256,D=64"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(nlohmann::json::parse(done.out)[0]["notes"].dump(),
              AllOf(HasSubstr("bf16 runs without tensor cores"),
                    HasSubstr("a dense product on the masked weight is faster: ")));
}

TEST_F(Program, ManyProblemsForDenseAreOneNote) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished done = run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1",
                             "forward,dtype=f32,B=4,T=256,D=64", "grad_input,dtype=f32,B=4,T=256,D=64"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(
      done.err,
      AllOf(
          HasSubstr("note: a dense product on the masked weight is as fast or faster for 2 of 2 problems:\n"),
          HasSubstr("\n  forward,dtype=f32,B=4,T=256,D=64  "), HasSubstr(" us est. beside ")));
}

TEST_F(Program, DenseOfGramIsBothTriangles) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const std::string gram = "gram,dtype=f16,B=1,H=1,T=64,D=64,epilogue=mirror";
  const std::string other = "gram,dtype=f16,B=1,H=2,T=64,D=64,epilogue=mirror";
  const auto note = [&](const std::string& second) {
    return run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", gram, second}).err;
  };
  EXPECT_THAT(note(other),
              HasSubstr("note: a dense product of both triangles is as fast or faster for 2 of 2"));
  EXPECT_THAT(note("forward,dtype=f32,B=4,T=256,D=64"),
              HasSubstr("note: a dense product is as fast or faster for 2 of 2 problems:\n"));
}

// The whole advice is the doctor's.
TEST_F(Program, WithoutADeviceARemarkIsShort) {
  const Finished done = run({"tune", kProblem}, {"TRIGEN_DRIVER=/no/libcuda.so.1"});
  EXPECT_EQ(done.code, 2);
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("no device is here ("), HasSubstr("; see `trigen doctor`); add --arch")));
  EXPECT_LT(done.err.size(), 260u) << done.err;
}

}  // namespace
}  // namespace trigen
