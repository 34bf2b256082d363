// The families, one file each in this folder.
#pragma once

#include "generator/family.h"
#include "templates/pack_activations.h"

namespace trigen {

// Activations that TMA cannot take are copied into the workspace and back by launches of their
// own (templates/pack_activations.h), as the config says.
bool packs_activations(const Problem& problem, const Config& config);
// Batches, and features of each, in the rows of its copies.
packing::Rows slot_rows(const Problem& problem);
// Not rows of 16-byte pieces along the features.
bool needs_packed_activations(const Problem& problem);
// Contiguous tokens that TMA takes all the same, in rows of 16-byte pieces along them; of grad_weight 16-bit ones of one
// tap, as wgmma has no other operands that are not K-major.
bool takes_tokens(const Problem& problem);
// So the path to x, y and what has their shape. `tokens`: the kernel takes contiguous tokens where takes_tokens() says
// so, and it does.
Access activation_access(const Problem& problem, bool tokens = false);
// Elements of one access on it: TMA's 16 bytes, or single ones of the launches that copy.
int activation_elements(const Problem& problem, Access path);
// The reason why those launches cannot serve the problem: "copies at most ...".
std::optional<std::string> too_many_to_pack(const Problem& problem);
// Puts them around the launches of a plan, whose workspace they move behind their own.
void pack_activations(const Problem& problem, const Target& target, LaunchPlan& plan);

// Shared memory for each of `blocks` thread blocks, `least` bytes or more, so that all SMs get as many of them: those of an early launch
// would come to the first SMs that the launch ahead leaves.
uint32_t spread_over_sms(const Target& target, double blocks, int threads, int64_t least);

// The order counts: of equal predictions an earlier family's comes first.
#define TRIGEN_FAMILIES(row)                                                                                 \
  row(wgmma_sm90) row(wgmma_tf32_sm90) row(wgmma_split_sm90) row(wgmma_taps_sm90) row(wgmma_resident_sm90)   \
      row(wgmma_rows_sm90) row(mma_tma_sm90) row(mma_sm80) row(mma_sm75) row(mma_sm70) row(simt) row(decode) \
          row(grad_epilogue) row(scan) row(newton_schulz_sm90) row(newton_schulz_sm80)
#define TRIGEN_FAMILY(name) const Family& name##_family();
TRIGEN_FAMILIES(TRIGEN_FAMILY)
#undef TRIGEN_FAMILY

}  // namespace trigen
