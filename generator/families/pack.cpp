#include "templates/pack.h"

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "templates/pack_activations.h"

namespace trigen {

Launch pack_launch(const Problem& p) {
  const int tokens = static_cast<int>(p.T), taps = static_cast<int>(p.K);
  // Not early: its few blocks would crowd onto the first SMs that the launch ahead leaves.
  return {.entry = kPackEntry.str(),
          .grid = {static_cast<uint32_t>(schedule::ceil_div(tokens, packing::kEdge)),
                   static_cast<uint32_t>(packing::pitch(tokens) / packing::block_rows(taps)),
                   static_cast<uint32_t>(p.H)},
          .block = {packing::kThreads, 1, 1},
          .cluster = 1,
          .shared_bytes = static_cast<uint32_t>(packing::shared_bytes(taps)),
          .maps = {}};
}

bool packs_activations(const Problem& p, const Config& c) {
  return packing::packs_activations(kernel_shape(p), c);
}

bool needs_packed_activations(const Problem& p) {
  return p.align < 16 || p.layout != Layout::kBTD || (p.op != Op::kGradWeight && !whole_pieces(p.D, p.dtype));
}

std::optional<std::string> too_many_to_pack(const Problem& p) {
  // Blocks of one launch, each for at least 8 rows, or 64 x 64 elements.
  constexpr double kMost = (int64_t{1} << 31) - 1;
  const double blocks =
      static_cast<double>(p.B * p.H) * static_cast<double>(p.T) * (static_cast<double>(p.D) / 4096 + 1);
  if (blocks <= kMost) return std::nullopt;
  return "copies at most 2^31 rows of x and y into the workspace";
}

void pack_activations(const Problem& p, LaunchPlan& plan) {
  const Shape shape = kernel_shape(p);
  const int B = static_cast<int>(p.B), H = static_cast<int>(p.H), T = static_cast<int>(p.T),
            D = static_cast<int>(p.D);
  const int tensors = packing::Slots(shape).count, written = packing::unpacks(shape) ? 1 + shape.pre : 0;
  for (Launch& launch : plan.launches) launch.packed = true;
  Launch copy{.entry = kPackActivationsEntry.str(),
              .grid = {static_cast<uint32_t>(packing::copy_blocks(shape, B, H, T, D)),
                       static_cast<uint32_t>(tensors - written), 1},
              .block = {packing::kCopyThreads, 1, 1},
              .cluster = 1,
              .shared_bytes = static_cast<uint32_t>(packing::copy_shared_bytes(shape)),
              .maps = {},
              .early = true};
  plan.launches.insert(plan.launches.begin(), copy);
  if (written > 0) {
    copy.entry = kUnpackActivationsEntry.str();
    copy.grid[1] = static_cast<uint32_t>(written);
    plan.launches.push_back(copy);
  }
  plan.workspace_bytes += tensors * packing::slot_bytes(B, H, T, D, p.dtype);
}

}  // namespace trigen
