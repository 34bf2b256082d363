#include "generator/families/weights.h"

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "llvm/ADT/Twine.h"
#include "templates/pack.h"
#include "templates/strips.h"
#include "templates/wgmma_tf32_sm90.h"

namespace trigen {
namespace {

// Blocks of the packing launch, for either kind of packed W.
double packed_blocks(const Problem& p) {
  namespace tf32 = wgmma_tf32_sm90;
  const int tokens = static_cast<int>(p.T), taps = static_cast<int>(p.K);
  if (p.w != WeightForm::kDense)
    return static_cast<double>(strips::squares(p.w, tokens, static_cast<int>(p.width)) * p.H);
  const auto down = static_cast<double>(schedule::ceil_div(tokens, tf32::kPackEdge));
  const double of_head = p.dtype == DType::kF32
                             ? down * schedule::ceil_div(tokens, tf32::pack_tokens(taps))
                             : static_cast<double>(packing::column_blocks(tokens)) *
                                   packing::row_blocks(tokens, taps, static_cast<int>(p.H));
  return of_head * static_cast<double>(p.H);
}

// "blocks of bf16, H=1, T=1001, K=4, lower, diag=0"
std::string form_of(const Problem& p, const std::string& what) {
  std::string form = what + " of " + to_string(p.dtype).str() + ", H=" + std::to_string(p.H) +
                     ", T=" + std::to_string(p.T) + ", K=" + std::to_string(p.K) + ", " +
                     to_string(p.fill).str() + ", diag=" + std::to_string(p.diag);
  if (p.w != WeightForm::kDense) form += ", " + to_string(p.w).str();
  if (p.w == WeightForm::kBand) form += ", width=" + std::to_string(p.width);
  return form;
}

}  // namespace

std::optional<std::string> too_many_to_pack_weights(const Problem& p) {
  if (packed_blocks(p) <= kMostBlocks) return std::nullopt;
  return ("packs W by at most 2^31 blocks; H=" + llvm::Twine(p.H) + ", T=" + llvm::Twine(p.T) +
          " and K=" + llvm::Twine(p.K) + " need more")
      .str();
}

WeightOperand direct_weights(const Problem& p) {
  return {.map = weights_map(p), .prepare = std::nullopt, .workspace_bytes = 0};
}

WeightOperand packed_weights(const Problem& p, const Target& target) {
  const int tokens = static_cast<int>(p.T), taps = static_cast<int>(p.K), heads = static_cast<int>(p.H);
  WeightOperand weights = direct_weights(p);
  TensorMapSpec& map = weights.map;  // (s, t, j, h)
  const int64_t pitch = packing::pitch(tokens);
  map.source = MapSource::kWorkspace;
  map.element = map_element(p.dtype);
  map.columns = packing::kEdge;
  map.extents[0] = map.extents[1] = pitch;
  map.extents[2] = p.K;
  map.strides[0] = 2 * pitch;
  map.strides[1] = 2 * pitch * pitch;
  map.strides[2] = 2 * pitch * pitch * p.K;
  weights.prepare = Launch{.entry = kPackEntry.str(),
                           .grid = {static_cast<uint32_t>(packed_blocks(p)), 1, 1},
                           .block = {packing::kThreads, 1, 1},
                           .cluster = 1,
                           .shared_bytes = spread_over_sms(target, packed_blocks(p), packing::kThreads,
                                                           packing::shared_bytes(tokens, taps, heads)),
                           .maps = {},
                           .early = true};
  weights.workspace_bytes = packing::workspace_bytes(tokens, taps, heads);
  weights.form = form_of(p, "blocks");
  if (packing::flips(kernel_shape(p)))
    weights.form += p.op == Op::kForward ? ", rows backwards in 64" : ", columns backwards in 64";
  return weights;
}

WeightOperand strip_weights(const Problem& p, const Target& target) {
  const int tokens = static_cast<int>(p.T), width = static_cast<int>(p.width);
  WeightOperand weights = direct_weights(p);
  TensorMapSpec& map = weights.map;  // (column, row, -, h)
  const int64_t pitch = strips::pitch(p.w, tokens, width), rows = strips::rows(p.w, tokens);
  map.source = MapSource::kWorkspace;
  map.element = map_element(p.dtype);
  map.columns = strips::kEdge;
  map.extents[0] = pitch;
  map.extents[1] = rows;
  map.strides[0] = 2 * pitch;
  map.strides[1] = map.strides[2] = 2 * pitch * rows;
  weights.prepare = Launch{.entry = kPackEntry.str(),
                           .grid = {static_cast<uint32_t>(packed_blocks(p)), 1, 1},
                           .block = {strips::kThreads, 1, 1},
                           .cluster = 1,
                           .shared_bytes = spread_over_sms(target, packed_blocks(p), strips::kThreads, 0),
                           .maps = {},
                           .early = true};
  weights.workspace_bytes = strips::workspace_bytes(p.w, tokens, width, static_cast<int>(p.H));
  weights.form = form_of(p, "strips");
  return weights;
}

double packing_bytes(const Problem& p) {
  const int tokens = static_cast<int>(p.T), width = static_cast<int>(p.width);
  double numbers = static_cast<double>(p.H * p.T) * static_cast<double>(p.T) / 2;
  if (p.w != WeightForm::kDense)
    numbers = static_cast<double>(strips::workspace_bytes(p.w, tokens, width, static_cast<int>(p.H))) / 2;
  return numbers * (2 + static_cast<double>(element_size(p.wdtype)));
}

WeightOperand packed_tf32_weights(const Problem& p, const Target& target) {
  namespace tf32 = wgmma_tf32_sm90;
  WeightOperand weights = direct_weights(p);
  const int64_t pitch = tf32::packed_pitch(static_cast<int>(p.T));
  weights.map.source = MapSource::kWorkspace;  // rounded already
  weights.map.extents[2] = p.K;
  weights.map.strides[0] = 4 * pitch;
  weights.map.strides[1] = 4 * pitch * p.T;
  weights.map.strides[2] = 4 * pitch * p.T * p.K;
  weights.prepare = Launch{.entry = kPackEntry.str(),
                           .grid = {static_cast<uint32_t>(packed_blocks(p)), 1, 1},
                           .block = {tf32::kPackThreads, 1, 1},
                           .cluster = 1,
                           .shared_bytes = spread_over_sms(target, packed_blocks(p), tf32::kPackThreads,
                                                           tf32::pack_shared_bytes(p.op)),
                           .maps = {},
                           .early = true};
  weights.workspace_bytes = 4 * p.H * p.K * p.T * pitch;
  weights.form = form_of(p, p.op == Op::kForward ? "tf32" : "tf32, transposed");
  return weights;
}

void prepare_weights(const WeightOperand& weights, LaunchPlan& plan) {
  if (weights.prepare) {
    plan.launches.push_back(*weights.prepare);
    plan.launches.back().prepares_w = true;
    plan.prepared_bytes = weights.workspace_bytes;
    plan.prepared = weights.form;
  }
  plan.workspace_bytes += weights.workspace_bytes;
}

}  // namespace trigen
