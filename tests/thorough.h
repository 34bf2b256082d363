// How much of a sweep a run takes. scripts/test.sh takes a fixed part of each, scripts/test.sh --all takes
// everything.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace trigen {

// TRIGEN_TEST_ALL=1.
inline bool thorough() {
  const char* value = std::getenv("TRIGEN_TEST_ALL");
  return value != nullptr && std::strcmp(value, "0") != 0 && *value != 0;
}
// Case `index` of a sweep whose quick run takes one of `every`.
inline bool takes(int index, int every) { return thorough() || index % every == 0; }

// The place of the test that runs among its suite's, which are made in the order of their list.
inline int place_in_suite() {
  const ::testing::UnitTest& unit = *::testing::UnitTest::GetInstance();
  int place = 0;
  while (unit.current_test_suite()->GetTestInfo(place) != unit.current_test_info()) ++place;
  return place;
}

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trigen

#define TRIGEN_LEAVES_OUT(condition) \
  if (condition) GTEST_SKIP() << "[SKIP] runs with TRIGEN_TEST_ALL=1"
// The first line of a parameterised test: a quick run takes one of `every` cases of the suite, on a GPU all.
#define TAKES_ONE_OF(every)                                      \
  TRIGEN_LEAVES_OUT(std::getenv("TRIGEN_TEST_GPU") == nullptr && \
                    !::trigen::takes(::trigen::place_in_suite(), every))
// The first line of a test that compiles kernels or calculates for long, on paths that others take, too: with
// sanitizers a quick run leaves it out.
#define LONG_WITH_SANITIZERS() TRIGEN_LEAVES_OUT(::trigen::kSanitized && !::trigen::thorough())
