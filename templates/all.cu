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

#include "mma_sm70.cuh"
#include "mma_sm75.cuh"
#include "mma_sm80.cuh"

namespace {
constexpr trigen::Kernel kMma{.shape = {.op = trigen::Op::kForward,
                                        .dtype = trigen::DType::kF16,
                                        .wdtype = trigen::DType::kF16,
                                        .T = 512,
                                        .D = 256,
                                        .H = 1,
                                        .K = 1,
                                        .bias = true,
                                        .act = trigen::Activation::kGELU},
                              .config = {.tile_m = 64,
                                         .tile_n = 64,
                                         .tile_k = 32,
                                         .warps_m = 2,
                                         .warps_n = 2,
                                         .stages = 2,
                                         .split_k = 1,
                                         .vec_a = 8,
                                         .vec_b = 8,
                                         .vec_c = 8}};
}  // namespace

extern "C" __global__ void mma_sm70_run(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm70::run<kMma>(p);
}
extern "C" __global__ void mma_sm75_run(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm75::run<kMma>(p);
}
extern "C" __global__ void mma_sm80_run(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm80::run<kMma>(p);
}

#include "mma_tma_sm90.cuh"

namespace {
constexpr trigen::Kernel kMmaTma{.shape = kMma.shape,
                                 .config = {.tile_m = 128,
                                            .tile_n = 128,
                                            .tile_k = 64,
                                            .warps_m = 2,
                                            .warps_n = 4,
                                            .stages = 3,
                                            .split_k = 1,
                                            .vec_a = 8,
                                            .vec_b = 8,
                                            .vec_c = 8,
                                            .cluster = 1,
                                            .blocks = 1}};
}  // namespace

extern "C" __global__ void mma_tma_sm90_run(const __grid_constant__ trigen::Params p,
                                            const __grid_constant__ trigen::TensorMap a,
                                            const __grid_constant__ trigen::TensorMap b) {
  trigen::mma_tma_sm90::run<kMmaTma>(p, a, b);
}
extern "C" __global__ void mma_tma_sm90_pack(const __grid_constant__ trigen::Params p) {
  trigen::mma_tma_sm90::pack_weights<kMmaTma>(p);
}

#include "wgmma_resident_sm90.cuh"
#include "wgmma_sm90.cuh"

namespace {
constexpr trigen::Config kWgmmaConfig{.tile_m = 128,
                                      .tile_n = 256,
                                      .tile_k = 64,
                                      .warps_m = 8,
                                      .warps_n = 1,
                                      .stages = 4,
                                      .split_k = 2,
                                      .vec_a = 8,
                                      .vec_b = 8,
                                      .vec_c = 8,
                                      .cluster = 1,
                                      .blocks = 1};
constexpr trigen::Kernel kWgmmaForward{
    .shape = {.op = trigen::Op::kForward, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16},
    .config = kWgmmaConfig};
constexpr trigen::Kernel kWgmmaWeight{
    .shape = {.op = trigen::Op::kGradWeight, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kF32},
    .config = kWgmmaConfig};
}  // namespace

extern "C" __global__ void wgmma_forward(const __grid_constant__ trigen::Params p,
                                         const __grid_constant__ trigen::TensorMap a,
                                         const __grid_constant__ trigen::TensorMap b,
                                         const __grid_constant__ trigen::TensorMap c) {
  trigen::wgmma_sm90::run<kWgmmaForward>(p, a, b, c);
}
extern "C" __global__ void wgmma_pack(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_sm90::pack_weights<kWgmmaForward>(p);
}
namespace {
constexpr trigen::Kernel kWgmmaCopied{.shape = {.op = trigen::Op::kForward,
                                                .dtype = trigen::DType::kBF16,
                                                .wdtype = trigen::DType::kBF16,
                                                .layout = trigen::Layout::kBDT,
                                                .T = 511,
                                                .D = 512,
                                                .H = 1,
                                                .K = 1,
                                                .pre = true},
                                      .config = {.vec_a = 1,
                                                 .vec_b = 1,
                                                 .vec_c = 1,
                                                 .weights = trigen::Access::kPacked,
                                                 .activations = trigen::Access::kPacked}};
}  // namespace

extern "C" __global__ void wgmma_pack_activations(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_sm90::pack_activations<kWgmmaCopied>(p);
}
extern "C" __global__ void wgmma_unpack_activations(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_sm90::unpack_activations<kWgmmaCopied>(p);
}
extern "C" __global__ void wgmma_weight(const __grid_constant__ trigen::Params p,
                                        const __grid_constant__ trigen::TensorMap a,
                                        const __grid_constant__ trigen::TensorMap b,
                                        const __grid_constant__ trigen::TensorMap c) {
  trigen::wgmma_sm90::run<kWgmmaWeight>(p, a, b, c);
}
extern "C" __global__ void wgmma_reduce(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_sm90::reduce<kWgmmaWeight>(p);
}

#include "wgmma_tf32_sm90.cuh"

namespace {
constexpr trigen::Shape kTf32Forward{.op = trigen::Op::kForward,
                                     .dtype = trigen::DType::kF32,
                                     .wdtype = trigen::DType::kF32,
                                     .math = trigen::Math::kTF32,
                                     .bias = true};
constexpr trigen::Kernel kTf32{.shape = kTf32Forward,
                               .config = {.tile_m = 256,
                                          .tile_n = 128,
                                          .tile_k = 32,
                                          .warps_m = 1,
                                          .warps_n = 8,
                                          .stages = 4,
                                          .split_k = 1,
                                          .vec_a = 4,
                                          .vec_b = 4,
                                          .vec_c = 4,
                                          .cluster = 2,
                                          .blocks = 1}};
}  // namespace

extern "C" __global__ void wgmma_tf32_forward(const __grid_constant__ trigen::Params p,
                                              const __grid_constant__ trigen::TensorMap a,
                                              const __grid_constant__ trigen::TensorMap b,
                                              const __grid_constant__ trigen::TensorMap c) {
  trigen::wgmma_tf32_sm90::run<kTf32>(p, a, b, c);
}
extern "C" __global__ void wgmma_tf32_pack_weights(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_tf32_sm90::pack_weights<kTf32>(p);
}

#include "wgmma_split_sm90.cuh"

namespace {
constexpr trigen::Config kSplitConfig{.tile_m = 128,
                                      .tile_n = 128,
                                      .tile_k = 64,
                                      .warps_m = 8,
                                      .warps_n = 1,
                                      .stages = 3,
                                      .split_k = 2,
                                      .vec_a = 4,
                                      .vec_b = 4,
                                      .vec_c = 2,
                                      .cluster = 1,
                                      .blocks = 1};
constexpr trigen::Kernel kSplitForward{.shape = {.op = trigen::Op::kForward,
                                                 .dtype = trigen::DType::kF32,
                                                 .wdtype = trigen::DType::kF32,
                                                 .math = trigen::Math::kF16x3},
                                       .config = kSplitConfig};
constexpr trigen::Kernel kSplitWeight{.shape = {.op = trigen::Op::kGradWeight,
                                                .dtype = trigen::DType::kF32,
                                                .wdtype = trigen::DType::kF32,
                                                .math = trigen::Math::kF16x3},
                                      .config = kSplitConfig};
}  // namespace

extern "C" __global__ void split_split(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::split<kSplitForward>(p);
}
extern "C" __global__ void split_forward(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::run<kSplitForward>(p);
}
extern "C" __global__ void split_weight(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::run<kSplitWeight>(p);
}
extern "C" __global__ void split_reduce(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::reduce<kSplitWeight>(p);
}

#include "decode.cuh"

namespace {
constexpr trigen::Kernel kDecode{.shape = {.op = trigen::Op::kDecode,
                                           .dtype = trigen::DType::kBF16,
                                           .wdtype = trigen::DType::kF32,
                                           .T = 512,
                                           .D = 1024,
                                           .H = 1,
                                           .K = 4,
                                           .pad = 1,
                                           .bias = true},
                                 .config = {.tile_m = 1,
                                            .tile_n = 512,
                                            .tile_k = 8,
                                            .warps_m = 2,
                                            .warps_n = 2,
                                            .stages = 4,
                                            .split_k = 2,
                                            .vec_a = 1,
                                            .vec_b = 8,
                                            .vec_c = 8}};
}  // namespace

extern "C" __global__ void decode_run(const __grid_constant__ trigen::Params p) {
  trigen::decode::run<kDecode>(p);
}
extern "C" __global__ void decode_reduce(const __grid_constant__ trigen::Params p) {
  trigen::decode::reduce<kDecode>(p);
}

#include "wgmma_taps_sm90.cuh"

namespace {
constexpr trigen::Kernel kWgmmaTaps{.shape = {.op = trigen::Op::kForward,
                                              .dtype = trigen::DType::kBF16,
                                              .wdtype = trigen::DType::kF32,
                                              .T = 512,
                                              .D = 1024,
                                              .H = 1,
                                              .K = 4,
                                              .pad = 1,
                                              .bias = true},
                                    .config = {.tile_m = 256,
                                               .tile_n = 128,
                                               .tile_k = 64,
                                               .warps_m = 1,
                                               .warps_n = 8,
                                               .stages = 4,
                                               .split_k = 1,
                                               .vec_a = 4,
                                               .vec_b = 8,
                                               .vec_c = 8,
                                               .cluster = 1,
                                               .blocks = 1}};
}  // namespace

extern "C" __global__ void wgmma_taps_forward(const __grid_constant__ trigen::Params p,
                                              const __grid_constant__ trigen::TensorMap a,
                                              const __grid_constant__ trigen::TensorMap b,
                                              const __grid_constant__ trigen::TensorMap c) {
  trigen::wgmma_taps_sm90::run<kWgmmaTaps>(p, a, b, c);
}

namespace {
constexpr trigen::Kernel kWgmmaTapsWeight{.shape = {.op = trigen::Op::kGradWeight,
                                                    .dtype = trigen::DType::kBF16,
                                                    .wdtype = trigen::DType::kF32,
                                                    .T = 512,
                                                    .D = 1024,
                                                    .H = 1,
                                                    .K = 8,
                                                    .pad = 3,
                                                    .bias = true,
                                                    .zero_outside = true},
                                          .config = {.tile_m = 64,
                                                     .tile_n = 512,
                                                     .tile_k = 64,
                                                     .warps_m = 4,
                                                     .warps_n = 2,
                                                     .stages = 6,
                                                     .split_k = 1,
                                                     .vec_a = 8,
                                                     .vec_b = 8,
                                                     .vec_c = 4,
                                                     .cluster = 1,
                                                     .blocks = 1}};
}  // namespace

extern "C" __global__ void wgmma_taps_weight(const __grid_constant__ trigen::Params p,
                                             const __grid_constant__ trigen::TensorMap dy,
                                             const __grid_constant__ trigen::TensorMap x) {
  trigen::wgmma_taps_sm90::run<kWgmmaTapsWeight>(p, dy, x);
}
extern "C" __global__ void wgmma_taps_reduce(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_taps_sm90::reduce<kWgmmaTapsWeight>(p);
}

namespace {
constexpr trigen::Kernel kWgmmaResident{.shape = {.op = trigen::Op::kForward,
                                                  .dtype = trigen::DType::kBF16,
                                                  .wdtype = trigen::DType::kBF16,
                                                  .T = 128,
                                                  .D = 512,
                                                  .H = 1,
                                                  .K = 1,
                                                  .bias = true},
                                        .config = {.tile_m = 128,
                                                   .tile_n = 64,
                                                   .tile_k = 64,
                                                   .warps_m = 4,
                                                   .warps_n = 2,
                                                   .stages = 12,
                                                   .split_k = 1,
                                                   .raster = 1,
                                                   .vec_a = 8,
                                                   .vec_b = 8,
                                                   .vec_c = 8,
                                                   .cluster = 1,
                                                   .blocks = 1}};
}  // namespace

extern "C" __global__ void wgmma_resident_forward(const __grid_constant__ trigen::Params p,
                                                  const __grid_constant__ trigen::TensorMap a,
                                                  const __grid_constant__ trigen::TensorMap b,
                                                  const __grid_constant__ trigen::TensorMap c) {
  trigen::wgmma_resident_sm90::run<kWgmmaResident>(p, a, b, c);
}

#include "grad_epilogue.cuh"

namespace {
constexpr trigen::Kernel kGradEpilogue{.shape = {.op = trigen::Op::kGradEpilogue,
                                                 .dtype = trigen::DType::kBF16,
                                                 .wdtype = trigen::DType::kBF16,
                                                 .T = 512,
                                                 .D = 1024,
                                                 .H = 1,
                                                 .K = 1,
                                                 .act = trigen::Activation::kGELU,
                                                 .gate = true},
                                       .config = {.tile_m = 1,
                                                  .tile_n = 256,
                                                  .tile_k = 1,
                                                  .warps_m = 1,
                                                  .warps_n = 8,
                                                  .stages = 2,
                                                  .split_k = 1,
                                                  .vec_a = 1,
                                                  .vec_b = 8,
                                                  .vec_c = 8}};
}  // namespace

extern "C" __global__ void grad_epilogue_run(const __grid_constant__ trigen::Params p) {
  trigen::grad_epilogue::run<kGradEpilogue>(p);
}
