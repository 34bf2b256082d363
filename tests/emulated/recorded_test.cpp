// The emulated device against a GPU's recorded answers: tests/emulated/recorded/h200.corpus.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "llvm/ADT/STLExtras.h"
#include "numerics/numbers.h"
#include "recorded_corpus.h"
#include "recorded_probes.h"

namespace trigen::recorded {
namespace {

using nlohmann::json;

class Recorded : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_corpus(TRIGEN_CORPUS);
    ASSERT_TRUE(static_cast<bool>(loaded)) << llvm::toString(loaded.takeError());
    corpus = std::move(*loaded);
    auto listed = load_sources(TRIGEN_CORPUS_SOURCES);
    ASSERT_TRUE(static_cast<bool>(listed)) << llvm::toString(listed.takeError());
    sources = std::move(*listed);
    ASSERT_TRUE(corpus.contains("device") && corpus.contains("driver") && corpus.contains("date"));
    // The recording's own capability: it ran every older target's PTX, too.
    auto opened = Device::open("emulated:sm_90a");
    ASSERT_TRUE(static_cast<bool>(opened)) << llvm::toString(opened.takeError());
    device = *opened;
    std::printf("recorded on %s, driver %s, %s\n", corpus["device"].get<std::string>().c_str(),
                corpus["driver"].get<std::string>().c_str(), corpus["date"].get<std::string>().c_str());
  }
  json corpus;
  std::vector<SourceLine> sources;
  const Device* device = nullptr;
};

TEST_F(Recorded, Instructions) {
  const auto probes = all_probes();
  EXPECT_EQ(probes.size(), corpus["probes"].size()) << "record the corpus anew";
  for (const Probe& probe : probes) {
    ASSERT_TRUE(corpus["probes"].contains(probe.name)) << probe.name << ": record the corpus anew";
    const auto& bytes = corpus["probes"][probe.name].get_binary();
    std::vector<uint32_t> expected(bytes.size() / 4);
    std::memcpy(expected.data(), bytes.data(), 4 * expected.size());
    auto found = run_probe(*device, probe);
    if (!found) {
      ADD_FAILURE() << llvm::toString(found.takeError());
      continue;
    }
    size_t same = 0;
    double worst = 0;
    EXPECT_EQ(compare_probe(probe, expected, *found, same, worst), "") << probe.name;
    std::printf("%-58s %4zu of %4zu words equal, worst at %3.0f %% of its limit\n", probe.name.c_str(), same,
                found->size(), 100 * worst);
  }
}

// A template's change shows here first: sources.txt must say of every kernel whether its PTX is still what
// the templates make. Skipped, not passed, while it names kernels that are not.
TEST_F(Recorded, KernelsAreThoseOfTodaysTemplates) {
  const std::string next =
      "; run `record_corpus sources` (tests/emulated/README.md), which says what is to be recorded anew";
  auto lines = load_lines(TRIGEN_CORPUS_PROBLEMS);
  ASSERT_TRUE(static_cast<bool>(lines)) << llvm::toString(lines.takeError());
  auto missing = missing_lines(*lines, corpus);
  ASSERT_TRUE(static_cast<bool>(missing)) << llvm::toString(missing.takeError());
  std::vector<std::string> expected;
  for (const json& kernel : corpus["kernels"]) {
    const std::string name = name_of(kernel);
    expected.push_back(name);
    const auto found =
        llvm::find_if(sources, [&](const SourceLine& source) { return source.kernel == name; });
    if (found == sources.end()) continue;  // said below
    auto today = todays_hash(kernel);
    const std::string hash = today ? *today : "-";
    if (!today) llvm::consumeError(today.takeError());
    EXPECT_EQ(found->hash, hash) << name << ": its source changed" << next;
    EXPECT_TRUE(hash != "-" || !found->is_current()) << name;
  }
  for (const std::string& line : *missing) expected.push_back(line);
  std::vector<std::string> listed;
  size_t current = 0;
  for (const SourceLine& source : sources) {
    listed.push_back(source.kernel);
    current += source.is_current() ? 1 : 0;
  }
  EXPECT_THAT(listed, ::testing::UnorderedElementsAreArray(expected)) << "sources.txt" << next;
  if (current < sources.size())
    GTEST_SKIP() << sources.size() - current << " of " << sources.size()
                 << " kernels have no answers of a GPU for what today's templates make (sources.txt); "
                    "record the corpus anew";
}

TEST_F(Recorded, Kernels) {
  EXPECT_GT(corpus["kernels"].size(), 30u);
  for (const json& kernel : corpus["kernels"]) {
    // Today's geometry launches it, which a stale kernel need not know.
    const std::string name = name_of(kernel);
    if (llvm::any_of(sources, [&](const SourceLine& s) { return s.kernel == name && !s.is_current(); })) {
      std::printf("stale, not compared: %s\n", name.c_str());
      continue;
    }
    for (const Data data : kAllData) {
      const std::string what = name + " " + to_string(data);
      auto run = run_kernel(*device, kernel, data);
      if (!run) {
        ADD_FAILURE() << what << ": " << llvm::toString(run.takeError());
        continue;
      }
      const auto& recorded = kernel["runs"][to_string(data)].get_binary();
      ASSERT_EQ(recorded.size(), join(run->outputs).size()) << what << ": record the corpus anew";
      const auto allowed = allowed_difference(*run, data);
      size_t place = 0, equal = 0, total = 0, wrong = 0;
      double worst = 0;
      std::string first;
      bool exact = true;
      for (size_t i = 0; i < run->outputs.size(); ++i) {
        const Tensor& t = run->list.tensors[i];
        std::vector<std::byte> expected(run->outputs[i].size());
        if (!expected.empty()) std::memcpy(expected.data(), recorded.data() + place, expected.size());
        place += expected.size();
        if (!t.written) continue;
        std::vector<std::byte> found = run->outputs[i];
        const auto size = static_cast<size_t>(element_size(t.dtype));
        for (int64_t e = 0; e < t.elements; ++e) {
          std::byte* a = expected.data() + t.offset_bytes + static_cast<size_t>(e) * size;
          std::byte* b = found.data() + t.offset_bytes + static_cast<size_t>(e) * size;
          const double limit = allowed[i][static_cast<size_t>(e)];
          ++total;
          exact = exact && limit == 0;
          if (std::memcmp(a, b, size) == 0) {
            ++equal;
            continue;
          }
          const double gpu = load_element(t.dtype, a, 0), here = load_element(t.dtype, b, 0);
          const double share = limit > 0 ? std::fabs(gpu - here) / limit : INFINITY;
          worst = std::max(worst, share);
          if (!(share <= 1) && wrong++ == 0)
            first = std::string(trigen::to_string(t.role)) + "[" + std::to_string(e) + "]: recorded " +
                    std::to_string(gpu) + ", here " + std::to_string(here) + ", allowed difference " +
                    std::to_string(limit);
          std::memcpy(b, a, size);
        }
        EXPECT_TRUE(expected == found)
            << what << ": bytes outside of " << trigen::to_string(t.role) << " differ";
      }
      EXPECT_EQ(wrong, 0u) << what << ": " << first;
      std::printf("%s\n    %zu of %zu elements equal%s, worst at %.0f %% of its limit\n", what.c_str(), equal,
                  total, exact ? " (all must be)" : "", 100 * worst);
    }
  }
}

}  // namespace
}  // namespace trigen::recorded
