// Instructions one by one, against values written down or computed another way.
#include "device.h"

#include <bit>
#include <cmath>

namespace trigen::testing {
namespace {

using ::testing::HasSubstr;

// Runs `body` for one warp; thread i reads inputs a[i], b[i], c[i] into %r1, %r2, %r3 and leaves its result
// in %r10.
std::vector<uint32_t> run(const std::string& target, const std::string& body, std::vector<uint32_t> a,
                          std::vector<uint32_t> b = {}, std::vector<uint32_t> c = {}) {
  Device device(target);
  a.resize(32);
  b.resize(32);
  c.resize(32);
  CUdeviceptr out = device.allocate(128);
  device.run(
      kernel_ptx(target, {"u64", "u64", "u64", "u64"},
                 "mov.u32 %r30, %tid.x;\nmul.wide.u32 %d30, %r30, 4;\n"
                 "ld.param.u64 %d1, [p0];\nadd.u64 %d1, %d1, %d30;\nld.global.u32 %r1, [%d1];\n"
                 "ld.param.u64 %d2, [p1];\nadd.u64 %d2, %d2, %d30;\nld.global.u32 %r2, [%d2];\n"
                 "ld.param.u64 %d3, [p2];\nadd.u64 %d3, %d3, %d30;\nld.global.u32 %r3, [%d3];\n" +
                     body + "\nld.param.u64 %d4, [p3];\nadd.u64 %d4, %d4, %d30;\nst.global.u32 [%d4], %r10;"),
      1, 32, 0, device.put(a), device.put(b), device.put(c), out);
  return device.get<uint32_t>(out, 32);
}

uint32_t one(const std::string& body, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
  return run("sm_80", body, {a}, {b}, {c})[0];
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST(Instruction, Integers) {
  EXPECT_EQ(one("mul.hi.u32 %r10, %r1, %r2;", 0xfedcba98, 0x76543210),
            static_cast<uint32_t>((uint64_t{0xfedcba98} * 0x76543210) >> 32));
  EXPECT_EQ(one("mul.hi.s32 %r10, %r1, %r2;", static_cast<uint32_t>(-7), 0x40000000),
            static_cast<uint32_t>(-2));
  EXPECT_EQ(one("mad.lo.s32 %r10, %r1, %r2, %r3;", static_cast<uint32_t>(-3), 5, 100), 85u);
  // 0xfffe * 3 + 2 * 0xff + 7; -2 * 5 + 2 * -1 + 7; the upper bytes: 0xfffe * 4 + 2 * 0x80 + 7.
  EXPECT_EQ(one("dp2a.lo.u32.u32 %r10, %r1, %r2, %r3;", 0x0002fffe, 0x8004ff03, 7), 196602u + 510 + 7);
  EXPECT_EQ(one("dp2a.lo.s32.s32 %r10, %r1, %r2, %r3;", 0x0002fffe, 0x8004ff05, 7),
            static_cast<uint32_t>(-5));
  EXPECT_EQ(one("dp2a.hi.u32.u32 %r10, %r1, %r2, %r3;", 0x0002fffe, 0x8004ff03, 7), 262136u + 256 + 7);
  EXPECT_EQ(one("div.s32 %r10, %r1, %r2;", static_cast<uint32_t>(-7), 2), static_cast<uint32_t>(-3));
  EXPECT_EQ(one("rem.s32 %r10, %r1, %r2;", static_cast<uint32_t>(-7), 2), static_cast<uint32_t>(-1));
  EXPECT_EQ(one("shl.b32 %r10, %r1, 40;", 1), 0u);
  EXPECT_EQ(one("shr.s32 %r10, %r1, 40;", 0x80000000), 0xffffffffu);
  EXPECT_EQ(one("shf.l.wrap.b32 %r10, %r1, %r2, 36;", 0x12345678, 0x9abcdef0), 0xabcdef01u);
  EXPECT_EQ(one("shf.r.clamp.b32 %r10, %r1, %r2, 40;", 0x12345678, 0x9abcdef0), 0x9abcdef0u);
  EXPECT_EQ(one("bfe.u32 %r10, %r1, 8, 12;", 0x12345678), 0x456u);
  EXPECT_EQ(one("bfe.s32 %r10, %r1, 4, 4;", 0x000000f0), 0xffffffffu);
  EXPECT_EQ(one("bfi.b32 %r10, %r1, %r2, 8, 8;", 0xab, 0x11223344), 0x1122ab44u);
  EXPECT_EQ(one("prmt.b32 %r10, %r1, %r2, 0x7531;", 0x33221100, 0x77665544), 0x77553311u);
  EXPECT_EQ(one("prmt.b32 %r10, %r1, %r2, 0x888f;", 0x80, 0x80000000), 0xffffffffu);
  EXPECT_EQ(one("lop3.b32 %r10, %r1, %r2, %r3, 0xca;", 0xff00ff00, 0x12345678, 0x9abcdef0), 0x12bc56f0u);
  EXPECT_EQ(one("popc.b32 %r10, %r1;", 0xf0f0), 8u);
  EXPECT_EQ(one("clz.b32 %r10, %r1;", 0x00010000), 15u);
  EXPECT_EQ(one("brev.b32 %r10, %r1;", 0x00000006), 0x60000000u);
  EXPECT_EQ(one("bfind.s32 %r10, %r1;", 0xfffffff0), 3u);
  EXPECT_EQ(one("bfind.u32 %r10, %r1;", 0), 0xffffffffu);
  EXPECT_EQ(one("add.sat.s32 %r10, %r1, %r2;", 0x7fffffff, 5), 0x7fffffffu);
  EXPECT_EQ(one("cvt.s64.s32 %d10, %r1;\nshr.s64 %d10, %d10, 8;\ncvt.u32.u64 %r10, %d10;", 0x80000000),
            0xff800000u);
  EXPECT_EQ(one("cvt.sat.s8.s32 %r10, %r1;", 300), 127u);
  EXPECT_EQ(one("cvt.s32.s8 %r10, %r1;", 0x1ff), 0xffffffffu);
}

TEST(Instruction, RealRoundings) {
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nadd.rz.f32 %f3, %f1, %f2;\nmov.b32 %r10, %f3;",
                bits(1.0f), bits(0x1.8p-24f)),
            bits(1.0f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nadd.rn.f32 %f3, %f1, %f2;\nmov.b32 %r10, %f3;",
                bits(1.0f), bits(0x1.8p-24f)),
            bits(1.0f + 0x1p-23f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nadd.rp.f32 %f3, %f1, %f2;\nmov.b32 %r10, %f3;",
                bits(1.0f), bits(0x1p-60f)),
            bits(1.0f + 0x1p-23f));
  // A fused product keeps what a product and a sum lose.
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nfma.rn.f32 %f3, %f1, %f1, %f2;\nmov.b32 %r10, %f3;",
                bits(1.0f + 0x1p-12f), bits(-1.0f - 0x1p-11f)),
            bits(0x1p-24f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmul.f32 %f3, %f1, %f1;\nadd.f32 %f3, %f3, "
                "%f2;\nmov.b32 %r10, %f3;",
                bits(1.0f + 0x1p-12f), bits(-1.0f - 0x1p-11f)),
            bits(0.0f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmul.ftz.f32 %f3, %f1, %f1;\nmov.b32 %r10, %f3;", bits(0x1p-70f)),
            bits(0.0f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmin.f32 %f3, %f1, %f2;\nmov.b32 %r10, %f3;", bits(NAN),
                bits(3.0f)),
            bits(3.0f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmax.NaN.f32 %f3, %f1, %f2;\nmov.b32 %r10, %f3;",
                bits(NAN), bits(3.0f)),
            0x7fffffffu);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\ncvt.rni.s32.f32 %r10, %f1;", bits(2.5f)), 2u);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\ncvt.rzi.u32.f32 %r10, %f1;", bits(-3.0f)), 0u);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\ncvt.rzi.s32.f32 %r10, %f1;", bits(1e20f)), 0x7fffffffu);
  EXPECT_EQ(one("cvt.rn.f32.u32 %f1, %r1;\nmov.b32 %r10, %f1;", 0x01000001), bits(16777216.0f));
  EXPECT_EQ(one("mov.b32 %f1, %r1;\ncvt.rna.tf32.f32 %r10, %f1;", 0x3f801000), 0x3f802000u);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\ncvt.rn.bf16x2.f32 %r10, %f1, %f1;", 0x3f808000), 0x3f803f80u);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\ncvt.rn.bf16x2.f32 %r10, %f1, %f1;", 0x3f818000), 0x3f823f82u);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\ncvt.rn.f16x2.f32 %r10, %f1, %f2;", bits(1.0f),
                bits(65520.0f)),
            0x3c007c00u);
  EXPECT_EQ(one("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\ncvt.rz.f16x2.f32 %r10, %f1, %f2;", bits(-2049.0f),
                bits(65520.0f)),
            0xe8007bffu);
  // 683 * 1.5 + 2^-14: rounding to f32 first would lose the last term, and with it the way out of the tie at
  // 1024.5.
  EXPECT_EQ(one("fma.rn.f16x2 %r10, %r1, %r2, %r3;", 0x61566156, 0x3e003e00, 0x04000400), 0x64016401u);
}

// Every f16 value survives f16 -> f32 -> f16, and f32 halfway between two f16 rounds to even: against integer
// arithmetic.
TEST(Instruction, HalfConversionsExhaustive) {
  Device device("sm_70");
  std::vector<uint32_t> in;
  for (uint32_t h = 0x0400; h < 0x7bff; ++h) {  // normal values; the f32 exactly between h and h + 1
    uint32_t exponent = (h >> 10) + 112, mantissa = (h & 0x3ff) << 13;
    in.push_back((exponent << 23 | mantissa) + 0x1000);
  }
  CUdeviceptr out = device.allocate(in.size() * 2), source = device.put(in);
  uint32_t n = static_cast<uint32_t>(in.size());
  device.run(kernel_ptx("sm_70", {"u64", "u64", "u32"},
                        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\nmad.lo.u32 %r1, %r1, 256, "
                        "%r2;\nld.param.u32 %r3, [p2];\nsetp.ge.u32 %p1, %r1, %r3;\n@%p1 ret;\n"
                        "ld.param.u64 %d1, [p0];\nld.param.u64 %d2, [p1];\nmul.wide.u32 %d3, %r1, "
                        "4;\nadd.u64 %d1, %d1, %d3;\nmul.wide.u32 %d4, %r1, 2;\nadd.u64 %d2, %d2, %d4;\n"
                        "ld.global.f32 %f1, [%d1];\ncvt.rn.f16.f32 %h1, %f1;\ncvt.f32.f16 %f2, "
                        "%h1;\ncvt.rz.f16.f32 %h2, %f2;\nst.global.u16 [%d2], %h2;"),
             (n + 255) / 256, 256, 0, source, out, n);
  std::vector<uint16_t> result = device.get<uint16_t>(out, in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    uint32_t h = 0x0400 + static_cast<uint32_t>(i);
    ASSERT_EQ(result[i], h + (h & 1)) << h;
  }
}

TEST(Instruction, WarpExchanges) {
  std::vector<uint32_t> a(32), b(32);
  for (uint32_t i = 0; i < 32; ++i) {
    a[i] = 100 + i;
    b[i] = i % 3;
  }
  auto shuffled = [&](const std::string& op) { return run("sm_80", op, a, b); };
  std::vector<uint32_t> up = shuffled("shfl.sync.up.b32 %r10|%p1, %r1, 3, 0, -1;\n@!%p1 mov.u32 %r10, 0;");
  std::vector<uint32_t> idx = shuffled("shfl.sync.idx.b32 %r10, %r1, 1, 0x181f, -1;");  // segments of 8 lanes
  std::vector<uint32_t> bfly = shuffled("shfl.sync.bfly.b32 %r10, %r1, 16, 31, -1;");
  std::vector<uint32_t> match = shuffled("match.any.sync.b32 %r10, %r2, -1;");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(up[i], i < 3 ? 0 : 97 + i);
    EXPECT_EQ(idx[i], 100 + i / 8 * 8 + 1);
    EXPECT_EQ(bfly[i], 100 + (i ^ 16));
    EXPECT_EQ(match[i], i % 3 == 0 ? 0x49249249u : i % 3 == 1 ? 0x92492492u : 0x24924924u);
  }
  EXPECT_EQ(shuffled("redux.sync.add.s32 %r10, %r1, -1;")[7], 32 * 100 + 31 * 16u);
  EXPECT_EQ(shuffled("setp.eq.u32 %p1, %r2, 0;\nvote.sync.ballot.b32 %r10, %p1, -1;")[5], 0x49249249u);
}

TEST(Instruction, DivergedLanesMeetAgain) {
  // Each lane loops its number of times; the shuffle after the loop needs all of them, in one pass.
  std::vector<uint32_t> a(32);
  for (uint32_t i = 0; i < 32; ++i) a[i] = i;
  std::vector<uint32_t> out =
      run("sm_70",
          "mov.u32 %r4, 0;\nmov.u32 %r5, %r1;\nLOOP:\nsetp.eq.u32 %p1, %r5, 0;\n@%p1 bra DONE;\nadd.u32 %r4, "
          "%r4, %r5;\nsub.u32 %r5, %r5, 1;\n"
          "and.b32 %r6, %r5, 1;\nsetp.eq.u32 %p2, %r6, 0;\n@%p2 bra EVEN;\nadd.u32 %r4, %r4, 1000;\nbra "
          "LOOP;\nEVEN:\nbra LOOP;\nDONE:\nshfl.sync.idx.b32 %r10, %r4, 31, 31, -1;",
          a);
  for (uint32_t value : out) EXPECT_EQ(value, 31 * 16u + 15 * 1000);
}

TEST(Instruction, FunctionCallsAndBranchTables) {
  Device device("sm_70");
  CUdeviceptr out = device.allocate(128);
  device.run(
      kernel_ptx(
          "sm_70", {"u64"},
          "mov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 3;\n{\n.param .b32 a0;\n.param .b32 back;\nst.param.b32 "
          "[a0], %r1;\ncall.uni (back), twice, (a0);\nld.param.b32 %r3, [back];\n}\n"
          "T: .branchtargets A, B, A, C;\nbrx.idx %r2, T;\nA:\nadd.u32 %r3, %r3, 1000;\nbra "
          "END;\nB:\nadd.u32 %r3, %r3, 2000;\nbra END;\nC:\nadd.u32 %r3, %r3, 3000;\nEND:\n"
          "ld.param.u64 %d1, [p0];\nmul.wide.u32 %d2, %r1, 4;\nadd.u64 %d1, %d1, %d2;\nst.global.u32 [%d1], "
          "%r3;",
          ".func (.param .b32 out) twice(.param .b32 in) {\n.reg .b32 %r<4>;\nld.param.b32 %r1, "
          "[in];\nadd.u32 %r2, %r1, %r1;\nst.param.b32 [out], %r2;\nret;\n}"),
      1, 32, 0, out);
  std::vector<int> values = device.get<int>(out, 32);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<size_t>(i)], 2 * i + (i % 4 == 1 ? 2000 : i % 4 == 3 ? 3000 : 1000)) << i;
}

TEST(Instruction, AtomicsAcrossBlocks) {
  Device device("sm_80");
  CUdeviceptr sum = device.put(std::vector<float>(1, 0.0f)), most = device.put(std::vector<int>(1, -5)),
              wide = device.put(std::vector<uint64_t>(1, 7));
  device.run(kernel_ptx("sm_80", {"u64", "u64", "u64"},
                        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\nmad.lo.u32 %r1, %r1, 64, "
                        "%r2;\nld.param.u64 %d1, [p0];\nld.param.u64 %d2, [p1];\nld.param.u64 %d3, [p2];\n"
                        "red.global.add.f32 [%d1], 0f3F800000;\natom.global.max.s32 %r3, [%d2], "
                        "%r1;\ncvt.u64.u32 %d4, %r1;\natom.global.add.u64 %d5, [%d3], %d4;"),
             50, 64, 0, sum, most, wide);
  EXPECT_EQ(device.get<float>(sum, 1)[0], 3200.0f);
  EXPECT_EQ(device.get<int>(most, 1)[0], 3199);
  EXPECT_EQ(device.get<uint64_t>(wide, 1)[0], 7u + 3199u * 1600u);
}

// Load-time errors name the instruction and its line.
TEST(Instruction, UnknownOnesAreRefused) {
  Device device("sm_80");
  CUmodule module = nullptr;
  auto load = [&](const std::string& target, const std::string& body) {
    std::string ptx = kernel_ptx(target, {}, body);
    CUresult result = cuModuleLoadData(&module, ptx.c_str());
    return std::to_string(result) + " " + Device::error();
  };
  EXPECT_THAT(load("sm_80", "frobnicate.b32 %r1, %r2;"),
              ::testing::AllOf(HasSubstr("218"), HasSubstr("ptx line 11"),
                               HasSubstr("unknown instruction 'frobnicate' in 'frobnicate.b32 %r1, %r2'")));
  EXPECT_THAT(load("sm_80", "add.fancy.u32 %r1, %r2, %r3;"), HasSubstr("unknown modifier '.fancy'"));
  EXPECT_THAT(load("sm_80", "add.u32 %r1, %r2, %d3;"), HasSubstr("has 8 bytes where 4 are needed"));
  EXPECT_THAT(load("sm_70", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];"),
              HasSubstr("needs sm_75 or later, the module is for sm_70"));
  EXPECT_THAT(load("sm_90", "ret;"), HasSubstr("PTX for sm_90 does not run on an emulated sm_80"));
  EXPECT_THAT(load("sm_80", "bra NOWHERE;"), HasSubstr("unknown label 'NOWHERE'"));
  EXPECT_THAT(load("sm_80", "add.u32 %r1, %zz, 1;"), HasSubstr("unknown special register '%zz'"));
}

// An mma fragment by fragment against the sum written down: small integers, exact.
TEST(Instruction, MatrixProductM16N8K16) {
  Device device("sm_80");
  // a[m][k] = m + 2k mod 7 - 3 ..., each lane loads its own fragment with plain loads.
  std::vector<uint16_t> a(16 * 16), b(16 * 8);
  std::vector<float> c(16 * 8, 0.5f);
  auto half = [](int v) {
    return static_cast<uint16_t>(v == 0 ? 0
                                        : (v < 0 ? 0x8000 : 0) | (std::abs(v) == 1   ? 0x3c00
                                                                  : std::abs(v) == 2 ? 0x4000
                                                                                     : 0x4200));
  };
  auto av = [](int m, int k) { return (3 * m + 5 * k + m * k) % 7 - 3; };
  auto bv = [](int k, int n) { return (2 * k + n * n + 1) % 7 - 3; };
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 16; ++k) a[static_cast<size_t>(m * 16 + k)] = half(av(m, k));
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; ++n) b[static_cast<size_t>(n * 16 + k)] = half(bv(k, n));  // column-major
  CUdeviceptr out = device.allocate(16 * 8 * 4);
  device.run(
      kernel_ptx(
          "sm_80", {"u64", "u64", "u64"},
          "mov.u32 %r1, %laneid;\nshr.u32 %r2, %r1, 2;\nand.b32 %r3, %r1, 3;\nld.param.u64 %d1, "
          "[p0];\nld.param.u64 %d2, [p1];\nld.param.u64 %d3, [p2];\n"
          "mul.lo.u32 %r4, %r2, 32;\nmad.lo.u32 %r4, %r3, 4, %r4;\ncvt.u64.u32 %d4, %r4;\nadd.u64 %d5, %d1, "
          "%d4;\nadd.u64 %d6, %d2, %d4;\n"
          "ld.global.b32 %r10, [%d5];\nld.global.b32 %r11, [%d5+256];\nld.global.b32 %r12, "
          "[%d5+16];\nld.global.b32 %r13, [%d5+272];\nld.global.b32 %r14, [%d6];\nld.global.b32 %r15, "
          "[%d6+16];\n"
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r10,%r11,%r12,%r13}, "
          "{%r14,%r15}, {0f3F000000,0f3F000000,0f3F000000,0f3F000000};\n"
          "mul.lo.u32 %r4, %r2, 32;\nmad.lo.u32 %r4, %r3, 8, %r4;\ncvt.u64.u32 %d4, %r4;\nadd.u64 %d5, %d3, "
          "%d4;\nst.global.v2.f32 [%d5], {%f1,%f2};\nst.global.v2.f32 [%d5+256], {%f3,%f4};"),
      1, 32, 0, device.put(a), device.put(b), out);
  std::vector<float> d = device.get<float>(out, 128);
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      float expected = 0.5f;
      for (int k = 0; k < 16; ++k) expected += static_cast<float>(av(m, k) * bv(k, n));
      EXPECT_EQ(d[static_cast<size_t>(m * 8 + n)], expected) << m << "," << n;
    }
}

}  // namespace
}  // namespace trigen::testing
