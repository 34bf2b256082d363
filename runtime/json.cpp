#include "runtime/json.h"

namespace trigen {

nlohmann::json read_json(llvm::StringRef text) {
  constexpr size_t kMostBytes = 1 << 20;
  constexpr int kDeepest = 32;
  if (text.size() > kMostBytes) return {};
  int depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') ++at;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (depth > kDeepest) return {};
  }
  nlohmann::json value = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  return value.is_discarded() ? nlohmann::json() : value;
}

}  // namespace trigen
