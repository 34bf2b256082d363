#include "peers/copy_peer.h"

#include <algorithm>

namespace trigen {
namespace {

double bytes_to_move(const Problem& p, Rows rows) {
  if (p.op != Op::kDecode) return count_work(p).min_bytes;
  const Tokens read = tokens_of_rows(p, rows);
  return static_cast<double>(p.B * p.H * p.D * element_size(p.dtype)) *
         static_cast<double>(read.last - read.first);
}

}  // namespace

llvm::Expected<LaunchOn> copy_launch(Workbench& bench) {
  const auto half = static_cast<cuda::size_type>(bytes_to_move(bench.problem(), bench.list().rows) / 2);
  const Tensor& x = *bench.list().find(Role::kX);
  const Tensor& w = *bench.list().find(Role::kW);
  const Tensor& larger = x.bytes() >= w.bytes() ? x : w;
  if (half == 0 || static_cast<cuda::size_type>(larger.bytes()) < 2 * half)
    return make_error(ErrorKind::kUnsupported, "no tensor is large enough for the copy");
  return LaunchOn([&bench, role = larger.role, half](int set, cuda::CUstream stream) {
    const auto from = reinterpret_cast<cuda::CUdeviceptr>(bench.data(set, role));
    const Driver& driver = bench.device().driver();
    return driver.check(driver.api().cuMemcpyDtoDAsync(from + half, from, half, stream), "cuMemcpyDtoDAsync");
  });
}

}  // namespace trigen
