// Measurement and the whole tune on the device.
#include "tuner/tune.h"

#include <gmock/gmock.h>

#include "gpu.h"
#include "peers/compare.h"
#include "peers/cublas.h"
#include "tuner/evidence.h"
#include "tuner/measure.h"

namespace trigen {
namespace {

Problem parse(const char* text) {
  auto problem = parse_problem(text);
  EXPECT_TRUE(static_cast<bool>(problem)) << text;
  return *problem;
}

class Tune : public Gpu {
 protected:
  TuneOptions options() const {
    TuneOptions out;
    out.search.max_tried = 6;
    out.search.min_tried = 6;
    out.finals_rounds = 7;
    return out;
  }
};

TEST_F(Tune, MeasuresStoresAndKeeps) {
  const Problem problem = parse("forward,dtype=bf16,B=8,T=256,D=256");
  auto report = tune(problem, device_->target(), device_, *store_, options());
  ASSERT_TRUE(static_cast<bool>(report)) << take_error(report.takeError()).message;
  EXPECT_EQ(report->provenance, Provenance::kMeasured);
  EXPECT_TRUE(report->complete && report->stored);
  EXPECT_GT(report->seconds, 0);
  EXPECT_LE(report->lower_s, report->seconds);
  EXPECT_LT(report->error, report->tolerance);
  EXPECT_LT(report->share_of_ceiling(), 1.05);
  const auto found =
      store_->find_record(report->problem, {report->target}, {report->device, report->sms, report->driver});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->match, Match::kExact);
  EXPECT_EQ(found->record.candidate, report->chosen);
  EXPECT_TRUE(store_->find_binary(found->record.binary).has_value());
  EXPECT_TRUE(store_->find_samples(report->problem, report->target, report->device).empty());

  auto again = tune(problem, device_->target(), device_, *store_, options());
  ASSERT_TRUE(static_cast<bool>(again));
  EXPECT_TRUE(again->kept);
  EXPECT_EQ(again->chosen, report->chosen);
}

TEST_F(Tune, AnInterruptedTuneKeepsItsSamplesAndGoesOn) {
  const Problem problem = parse("grad_weight,dtype=bf16,B=8,T=256,D=256,wdtype=f32,epilogue=bias");
  std::atomic<bool> cancel{false};
  TuneOptions first = options();
  first.cancel = &cancel;
  first.progress = [&](const TuneProgress& progress) {
    if (progress.best_s > 0) cancel = true;
  };
  auto cut = tune(problem, device_->target(), device_, *store_, first);
  ASSERT_TRUE(static_cast<bool>(cut)) << take_error(cut.takeError()).message;
  EXPECT_FALSE(cut->complete);
  EXPECT_NE(cut->chosen, "");
  const auto samples = store_->find_samples(cut->problem, cut->target, cut->device);
  ASSERT_FALSE(samples.empty());

  auto whole = tune(problem, device_->target(), device_, *store_, options());
  ASSERT_TRUE(static_cast<bool>(whole)) << take_error(whole.takeError()).message;
  EXPECT_TRUE(whole->complete);
  size_t resumed = 0;
  for (const CandidateReport& row : whole->candidates) resumed += row.resumed ? 1 : 0;
  EXPECT_EQ(resumed, samples.size());
}

TEST_F(Tune, ABudgetTooShortForOneCandidateMeasuresOne) {
  const Problem problem = parse("forward,dtype=bf16,B=8,T=512,D=512,epilogue=bias");
  TuneOptions short_of_time = options();
  short_of_time.search.budget_s = 1e-3;
  auto report = tune(problem, device_->target(), device_, *store_, short_of_time);
  ASSERT_TRUE(static_cast<bool>(report)) << take_error(report.takeError()).message;
  EXPECT_THAT(report->stop_reason, ::testing::StartsWith("budget of 0.001 s spent after 1 of"));
  EXPECT_EQ(report->provenance, Provenance::kMeasured);
  EXPECT_TRUE(report->stored);
}

TEST_F(Tune, MoreWorkTakesLonger) {
  auto time = [&](const char* text) {
    const Problem problem = parse(text);
    auto list = list_candidates(problem, device_->target());
    EXPECT_TRUE(static_cast<bool>(list));
    auto built = build(list->front(), *store_);
    EXPECT_TRUE(static_cast<bool>(built));
    WorkbenchOptions bench_options;
    bench_options.rotate = true;
    auto bench = Workbench::create(*device_, problem, bench_options);
    EXPECT_TRUE(static_cast<bool>(bench));
    EXPECT_GE((*bench)->sets() * (*bench)->bytes_per_set(), device_->info().l2_bytes);
    auto plan = Plan::of(list->front(), built->binary, *device_);
    EXPECT_TRUE(static_cast<bool>(plan));
    auto launch = launcher(**bench, std::shared_ptr<const Executable>(*plan, &(*plan)->executable()));
    EXPECT_TRUE(static_cast<bool>(launch));
    auto timing = time_alone(**bench, *launch);
    EXPECT_TRUE(static_cast<bool>(timing));
    return summarize(timing->samples).median;
  };
  const double small = time("forward,dtype=bf16,B=8,T=512,D=512");
  const double large = time("forward,dtype=bf16,B=64,T=1024,D=512");
  EXPECT_GT(small, 1e-6);
  EXPECT_GT(large, 4 * small);  // 32 times the products
}

TEST_F(Tune, CublasAgreesWithTheReference) {
  auto library = CublasLibrary::load();
  if (!library) GTEST_SKIP() << "[SKIP] " << take_error(library.takeError()).message;
  for (const char* text :
       {"forward,dtype=bf16,B=4,H=2,T=200,D=96", "forward,dtype=f16,B=4,T=200,D=96,layout=bdt",
        "forward,dtype=bf16,B=2,T=64,D=80,K=3", "grad_input,dtype=f16,B=4,T=200,D=96,K=4",
        "grad_input,dtype=f32,B=4,T=200,D=96,layout=bdt,K=2",
        "grad_weight,dtype=bf16,B=4,T=200,D=96,wdtype=f32",
        "grad_weight,dtype=f16,B=4,H=2,T=200,D=96,layout=bdt,K=2",
        "forward,dtype=f32,B=4,T=200,D=96,math=tf32"}) {
    CompareOptions compare_options;
    compare_options.rounds = 5;
    auto result = compare(parse(text), *device_, *store_, compare_options);
    ASSERT_TRUE(static_cast<bool>(result)) << text << ": " << take_error(result.takeError()).message;
    ASSERT_GE(result->arms.size(), 2U) << text;
    EXPECT_GE(result->arms[1].error, 0) << text;
    EXPECT_LT(result->arms[1].error, 5e-3) << text;
    EXPECT_GT(result->arms[1].seconds.median, 0) << text;
  }
}

}  // namespace
}  // namespace trigen
