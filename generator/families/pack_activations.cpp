#include "templates/pack_activations.h"
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

std::optional<std::string> too_many_to_pack(const Problem& p) {
  const int64_t blocks =
      packing::copy_blocks(kernel_shape(p), static_cast<int>(p.B), static_cast<int>(p.H),
                           static_cast<int>(p.T), static_cast<int>(p.D), !packing::unpacks(kernel_shape(p)));
  if (blocks <= kMostBlocks) return std::nullopt;
  return "copies x and y into the workspace, by at most 2^31 thread blocks";
}

packing::Rows slot_rows(const Problem& p) {
  return {packing::joins_batches(p.op, static_cast<int>(p.K)), static_cast<int>(p.B), static_cast<int>(p.D)};
}

Params packed_params(const Problem& p, const Params& params) {
  return packing::packed_params(params, packing::Slots(kernel_shape(p)), p.dtype,
                                packing::joins_batches(p.op, static_cast<int>(p.K)));
}

void pack_activations(const Problem& p, LaunchPlan& plan) {
  const Shape shape = kernel_shape(p);
  const int B = static_cast<int>(p.B), H = static_cast<int>(p.H), T = static_cast<int>(p.T),
            D = static_cast<int>(p.D);
  const int tensors = packing::Slots(shape).count, written = packing::unpacks(shape) ? 1 + shape.pre : 0;
  for (Launch& launch : plan.launches) launch.packed = true;
  Launch copy{.entry = kPackActivationsEntry.str(),
              .grid = {static_cast<uint32_t>(packing::copy_blocks(shape, B, H, T, D, true)),
                       static_cast<uint32_t>(tensors - written), 1},
              .block = {packing::kCopyThreads, 1, 1},
              .cluster = 1,
              .shared_bytes = static_cast<uint32_t>(packing::copy_shared_bytes(shape)),
              .maps = {},
              .early = true};
  plan.launches.insert(plan.launches.begin(), copy);
  if (written > 0) {
    copy.entry = kUnpackActivationsEntry.str();
    copy.grid[0] = static_cast<uint32_t>(packing::copy_blocks(shape, B, H, T, D, false));
    copy.grid[1] = static_cast<uint32_t>(written);
    plan.launches.push_back(copy);
  }
  plan.workspace_bytes += tensors * packing::slot_bytes(slot_rows(p), H, T, p.dtype);
}

}  // namespace trigen
