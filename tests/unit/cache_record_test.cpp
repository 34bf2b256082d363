// Records and samples: which one answers, what is said about the difference, what replaces what.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "cache/store.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const char* const kProblem = "forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0";

void put(const OpenStore& store, const Record& record) { ASSERT_EQ(message(store->put_record(record)), ""); }

TEST(CacheRecord, ComesBackAsItWasPut) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  Record r = sample_record(Provenance::kMeasured, "NVIDIA A100-SXM4-80GB", 108, "580.159");
  r.stored_at = 1700000001;
  put(store, r);
  const auto found = store->find_record(kProblem, {"sm_80"}, {"NVIDIA A100-SXM4-80GB", 108, "580.159"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->match, Match::kExact);
  EXPECT_EQ(found->difference, "");
  EXPECT_EQ(found->layer, std::filesystem::canonical(folder / "cache.db").string());
  const Record& got = found->record;
  EXPECT_EQ(got.problem, r.problem);
  EXPECT_EQ(got.arch, r.arch);
  EXPECT_EQ(got.device, r.device);
  EXPECT_EQ(got.sms, r.sms);
  EXPECT_EQ(got.driver, r.driver);
  EXPECT_EQ(got.candidate, r.candidate);
  EXPECT_EQ(got.binary.digest(), r.binary.digest());
  EXPECT_EQ(got.provenance, r.provenance);
  EXPECT_EQ(got.median_us, r.median_us);
  EXPECT_EQ(got.error, r.error);
  EXPECT_EQ(got.evidence, r.evidence);
  EXPECT_EQ(got.stored_at, 1700000001);
}

// PyTorch's problems are longer than the patterns that a connection takes.
TEST(CacheRecord, OtherBatchSizesOfALongProblemAreFound) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const std::string prefix = "forward,dtype=bf16,B=",
                    suffix = ",H=1,T=512,D=1024,K=1,pad=0,wdtype=f32,epilogue=bias+gelu+pre";
  for (const std::string& problem : {prefix + "32" + suffix, prefix + "4" + suffix,
                                     prefix + "4" + suffix + "+gate", "forward,dtype=f16,B=32" + suffix}) {
    Record r = sample_record(Provenance::kMeasured, "A100", 108, "580.159");
    r.problem = problem;
    put(store, r);
  }
  std::vector<std::string> problems;
  for (const FoundRecord& found : store->find_measured(prefix, suffix, "sm_80", {"A100", 108, "580.159"}))
    problems.push_back(found.record.problem);
  EXPECT_THAT(problems, ::testing::ElementsAre(prefix + "32" + suffix, prefix + "4" + suffix));
  Record r = sample_record(Provenance::kMeasured, "A100", 108, "575", "older:a=1");
  r.problem = prefix + "4" + suffix;
  put(store, r);
  const auto found = store->find_measured(prefix, suffix, "sm_80", {"A100", 108, "575"});
  ASSERT_EQ(found.size(), 2u) << "one of each problem and device, the better one";
  EXPECT_EQ(found[1].record.candidate, "older:a=1");
  EXPECT_THAT(*store.lines, IsEmpty());
}

// Parsing for one plan does not grow with the number of neighbours.
TEST(CacheRecord, NeighboursHaveSoMuchEvidenceTogether) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const std::string prefix = "forward,dtype=bf16,B=", suffix = ",H=1,T=512,D=1024,K=1,pad=0";
  std::string noise;  // which does not pack well, as times do not
  for (uint32_t seed = 1; noise.size() < (1 << 20); seed = seed * 1664525 + 1013904223)
    noise += static_cast<char>('0' + (seed >> 24) % 10);
  for (int n = 10; n < 20; ++n) {
    Record r = sample_record(Provenance::kMeasured, "A100", 108, "580.159");
    r.problem = prefix + std::to_string(n) + suffix;
    r.evidence = noise;
    put(store, r);
  }
  EXPECT_THAT(store->find_measured(prefix, suffix, "sm_80", {"A100", 108, "580.159"}), SizeIs(4));
}

// A few bytes that stand for a MiB: no tune writes such, and whoever parsed them would take long.
TEST(CacheRecord, EvidenceThatPacksTooWellIsNone) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const auto evidence_read = [&](const std::string& text) {
    Record r = sample_record(Provenance::kMeasured, "A100", 108, "580.159");
    r.evidence = text;
    put(store, r);
    const auto found = store->find_record(kProblem, {"sm_80"}, {"A100", 108, "580.159"});
    EXPECT_EQ(store->find_evidence(*found), found->record.evidence);
    return found->record.evidence;
  };
  EXPECT_EQ(evidence_read(std::string(1 << 20, '[')), "");
  EXPECT_EQ(evidence_read(std::string(500000, '[') + std::string(500000, ']')), "");
  const std::string small(16 << 10, ' ');
  EXPECT_EQ(evidence_read(small), small);
  std::string errors;  // of 300 candidates that a compiler refused with the same words
  for (int n = 0; n < 300; ++n)
    errors += "{\"candidate\":\"simt:tile=" + std::to_string(n * n) +
              "\",\"predicted_us\":" + std::to_string(1e4 / (n + 3)) + ",\"note\":\"" +
              std::string(2000, 'e') + "\"}";
  EXPECT_EQ(evidence_read(errors), errors);
}

TEST(CacheRecord, SaysWhatDiffers) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  EXPECT_FALSE(store->find_record(kProblem, {"sm_80"}, {"A100", 108, "580.159"}));
  put(store, sample_record(Provenance::kMeasured, "A100", 108, "575.57"));

  auto found = store->find_record(kProblem, {"sm_80"}, {"A100", 108, "580.159"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->match, Match::kNear);
  EXPECT_EQ(found->difference, "driver 580.159 here, 575.57 in the record");
  found = store->find_record(kProblem, {"sm_80"}, {"A100", 42, "575.57"});
  EXPECT_EQ(found->difference, "SMs 42 here, 108 in the record");
  found = store->find_record(kProblem, {"sm_80"}, {"A30", 56, "580.159"});
  EXPECT_EQ(found->difference,
            "device A30 here, A100 in the record; SMs 56 here, 108 in the record; "
            "driver 580.159 here, 575.57 in the record");
  found = store->find_record(kProblem, {"sm_80"}, {"", 0, ""});
  EXPECT_EQ(found->match, Match::kNear);
  EXPECT_EQ(found->difference, "device unknown here, A100 in the record");
  // Problem and arch must match.
  EXPECT_FALSE(store->find_record(kProblem, {"sm_90"}, {"A100", 108, "575.57"}));
  EXPECT_FALSE(store->find_record("forward,dtype=f16,B=32,H=1,T=512,D=1024,K=1,pad=0", {"sm_80"},
                                  {"A100", 108, "575.57"}));
}

TEST(CacheRecord, MeasuredBeforePredictedThenExactBeforeNear) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  put(store, sample_record(Provenance::kPredicted, "", 0, "", "predicted:a=1"));
  auto find = [&](const char* device, int sms, const char* driver) {
    auto found = store->find_record(kProblem, {"sm_80"}, {device, sms, driver});
    return found ? found->record.candidate + (found->match == Match::kExact ? " exact" : " near")
                 : std::string();
  };
  EXPECT_EQ(find("A100", 108, "580"), "predicted:a=1 near");
  EXPECT_EQ(find("", 0, ""), "predicted:a=1 exact");
  put(store, sample_record(Provenance::kMeasured, "A30", 56, "580", "a30:a=1"));
  EXPECT_EQ(find("A100", 108, "580"), "a30:a=1 near");
  put(store, sample_record(Provenance::kMeasured, "A100", 42, "580", "mig:a=1"));
  EXPECT_EQ(find("A100", 108, "580"), "mig:a=1 near");
  put(store, sample_record(Provenance::kMeasured, "A100", 108, "575", "old_driver:a=1"));
  EXPECT_EQ(find("A100", 108, "580"), "old_driver:a=1 near");
  put(store, sample_record(Provenance::kMeasured, "A100", 108, "580", "exact:a=1"));
  EXPECT_EQ(find("A100", 108, "580"), "exact:a=1 exact");
  EXPECT_EQ(find("A30", 56, "580"), "a30:a=1 exact");
}

TEST(CacheRecord, PredictedIsReplacedByMeasuredAndNeverTheOtherWay) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  put(store, sample_record(Provenance::kPredicted, "", 108, "", "model:a=1"));
  put(store, sample_record(Provenance::kPredicted, "A100", 108, "580", "model:a=2"));
  put(store, sample_record(Provenance::kPredicted, "A30", 56, "580", "model:a=3"));
  EXPECT_EQ(store->list_records().size(), 3u);
  put(store, sample_record(Provenance::kMeasured, "A100", 108, "580", "measured:a=1"));
  auto list = store->list_records();
  ASSERT_EQ(list.size(), 2u) << "the predictions of no device and of this device are gone";
  EXPECT_EQ(list[0].record.candidate, "measured:a=1");
  EXPECT_EQ(list[1].record.candidate, "model:a=3");

  put(store, sample_record(Provenance::kPredicted, "A100", 108, "580", "model:a=4"));
  put(store, sample_record(Provenance::kPredicted, "A100", 108, "590", "model:a=5"));
  EXPECT_EQ(store->list_records().size(), 2u);
  EXPECT_EQ(store->find_record(kProblem, {"sm_80"}, {"A100", 108, "590"})->record.candidate, "measured:a=1");

  put(store, sample_record(Provenance::kMeasured, "A100", 108, "580", "measured:a=2"));
  EXPECT_EQ(store->list_records().size(), 2u) << "a later measurement replaces the earlier";
  EXPECT_EQ(store->find_record(kProblem, {"sm_80"}, {"A100", 108, "580"})->record.candidate, "measured:a=2");
}

TEST(CacheRecord, MeasuredForAnOlderTargetGoesBeforePredictedForTheOwn) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const auto candidate = [&] {
    return store->find_record(kProblem, {"sm_90", "sm_80"}, {"A100", 108, "580"})->record.candidate;
  };
  const auto put_for = [&](const char* arch, Provenance provenance, const char* driver, const char* name) {
    Record record = sample_record(provenance, "A100", 108, driver, name);
    record.arch = arch;
    put(store, record);
  };
  put_for("sm_80", Provenance::kPredicted, "580", "older:a=1");
  EXPECT_EQ(candidate(), "older:a=1");
  put_for("sm_90", Provenance::kPredicted, "575", "own:a=1");
  EXPECT_EQ(candidate(), "own:a=1") << "the target goes before exact and near";
  put_for("sm_80", Provenance::kMeasured, "575", "older:a=2");
  EXPECT_EQ(candidate(), "older:a=2");
  put_for("sm_90", Provenance::kMeasured, "575", "own:a=2");
  EXPECT_EQ(candidate(), "own:a=2");
}

TEST(CacheRecord, RankGoesBeforeLayerAndLayerBeforeAge) {
  CacheFolder folder;
  auto user = open_store({folder / "user.db"}), system = open_store({folder / "system.db"});
  auto both = open_store({folder / "user.db", folder / "system.db"});
  auto candidate = [&] {
    return both->find_record(kProblem, {"sm_80"}, {"A100", 108, "580"})->record.candidate;
  };
  put(system, sample_record(Provenance::kMeasured, "A100", 108, "580", "system:a=1"));
  put(user, sample_record(Provenance::kPredicted, "A100", 108, "580", "user:a=1"));
  EXPECT_EQ(candidate(), "system:a=1");
  put(user, sample_record(Provenance::kMeasured, "A100", 108, "575", "user:a=2"));
  EXPECT_EQ(candidate(), "system:a=1") << "exact below near above";
  Record old = sample_record(Provenance::kMeasured, "A100", 108, "580", "user:a=3");
  old.stored_at = 5;
  put(user, old);
  EXPECT_EQ(candidate(), "user:a=3");
  EXPECT_EQ(both->list_records().size(), 3u);
}

TEST(CacheRecord, RefusesNanAndKeepsOtherDoubles) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  Record r = sample_record(Provenance::kMeasured, "A100", 108, "580");
  r.median_us = std::nan("");
  EXPECT_THAT(message(store->put_record(r)), HasSubstr("found nan"));
  for (double value : {0.0, -0.0, 1e-320, 12.0, 1e300, std::numeric_limits<double>::infinity()}) {
    r.median_us = value;
    put(store, r);
    const auto found = store->find_record(kProblem, {"sm_80"}, {"A100", 108, "580"});
    ASSERT_TRUE(found) << value;
    EXPECT_EQ(found->record.median_us, value);
  }
  EXPECT_THAT(*store.lines, IsEmpty());
}

TEST(CacheSamples, ResumeAfterReopeningAndClear) {
  CacheFolder folder;
  auto first = open_store({folder / "cache.db"});
  for (int i = 0; i < 5; ++i) {
    Record sample =
        sample_record(Provenance::kMeasured, "A100", 108, "580", "simt:tile=" + std::to_string(i));
    sample.evidence = "[" + std::to_string(i) + "]";
    ASSERT_EQ(message(first->put_sample(sample)), "");
  }
  Record again = sample_record(Provenance::kMeasured, "A100", 108, "580", "simt:tile=2");
  again.evidence = "[22]";
  ASSERT_EQ(message(first->put_sample(again)), "");
  ASSERT_EQ(message(first->put_sample(sample_record(Provenance::kMeasured, "A30", 56, "580"))), "");

  auto second = open_store({folder / "cache.db"});
  const auto samples = second->find_samples(kProblem, "sm_80", "A100");
  ASSERT_EQ(samples.size(), 5u);
  int replaced = 0;
  for (const Record& sample : samples)
    replaced += sample.candidate == "simt:tile=2" && sample.evidence == "[22]";
  EXPECT_EQ(replaced, 1);
  EXPECT_FALSE(second->find_record(kProblem, {"sm_80"}, {"A100", 108, "580"})) << "a sample is no record";
  ASSERT_EQ(message(second->clear_samples(kProblem, "sm_80", "A100")), "");
  EXPECT_THAT(first->find_samples(kProblem, "sm_80", "A100"), IsEmpty());
  EXPECT_EQ(first->find_samples(kProblem, "sm_80", "A30").size(), 1u);
}

}  // namespace
}  // namespace trigen
