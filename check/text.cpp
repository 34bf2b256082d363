#include "check/text.h"

#include <cstdarg>

namespace trigen {

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(static_cast<size_t>(size > 0 ? size : 0), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

std::string format_seconds(double seconds) {
  const double micro = seconds * 1e6;
  if (micro < 10) return format("%.2f us", micro);
  if (micro < 100) return format("%.1f us", micro);
  if (micro < 1000) return format("%.0f us", micro);
  if (micro < 1e4) return format("%.2f ms", micro * 1e-3);
  if (micro < 1e6) return format("%.0f ms", micro * 1e-3);
  return format("%.1f s", seconds);
}

std::string format_bytes(double bytes) {
  if (bytes < 1024) return format("%.0f B", bytes);
  if (bytes < 1024.0 * 1024) return format("%.1f KiB", bytes / 1024);
  if (bytes < 1024.0 * 1024 * 1024) return format("%.1f MiB", bytes / (1024.0 * 1024));
  return format("%.2f GiB", bytes / (1024.0 * 1024 * 1024));
}

}  // namespace trigen
