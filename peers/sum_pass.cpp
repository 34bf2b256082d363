#include "peers/sum_pass.h"

#include "check/text.h"

namespace trigen {
namespace {

// A warp's lanes have 4 neighbouring elements each; the warps of a block share the parts, 4 loads under way each.
constexpr int kSumLanes = 32, kSumWarps = 16, kSumVector = 4, kSumUnroll = 4;

std::string store(DType output) {
  if (output == DType::kF32) return "  st.global.v4.f32 [%q], {%s0, %s1, %s2, %s3};\n";
  std::string out;
  for (int i = 0; i < kSumVector; ++i)
    out += format("  cvt.rn.%s.f32 %%h%d, %%s%d;\n", output == DType::kBF16 ? "bf16" : "f16", i, i);
  return out + "  st.global.v4.b16 [%q], {%h0, %h1, %h2, %h3};\n";
}

std::string sum_pass_ptx(DType output) {
  std::string loads, sums, others;
  for (int u = 0; u < kSumUnroll; ++u) {
    const std::string a = format("%%a%d", 4 * u), b = format("%%a%d", 4 * u + 1),
                      c = format("%%a%d", 4 * u + 2), d = format("%%a%d", 4 * u + 3);
    for (const std::string& x : {a, b, c, d}) loads += "  mov.f32 " + x + ", 0f00000000;\n";
    loads += "  setp.lt.u32 %p, %n, %parts;\n  @%p ld.global.v4.f32 {" + a + ", " + b + ", " + c + ", " + d +
             "}, [%at];\n  add.u64 %at, %at, %step;\n" + format("  add.u32 %%n, %%n, %d;\n", kSumWarps);
    sums += "  add.f32 %s0, %s0, " + a + ";\n  add.f32 %s1, %s1, " + b + ";\n  add.f32 %s2, %s2, " + c +
            ";\n  add.f32 %s3, %s3, " + d + ";\n";
  }
  for (int warp = 1; warp < kSumWarps; ++warp)
    others += format("  ld.shared.v4.f32 {%%a0, %%a1, %%a2, %%a3}, [%%m + %d];\n", warp * kSumLanes * 16) +
              "  add.f32 %s0, %s0, %a0;\n  add.f32 %s1, %s1, %a1;\n  add.f32 %s2, %s2, %a2;\n"
              "  add.f32 %s3, %s3, %a3;\n";
  return std::string(".version 7.0\n.target ") + (output == DType::kBF16 ? "sm_80" : "sm_70") +
         "\n.address_size 64\n"
         ".visible .entry trigen_sum(.param .u64 from, .param .u64 out, .param .u32 parts, .param .u32 "
         "plane)\n{\n" +
         format("  .shared .align 16 .b8 sums[%d];\n", kSumWarps * kSumLanes * 16) +
         "  .reg .pred %p;\n  .reg .b16 %h<4>;\n  .reg .b32 %i, %n, %t, %m, %parts, %plane;\n"
         "  .reg .b64 %at, %q, %o, %step;\n  .reg .f32 %a<16>, %s<4>;\n"
         "  ld.param.u32 %parts, [parts];\n  ld.param.u32 %plane, [plane];\n"
         "  mov.f32 %s0, 0f00000000;\n  mov.f32 %s1, 0f00000000;\n  mov.f32 %s2, 0f00000000;\n"
         "  mov.f32 %s3, 0f00000000;\n" +
         // i: the first element; at: that of the warp's first part
         format("  mov.u32 %%i, %%ctaid.x;\n  mov.u32 %%t, %%tid.x;\n  mad.lo.u32 %%i, %%i, %d, %%t;\n",
                kSumLanes) +
         format("  mul.lo.u32 %%i, %%i, %d;\n", kSumVector) +
         "  mov.u32 %n, %tid.y;\n  mov.u32 %m, %ctaid.y;\n  mad.lo.u32 %m, %m, %parts, %n;\n"
         "  mul.wide.u32 %at, %m, %plane;\n  cvt.u64.u32 %o, %i;\n  add.u64 %at, %at, %o;\n"
         "  shl.b64 %at, %at, 2;\n  ld.param.u64 %q, [from];\n  add.u64 %at, %at, %q;\n" +
         format("  mul.wide.u32 %%step, %%plane, %d;\n", kSumWarps * 4) +
         "  setp.ge.u32 %p, %i, %plane;\n  @%p bra ADDED;\n"
         "NEXT:\n" +
         loads + sums +
         "  setp.lt.u32 %p, %n, %parts;\n  @%p bra NEXT;\n"
         "ADDED:\n"
         "  mov.u32 %n, %tid.y;\n" +
         format("  mad.lo.u32 %%t, %%n, %d, %%t;\n  shl.b32 %%t, %%t, 4;\n", kSumLanes) +
         "  mov.u32 %m, sums;\n  add.u32 %m, %m, %t;\n  st.shared.v4.f32 [%m], {%s0, %s1, %s2, %s3};\n"
         "  bar.sync 0;\n"
         "  setp.ne.u32 %p, %n, 0;\n  @%p bra DONE;\n  setp.ge.u32 %p, %i, %plane;\n  @%p bra DONE;\n" +
         others +
         "  mov.u32 %n, %ctaid.y;\n  mul.wide.u32 %o, %n, %plane;\n  cvt.u64.u32 %q, %i;\n  add.u64 %o, %o, "
         "%q;\n" +
         format("  shl.b64 %%o, %%o, %d;\n", output == DType::kF32 ? 2 : 1) +
         "  ld.param.u64 %q, [out];\n  add.u64 %q, %q, %o;\n" + store(output) + "DONE:\n  ret;\n}\n";
}

}  // namespace

llvm::Expected<SumPass> SumPass::create(Workbench& bench, DType output, int64_t plane) {
  auto kernel = PtxKernel::load(bench, sum_pass_ptx(output), "trigen_sum", "the sum's pass");
  if (!kernel) return kernel.takeError();
  return SumPass(std::move(*kernel), plane);
}

llvm::Error SumPass::run(cuda::CUdeviceptr from, int64_t parts, cuda::CUdeviceptr out, int64_t heads,
                         cuda::CUstream stream) const {
  auto count = static_cast<uint32_t>(parts), plane = static_cast<uint32_t>(plane_);
  void* arguments[] = {&from, &out, &count, &plane};
  constexpr uint32_t kOfBlock = kSumLanes * kSumVector;
  return kernel_->launch({(plane + kOfBlock - 1) / kOfBlock, static_cast<uint32_t>(heads)},
                         {kSumLanes, kSumWarps}, stream, arguments);
}

}  // namespace trigen
