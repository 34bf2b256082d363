#include "templates/pack_activations.h"

#include <algorithm>
#include <cmath>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"

namespace trigen {

bool packs_activations(const Problem& p, const Config& c) {
  return packing::packs_activations(kernel_shape(p), c);
}

bool needs_packed_activations(const Problem& p) {
  return p.align < 16 || p.layout != Layout::kBTD || (!makes_weights(p.op) && !whole_pieces(p.D, p.dtype));
}

bool takes_tokens(const Problem& p) {
  if (makes_weights(p.op) && (p.dtype == DType::kF32 || p.K > 1 || p.pad != 0)) return false;
  return p.layout == Layout::kBDT && is_whole_product(p.op) && p.align >= 16 && whole_pieces(p.T, p.dtype);
}

Access activation_access(const Problem& p, bool tokens) {
  return needs_packed_activations(p) && !tokens ? Access::kPacked : Access::kDirect;
}
int activation_elements(const Problem& p, Access path) {
  return path == Access::kPacked ? 1 : static_cast<int>(16 / element_size(p.dtype));
}

packing::Rows slot_rows(const Problem& p) {
  return {packing::joins_batches(p.op, static_cast<int>(p.K)), static_cast<int>(p.B), static_cast<int>(p.D)};
}

// Blocks that copy one of `tensors` tensors into slots or out of them. btd: threads have half of their pieces as long as that makes
// `few` blocks at most (of an H200's SM 4: grad_weight 8,256,35 takes 4.6 us, 5.8 by whole threads; forward 4,1024,257 of tf32 18.5, 18.0).
template <bool kInto>
int64_t copy_blocks(const Problem& p, int tensors, int64_t few) {
  using Pieces = packing::CopyPieces<kInto>;
  const int T = static_cast<int>(p.T), D = static_cast<int>(p.D);
  if (p.layout == Layout::kBDT)
    return packing::copy_tiles(static_cast<int>(p.B), static_cast<int>(p.H), T, D);
  const packing::Rows rows = slot_rows(p);
  const Pieces pieces(rows.features, T, p.dtype);
  const int64_t heads = p.H * rows.batches, halves = pieces.blocks(Pieces::kMostSteps / 2) * heads;
  return halves * tensors <= few ? halves : pieces.blocks(Pieces::kMostSteps) * heads;
}

std::optional<std::string> too_many_to_pack(const Problem& p) {
  if (copy_blocks<true>(p, 1, 0) > kMostBlocks || copy_blocks<false>(p, 1, 0) > kMostBlocks)
    return "copies x and y into the workspace, by at most 2^31 thread blocks";
  if (p.layout == Layout::kBTD &&
      packing::CopyPieces<false>(slot_rows(p).features, static_cast<int>(p.T), p.dtype).of_head >> 32 != 0)
    return "copies x and y into the workspace, of a head at most 2^32 words";  // kernels count them in 32 bits
  return std::nullopt;
}

Params packed_params(const Problem& p, const Params& params) {
  return packing::packed_params(params, packing::Slots(kernel_shape(p)), p.dtype,
                                packing::joins_batches(p.op, static_cast<int>(p.K)));
}

uint32_t spread_over_sms(const Target& target, double blocks, int threads, int64_t least) {
  const int most = target.max_threads_per_sm / threads;
  const auto of_sm = static_cast<int64_t>(
      std::clamp(std::ceil(blocks / std::max(1, target.sms)), 1.0, static_cast<double>(most)));
  const int64_t room =
      std::min(target.max_shared_per_block, target.shared_per_sm / of_sm - target.reserved_shared_per_block);
  return static_cast<uint32_t>(std::max(least, room / 128 * 128));
}

void pack_activations(const Problem& p, const Target& target, LaunchPlan& plan) {
  const Shape shape = kernel_shape(p);
  const int64_t few = int64_t{4} * target.sms;
  const int tensors = packing::Slots(shape).count, written = packing::unpacks(shape) ? 1 + shape.pre : 0;
  for (Launch& launch : plan.launches) launch.packed = true;
  const auto copy = [&](llvm::StringRef entry, int64_t blocks, int count) {
    return Launch{.entry = entry.str(),
                  .grid = {static_cast<uint32_t>(blocks), static_cast<uint32_t>(count), 1},
                  .block = {packing::kCopyThreads, 1, 1},
                  .cluster = 1,
                  .shared_bytes = spread_over_sms(target, static_cast<double>(blocks) * count,
                                                  packing::kCopyThreads, packing::copy_shared_bytes(shape)),
                  .maps = {},
                  .early = true};
  };
  const int read = tensors - written;
  plan.launches.insert(plan.launches.begin(),
                       copy(kPackActivationsEntry, copy_blocks<true>(p, read, few), read));
  if (written > 0)
    plan.launches.push_back(copy(kUnpackActivationsEntry, copy_blocks<false>(p, written, few), written));
  plan.workspace_bytes +=
      tensors * packing::slot_bytes(slot_rows(p), static_cast<int>(p.H), static_cast<int>(p.T), p.dtype);
}

}  // namespace trigen
