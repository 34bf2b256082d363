// trigen emit --arch sm_90a --candidate simt:tile=64x64x8,warps=2x2,stages=2,splitk=1,raster=8,vec=1x1x1,blocks=1,generic forward,dtype=f32,B=1,H=1,T=1024,D=1024,K=1,pad=0,layout=bdt,fill=upper,align=4,walign=4,epilogue=bias+gelu+pre+residual
#include "simt.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kForward, .dtype = trigen::DType::kF32, .wdtype = trigen::DType::kF32,
        .math = trigen::Math::kSimt, .layout = trigen::Layout::kBDT, .fill = trigen::Fill::kUpper, .T = 0,
        .D = 0, .H = 0, .K = 0, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense, .width = 0,
        .bias = true, .act = trigen::Activation::kGELU, .pre = true, .gate = false, .residual = true,
        .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 64, .tile_n = 64, .tile_k = 8, .warps_m = 2, .warps_n = 2, .stages = 2,
        .split_k = 1, .raster = 8, .vec_a = 1, .vec_b = 1, .vec_c = 1, .cluster = 0, .box = 0, .blocks = 1},
};

extern "C" __global__ void __launch_bounds__(128, 1)
trigen_forward(const __grid_constant__ trigen::Params p) {
  trigen::simt::run<kKernel>(p);
}
