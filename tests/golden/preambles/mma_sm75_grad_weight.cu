// trigen emit --arch sm_75 --candidate mma_sm75:tile=128x64x32,warps=2x2,stages=2,splitk=4,raster=8,vec=8x8x8,blocks=1 grad_weight,dtype=f16,B=1,H=1,T=512,D=1024,K=1,pad=0,epilogue=bias
#include "mma_sm75.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradWeight, .dtype = trigen::DType::kF16, .wdtype = trigen::DType::kF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 1024, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = true, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 64, .tile_k = 32, .warps_m = 2, .warps_n = 2, .stages = 2,
        .split_k = 4, .raster = 8, .vec_a = 8, .vec_b = 8, .vec_c = 8, .cluster = 0, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(128, 1)
trigen_grad_weight(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm75::run<kKernel>(p);
}

extern "C" __global__ void __launch_bounds__(256)
trigen_reduce(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm75::reduce<kKernel>(p);
}
