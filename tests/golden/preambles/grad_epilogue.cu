// trigen emit --arch sm_90a --candidate grad_epilogue:tile=1x256x1,warps=1x8,stages=2,splitk=1,vec=1x8x8 grad_epilogue,dtype=bf16,B=1,H=1,T=512,D=1024,K=1,pad=0,walign=2,epilogue=gelu+gate
#include "grad_epilogue.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kGradEpilogue, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kBF16,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 512, .D = 1024, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = false, .act = trigen::Activation::kGELU, .pre = false, .gate = true,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 1, .tile_n = 256, .tile_k = 1, .warps_m = 1, .warps_n = 8, .stages = 2,
        .split_k = 1, .raster = 0, .vec_a = 1, .vec_b = 8, .vec_c = 8, .cluster = 0, .box = 0, .blocks = 0},
};

extern "C" __global__ void __launch_bounds__(256)
trigen_grad_epilogue(const __grid_constant__ trigen::Params p) {
  trigen::grad_epilogue::run<kKernel>(p);
}
