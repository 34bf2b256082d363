#include "tuner/sample.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "check/text.h"
#include "generator/cost/cost.h"
#include "llvm/Support/xxhash.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

// A family's candidates that are left to draw from, by tile and cluster.
struct Strata {
  const Family* family = nullptr;
  std::vector<std::vector<size_t>> tiles;
  size_t next = 0;
};

class Draw {
 public:
  Draw(uint64_t seed, const std::string& problem) : seed_(seed), stream_(llvm::xxHash64(problem)) {}
  size_t below(size_t count) { return random_bits(seed_, stream_, index_++) % count; }

 private:
  uint64_t seed_, stream_, index_ = 0;
};

std::vector<Strata> strata_of(const std::vector<Candidate>& ranked, const std::vector<bool>& taken,
                              double reach_s, Draw& draw) {
  using Tile = std::tuple<int, int, int, int>;
  std::vector<Strata> out;
  std::vector<std::map<Tile, size_t>> positions;
  for (size_t i = 0; i < ranked.size(); ++i) {
    const Candidate& candidate = ranked[i];
    if (taken[i] || predict(candidate, model_of(*candidate.target)).seconds > reach_s) continue;
    const auto found =
        std::find_if(out.begin(), out.end(), [&](const Strata& s) { return s.family == candidate.family; });
    const auto at = static_cast<size_t>(found - out.begin());
    if (found == out.end()) {
      out.push_back({candidate.family, {}, 0});
      positions.emplace_back();
    }
    const Config& c = candidate.config;
    const auto [place, fresh] =
        positions[at].try_emplace(Tile{c.tile_m, c.tile_n, c.tile_k, c.cluster}, out[at].tiles.size());
    if (fresh) out[at].tiles.emplace_back();
    out[at].tiles[place->second].push_back(i);
  }
  for (Strata& s : out)
    for (size_t i = s.tiles.size(); i > 1; --i) std::swap(s.tiles[i - 1], s.tiles[draw.below(i)]);
  return out;
}

}  // namespace

std::vector<size_t> draw_sample(const std::vector<Candidate>& ranked, const SampleOptions& options) {
  if (ranked.empty()) return {};
  std::vector<bool> taken(ranked.size(), false);
  std::fill(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(std::min(options.first, ranked.size())),
            true);
  std::vector<const Family*> seen;
  for (size_t i = 0; i < ranked.size(); ++i) {
    if (std::find(seen.begin(), seen.end(), ranked[i].family) != seen.end()) continue;
    seen.push_back(ranked[i].family);
    taken[i] = true;
  }
  Draw draw(options.seed, to_string(ranked[0].problem));
  const double best_s = predict(ranked[0], model_of(*ranked[0].target)).seconds;
  std::vector<Strata> strata = strata_of(ranked, taken, options.reach * best_s, draw);
  size_t drawn = 0;
  for (bool any = true; any && drawn < options.drawn;) {
    any = false;
    for (Strata& s : strata) {
      if (s.tiles.empty() || drawn == options.drawn) continue;
      any = true;
      std::vector<size_t>& tile = s.tiles[s.next % s.tiles.size()];
      const size_t at = draw.below(tile.size());
      taken[tile[at]] = true;
      ++drawn;
      tile.erase(tile.begin() + static_cast<ptrdiff_t>(at));
      if (tile.empty())
        s.tiles.erase(s.tiles.begin() + static_cast<ptrdiff_t>(s.next % s.tiles.size()));
      else
        ++s.next;
    }
  }
  std::vector<size_t> out;
  for (size_t i = 0; i < taken.size(); ++i)
    if (taken[i]) out.push_back(i);
  return out;
}

std::string to_string(const SampleOptions& options) {
  return format("the first %zu and %zu drawn, seed %llu", options.first, options.drawn,
                static_cast<unsigned long long>(options.seed));
}

}  // namespace trigen
