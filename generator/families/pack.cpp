#include "templates/pack.h"

#include "generator/families/families.h"

namespace trigen {

Launch pack_launch(const Problem& p) {
  const int tokens = static_cast<int>(p.T), taps = static_cast<int>(p.K);
  return {.entry = kPackEntry.str(),
          .grid = {static_cast<uint32_t>(schedule::ceil_div(tokens, packing::kEdge)),
                   static_cast<uint32_t>(packing::pitch(tokens) / packing::block_rows(taps)),
                   static_cast<uint32_t>(p.H)},
          .block = {packing::kThreads, 1, 1},
          .cluster = 1,
          .shared_bytes = static_cast<uint32_t>(packing::shared_bytes(taps)),
          .maps = {},
          .early = true};
}

}  // namespace trigen
