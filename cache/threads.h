// Threads for work that fewer can do as well: a host may refuse them (`ulimit -u`, a container's limit).
#pragma once

#include <functional>
#include <thread>

namespace trigen {

// Not joinable where the host makes none.
std::thread start_thread(std::function<void()> work);

// Runs `work` on this thread and on up to `count` - 1 others, and returns when all have ended; the first exception of
// any is thrown then.
void on_threads(size_t count, const std::function<void()>& work);

}  // namespace trigen
