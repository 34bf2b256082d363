// trigen emit --arch sm_120a --candidate mma_tma_sm90:tile=128x128x64,warps=2x4,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1 forward,dtype=bf16,B=1,H=1,T=512,D=256,K=1,pad=0,epilogue=bias+gelu
#include "mma_tma_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kForward, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 256, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense, .width = 0,
        .bias = true, .act = trigen::Activation::kGELU, .pre = false, .gate = false, .residual = false,
        .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 128, .tile_k = 64, .warps_m = 2, .warps_n = 4, .stages = 3,
        .split_k = 1, .raster = 0, .vec_a = 8, .vec_b = 8, .vec_c = 8, .cluster = 1, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_forward(const __grid_constant__ trigen::Params p,
    const __grid_constant__ trigen::TensorMap map0,
    const __grid_constant__ trigen::TensorMap map1) {
  trigen::mma_tma_sm90::run<kKernel>(p, map0, map1);
}
