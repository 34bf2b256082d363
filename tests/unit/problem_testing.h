// Problems and targets by their texts, for tests that know them to be right.
#pragma once

#include <gtest/gtest.h>

#include "generator/error.h"
#include "generator/problem.h"
#include "generator/target.h"

namespace trigen::testing {

inline Problem problem_of(llvm::StringRef text) {
  auto problem = parse_problem(text);
  if (problem) return *problem;
  ADD_FAILURE() << take_error(problem.takeError()).message;
  return {};
}

inline const Target& target_of(llvm::StringRef name) { return **find_target(name); }

}  // namespace trigen::testing
