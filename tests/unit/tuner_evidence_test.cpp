#include "tuner/evidence.h"

#include <gmock/gmock.h>

namespace trigen {
namespace {

TEST(Sample, RoundTrip) {
  CandidateReport row;
  row.candidate = "simt:tile=64x64x8";
  row.outcome = Outcome::kTimed;
  row.error = 1.5e-3;
  row.tolerance = 2.4e-3;
  row.quick = {12.5e-6, 12.75e-6};
  CandidateReport read;
  ASSERT_TRUE(read_sample(sample_of(row), read));
  EXPECT_EQ(read.outcome, Outcome::kTimed);
  ASSERT_EQ(read.quick.size(), 2U);
  EXPECT_NEAR(read.quick[1], 12.75e-6, 1e-18);
  EXPECT_DOUBLE_EQ(read.error, 1.5e-3);
}

TEST(Sample, WrongResultsAreKeptWithTheirPlace) {
  CandidateReport row;
  row.outcome = Outcome::kWrong;
  row.note = "y[b=0,h=0,t=3,d=1] is nan";
  CandidateReport read;
  ASSERT_TRUE(read_sample(sample_of(row), read));
  EXPECT_EQ(read.outcome, Outcome::kWrong);
  EXPECT_EQ(read.note, row.note);
}

TEST(Sample, DamagedTextIsNotASample) {
  CandidateReport row;
  row.outcome = Outcome::kTimed;
  row.quick = {1e-6};
  const std::string good = sample_of(row);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    CandidateReport read;
    EXPECT_FALSE(read_sample(good.substr(0, cut), read));
  }
  for (const char* text :
       {"", "[]", "{}", "null", "{\"outcome\":3}", "{\"outcome\":\"timed\"}",
        "{\"outcome\":\"timed\",\"quick_us\":[\"a\"]}", "{\"outcome\":\"chosen\",\"quick_us\":[1]}"}) {
    CandidateReport read;
    EXPECT_FALSE(read_sample(text, read)) << text;
  }
}

TEST(Evidence, DeepOrLongJsonIsNone) {
  const auto nested = [](size_t depth) {
    return R"({"complete":true,"considered":9,"a":)" + std::string(depth, '[') + std::string(depth, ']') +
           "}";
  };
  EXPECT_TRUE(is_complete(nested(31), 9));
  EXPECT_FALSE(is_complete(nested(32), 9));
  EXPECT_TRUE(
      is_complete(R"({"complete":true,"considered":9,"a":"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})", 9));
  EXPECT_FALSE(is_complete(R"({"complete":true,"considered":9})" + std::string(1 << 20, ' '), 9));
}

TEST(Evidence, CompleteOnlyWhenItSaysSo) {
  TuneReport report;
  report.problem = "forward,dtype=f16,B=1,H=1,T=1,D=1,K=1,pad=0";
  EXPECT_TRUE(is_complete(evidence_of(report), report.candidates.size()));
  EXPECT_FALSE(is_complete(evidence_of(report), report.candidates.size() + 1))
      << "a tune of one config chose among one";
  report.complete = false;
  EXPECT_FALSE(is_complete(evidence_of(report), 0));
  EXPECT_FALSE(is_complete("not json", 0));
  EXPECT_FALSE(is_complete("", 0));
}

}  // namespace
}  // namespace trigen
