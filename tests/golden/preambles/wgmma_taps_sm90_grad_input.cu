// trigen emit --arch sm_90a --candidate wgmma_taps_sm90:tile=256x128x64,warps=1x8,stages=4,splitk=1,raster=66,vec=4x8x8,cluster=2,blocks=1 grad_input,dtype=bf16,B=1,H=1,T=512,D=1024,K=4,pad=1,wdtype=f32
#include "wgmma_taps_sm90.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradInput, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kF32,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 1024, .H = 1, .K = 4, .pad = 1, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 256, .tile_n = 128, .tile_k = 64, .warps_m = 1, .warps_n = 8, .stages = 4,
        .split_k = 1, .raster = 66, .vec_a = 4, .vec_b = 8, .vec_c = 8, .cluster = 2, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(256)
trigen_pack_weights(const __grid_constant__ trigen::Params p) {
  trigen::wgmma_taps_sm90::pack_weights<kKernel>(p);
}

extern "C" __global__ void __launch_bounds__(384, 1)
trigen_grad_input(const __grid_constant__ trigen::Params p,
    const __grid_constant__ trigen::TensorMap map0,
    const __grid_constant__ trigen::TensorMap map1,
    const __grid_constant__ trigen::TensorMap map2) {
  trigen::wgmma_taps_sm90::run<kKernel>(p, map0, map1, map2);
}
