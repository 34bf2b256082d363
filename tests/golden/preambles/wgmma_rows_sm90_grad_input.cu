// trigen emit --arch sm_90a --candidate wgmma_rows_sm90:tile=256x128x64,warps=8x1,stages=4,splitk=1,raster=33,vec=8x2x2,cluster=1,blocks=1 grad_input,dtype=bf16,B=1,H=1,T=512,D=1874,K=1,pad=0,epilogue=residual
#include "wgmma_rows_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradInput, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 1874, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = true, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 256, .tile_n = 128, .tile_k = 64, .warps_m = 8, .warps_n = 1, .stages = 4,
        .split_k = 1, .raster = 33, .vec_a = 8, .vec_b = 2, .vec_c = 2, .cluster = 1, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_grad_input(const __grid_constant__ trigen::Params p,
    const __grid_constant__ trigen::TensorMap map0) {
  trigen::wgmma_rows_sm90::run<kKernel>(p, map0);
}
