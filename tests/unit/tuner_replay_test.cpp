// The search on times that devices measured: tests/data/recordings.
#include "lab/replay.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "generator/error.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;

Recording small() {
  Recording out;
  out.problem = "forward,dtype=f16,B=1,H=1,T=64,D=64,K=1,pad=0";
  out.target = "sm_80";
  out.device = "D, 3 SMs, driver 1";
  out.date = "2026-11-21T00:00:00Z";
  out.candidates = 4;
  out.rows = {{1, "timed", 12, 11.9, 12.2, 0, 10, 100, "f:tile=64x64x32,stages=2"},
              {2, "chosen", 10, 9.9, 10.1, 10.5, 11, 100, "f:tile=64x64x32,stages=3"},
              {3, "spills", 0, 0, 0, 0, 12, 255, "f:tile=128x64x32,stages=2"},
              {4, "not built", 0, 0, 0, 0, 13, 0, "g:tile=64x64x32"}};
  return out;
}

TEST(Recording, RoundTrip) {
  const Recording recording = small();
  const std::string text = to_string(recording);
  const Recording read = llvm::cantFail(parse_recording(text));
  EXPECT_EQ(to_string(read), text);
  EXPECT_TRUE(read.exhaustive());
  EXPECT_EQ(read.rows[3].outcome, "not built");
  EXPECT_FALSE(read.rows[2].timed());
  EXPECT_EQ(file_name(read), "sm_80-forward-dtype.f16-B.1-H.1-T.64-D.64-K.1-pad.0.txt");
}

TEST(Recording, SeveralInOneFileWithTheirRoles) {
  Recording second = small();
  second.role = "check";
  second.sample = "the first 3 and 1 drawn, seed 1";
  const std::string text = to_string(small()) + to_string(second);
  const auto read = llvm::cantFail(parse_recordings(text));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(to_string(read[0]) + to_string(read[1]), text);
  EXPECT_EQ(read[0].role, "fit");
  EXPECT_EQ(read[1].role, "check");
  EXPECT_EQ(read[1].sample, second.sample);
  EXPECT_THAT(take_error(parse_recording(text).takeError()).message, HasSubstr("2 recordings in one file"));
}

TEST(Recording, OfAReport) {
  TuneReport report;
  report.problem = "p";
  report.target = "sm_90a";
  report.device = "D";
  report.driver = "1";
  report.sms = 2;
  report.candidates.resize(3);
  report.candidates[0].outcome = Outcome::kTimed;
  report.candidates[0].candidate = "f:stages=2";
  report.candidates[0].ranked_s = 5e-6;
  report.candidates[0].predicted_s = 7e-6;
  report.candidates[0].quick = {3e-6, 4e-6, 5e-6};
  report.candidates[2].outcome = Outcome::kChosen;
  report.candidates[2].quick = {1e-6};
  report.candidates[2].finals = {2e-6, 2e-6};
  const Recording recording = recording_of(report, "today");
  ASSERT_EQ(recording.rows.size(), 2U);
  EXPECT_FALSE(recording.exhaustive());
  EXPECT_DOUBLE_EQ(recording.rows[0].us, 4);
  EXPECT_DOUBLE_EQ(recording.rows[0].predicted_us, 5);
  EXPECT_EQ(recording.rows[1].rank, 3U);
  EXPECT_DOUBLE_EQ(recording.rows[1].finals_us, 2);
}

// A FIFO in it would wait for its other end.
TEST(Recording, AFolderGivesItsRegularFiles) {
  const testing::CacheFolder folder;
  std::ofstream(folder / "right.txt") << to_string(small());
  ASSERT_EQ(mkfifo((folder / "waits.txt").c_str(), 0600), 0);
  EXPECT_EQ(llvm::cantFail(read_recordings({folder.path()})).size(), 1U);
  std::ofstream(folder / "cut.zst") << "\x28\xb5\x2f\xfd";
  EXPECT_THAT(take_error(read_recordings({folder / "cut.zst"}).takeError()).message,
              HasSubstr("no zstd file"));
}

TEST(Recording, DamageIsNamedWithItsLine) {
  const auto refusal = [](const std::string& text) {
    auto read = parse_recording(text);
    return read ? std::string() : take_error(read.takeError()).message;
  };
  const std::string text = to_string(small());
  EXPECT_THAT(refusal("x" + text), HasSubstr("line 1"));
  EXPECT_THAT(refusal(text + "5 timed 1.0\n"), HasSubstr("line 12: a row has"));
  EXPECT_THAT(refusal(text + "2 timed 1 1 1 - 1 0 f:stages=2\n"), HasSubstr("ranks must grow"));
  EXPECT_THAT(refusal(text + "5 timed -1 1 1 - 1 0 f:stages=2\n"), HasSubstr("line 12"));
  EXPECT_THAT(refusal("trigen recording 1\nproblem p\n"), HasSubstr("lacks"));
  EXPECT_THAT(refusal("trigen recording 1\nproblem p\n" + text),
              HasSubstr("line 3: the recording that ends here"));
  EXPECT_THAT(refusal("trigen recording 1\nrole test\n"),
              HasSubstr("line 2: role 'test'; allowed are fit, hand and check"));
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
}

TEST(Replay, ChoosesTheFastestOfASmallSpace) {
  const ReplayResult result = llvm::cantFail(replay(small(), {}, 1));
  EXPECT_EQ(result.chosen, 1U);
  EXPECT_EQ(result.best, 1U);
  EXPECT_EQ(result.regret, 0);
  EXPECT_EQ(result.tried, 4U);
}

// Samples that spread over more than their median, as on a shared machine, still are times.
TEST(Replay, BearsAnyNoise) {
  Recording recording = small();
  recording.rows[0].lower_us = 2;
  recording.rows[0].upper_us = 90;
  recording.rows[1].lower_us = 1;
  recording.rows[1].upper_us = 50;
  std::vector<int> chosen(4);
  for (uint64_t seed = 0; seed < 200; ++seed) ++chosen[llvm::cantFail(replay(recording, {}, seed)).chosen];
  EXPECT_GT(chosen[0], 0) << "the noise turns some choices round";
  EXPECT_GT(chosen[1], chosen[0]);
  EXPECT_EQ(chosen[0] + chosen[1], 200);
}

std::vector<Recording> recordings() {
  return llvm::cantFail(read_recordings({TRIGEN_SOURCE "/tests/data/recordings"}));
}

TEST(Replay, IsTheSameForTheSameTimes) {
  for (const Recording& recording : recordings()) {
    const ReplayResult one = llvm::cantFail(replay(recording, {}, 7));
    const ReplayResult two = llvm::cantFail(replay(recording, {}, 7));
    EXPECT_EQ(one.order, two.order) << recording.file;
    EXPECT_EQ(one.chosen, two.chosen) << recording.file;
  }
}

// Two percent of the best, a tenth of the candidates, and two tunes that agree or whose choices are one
// within the noise.
TEST(Replay, MeetsItsFiguresOnWholeSpaces) {
  size_t whole = 0;
  for (const Recording& recording : recordings()) {
    if (!recording.exhaustive()) continue;
    ++whole;
    double lowest = 1;
    double highest = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const ReplayResult result = llvm::cantFail(replay(recording, {}, seed));
      EXPECT_LE(result.regret, 0.02) << recording.file << ", seed " << seed << ": "
                                     << recording.rows[result.chosen].candidate;
      EXPECT_LE(result.tried, std::max<size_t>(SearchOptions().min_tried, recording.rows.size() / 10))
          << recording.file;
      lowest = std::min(lowest, result.regret);
      highest = std::max(highest, result.regret);
    }
    EXPECT_LE(highest - lowest, 0.02) << recording.file;
  }
  if (whole == 0) GTEST_SKIP() << "[SKIP] no recording of a whole space in tests/data/recordings";
}

// Parts of a space: the search on what is there is never worse than stopping after the model's first choice,
// and stays within 5 % of the best that was timed.
TEST(Replay, IsSoundOnPartsOfASpace) {
  size_t parts = 0;
  for (const Recording& recording : recordings()) {
    if (recording.exhaustive()) continue;
    ++parts;
    const ReplayResult result = llvm::cantFail(replay(recording, {}, 1));
    EXPECT_LE(recording.rows[result.chosen].us, 1.01 * recording.rows[0].us) << recording.file;
    EXPECT_LE(result.regret, 0.05) << recording.file << ": " << recording.rows[result.chosen].candidate
                                   << " for " << recording.rows[result.best].candidate;
  }
  EXPECT_GT(parts, 0U);
}

}  // namespace
}  // namespace trigen
