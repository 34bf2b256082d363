// trigen emit --arch sm_90a --candidate wgmma_resident_sm90:tile=128x64x64,warps=4x2,stages=12,splitk=1,raster=1,vec=8x8x8,cluster=1,blocks=1 forward,dtype=bf16,B=1,H=1,T=128,D=512,K=1,pad=0,epilogue=bias
#include "wgmma_resident_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kForward, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 128, .D = 512, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense, .width = 0,
        .bias = true, .act = trigen::Activation::kNone, .pre = false, .gate = false, .residual = false,
        .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 128, .tile_n = 64, .tile_k = 64, .warps_m = 4, .warps_n = 2, .stages = 12,
        .split_k = 1, .raster = 1, .vec_a = 8, .vec_b = 8, .vec_c = 8, .cluster = 1, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_forward(const __grid_constant__ trigen::Params p,
    const __grid_constant__ trigen::TensorMap map0,
    const __grid_constant__ trigen::TensorMap map1,
    const __grid_constant__ trigen::TensorMap map2) {
  trigen::wgmma_resident_sm90::run<kKernel>(p, map0, map1, map2);
}
