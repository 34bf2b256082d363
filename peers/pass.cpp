#include "peers/pass.h"

#include "check/text.h"

namespace trigen {
namespace {

constexpr uint32_t kThreads = 256;

// Two elements of a 32-bit word as f32, and back. `w` names the word, `lo` and `hi` the registers.
std::string unpack(DType dtype, const std::string& w, const std::string& lo, const std::string& hi) {
  if (dtype == DType::kBF16)
    return "  shl.b32 %t, " + w + ", 16;\n  mov.b32 " + lo + ", %t;\n  and.b32 %t, " + w +
           ", 0xffff0000;\n  mov.b32 " + hi + ", %t;\n";
  return "  mov.b32 {%h0, %h1}, " + w + ";\n  cvt.f32.f16 " + lo + ", %h0;\n  cvt.f32.f16 " + hi + ", %h1;\n";
}

std::string activation(Activation act, const std::string& z) {
  if (act == Activation::kGELU)  // 0.5 z (1 + tanh(0.797885 (z + 0.044715 z^3)))
    return "  mul.f32 %a, " + z + ", " + z +
           ";\n  fma.rn.f32 %a, %a, 0f3D122279, 0f3F4C422A;\n  mul.f32 %a, %a, " + z +
           ";\n  tanh.approx.f32 %a, %a;\n  mul.f32 %b, " + z + ", 0f3F000000;\n  fma.rn.f32 " + z +
           ", %b, %a, %b;\n";
  if (act == Activation::kSiLU)  // z sigmoid(z) = 0.5 z (1 + tanh(z / 2))
    return "  mul.f32 %b, " + z + ", 0f3F000000;\n  tanh.approx.f32 %a, %b;\n  fma.rn.f32 " + z +
           ", %b, %a, %b;\n";
  return "";
}

}  // namespace

std::string epilogue_pass_ptx(const Problem& problem) {
  const Epilogue& e = problem.epilogue;
  const bool bias32 = problem.wdtype == DType::kF32;
  std::string body;
  const auto load = [&](const char* parameter, const char* word) {
    body += format("  ld.param.u64 %%q, [%s];\n  add.u64 %%q, %%q, %%at;\n", parameter) +
            format("  ld.global.v4.b32 {%%%s0, %%%s1, %%%s2, %%%s3}, [%%q];\n", word, word, word, word);
  };
  load("y", "y");
  if (e.gate) load("gate", "g");
  if (e.residual) load("residual", "s");
  if (e.bias) {
    body +=
        "  ld.param.u32 %w, [row_chunks];\n  div.u32 %r, %i, %w;\n  ld.param.u32 %t, [tokens];\n"
        "  rem.u32 %r, %r, %t;\n  ld.param.u64 %q, [bias];\n";
    if (problem.H > 1)  // bias[h][t]
      body +=
          "  rem.u32 %i, %i, %w;\n  ld.param.u32 %w, [head_chunks];\n  div.u32 %i, %i, %w;\n"
          "  mad.lo.u32 %r, %i, %t, %r;\n";
    body += format("  mul.wide.u32 %%o, %%r, %d;\n  add.u64 %%q, %%q, %%o;\n", bias32 ? 4 : 2);
    if (bias32) {
      body += "  ld.global.f32 %bias, [%q];\n";
    } else if (problem.dtype == DType::kBF16) {
      body += "  ld.global.u16 %t, [%q];\n  shl.b32 %t, %t, 16;\n  mov.b32 %bias, %t;\n";
    } else {
      body += "  ld.global.b16 %h0, [%q];\n  cvt.f32.f16 %bias, %h0;\n";
    }
  }
  for (int w = 0; w < 4; ++w) {
    const std::string n = std::to_string(w);
    body += unpack(problem.dtype, "%y" + n, "%z0", "%z1");
    for (const char* z : {"%z0", "%z1"}) {
      if (e.bias) body += format("  add.f32 %s, %s, %%bias;\n", z, z);
      body += activation(e.act, z);
    }
    if (e.gate)
      body +=
          unpack(problem.dtype, "%g" + n, "%a", "%b") + "  mul.f32 %z0, %z0, %a;\n  mul.f32 %z1, %z1, %b;\n";
    if (e.residual)
      body +=
          unpack(problem.dtype, "%s" + n, "%a", "%b") + "  add.f32 %z0, %z0, %a;\n  add.f32 %z1, %z1, %b;\n";
    body +=
        format("  cvt.rn.%s.f32 %%y%d, %%z1, %%z0;\n", problem.dtype == DType::kBF16 ? "bf16x2" : "f16x2", w);
  }
  return "// y = act(y + bias) * gate + residual, 8 elements a thread\n"
         ".version 7.0\n.target sm_80\n.address_size 64\n"
         ".visible .entry trigen_pass(.param .u64 y, .param .u64 bias, .param .u64 gate, .param .u64 "
         "residual,\n"
         "                            .param .u32 chunks, .param .u32 row_chunks, .param .u32 head_chunks, "
         ".param .u32 tokens)\n{\n"
         "  .reg .pred %p;\n  .reg .b16 %h0, %h1;\n  .reg .b32 %i, %r, %t, %w;\n"
         "  .reg .b32 %y<4>, %g<4>, %s<4>;\n  .reg .b64 %at, %q, %o;\n  .reg .f32 %a, %b, %z0, %z1, %bias;\n"
         "  mov.u32 %i, %ctaid.x;\n  mov.u32 %r, %ntid.x;\n  mov.u32 %t, %tid.x;\n"
         "  mad.lo.u32 %i, %i, %r, %t;\n  ld.param.u32 %r, [chunks];\n  setp.ge.u32 %p, %i, %r;\n"
         "  @%p bra DONE;\n  mul.wide.u32 %at, %i, 16;\n" +
         body +
         "  ld.param.u64 %q, [y];\n  add.u64 %q, %q, %at;\n  st.global.v4.b32 [%q], {%y0, %y1, %y2, %y3};\n"
         "DONE:\n  ret;\n}\n";
}

llvm::Expected<std::unique_ptr<EpiloguePass>> EpiloguePass::create(Workbench& bench,
                                                                   const Epilogue& epilogue) {
  Problem p = bench.problem();
  p.epilogue = epilogue;
  const Tensor& y = bench.list().output();
  if (!is_whole_product(p.op) || makes_weights(p.op) || p.layout != Layout::kBTD || p.D % 8 != 0 ||
      p.dtype == DType::kF32 || p.epilogue.pre || p.align < 16 || y.row != p.H * p.D ||
      y.elements != p.B * p.T * p.H * p.D) {
    return make_error(ErrorKind::kUnsupported,
                      "no elementwise pass for " + to_string(bench.problem()) +
                          "; it takes forward and grad_input in btd, dense rows and heads of a multiple of 8 "
                          "elements of 16 bits, without pre");
  }
  auto kernel = PtxKernel::load(bench, epilogue_pass_ptx(p), "trigen_pass", "the elementwise pass");
  if (!kernel) return kernel.takeError();
  return std::unique_ptr<EpiloguePass>(new EpiloguePass(bench, y.role, std::move(*kernel)));
}

llvm::Error EpiloguePass::run(int set, cuda::CUstream stream) const {
  const Problem& p = bench_.problem();
  void* y = bench_.data(set, output_);
  void* bias = bench_.data(set, Role::kBias);
  void* gate = bench_.data(set, Role::kGate);
  void* residual = bench_.data(set, Role::kResidual);
  auto chunks = static_cast<uint32_t>(p.B * p.T * p.H * p.D / 8);
  auto row_chunks = static_cast<uint32_t>(p.H * p.D / 8);
  auto head_chunks = static_cast<uint32_t>(p.D / 8);
  auto tokens = static_cast<uint32_t>(p.T);
  void* arguments[] = {&y, &bias, &gate, &residual, &chunks, &row_chunks, &head_chunks, &tokens};
  return kernel_->launch({(chunks + kThreads - 1) / kThreads, 1}, {kThreads, 1}, stream, arguments);
}

}  // namespace trigen
