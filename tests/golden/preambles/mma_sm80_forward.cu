// trigen emit --arch sm_80 --candidate mma_sm80:tile=128x128x32,warps=2x2,stages=4,splitk=1,raster=8,vec=8x8x8,blocks=1 forward,dtype=bf16,B=1,H=1,T=512,D=1024,K=1,pad=0,epilogue=bias+gelu+residual
#include "mma_sm80.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kForward, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 1024, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = true, .act = trigen::Activation::kGELU, .pre = false, .gate = false,
        .residual = true, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 128, .tile_k = 32, .warps_m = 2, .warps_n = 2, .stages = 4,
        .split_k = 1, .raster = 8, .vec_a = 8, .vec_b = 8, .vec_c = 8, .cluster = 0, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(128, 1)
trigen_forward(const __grid_constant__ trigen::Params p) {
  trigen::mma_sm80::run<kKernel>(p);
}
