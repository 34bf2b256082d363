// trigen emit --arch sm_80 --candidate newton_schulz_sm80:tile=128x64x16,warps=4x2,stages=2,splitk=1,vec=1x8x2 newton_schulz,dtype=bf16,B=1,H=1,T=128,D=1024,K=5,pad=0,walign=2
#include "newton_schulz_sm80.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kNewtonSchulz, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 128, .D = 1024, .H = 1, .K = 5, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 64, .tile_k = 16, .warps_m = 4, .warps_n = 2, .stages = 2,
        .split_k = 1, .raster = 0, .vec_a = 1, .vec_b = 8, .vec_c = 2, .cluster = 0, .box = 0, .blocks = 0},
};

extern "C" __global__ void __launch_bounds__(256)
trigen_newton_schulz(const __grid_constant__ trigen::Params p) {
  trigen::newton_schulz_sm80::run<kKernel>(p);
}
