// The C boundary: version, errors, problems.
#include "runtime/api.h"

#include <cstring>

#include "runtime/api_error.h"
#include "runtime/canary.h"
#include "runtime/log.h"

namespace trigen::api {
namespace {

thread_local std::string last_error;

}  // namespace

trigen_status set_error(trigen_status status, std::string text) noexcept {
  last_error = std::move(text);
  return status;
}

trigen_status give(llvm::Error error) noexcept {
  if (!error) return TRIGEN_OK;
  try {
    ErrorText text = take_error(std::move(error));
    return set_error(static_cast<trigen_status>(text.kind), std::move(text.message));
  } catch (...) {
    return TRIGEN_INTERNAL_ERROR;
  }
}

}  // namespace trigen::api

using namespace trigen;
using namespace trigen::api;

extern "C" {

trigen_status trigen_fail(trigen_status status, const char* text) noexcept { return set_error(status, text); }

int trigen_version(void) noexcept { return TRIGEN_VERSION; }

const char* trigen_version_string(void) noexcept { return TRIGEN_VERSION_TEXT; }

// A caller in C may pass any number.
__attribute__((no_sanitize("enum"))) const char* trigen_status_name(trigen_status status) noexcept {
  switch (status) {
    case TRIGEN_OK:
      return "ok";
    case TRIGEN_BAD_REQUEST:
      return "bad request";
    case TRIGEN_UNSUPPORTED:
      return "unsupported";
    case TRIGEN_BUILD_ERROR:
      return "build error";
    case TRIGEN_DEVICE_ERROR:
      return "device error";
    case TRIGEN_CACHE_ERROR:
      return "cache error";
    case TRIGEN_INTERNAL_ERROR:
      return "internal error";
    case TRIGEN_NO_COMPILER:
      return "no compiler";
  }
  return "unknown status";
}

const char* trigen_last_error(void) noexcept { return last_error.c_str(); }

trigen_status trigen_problem_init(trigen_problem* problem, trigen_op op, trigen_dtype dtype, int64_t B,
                                  int64_t T, int64_t D) noexcept {
  return guarded([&] {
    if (llvm::Error error = check_struct_size(problem)) return give(std::move(error));
    const trigen_problem made = struct_of_sizes(op, dtype, B, T, D);
    auto checked = problem_of(&made);
    if (!checked) return give(checked.takeError());
    *problem = made;
    return TRIGEN_OK;
  });
}

trigen_status trigen_problem_parse(const char* text, trigen_problem* problem) noexcept {
  if (text == nullptr) return set_error(TRIGEN_BAD_REQUEST, "text is null");
  return guarded([&] {
    if (llvm::Error error = check_struct_size(problem)) return give(std::move(error));
    auto parsed = parse_problem(text);
    if (!parsed) return give(parsed.takeError());
    *problem = struct_of(*parsed);
    return TRIGEN_OK;
  });
}

trigen_status trigen_problem_format(const trigen_problem* problem, char* buffer, size_t size,
                                    size_t* needed) noexcept {
  return guarded([&] {
    auto checked = problem_of(problem);
    if (!checked) return give(checked.takeError());
    const std::string text = to_string(*checked);
    if (needed != nullptr) *needed = text.size() + 1;
    if (size > 0 && buffer == nullptr) return set_error(TRIGEN_BAD_REQUEST, "buffer is null");
    if (size > 0) {
      const size_t count = std::min(size - 1, text.size());
      std::memcpy(buffer, text.data(), count);
      buffer[count] = '\0';
    }
    return TRIGEN_OK;
  });
}

const char* trigen_problem_fields(void) noexcept {
  try {
    static const std::string text = describe_problem_fields();
    return text.c_str();
  } catch (...) {  // no memory
    return "";
  }
}

trigen_status trigen_set_log(trigen_log_level level, trigen_log_fn fn, void* user) noexcept {
  static_assert(static_cast<int>(LogLevel::kDebug) == TRIGEN_LOG_DEBUG);
  if (level < TRIGEN_LOG_OFF || level > TRIGEN_LOG_DEBUG)
    return set_error(TRIGEN_BAD_REQUEST, "level " + std::to_string(static_cast<int>(level)) +
                                             "; allowed are TRIGEN_LOG_OFF (0) to TRIGEN_LOG_DEBUG (4)");
  return guarded([&] {
    set_log(static_cast<LogLevel>(level), fn, user);
    return TRIGEN_OK;
  });
}

trigen_status trigen_counters(trigen_counts* counts) noexcept {
  if (counts == nullptr) return set_error(TRIGEN_BAD_REQUEST, "counts is null");
  if (counts->struct_size != sizeof(trigen_counts))
    return set_error(TRIGEN_BAD_REQUEST, "trigen_counts has struct_size " +
                                             std::to_string(counts->struct_size) + ", this library's is " +
                                             std::to_string(sizeof(trigen_counts)) +
                                             "; set it to sizeof(trigen_counts)");
  const Counters& now = counters();
  counts->exact = now.exact;
  counts->near = now.near;
  counts->predicted = now.predicted;
  counts->misses = now.misses;
  counts->compiles = now.compiles;
  const CanaryCounts canaries = canary_counts();
  counts->canaries = static_cast<uint64_t>(canaries.right + canaries.wrong);
  counts->plan_ms = static_cast<double>(now.plan_ns) * 1e-6;
  counts->compile_ms = static_cast<double>(now.compile_ns) * 1e-6;
  return TRIGEN_OK;
}

}  // extern "C"
