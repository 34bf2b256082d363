// Every template with one instance each, for editors and clang-tidy. Not compiled into the library.
#include "simt.cuh"

namespace {
constexpr trigen::Kernel kSimt{.shape = {.op = trigen::Op::kGradWeight,
                                         .dtype = trigen::DType::kBF16,
                                         .wdtype = trigen::DType::kF32,
                                         .bias = true},
                               .config = {.tile_m = 64,
                                          .tile_n = 64,
                                          .tile_k = 8,
                                          .warps_m = 2,
                                          .warps_n = 2,
                                          .stages = 2,
                                          .split_k = 2,
                                          .vec_a = 1,
                                          .vec_b = 1,
                                          .vec_c = 1}};
}  // namespace

extern "C" __global__ void simt_run(const __grid_constant__ trigen::Params p) { trigen::simt::run<kSimt>(p); }
extern "C" __global__ void simt_reduce(const __grid_constant__ trigen::Params p) {
  trigen::simt::reduce<kSimt>(p);
}
