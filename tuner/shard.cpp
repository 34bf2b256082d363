#include "tuner/shard.h"

#include <algorithm>
#include <optional>

#include "generator/error.h"

namespace trigen {
namespace {

llvm::Error refuse_shard(llvm::StringRef text, const std::string& why) {
  return make_error(ErrorKind::kBadRequest,
                    "shard '" + text.str() + "': " + why +
                        "; allowed are INDEX/COUNT counted from 0 (0/8 ... 7/8), auto, and auto/COUNT");
}

std::optional<size_t> count_in(llvm::StringRef text) {
  size_t value = 0;
  if (text.empty() || text.getAsInteger(10, value)) return std::nullopt;
  return value;
}

struct Launched {
  std::string variable;
  std::optional<size_t> index, count;
};

Launched launched(const std::function<std::string(const char*)>& environment) {
  const auto number = [&](const char* name) { return count_in(environment(name)); };
  if (const auto id = number("SLURM_ARRAY_TASK_ID")) {
    const size_t first = number("SLURM_ARRAY_TASK_MIN").value_or(0);
    const size_t step = std::max<size_t>(number("SLURM_ARRAY_TASK_STEP").value_or(1), 1);
    return {"SLURM_ARRAY_TASK_ID", *id >= first ? (*id - first) / step : *id,
            number("SLURM_ARRAY_TASK_COUNT")};
  }
  if (const auto index = number("JOB_COMPLETION_INDEX")) return {"JOB_COMPLETION_INDEX", index, std::nullopt};
  if (const auto rank = number("RANK")) return {"RANK", rank, number("WORLD_SIZE")};
  return {};
}

}  // namespace

llvm::Expected<Shard> parse_shard(llvm::StringRef text,
                                  const std::function<std::string(const char*)>& environment) {
  const auto [first, second] = text.split('/');
  const bool counted = text.contains('/');
  std::optional<size_t> index = count_in(first), count = count_in(second);
  std::string from;
  if (first == "auto") {
    const Launched found = launched(environment);
    if (!found.index)
      return refuse_shard(text,
                          "no launcher numbers this process (SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX "
                          "and RANK are unset)");
    index = found.index;
    if (!counted) count = found.count;
    if (!counted && !count)
      return refuse_shard(text, found.variable + " is " + std::to_string(*index) +
                                    " and nothing says of how many; add the count");
    from = ", from " + found.variable;
  }
  if (!index || !count || *count == 0) return refuse_shard(text, "it has no index and count");
  if (*index >= *count)
    return refuse_shard(text, "there is no part " + std::to_string(*index) + " of " + std::to_string(*count) +
                                  " counted from 0" + from);
  return Shard{*index, *count};
}

}  // namespace trigen
