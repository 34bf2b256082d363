// trigen emit --arch sm_90a --candidate decode:tile=2x256x8,warps=4x1,stages=4,splitk=2,vec=1x8x8 decode,dtype=bf16,B=1,H=2,T=512,D=1024,K=4,pad=1,walign=2,epilogue=bias+gelu
#include "decode.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kDecode, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 1024, .H = 2, .K = 4, .pad = 1, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = true, .act = trigen::Activation::kGELU, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 2, .tile_n = 256, .tile_k = 8, .warps_m = 4, .warps_n = 1, .stages = 4,
        .split_k = 2, .raster = 0, .vec_a = 1, .vec_b = 8, .vec_c = 8, .cluster = 0, .box = 0, .blocks = 0},
};

extern "C" __global__ void __launch_bounds__(128)
trigen_decode(const __grid_constant__ trigen::Params p) {
  trigen::decode::run<kKernel>(p);
}

extern "C" __global__ void __launch_bounds__(256)
trigen_reduce(const __grid_constant__ trigen::Params p) {
  trigen::decode::reduce<kKernel>(p);
}
