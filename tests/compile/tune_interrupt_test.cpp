// A tune without a device that is interrupted leaves no choice that was not one.
#include <gmock/gmock.h>

#include "tests/unit/cache_testing.h"
#include "tests/unit/runtime_testing.h"
#include "tuner/tune.h"

namespace trigen {
namespace {

TEST(TuneInterrupt, AnIncompletePredictionIsNotStored) {
  TRIGEN_NEEDS_NVRTC();
  testing::CacheFolder folder;
  auto store = testing::open_store({folder / "cache.db"});
  std::atomic<bool> cancel{false};
  TuneOptions options;
  options.predict_candidates = 3;
  options.build.threads = 1;
  options.cancel = &cancel;
  options.progress = [&](const TuneProgress& progress) { cancel = cancel || progress.done == 1; };
  auto problem = parse_problem("forward,dtype=f16,B=1,T=64,D=64");
  ASSERT_TRUE(static_cast<bool>(problem));
  const Target& target = **find_target("sm_70");
  EXPECT_THAT(testing::error_of(tune(*problem, target, nullptr, *store.store, options)),
              ::testing::HasSubstr("interrupted before the candidates of forward,dtype=f16"));
  EXPECT_THAT(store->list_records(), ::testing::IsEmpty());
  EXPECT_THAT(store->list_binaries(), ::testing::SizeIs(1)) << "what was compiled is kept";
}

}  // namespace
}  // namespace trigen
