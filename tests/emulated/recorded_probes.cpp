#include "recorded_probes.h"

#include <bit>
#include <cmath>

#include "approximations.h"
#include "numerics/numbers.h"

namespace trigen::recorded {
namespace {

constexpr uint64_t kSeed = 97;

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t random_word(uint64_t stream, uint64_t index) {
  return static_cast<uint32_t>(random_bits(kSeed, stream, index));
}

void fill_warps(std::vector<uint32_t>& words, int per_thread) {
  while (words.size() % (32 * static_cast<size_t>(per_thread)) != 0) words.push_back(0x3f800000);
}

// Zeros, subnormals, the neighbours of 1, ties of every shorter format, the ends of f16, infinities, NaN.
std::vector<uint32_t> edges() {
  std::vector<uint32_t> positive = {
      0x00000000, 0x00000001, 0x00000003, 0x00400000, 0x007fffff, 0x00800000, 0x00800001,
      0x33000000, 0x33000001, 0x337fffff, 0x33800000, 0x33c00000, 0x38000000, 0x387fc000,
      0x387fe000, 0x387ff000, 0x38800000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f801000,
      0x3f803000, 0x3f801001, 0x3f808000, 0x3f818000, 0x3f817fff, 0x3fc00000, 0x40490fdb,
      0x42b17218, 0x42fe0000, 0x43000000, 0x43160000, 0x477fdfff, 0x477fe000, 0x477fefff,
      0x477ff000, 0x477fffff, 0x47800000, 0x7e800000, 0x7f000000, 0x7f7f7fff, 0x7f7f8000,
      0x7f7fefff, 0x7f7ff000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
  std::vector<uint32_t> all;
  for (const uint32_t word : positive) {
    all.push_back(word);
    all.push_back(word | 0x80000000u);
  }
  return all;
}

std::vector<uint32_t> unary() {
  std::vector<uint32_t> words = edges();
  for (uint64_t i = 0; i < 93; ++i) words.push_back(random_word(1, i));
  for (uint64_t i = 0; i < 64; ++i) words.push_back(bits(random_value(kSeed, 2, i, 20)));
  fill_warps(words, 1);
  return words;
}

// All pairs of a subset of the edges, and random neighbours.
std::vector<uint32_t> tuples(int width) {
  const uint32_t few[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000, 0x3f800000,
                          0xbf800001, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0x3f000000};
  std::vector<uint32_t> words;
  uint64_t counter = 0;
  for (const uint32_t a : few) {
    for (const uint32_t b : few) {
      words.push_back(a);
      words.push_back(b);
      if (width == 3) words.push_back(few[random_word(3, counter++) % std::size(few)]);
    }
  }
  for (uint64_t i = 0; i < 80; ++i) {
    const float a = random_value(kSeed, 4, i, 2), b = random_value(kSeed, 5, i, 2);
    words.push_back(bits(a));
    words.push_back(bits(b));
    // near -a*b, so that a fused product shows its low half
    if (width == 3) words.push_back(i % 2 == 0 ? bits(-a * b) : bits(random_value(kSeed, 6, i, 2)));
  }
  fill_warps(words, width);
  return words;
}

Probe word_probe(std::string name, std::string target, std::string body, int in_words,
                 std::vector<uint32_t> inputs) {
  Probe probe;
  probe.name = std::move(name);
  probe.target = std::move(target);
  probe.body = std::move(body);
  probe.in_words = in_words;
  probe.inputs = std::move(inputs);
  return probe;
}

// f32 in, 16 bits out.
Probe to_half(const std::string& op, const std::string& target) {
  return word_probe(op, target, "mov.b32 %f0, %a0;\n" + op + " %h0, %f0;\ncvt.u32.u16 %o0, %h0;", 1, unary());
}
Probe f32_unary(const std::string& op, const std::string& target) {
  return word_probe(op, target, "mov.b32 %f0, %a0;\n" + op + " %f1, %f0;\nmov.b32 %o0, %f1;", 1, unary());
}
Probe f32_binary(const std::string& op, const std::string& target) {
  return word_probe(op, target,
                    "mov.b32 %f0, %a0;\nmov.b32 %f1, %a1;\n" + op + " %f2, %f0, %f1;\nmov.b32 %o0, %f2;", 2,
                    tuples(2));
}
Probe f32_ternary(const std::string& op) {
  return word_probe(op, "sm_70",
                    "mov.b32 %f0, %a0;\nmov.b32 %f1, %a1;\nmov.b32 %f2, %a2;\n" + op +
                        " %f3, %f0, %f1, %f2;\nmov.b32 %o0, %f3;",
                    3, tuples(3));
}

// The emulated device's own rounding, and results that are subnormal in one and flushed in the other.
constexpr double kOwn = 0x1p-24, kTiny = 0x1p-126;

// An instruction of approximations.h, all of its ranges together.
Probe approximate(const std::string& op) {
  Probe probe;
  for (const testing::Approximation& a : testing::kApproximations) {
    if (op != a.op) continue;
    if (probe.name.empty()) probe = f32_unary(op, a.target);
    probe.relative = std::max(probe.relative, a.ulp * 0x1p-23 + a.relative + kOwn);
    probe.absolute = std::max(probe.absolute, a.absolute + kTiny);
  }
  probe.result = Probe::Result::kF32;
  return probe;
}

std::string registers(const std::string& prefix, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i != 0 ? ", %" : "%") + prefix + std::to_string(first + i);
  return text + "}";
}

// One mma per warp, f32 accumulators: a, b and c as the fragments' registers stand. `k`: products of one
// output.
Probe mma(const std::string& op, const std::string& target, DType type, int a, int b, int c, int k,
          bool integer) {
  std::string body;
  for (int i = 0; i < c; ++i)
    body += "mov.b32 %f" + std::to_string(i) + ", %a" + std::to_string(a + b + i) + ";\n";
  body += op + " " + registers("f", 16, c) + ", " + registers("a", 0, a) + ", " + registers("a", a, b) +
          ", " + registers("f", 0, c) + ";\n";
  for (int i = 0; i < c; ++i)
    body += "mov.b32 %o" + std::to_string(i) + ", %f" + std::to_string(16 + i) + ";\n";
  Probe probe = word_probe(op + (integer ? " integers" : " random"), target, body, a + b + c, {});
  probe.out_words = c;
  const int warps = 2;
  uint64_t at = 0;
  auto value = [&] {
    const float x = random_value(kSeed, integer ? 8 : 7, at++, 1);
    return integer ? std::nearbyint(8 * x) : x;
  };
  auto word = [&]() -> uint32_t {
    if (type == DType::kF32) return bits(value()) & 0xffffe000u;  // tf32
    const auto low = type == DType::kF16 ? float_to_f16(value()) : float_to_bf16(value());
    const auto high = type == DType::kF16 ? float_to_f16(value()) : float_to_bf16(value());
    return low | static_cast<uint32_t>(high) << 16;
  };
  for (int thread = 0; thread < 32 * warps; ++thread) {
    for (int i = 0; i < a + b; ++i) probe.inputs.push_back(word());
    for (int i = 0; i < c; ++i) probe.inputs.push_back(bits(value()));
  }
  if (!integer) {
    // "Matrix multiply-accumulate operation using mma instruction": products exact, sums with at least single
    // precision, order and rounding open. All values lie in (-1, 1), so no partial sum exceeds k + 1; each of
    // the k additions is off by one unit (truncation) of 2^-23 at most.
    probe.result = Probe::Result::kF32;
    probe.absolute = k * 0x1p-23 * (k + 1);
  }
  return probe;
}

}  // namespace

std::vector<Probe> all_probes() {
  std::vector<Probe> probes;
  // "cvt": IEEE conversions.
  probes.push_back(to_half("cvt.rn.f16.f32", "sm_70"));
  probes.push_back(to_half("cvt.rz.f16.f32", "sm_70"));
  probes.push_back(to_half("cvt.rm.f16.f32", "sm_70"));
  probes.push_back(to_half("cvt.rp.f16.f32", "sm_70"));
  probes.push_back(to_half("cvt.rn.bf16.f32", "sm_80"));
  probes.push_back(to_half("cvt.rz.bf16.f32", "sm_80"));
  for (const char* op : {"cvt.rn.f16x2.f32", "cvt.rz.f16x2.f32", "cvt.rn.bf16x2.f32", "cvt.rz.bf16x2.f32"})
    probes.push_back(word_probe(
        op, "sm_80", std::string("mov.b32 %f0, %a0;\nmov.b32 %f1, %a1;\n") + op + " %o0, %f0, %f1;", 2,
        tuples(2)));
  probes.push_back(
      word_probe("cvt.rna.tf32.f32", "sm_80", "mov.b32 %f0, %a0;\ncvt.rna.tf32.f32 %o0, %f0;", 1, unary()));
  probes.push_back(
      word_probe("cvt.rn.tf32.f32", "sm_90", "mov.b32 %f0, %a0;\ncvt.rn.tf32.f32 %o0, %f0;", 1, unary()));
  probes.push_back(word_probe(
      "cvt.f32.f16", "sm_70",
      "{ .reg .b16 %t; mov.b32 {%h0, %t}, %a0; }\ncvt.f32.f16 %f0, %h0;\nmov.b32 %o0, %f0;", 1, [] {
        std::vector<uint32_t> words = {0,      0x8000, 1,      0x83ff, 0x400,  0x3c00,
                                       0x7bff, 0xfc00, 0x7c00, 0x7c01, 0x7e00, 0xffff};
        for (uint64_t i = 0; i < 84; ++i) words.push_back(random_word(9, i) & 0xffff);
        fill_warps(words, 1);
        return words;
      }()));
  for (const char* op : {"cvt.rni.s32.f32", "cvt.rzi.s32.f32", "cvt.rmi.u32.f32"})
    probes.push_back(
        word_probe(op, "sm_70", std::string("mov.b32 %f0, %a0;\n") + op + " %o0, %f0;", 1, unary()));

  // "Floating Point Instructions": IEEE arithmetic.
  for (const char* op : {"fma.rn.f32", "fma.rz.f32", "fma.rm.f32", "fma.rp.f32", "fma.rn.ftz.f32"})
    probes.push_back(f32_ternary(op));
  for (const char* op : {"add.rn.f32", "mul.rn.f32", "mul.rn.ftz.f32", "div.rn.f32", "min.f32", "max.f32"})
    probes.push_back(f32_binary(op, "sm_70"));
  for (const char* op : {"min.NaN.f32", "max.NaN.f32"}) probes.push_back(f32_binary(op, "sm_80"));
  for (const char* op : {"rcp.rn.f32", "sqrt.rn.f32"}) probes.push_back(f32_unary(op, "sm_70"));
  for (const char* op : {"add.rn.f16x2", "mul.rn.f16x2", "min.f16x2", "max.f16x2"})
    probes.push_back(word_probe(op, std::string(op).find("m") == 0 && op[1] != 'u' ? "sm_80" : "sm_70",
                                std::string(op) + " %o0, %a0, %a1;", 2, tuples(2)));
  probes.push_back(word_probe("fma.rn.f16x2", "sm_70", "fma.rn.f16x2 %o0, %a0, %a1, %a2;", 3, tuples(3)));
  probes.push_back(word_probe("fma.rn.bf16x2", "sm_80", "fma.rn.bf16x2 %o0, %a0, %a1, %a2;", 3, tuples(3)));

  // Approximations; the emulated device rounds the exact value, so the bound is the ISA's own and that.
  for (const char* op : {"ex2.approx.f32", "ex2.approx.ftz.f32", "rcp.approx.f32", "rcp.approx.ftz.f32",
                         "rsqrt.approx.f32", "sqrt.approx.f32", "lg2.approx.f32", "tanh.approx.f32"})
    probes.push_back(approximate(op));
  for (const char* op : {"div.full.f32", "div.approx.f32", "div.approx.ftz.f32"}) {
    Probe probe = f32_binary(op, "sm_70");
    probe.result = Probe::Result::kF32;
    probe.relative = testing::kDivisionUlp * 0x1p-23 + kOwn;
    probe.absolute = kTiny;
    for (size_t i = 1; i < probe.inputs.size(); i += 2) {  // what no bound is stated for
      const uint32_t size = probe.inputs[i] & 0x7fffffffu;
      if (std::string(op) == "div.full.f32" ? size == 0x7f7fffffu : size > 0 && size < 0x00800000u)
        probe.inputs[i] = 0x40000000;
    }
    probes.push_back(probe);
  }

  for (const bool integer : {true, false}) {
    for (const char* layouts : {"row.col", "row.row", "col.col", "col.row"})
      probes.push_back(mma(std::string("mma.sync.aligned.m8n8k4.") + layouts + ".f32.f16.f16.f32", "sm_70",
                           DType::kF16, 2, 2, 8, 4, integer));
    probes.push_back(
        mma("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75", DType::kF16, 2, 1, 4, 8, integer));
    probes.push_back(
        mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", DType::kF16, 4, 2, 4, 16, integer));
    probes.push_back(mma("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80", DType::kBF16, 2, 1, 4,
                         8, integer));
    probes.push_back(mma("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80", DType::kBF16, 4, 2,
                         4, 16, integer));
    probes.push_back(
        mma("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "sm_80", DType::kF32, 2, 1, 4, 4, integer));
    probes.push_back(
        mma("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80", DType::kF32, 4, 2, 4, 8, integer));
  }
  return probes;
}

std::string probe_ptx(const Probe& probe) {
  std::string text = ".version 8.5\n.target " + probe.target +
                     "\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {\n"
                     ".reg .b16 %h<4>;\n.reg .b32 %a<20>;\n.reg .b32 %o<12>;\n.reg .f32 %f<32>;\n"
                     ".reg .b32 %i<4>;\n.reg .b64 %d<8>;\n"
                     "mov.u32 %i0, %tid.x;\n"
                     "ld.param.u64 %d0, [in];\nld.param.u64 %d1, [out];\n"
                     "mul.wide.u32 %d2, %i0, " +
                     std::to_string(4 * probe.in_words) +
                     ";\nadd.u64 %d0, %d0, %d2;\nmul.wide.u32 %d3, %i0, " +
                     std::to_string(4 * probe.out_words) + ";\nadd.u64 %d1, %d1, %d3;\n";
  for (int i = 0; i < probe.in_words; ++i)
    text += "ld.global.b32 %a" + std::to_string(i) + ", [%d0+" + std::to_string(4 * i) + "];\n";
  text += probe.body + "\n";
  for (int i = 0; i < probe.out_words; ++i)
    text += "st.global.b32 [%d1+" + std::to_string(4 * i) + "], %o" + std::to_string(i) + ";\n";
  return text + "ret;\n}\n";
}

llvm::Expected<std::vector<uint32_t>> run_probe(const Device& device, const Probe& probe) {
  const DriverApi& api = device.api();
  auto context = device.context();
  if (!context) return context.takeError();
  const ContextScope scope(api, *context);
  const size_t threads = probe.inputs.size() / static_cast<size_t>(probe.in_words);
  std::vector<uint32_t> out(threads * static_cast<size_t>(probe.out_words));
  cuda::CUmodule module = nullptr;
  cuda::CUdeviceptr memory[2] = {0, 0};
  const char* call = "";
  auto run = [&]() -> cuda::CUresult {
    const std::string ptx = probe_ptx(probe);
    cuda::CUfunction function = nullptr;
    call = "loading PTX";
    if (auto result = api.cuModuleLoadDataEx(&module, ptx.c_str(), 0, nullptr, nullptr)) return result;
    call = "cuModuleGetFunction";
    if (auto result = api.cuModuleGetFunction(&function, module, "k")) return result;
    call = "cuMemAlloc";
    if (auto result = api.cuMemAlloc(&memory[0], 4 * probe.inputs.size())) return result;
    if (auto result = api.cuMemAlloc(&memory[1], 4 * out.size())) return result;
    call = "cuMemcpyHtoD";
    if (auto result = api.cuMemcpyHtoD(memory[0], probe.inputs.data(), 4 * probe.inputs.size()))
      return result;
    void* arguments[] = {&memory[0], &memory[1]};
    call = "cuLaunchKernel";
    if (auto result = api.cuLaunchKernel(function, 1, 1, 1, static_cast<unsigned>(threads), 1, 1, 0, nullptr,
                                         arguments, nullptr))
      return result;
    call = "cuCtxSynchronize";
    if (auto result = api.cuCtxSynchronize()) return result;
    call = "cuMemcpyDtoH";
    return api.cuMemcpyDtoH(out.data(), memory[1], 4 * out.size());
  };
  const cuda::CUresult result = run();
  llvm::Error error = device.driver().check(result, call, probe.name);
  for (const cuda::CUdeviceptr pointer : memory)
    if (pointer != 0) api.cuMemFree(pointer);
  if (module != nullptr) api.cuModuleUnload(module);
  if (error) return error;
  return out;
}

std::string compare_probe(const Probe& probe, const std::vector<uint32_t>& expected,
                          const std::vector<uint32_t>& found, size_t& same, double& worst) {
  if (expected.size() != found.size()) return "the recording is of another size; record anew";
  std::string first;
  size_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == found[i]) {
      ++same;
      continue;
    }
    bool ok = false;
    if (probe.result == Probe::Result::kF32) {
      const double a = std::bit_cast<float>(expected[i]), b = std::bit_cast<float>(found[i]);
      if (std::isnan(a) || std::isnan(b)) {
        ok = std::isnan(a) && std::isnan(b);
      } else if (std::isfinite(a) && std::isfinite(b)) {
        const double share = std::fabs(a - b) / (probe.relative * std::fabs(a) + probe.absolute);
        worst = std::max(worst, share);
        ok = share <= 1;
      }
    }
    if (ok || wrong++ != 0) continue;
    char text[256];
    const size_t at = i / static_cast<size_t>(probe.out_words) * static_cast<size_t>(probe.in_words);
    std::snprintf(text, sizeof text, "word %zu: recorded %08x, here %08x, inputs %08x %08x %08x", i,
                  expected[i], found[i], probe.inputs[at], probe.in_words > 1 ? probe.inputs[at + 1] : 0,
                  probe.in_words > 2 ? probe.inputs[at + 2] : 0);
    first = text;
  }
  return wrong == 0
             ? ""
             : first + " (" + std::to_string(wrong) + " of " + std::to_string(found.size()) + " words)";
}

}  // namespace trigen::recorded
