#include "cache/threads.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <vector>

namespace trigen {

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

void on_threads(size_t count, const std::function<void()>& work) {
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto caught = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(count);
  while (others.size() + 1 < count) {
    others.push_back(start_thread(caught));
    if (!others.back().joinable()) break;
  }
  caught();
  for (std::thread& other : others)
    if (other.joinable()) other.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace trigen
