#include "peers/copy_peer.h"

#include <algorithm>

namespace trigen {
namespace {

double bytes_to_move(const Problem& p, Rows rows) {
  if (!op_row(p.op).takes(kRowsField)) return count_work(p).min_bytes;
  const Tokens read = tokens_of_rows(p, rows);
  return static_cast<double>(p.B * p.H * p.D * element_size(p.dtype)) *
         static_cast<double>(read.last - read.first);
}

}  // namespace

llvm::Expected<std::unique_ptr<CopyPeer>> CopyPeer::create(Workbench& bench) {
  std::unique_ptr<CopyPeer> made(new CopyPeer(bench));
  const Driver& driver = bench.device().driver();
  const ContextScope scope(driver.api(), bench.context());
  const auto half = static_cast<int64_t>(bytes_to_move(bench.problem(), bench.list().rows) / 2);
  made->half_ = static_cast<cuda::size_type>(std::max<int64_t>(half / 256, 1) * 256);
  const int64_t wanted = bench.device().info().l2_bytes / static_cast<int64_t>(made->half_) + 2;
  made->slots_ = static_cast<int>(std::clamp<int64_t>(wanted, 1, 1024));
  if (auto error =
          driver.check(driver.api().cuMemAlloc(&made->memory_,
                                               2 * made->half_ * static_cast<cuda::size_type>(made->slots_)),
                       "cuMemAlloc", "the copy"))
    return error;
  return made;
}

CopyPeer::~CopyPeer() {
  const ContextScope scope(bench_.device().api(), bench_.context());
  if (memory_ != 0) bench_.device().api().cuMemFree(memory_);
}

LaunchOn CopyPeer::launch() const {
  return [this](int set, cuda::CUstream stream) {
    const cuda::CUdeviceptr from = memory_ + 2 * half_ * static_cast<cuda::size_type>(set % slots_);
    const Driver& driver = bench_.device().driver();
    return driver.check(driver.api().cuMemcpyDtoDAsync(from + half_, from, half_, stream),
                        "cuMemcpyDtoDAsync");
  };
}

}  // namespace trigen
