// trigen emit --arch sm_90a --candidate wgmma_sm90:tile=128x256x64,warps=8x1,stages=4,splitk=1,raster=16,vec=8x8x8,cluster=2,blocks=1 forward,dtype=bf16,B=1,H=1,T=2048,D=1024,K=1,pad=0,epilogue=bias+gelu
#include "wgmma_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kForward, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 2048, .D = 1024, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = true, .act = trigen::Activation::kGELU, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 256, .tile_k = 64, .warps_m = 8, .warps_n = 1, .stages = 4,
        .split_k = 1, .raster = 16, .vec_a = 8, .vec_b = 8, .vec_c = 8, .cluster = 2, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_forward(const __grid_constant__ trigen::Params p,
    const __grid_constant__ trigen::TensorMap map0,
    const __grid_constant__ trigen::TensorMap map1,
    const __grid_constant__ trigen::TensorMap map2) {
  trigen::wgmma_sm90::run<kKernel>(p, map0, map1, map2);
}
