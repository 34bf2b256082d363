#include "tuner/gpu_watch.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "check/text.h"

namespace trigen {

std::unique_ptr<GpuWatch> GpuWatch::open(const std::string& pci, const std::string& name,
                                         std::function<int()> own, const Options& options) {
  auto gpu = NvmlGpu::find(pci);
  if (gpu == nullptr) return nullptr;
  auto watch = std::make_unique<GpuWatch>();
  watch->gpu_ = std::move(gpu);
  watch->name_ = name;
  watch->own_ = std::move(own);
  watch->options_ = options;
  return watch;
}

std::vector<GpuState::Process> GpuWatch::others(const GpuState& state) const {
  if (state.mig.value_or(false)) return {};  // they may be on other slices
  std::vector<GpuState::Process> others = state.processes;
  // In a container our own process has the host's number: then one of them is ours, whichever.
  if (const int own = own_(); own > 0 && !others.empty()) {
    const auto found = std::find_if(others.begin(), others.end(), [&](const GpuState::Process& process) {
      return process.pid == static_cast<unsigned>(own);
    });
    others.erase(found == others.end() ? others.begin() : found);
  }
  return others;
}

std::string GpuWatch::trouble(const GpuState& state) const {
  constexpr int kBusyPercent = 10;  // of the last second or less; a display takes some
  const auto there = others(state);
  const bool busy = state.percent_busy.value_or(there.empty() ? 0 : 100) >= kBusyPercent;
  std::string text;
  if (busy && (!there.empty() || own_() == 0)) {
    text = format("it is %d %% busy", state.percent_busy.value_or(100));
    if (!there.empty())
      text += format(" with %zu other process%s (", there.size(), there.size() == 1 ? "" : "es");
    for (size_t i = 0; i < there.size() && i < 4; ++i) {
      text += format("%s%u", i > 0 ? ", " : "", there[i].pid);
      if (there[i].bytes > 0) text += " with " + format_bytes(static_cast<double>(there[i].bytes));
    }
    if (!there.empty()) text += ")";
  }
  if (const std::string slow = slowdown_of(state); !slow.empty())
    text += (text.empty() ? "" : ", and ") + ("its clocks are held down by " + slow);
  return text;
}

std::string GpuWatch::trouble_since(const GpuState& before, const GpuState& after) const {
  std::string text;
  if (const size_t was = others(before).size(), is = others(after).size(); is > was)
    text = format("%zu more process%s came to the GPU", is - was, is - was == 1 ? "" : "es");
  if (const std::string slow = slowdown_of(after); !slow.empty())
    text += (text.empty() ? "" : ", and ") + ("its clocks were held down by " + slow);
  return text;
}

llvm::Error GpuWatch::await_quiet() {
  refused_ = false;
  const auto began = std::chrono::steady_clock::now();
  for (;;) {
    const std::string text = trouble(read());
    if (text.empty() || options_.shared_ok) return llvm::Error::success();
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
    const bool cancelled = options_.cancel != nullptr && options_.cancel->load();
    refused_ = cancelled || waited.count() >= options_.wait_s;
    if (refused_)
      return make_error(ErrorKind::kDevice,
                        format("%s is busy or throttled: %s (waited %.0f s); free it, raise --wait, or pass "
                               "--shared-ok",
                               name_.c_str(), text.c_str(), waited.count()));
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(500, 50 + int(options_.wait_s * 100))));
  }
}

}  // namespace trigen
