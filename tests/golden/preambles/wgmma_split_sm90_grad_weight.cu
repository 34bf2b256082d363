// trigen emit --arch sm_90a --candidate wgmma_split_sm90:tile=128x128x64,warps=8x1,stages=3,splitk=2,vec=4x4x2,cluster=1,blocks=1 grad_weight,dtype=f32,B=1,H=1,T=2048,D=1024,K=1,pad=0,math=f16x3,walign=8
#include "wgmma_split_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradWeight, .dtype = trigen::DType::kF32, .wdtype = trigen::DType::kF32,
        .math = trigen::Math::kF16x3, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 2048, .D = 1024, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 128, .tile_k = 64, .warps_m = 8, .warps_n = 1, .stages = 3,
        .split_k = 2, .raster = 0, .vec_a = 4, .vec_b = 4, .vec_c = 2, .cluster = 1, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(256)
trigen_split(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::split<kKernel>(p);
}

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_grad_weight(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::run<kKernel>(p);
}

extern "C" __global__ void __launch_bounds__(256)
trigen_reduce(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_split_sm90::reduce<kKernel>(p);
}
