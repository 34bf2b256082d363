// W as a product's operand: how the product finds it in memory, and the launch ahead of the product that puts
// it there. docs/weights.md says what another kind of W touches. Internal to generator/families/.
#pragma once

#include <optional>
#include <string>

#include "generator/family.h"

namespace trigen {

struct WeightOperand {
  TensorMapSpec map;              // the product's
  std::optional<Launch> prepare;  // none: the product reads W as it lies
  int64_t workspace_bytes = 0;    // that `prepare` fills, from the start of the workspace on
  std::string form = {};          // what with: equal of problems for which it writes the same bytes of one W
};

// As it lies.
WeightOperand direct_weights(const Problem& problem);
// Tap-major, of x's 16-bit type, tokens padded to whole blocks, zeros next to the triangle
// (templates/pack.h).
WeightOperand packed_weights(const Problem& problem, const Target& target);
// Strips of 64 rows, of x's 16-bit type (templates/strips.h), where the problem's w stands for a matrix.
WeightOperand strip_weights(const Problem& problem, const Target& target);
// f32 that `map` and a launch of blocks of 64 rows by up to 64 numbers make of W (templates/wgmma_tf32_sm90.h):
// W itself in aligned rows, or its transpose, tap-major.
WeightOperand packed_tf32_weights(const Problem& problem, const Target& target);

// Why one launch cannot pack W, worded as what a family does; nullopt where it can.
std::optional<std::string> too_many_to_pack_weights(const Problem& problem);

// Bytes that the launch reads and writes, as a rate counts them: of the 16-bit form and of the numbers in it.
double packing_bytes(const Problem& problem);

// The launch ahead of the product and its workspace.
void prepare_weights(const WeightOperand& weights, LaunchPlan& plan);

}  // namespace trigen
