// trigen emit --arch sm_70 --candidate mma_sm70:tile=64x64x32,warps=2x2,stages=2,splitk=1,vec=8x8x8,blocks=2 grad_input,dtype=f16,B=1,H=4,T=1024,D=256,K=1,pad=0
#include "mma_sm70.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradInput, .dtype = trigen::DType::kF16, .wdtype = trigen::DType::kF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 1024, .D = 256, .H = 4, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 64, .tile_n = 64, .tile_k = 32, .warps_m = 2, .warps_n = 2, .stages = 2,
        .split_k = 1, .raster = 0, .vec_a = 8, .vec_b = 8, .vec_c = 8, .cluster = 0, .box = 0, .blocks = 2},
};

extern "C" __global__ void __launch_bounds__(128, 2)
trigen_grad_input(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm70::run<kKernel>(p);
}
