// trigen emit --arch sm_90a --candidate wgmma_taps_sm90:tile=64x512x64,warps=4x2,stages=10,splitk=1,vec=8x8x4,cluster=1,blocks=1 grad_weight,dtype=bf16,B=1,H=1,T=256,D=512,K=16,pad=7,walign=8
#include "wgmma_taps_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradWeight, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 256, .D = 512, .H = 1, .K = 16, .pad = 7, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 64, .tile_n = 512, .tile_k = 64, .warps_m = 4, .warps_n = 2, .stages = 10,
        .split_k = 1, .raster = 0, .vec_a = 8, .vec_b = 8, .vec_c = 4, .cluster = 1, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_grad_weight(const __grid_constant__ trigen::Params p,
    const __grid_constant__ trigen::TensorMap map0,
    const __grid_constant__ trigen::TensorMap map1) {
  trigen::wgmma_taps_sm90::run<kKernel>(p, map0, map1);
}

extern "C" __global__ void __launch_bounds__(256)
trigen_reduce(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_taps_sm90::reduce<kKernel>(p);
}
