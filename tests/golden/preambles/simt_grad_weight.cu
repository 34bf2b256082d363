// trigen emit --arch sm_70 --candidate simt:tile=128x64x8,warps=2x2,stages=2,splitk=4,raster=8,vec=8x1x4,blocks=2 grad_weight,dtype=bf16,B=1,H=4,T=256,D=512,K=8,pad=7,wdtype=f32,epilogue=bias
#include "simt.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradWeight, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kF32,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 256, .D = 512, .H = 4, .K = 8, .pad = 7, .diag = 0, .w = trigen::WeightForm::kDense, .width = 0,
        .bias = true, .act = trigen::Activation::kNone, .pre = false, .gate = false, .residual = false,
        .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 64, .tile_k = 8, .warps_m = 2, .warps_n = 2, .stages = 2,
        .split_k = 4, .raster = 8, .vec_a = 8, .vec_b = 1, .vec_c = 4, .cluster = 0, .box = 0, .blocks = 2},
};

extern "C" __global__ void __launch_bounds__(128, 2)
trigen_grad_weight(const __grid_constant__ trigen::Params p) {
  trigen::simt::run<kKernel>(p);
}

extern "C" __global__ void __launch_bounds__(256)
trigen_reduce(const __grid_constant__ trigen::Params p) {
  trigen::simt::reduce<kKernel>(p);
}
