// trigen emit --arch sm_80 --candidate scan:tile=256x64x16,warps=8x1,stages=2,splitk=1,vec=1x8x4 scan,dtype=bf16,B=1,H=1,T=1024,D=1024,K=1,pad=0,wdtype=f32,walign=4,epilogue=bias
#include "scan.cuh"

constexpr trigen::Kernel kKernel{
    .shape = {.op = trigen::Op::kScan, .dtype = trigen::DType::kBF16, .wdtype = trigen::DType::kF32,
        .math = trigen::Math::kDefault, .layout = trigen::Layout::kBTD, .fill = trigen::Fill::kLower,
        .T = 1024, .D = 1024, .H = 1, .K = 1, .pad = 0, .diag = 0, .w = trigen::WeightForm::kDense,
        .width = 0, .bias = true, .act = trigen::Activation::kNone, .pre = false, .gate = false,
        .residual = false, .accumulate = false, .zero_outside = false, .mirror = false, .grad_input = false},
    .config = {.tile_m = 256, .tile_n = 64, .tile_k = 16, .warps_m = 8, .warps_n = 1, .stages = 2,
        .split_k = 1, .raster = 0, .vec_a = 1, .vec_b = 8, .vec_c = 4, .cluster = 0, .box = 0, .blocks = 0},
};

extern "C" __global__ void __launch_bounds__(256)
trigen_scan(const __grid_constant__ trigen::Params p) {
  trigen::scan::run<kKernel>(p);
}
