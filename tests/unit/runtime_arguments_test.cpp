#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "runtime/arguments.h"
#include "runtime_testing.h"

// Counts every allocation of this program, for the run path's promise.
static std::atomic<int> allocations{0};
// Not inlined: GCC 12 takes the inlined pair for a mismatch of new and free.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trigen::testing::error_of;

// Addresses only: nothing here is read or written.
void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }
constexpr uintptr_t kX = 0x10000000, kY = 0x20000000, kW = 0x30000000, kOther = 0x40000000;

Problem problem(const char* text) { return llvm::cantFail(parse_problem(text)); }

trigen_args plain() {
  trigen_args args = TRIGEN_ARGS_INIT;
  args.x.data = at(kX);
  args.y.data = at(kY);
  args.w = at(kW);
  return args;
}

std::string bind(const char* text, const trigen_args& args, int64_t workspace = 0, Params* out = nullptr) {
  Params params;
  const std::string error =
      error_of(bind_arguments(problem(text), workspace, args, out == nullptr ? params : *out));
  return error;
}

constexpr const char* kForward = "forward,dtype=bf16,B=4,H=2,T=64,D=32";

TEST(BindArguments, ZeroStridesAreContiguous) {
  Params params;
  ASSERT_EQ(bind(kForward, plain(), 0, &params), "");
  EXPECT_EQ(params.x.row, 2 * 32);
  EXPECT_EQ(params.x.head, 32);
  EXPECT_EQ(params.x.batch, 64 * 2 * 32);
  EXPECT_EQ(params.w_row, 64);
  EXPECT_EQ(params.w_head, 64 * 64);
  EXPECT_EQ(params.B, 4);
  EXPECT_EQ(params.T, 64);
  EXPECT_EQ(params.gate.data, nullptr);
  EXPECT_EQ(params.workspace, nullptr);

  ASSERT_EQ(bind("forward,dtype=bf16,B=4,H=2,T=64,D=32,layout=bdt", plain(), 0, &params), "");
  EXPECT_EQ(params.y.row, 64);
  EXPECT_EQ(params.y.head, 32 * 64);
  EXPECT_EQ(params.y.batch, 2 * 32 * 64);
}

TEST(BindArguments, NumbersThatStandForW) {
  Params params;
  ASSERT_EQ(bind("forward,dtype=bf16,B=4,H=2,T=64,D=32,w=toeplitz", plain(), 0, &params), "");
  EXPECT_EQ(params.w_head, 64);
  EXPECT_EQ(params.width, 0);
  constexpr const char* kBand = "grad_weight,dtype=bf16,B=4,H=2,T=64,D=32,w=band,width=24";
  ASSERT_EQ(bind(kBand, plain(), 0, &params), "");
  EXPECT_EQ(params.w_row, 24);
  EXPECT_EQ(params.w_head, 64 * 24);
  EXPECT_EQ(params.width, 24);
  trigen_args args = plain();
  args.w_row = 16;
  EXPECT_EQ(bind(kBand, args),
            "w_row is 16, a row of w (dW) has width=24 elements; pass at least that, or 0 for contiguous");
  args.w_row = 28;
  EXPECT_THAT(bind(kBand, args), AllOf(HasSubstr("w (dW)'s w_row stride is 28 elements (56 bytes)"),
                                       HasSubstr("make the plan with a smaller walign")));
}

TEST(BindArguments, GivenStridesAreKeptAndTheRestFollowsThem) {
  trigen_args args = plain();
  args.x.row = 128;
  args.w_row = 80;
  Params params;
  ASSERT_EQ(bind(kForward, args, 0, &params), "");
  EXPECT_EQ(params.x.row, 128);
  EXPECT_EQ(params.x.batch, 64 * 128);
  EXPECT_EQ(params.w_head, 64 * 80);
}

TEST(BindArguments, ForeignStructSize) {
  trigen_args args = plain();
  args.struct_size = 8;
  EXPECT_THAT(bind(kForward, args), AllOf(HasSubstr("struct_size 8"), HasSubstr("TRIGEN_ARGS_INIT")));
}

TEST(BindArguments, NullPointersByName) {
  trigen_args args = plain();
  args.x.data = nullptr;
  EXPECT_THAT(bind(kForward, args), HasSubstr("x is null; the problem needs it: forward,dtype=bf16"));
  args = plain();
  args.w = nullptr;
  EXPECT_THAT(bind(kForward, args), HasSubstr("w is null"));
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=bias", plain()), HasSubstr("bias is null"));
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=residual", plain()),
              HasSubstr("residual is null"));
  args = plain();
  args.y.data = nullptr;
  EXPECT_THAT(bind("grad_weight,dtype=bf16,B=4,T=64,D=32", args), HasSubstr("y (dy) is null"));
}

TEST(BindArguments, TensorsThatTheProblemHasNoUseFor) {
  trigen_args args = plain();
  args.gate.data = at(kOther);
  EXPECT_THAT(bind(kForward, args), HasSubstr("gate is given, but the problem has no use for it"));
  args = plain();
  args.bias = at(kOther);
  EXPECT_THAT(bind("grad_input,dtype=bf16,B=4,T=64,D=32", args), HasSubstr("bias is given"));
}

TEST(BindArguments, Alignment) {
  trigen_args args = plain();
  args.x.data = at(kX + 2);
  EXPECT_THAT(bind(kForward, args), AllOf(HasSubstr("x is at 0x10000002, 16-byte alignment is needed"),
                                          HasSubstr("smaller align")));
  EXPECT_EQ(bind("forward,dtype=bf16,B=4,H=2,T=64,D=32,align=2", args), "");
  args = plain();
  args.w = at(kW + 8);
  EXPECT_THAT(bind(kForward, args), AllOf(HasSubstr("w is at"), HasSubstr("smaller walign")));
  // Rows of 257 elements of W are aligned to an element only, and the contiguous problem knows.
  EXPECT_EQ(bind("forward,dtype=bf16,B=1,T=257,D=32", plain()), "");
}

TEST(BindArguments, Strides) {
  trigen_args args = plain();
  args.x.row = -64;
  EXPECT_THAT(bind(kForward, args), HasSubstr("x's row stride is -64"));
  args = plain();
  args.x.row = 67;
  EXPECT_THAT(bind(kForward, args), AllOf(HasSubstr("x's row stride is 67 elements (134 bytes)"),
                                          HasSubstr("multiples of 16 bytes")));
  args = plain();
  args.w_row = 32;
  EXPECT_THAT(bind(kForward, args), AllOf(HasSubstr("w_row is 32"), HasSubstr("T*K=64")));
  args = plain();
  args.x.batch = int64_t{1} << 60;
  EXPECT_THAT(bind(kForward, args),
              HasSubstr("pass a positive number of elements that fits an address space"));
  args = plain();
  args.x.batch = int64_t{1} << 59;
  EXPECT_EQ(bind("forward,dtype=bf16,B=1,H=2,T=64,D=32", args), "") << "one batch takes no step";
  args.x.batch = (int64_t{1} << 59) - 64;
  EXPECT_THAT(bind("forward,dtype=bf16,B=32,H=2,T=64,D=32", args), HasSubstr("overflows 64 bits"));
  args = plain();
  args.y.row = 32;  // two heads of 32 need 64
  EXPECT_THAT(bind(kForward, args), HasSubstr("y overlaps itself"));
}

TEST(BindArguments, ArraysOfPointers) {
  constexpr const char* kIterations = "newton_schulz,dtype=bf16,B=4,H=2,T=64,D=128,K=5";
  trigen_args args = plain();
  args.x.batch = args.y.batch = TRIGEN_POINTER_ARRAY;
  args.x.row = 272;
  Params params;
  ArgumentExtents extents;
  ASSERT_FALSE(static_cast<bool>(bind_arguments(problem(kIterations), 0, args, params, &extents)));
  EXPECT_EQ(params.x.data, at(kX));
  EXPECT_LT(params.x.batch, 0);
  EXPECT_LT(params.y.batch, 0);
  EXPECT_EQ(params.x.row, 272);
  EXPECT_EQ(params.x.head, 128);
  EXPECT_EQ(params.y.row, 2 * 128);
  EXPECT_EQ(extents.x, 4 * 8);
  EXPECT_EQ(extents.y, 4 * 8);

  args = plain();
  args.x.batch = TRIGEN_POINTER_ARRAY;
  args.x.data = at(kX + 4);
  EXPECT_EQ(bind(kIterations, args),
            "x is at 0x10000004, 8-byte alignment is needed; pass an aligned pointer");
  args.x.data = at(kX + 8);  // what it points to is aligned to 16 bytes, not itself
  EXPECT_EQ(bind(kIterations, args), "");
  args.x.data = nullptr;
  EXPECT_THAT(bind(kIterations, args), HasSubstr("x is null"));
  args.x.data = at(kY + 64);  // an array is read when y may have been written
  EXPECT_THAT(bind(kIterations, args),
              HasSubstr("y overlaps x: y is [0x20000000, 0x20020000), x is [0x20000040, 0x20000060)"));
  args.x = {at(kX), TRIGEN_POINTER_ARRAY, 0, 260};
  EXPECT_THAT(bind(kIterations, args), AllOf(HasSubstr("x's row stride is 260 elements (520 bytes)"),
                                             HasSubstr("make the plan with a smaller align")));
  args = plain();
  args.y.batch = TRIGEN_POINTER_ARRAY;
  args.y.row = 128;  // two heads of 128 need 256
  EXPECT_THAT(bind(kIterations, args), HasSubstr("y overlaps itself"));
  args.y = args.x;
  args.y.batch = args.x.batch = TRIGEN_POINTER_ARRAY;
  EXPECT_EQ(bind(kIterations, args), "") << "one array for both: whether y may be x is the caller's to know";
  args = plain();
  args.x.batch = -2;
  EXPECT_THAT(bind(kIterations, args), HasSubstr("x's batch stride is -2; pass a positive number"));
  EXPECT_EQ(bind("newton_schulz,dtype=bf16,T=64,D=128,B=1", args, 0, &params), "");
  EXPECT_EQ(params.x.batch, 0) << "a negative one is the kernel's word for pointers";
  args = plain();
  args.x.batch = args.y.batch = TRIGEN_POINTER_ARRAY;
  args.x.row = INT64_MAX / 16 & ~int64_t{63};
  EXPECT_THAT(bind(kIterations, args), HasSubstr("64 bits"));

  for (const std::string op : {"forward", "grad_input"})
    for (const char* const batches : {"1", "4"}) {
      args = plain();
      args.y.batch = TRIGEN_POINTER_ARRAY;
      EXPECT_THAT(
          bind((op + ",dtype=bf16,T=64,D=128,B=" + batches).c_str(), args),
          AllOf(HasSubstr("'s batch stride is TRIGEN_POINTER_ARRAY, but only newton_schulz and gram take "
                          "pointers: " +
                          op),
                HasSubstr("0 for contiguous")));
    }
}

TEST(BindArguments, ArraysOfPointersOfGram) {
  constexpr const char* kGram = "gram,dtype=bf16,B=1,H=4,T=64,D=128,pointers=1,epilogue=residual+mirror";
  trigen_args args = plain();
  args.w = at(kW), args.residual = {at(kOther), 0, 0, 0};
  args.x.batch = args.y.batch = args.residual.batch = args.w_head = TRIGEN_POINTER_ARRAY;
  args.x.row = 272;
  Params params;
  ArgumentExtents extents;
  ASSERT_FALSE(static_cast<bool>(bind_arguments(problem(kGram), 0, args, params, &extents)));
  EXPECT_LT(params.x.head, 0);
  EXPECT_LT(params.y.head, 0);
  EXPECT_LT(params.residual.head, 0);
  EXPECT_LT(params.w_head, 0);
  EXPECT_EQ(params.x.row, 272);
  EXPECT_EQ(params.y.row, 128) << "a matrix by itself";
  EXPECT_EQ(params.w_row, 64);
  EXPECT_EQ(params.residual.row, 64);
  for (const int64_t extent : {extents.x, extents.y, extents.residual, extents.w}) EXPECT_EQ(extent, 4 * 8);
  args.y = {at(kY), 0, 0, 0}, args.w_head = 0;  // each by itself
  EXPECT_EQ(bind(kGram, args, 0, &params), "");
  EXPECT_EQ(params.y.head, 128);
  EXPECT_EQ(params.w_head, 64 * 64);
  args.y.head = -7, args.w_head = -7;
  EXPECT_EQ(bind("gram,dtype=bf16,B=1,T=64,D=128,pointers=1,epilogue=residual", args, 0, &params), "");
  EXPECT_EQ(params.y.head, 0) << "a negative one is the kernel's word for pointers";
  EXPECT_EQ(params.w_head, 0);

  args = plain();
  args.w = at(kW), args.residual = {at(kOther), 0, 0, 0};
  args.w_head = TRIGEN_POINTER_ARRAY;
  args.w = at(kW + 4);
  EXPECT_EQ(bind(kGram, args), "w (d) is at 0x30000004, 8-byte alignment is needed; pass an aligned pointer");
  args.w = nullptr;
  EXPECT_THAT(bind(kGram, args), HasSubstr("w (d) is null"));
  args.w = at(kX);  // an array is read when D may have been written, and x while it is
  args.x.batch = TRIGEN_POINTER_ARRAY;
  EXPECT_THAT(bind(kGram, args), AllOf(HasSubstr("w (d) and x (b) are one array of pointers, at"),
                                       HasSubstr("give w (d) memory of its own")));
  args.w = args.residual.data, args.residual.batch = TRIGEN_POINTER_ARRAY;
  EXPECT_EQ(bind(kGram, args), "") << "D may be C";
  args.w_row = 72;
  EXPECT_THAT(bind(kGram, args), HasSubstr("or exactly the same strides"));
  args.w_row = 60;
  EXPECT_THAT(bind(kGram, args), HasSubstr("w_row is 60, a row of w (d) has T*K=64 elements"));
  args.w_row = 68;
  EXPECT_THAT(bind(kGram, args), HasSubstr("make the plan with a smaller walign"));

  for (const char* const stride : {"batch", "w_head"}) {
    args = plain();
    args.w = at(kW);
    (stride[0] == 'b' ? args.x.batch : args.w_head) = TRIGEN_POINTER_ARRAY;
    EXPECT_THAT(bind("gram,dtype=bf16,B=1,H=4,T=64,D=128", args),
                AllOf(HasSubstr(std::string("'s ") + stride +
                                " stride is TRIGEN_POINTER_ARRAY, but the plan's kernels take strides: gram"),
                      HasSubstr("make the plan with pointers=1")));
  }
}

TEST(BindArguments, RowsOfDecode) {
  constexpr const char* kDecode = "decode,dtype=bf16,B=4,H=2,T=64,D=32,rows=4";
  trigen_args args = plain();
  EXPECT_EQ(bind(kDecode, args),
            "rows is 0; this plan makes 1 to 4 rows a run; make the plan with a larger rows, or use several "
            "runs or "
            "forward");
  args.rows = 5;
  EXPECT_THAT(bind(kDecode, args), HasSubstr("rows is 5; this plan makes 1 to 4 rows"));
  args.rows = 3, args.first_row = 62;
  EXPECT_EQ(bind(kDecode, args),
            "first_row is 62 for 3 rows; allowed are 0 to 61, the problem has T=64 tokens");
  args.first_row = -1;
  EXPECT_THAT(bind(kDecode, args), HasSubstr("first_row is -1"));
  args.first_row = 61;
  Params params;
  ASSERT_EQ(bind(kDecode, args, 0, &params), "");
  EXPECT_EQ(params.first_row, 61);
  EXPECT_EQ(params.rows, 3);
  // x is contiguous over the capacity, y over the rows.
  EXPECT_EQ(params.x.batch, 64 * 2 * 32);
  EXPECT_EQ(params.y.row, 2 * 32);
  EXPECT_EQ(params.y.batch, 3 * 2 * 32);
  // bdt: rows of y are a few elements long, which keeps no vector's alignment.
  ASSERT_EQ(bind("decode,dtype=bf16,B=4,H=2,T=64,D=32,rows=4,layout=bdt", args, 0, &params), "");
  EXPECT_EQ(params.y.row, 3);
  EXPECT_EQ(params.y.head, 32 * 3);
  EXPECT_EQ(params.x.row, 64);
  EXPECT_THAT(bind(kForward, args),
              HasSubstr("first_row=61 and rows=3 are given, but the problem makes all rows"));
}

TEST(BindArguments, DecodeMayWriteBehindTheTokensThatItReads) {
  constexpr const char* kDecode = "decode,dtype=bf16,B=1,T=64,D=32";
  trigen_args args = plain();
  args.rows = 1, args.first_row = 9;
  args.y.data = at(kX + 10 * 32 * 2);
  EXPECT_EQ(bind(kDecode, args), "") << "row 9 reads tokens 0 to 9";
  args.y.data = at(kX + 9 * 32 * 2);
  EXPECT_THAT(bind(kDecode, args), HasSubstr("y overlaps x"));
}

TEST(BindArguments, GradEpilogueReadsPreAndWritesGradGate) {
  constexpr const char* kGelu = "grad_epilogue,dtype=bf16,B=4,H=2,T=64,D=32,epilogue=gelu";
  constexpr const char* kGate = "grad_epilogue,dtype=bf16,B=4,H=2,T=64,D=32,epilogue=gelu+gate";
  constexpr uintptr_t kPre = 0x50000000, kGradGate = 0x60000000;
  trigen_args args = plain();
  EXPECT_THAT(bind(kGelu, args), HasSubstr("pre is null"));
  args.pre.data = at(kPre);
  EXPECT_THAT(bind(kGelu, args), HasSubstr("w is given, but the problem has no use for it"));
  args.w = nullptr;
  Params params;
  ASSERT_EQ(bind(kGelu, args, 0, &params), "");
  EXPECT_EQ(params.pre.batch, 64 * 2 * 32);
  EXPECT_EQ(params.w, nullptr);
  EXPECT_THAT(bind(kGate, args), HasSubstr("gate is null"));
  args.gate.data = at(kOther);
  EXPECT_THAT(bind(kGate, args), HasSubstr("residual (grad_gate) is null"));
  args.residual.data = at(kGradGate);
  EXPECT_EQ(bind(kGate, args), "");
  args.x.data = at(kOther);
  EXPECT_EQ(bind(kGate, args), "") << "dz in the gate's place";
  args.x.data = at(kPre);
  EXPECT_THAT(bind(kGate, args), HasSubstr("x (dz) overlaps pre"));
  args.x.data = at(kGradGate);
  EXPECT_THAT(bind(kGate, args), HasSubstr("x (dz) overlaps residual (grad_gate)"));
}

constexpr const char* kGram = "gram,dtype=bf16,B=1,H=4,T=64,D=32";
constexpr const char* kGramOfC = "gram,dtype=bf16,B=1,H=4,T=64,D=32,epilogue=residual+mirror";
constexpr uintptr_t kC = 0x50000000;

trigen_args with_c() {
  trigen_args args = plain();
  args.residual.data = at(kC);
  return args;
}

TEST(BindArguments, GramReadsAAndBAndWritesD) {
  trigen_args args = with_c();
  args.alpha = 0.5F, args.beta = -2, args.gamma = 3;
  Params params;
  ASSERT_EQ(bind(kGramOfC, args, 0, &params), "");
  EXPECT_EQ(params.y.row, 4 * 32) << "A, as every activation";
  EXPECT_EQ(params.w_row, 64);
  EXPECT_EQ(params.w_head, 64 * 64);
  EXPECT_EQ(params.residual.data, at(kC));
  EXPECT_EQ(params.residual.row, 64) << "C, as D";
  EXPECT_EQ(params.residual.head, 64 * 64);
  EXPECT_EQ(params.alpha, 0.5F);
  EXPECT_EQ(params.beta, -2);
  EXPECT_EQ(params.gamma, 3);
  // Matrices one behind the other, D and C with longer rows.
  args.x = {at(kX), 0, 64 * 32, 32}, args.y = {at(kY), 0, 64 * 32, 32};
  args.w_row = 72, args.residual.row = 80;
  ASSERT_EQ(bind(kGramOfC, args, 0, &params), "");
  EXPECT_EQ(params.x.head, 64 * 32);
  EXPECT_EQ(params.w_head, 64 * 72);
  EXPECT_EQ(params.residual.head, 64 * 80);
  ASSERT_EQ(bind(kGram, plain(), 0, &params), "");
  EXPECT_EQ(params.residual.data, nullptr);
  EXPECT_EQ(params.alpha, 1);
  EXPECT_EQ(params.gamma, 0);
}

TEST(BindArguments, GramWithoutATensor) {
  trigen_args args = plain();
  args.y.data = nullptr;
  EXPECT_EQ(bind(kGram, args), std::string("y (a) is null; the problem needs it: ") + kGram + ",K=1,pad=0");
  args = plain();
  args.x.data = nullptr;
  EXPECT_THAT(bind(kGram, args), HasSubstr("x (b) is null; the problem needs it: gram,"));
  args = plain();
  args.w = nullptr;
  EXPECT_THAT(bind(kGram, args), HasSubstr("w (d) is null; the problem needs it: gram,"));
  EXPECT_THAT(bind(kGramOfC, plain()), HasSubstr("residual (c) is null; the problem needs it: gram,"));
  EXPECT_THAT(bind(kGram, with_c()),
              AllOf(HasSubstr("residual (c) is given, but the problem has no use for it: gram,"),
                    HasSubstr("pass null, or add it to the problem's epilogue")));
  args = plain();
  args.gate.data = at(kC);
  EXPECT_THAT(bind(kGram, args), HasSubstr("gate is given, but the problem has no use for it"));
  args = plain();
  args.bias = at(kOther);
  EXPECT_THAT(bind(kGram, args), HasSubstr("bias is given, but the problem has no use for it"));
}

TEST(BindArguments, GramOfStridesAndAddressesThatDoNotFit) {
  trigen_args args = with_c();
  args.w_row = 56;
  EXPECT_EQ(bind(kGramOfC, args),
            "w_row is 56, a row of w (d) has T*K=64 elements; pass at least that, or 0 for contiguous");
  args = with_c();
  args.residual.row = 56;
  EXPECT_EQ(
      bind(kGramOfC, args),
      "residual (c)'s row stride is 56, a row of residual (c) has T*K=64 elements; pass at least that, or "
      "0 for contiguous");
  args.residual.row = 68;
  EXPECT_EQ(
      bind(kGramOfC, args),
      "residual (c)'s row stride is 68 elements (136 bytes), the problem promises multiples of 16 bytes; "
      "make the plan with a smaller walign");
  args.residual.row = 0, args.residual.head = -64 * 64;
  EXPECT_THAT(bind(kGramOfC, args), HasSubstr("residual (c)'s head stride is -4096; pass a positive number"));
  args = with_c();
  args.residual.data = at(kC + 8);
  EXPECT_THAT(bind(kGramOfC, args),
              AllOf(HasSubstr("residual (c) is at 0x50000008, 16-byte alignment is needed"),
                    HasSubstr("smaller walign")));
  args = with_c();
  args.w_head = 32 * 64;
  EXPECT_THAT(bind(kGramOfC, args), HasSubstr("w (d) overlaps itself"));
  args.residual = {at(kC), 0, 32 * 64, 64}, args.w_head = 0;
  EXPECT_EQ(bind(kGramOfC, args), "") << "inputs may name an element twice";
  args.residual = {at(kC), -2, 0, 0};
  EXPECT_EQ(bind(kGramOfC, args), "") << "C has no batches";
  args = with_c();
  args.y.row = 60;
  EXPECT_THAT(bind(kGramOfC, args), AllOf(HasSubstr("y (a)'s row stride is 60 elements (120 bytes)"),
                                          HasSubstr("make the plan with a smaller align")));
}

TEST(BindArguments, GramsOutputIsItsOwnOrC) {
  trigen_args args = with_c();
  args.w = args.y.data;
  EXPECT_THAT(bind(kGramOfC, args),
              AllOf(HasSubstr("w (d) overlaps y (a): "), HasSubstr("memory of its own")));
  args.w = args.x.data;
  EXPECT_THAT(bind(kGramOfC, args),
              AllOf(HasSubstr("w (d) overlaps x (b): "), HasSubstr("memory of its own")));
  args = with_c();
  args.residual.data = args.w;
  EXPECT_EQ(bind(kGramOfC, args), "") << "D in C's place";
  args.residual.row = 80;
  EXPECT_THAT(bind(kGramOfC, args),
              AllOf(HasSubstr("w (d) overlaps residual (c): "), HasSubstr("or exactly the same view")));
  args.w_row = 80;
  EXPECT_EQ(bind(kGramOfC, args), "");
  args.residual.data = at(kW + 32);
  EXPECT_THAT(bind(kGramOfC, args), HasSubstr("w (d) overlaps residual (c)"));
  args = with_c();
  args.x = args.y, args.residual.data = args.y.data;
  EXPECT_EQ(bind(kGramOfC, args), "") << "A, B and C are all read";
}

TEST(BindArguments, FactorsOfGram) {
  const auto with = [](const char* text, float alpha, float beta, float gamma) {
    trigen_args args = llvm::StringRef(text).contains("residual") ? with_c() : plain();
    args.alpha = alpha, args.beta = beta, args.gamma = gamma;
    return bind(text, args);
  };
  EXPECT_EQ(with(kGramOfC, 0, 1, 0),
            "alpha is 0.000000, which leaves nothing to compute; start from TRIGEN_ARGS_INIT, which sets 1: "
            "gram,dtype=bf16,B=1,H=4,T=64,D=32,K=1,pad=0,epilogue=residual+mirror");
  EXPECT_THAT(
      with(kGram, 1, 0.5F, 0),
      HasSubstr("beta is 0.500000, but the problem has no C; add residual to its epilogue, or leave beta 1"));
  EXPECT_EQ(with(kGram, -1, 0, 2), "");
  EXPECT_EQ(with(kGramOfC, 1, 0, 0), "");
  // Of products, overflows and what callers mean by them nothing is known here: numbers are taken as they are.
  EXPECT_EQ(with(kGramOfC, INFINITY, NAN, -INFINITY), "");
  // The other ops take what TRIGEN_ARGS_INIT sets, and zeros.
  EXPECT_EQ(with(kForward, 1, 1, 0), "");
  EXPECT_EQ(with(kForward, 0, 0, 0), "");
  EXPECT_THAT(with(kForward, 2, 1, 0), HasSubstr("alpha is 2.000000, but only gram has a use for it"));
  EXPECT_THAT(with(kForward, 1, NAN, 0),
              HasSubstr("but only gram has a use for it; start from TRIGEN_ARGS_INIT"));
  EXPECT_THAT(with("grad_weight,dtype=bf16,B=4,T=64,D=32", 1, 1, 1),
              HasSubstr("gamma is 1.000000, but only gram has a use for it"));
  trigen_args args = plain();
  args.rows = 1;
  EXPECT_THAT(bind(kGram, args),
              HasSubstr("first_row=0 and rows=1 are given, but the problem makes all rows"));
}

TEST(BindArguments, Workspace) {
  trigen_args args = plain();
  EXPECT_THAT(bind(kForward, args, 1024), AllOf(HasSubstr("workspace is null"), HasSubstr("1024 bytes"),
                                                HasSubstr("trigen_plan_workspace_size")));
  args.workspace = at(kOther);
  args.workspace_size = 1000;
  EXPECT_THAT(bind(kForward, args, 1024), HasSubstr("workspace has 1000 bytes, the plan needs 1024"));
  args.workspace_size = 1024;
  EXPECT_EQ(bind(kForward, args, 1024), "");
  args.workspace = at(kOther + 8);
  EXPECT_THAT(bind(kForward, args, 1024), HasSubstr("16-byte alignment"));
  args.workspace = at(kY + 64);
  EXPECT_THAT(bind(kForward, args, 1024), AllOf(HasSubstr("overlaps"), HasSubstr("workspace")));
}

TEST(BindArguments, OutputsMustNotOverlap) {
  trigen_args args = plain();
  args.y = args.x;
  EXPECT_THAT(bind(kForward, args),
              HasSubstr("y overlaps x: y is [0x10000000, 0x10008000), x is [0x10000000, 0x10008000)"));
  args = plain();
  args.y.data = at(kW + 16);
  EXPECT_THAT(bind(kForward, args), HasSubstr("y overlaps w"));
  args = plain();
  args.x.data = at(kY + 0x8000);  // right behind
  EXPECT_EQ(bind(kForward, args), "");
  args = plain();
  args.pre.data = args.y.data;
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=gelu+pre", args), HasSubstr("y overlaps pre"));
  args = plain();
  args.w = args.x.data;
  EXPECT_THAT(bind("grad_weight,dtype=bf16,B=4,T=64,D=32", args), HasSubstr("w (dW) overlaps x"));
  args = plain();
  args.bias = args.w;
  EXPECT_THAT(bind("grad_weight,dtype=bf16,B=4,T=64,D=32,epilogue=bias", args), HasSubstr("overlaps"));
}

TEST(BindArguments, InputsMayOverlap) {
  trigen_args args = plain();
  args.y = args.x;
  EXPECT_EQ(bind("grad_weight,dtype=bf16,B=4,T=64,D=32", args), "") << "x and dy are both read";
}

TEST(BindArguments, ResidualAndGateMayBeTheOutputItself) {
  trigen_args args = plain();
  args.residual = args.y;
  EXPECT_EQ(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=residual", args), "");
  args.residual.data = at(kY + 64);
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=residual", args),
              AllOf(HasSubstr("y overlaps residual"), HasSubstr("or exactly the same view")));
  args = plain();
  args.gate = args.y;
  EXPECT_EQ(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=gate", args), "");
  args = plain();
  args.residual = args.x;
  EXPECT_EQ(bind("grad_input,dtype=bf16,B=4,T=64,D=32,epilogue=residual", args), "") << "dx = W^T dy + dx";
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32,epilogue=residual", args), "") << "two inputs";
}

// Two slices of the last axis of one buffer lie in each other's span, and share no element.
TEST(BindArguments, InterleavedSlicesOfOneBufferDoNotOverlap) {
  trigen_args args = plain();
  args.x = {at(kX), 64 * 64, 32, 64};
  args.y = {at(kX + 32 * 2), 64 * 64, 32, 64};
  EXPECT_EQ(bind("forward,dtype=bf16,B=4,T=64,D=32", args), "");
  args.y.data = at(kX + 16 * 2);
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32", args), HasSubstr("y overlaps x"));
  args.y.data = at(kX + (64 + 48) * 2);  // wraps into the next row's x
  EXPECT_THAT(bind("forward,dtype=bf16,B=4,T=64,D=32", args), HasSubstr("y overlaps x"));
  args.y.data = at(kX + (64 * 64 * 3 + 32) * 2);  // the same slice, three batches on
  EXPECT_EQ(bind("forward,dtype=bf16,B=4,T=64,D=32", args), "");
}

trigen_args of_scan() {
  trigen_args args = plain();
  args.w = nullptr;
  args.source = {at(kW), 64, 1};
  args.decay = {at(kOther), 1, 0};
  return args;
}
constexpr const char* kScan = "scan,dtype=bf16,B=4,H=2,T=64,D=32,wdtype=f32";

TEST(BindArguments, VectorsOfAScanAreGivenOneByOne) {
  Params params;
  trigen_args args = of_scan();
  ASSERT_EQ(bind(kScan, args, 0, &params), "");
  EXPECT_EQ(params.w, nullptr);
  EXPECT_EQ(params.vectors[scan::kSource].data, at(kW));
  EXPECT_EQ(params.vectors[scan::kSource].head, 64);
  EXPECT_EQ(params.vectors[scan::kSource].token, 1);
  EXPECT_EQ(params.vectors[scan::kTarget].data, nullptr) << "ones";
  EXPECT_EQ(params.vectors[scan::kDecay].token, 0);
  EXPECT_EQ(params.decay_low, -INFINITY) << "no bounds";
  EXPECT_EQ(params.decay_high, INFINITY);
  args.decay_low = 0.5F, args.decay_high = 0.5F;
  ASSERT_EQ(bind(kScan, args, 0, &params), "");
  EXPECT_EQ(params.decay_low, 0.5F);
  EXPECT_EQ(params.decay_high, 0.5F);
  args.decay_high = 0.25F;
  EXPECT_THAT(bind(kScan, args), AllOf(HasSubstr("decay_low=0.5"), HasSubstr("decay_low <= decay_high")));
  args.decay_high = NAN;
  EXPECT_THAT(bind(kScan, args), HasSubstr("decay_high=nan"));
  args = of_scan();
  args.source.head = -64;
  EXPECT_EQ(bind(kScan, args),
            "source's head stride is -64; pass a positive number of elements, or 0 to repeat");
  args = of_scan();
  args.decay.data = at(kOther + 2);
  EXPECT_THAT(bind(kScan, args), AllOf(HasSubstr("decay is at"), HasSubstr("4-byte alignment is needed")));
  args = of_scan();
  args.decay.data = at(kOther + 4), args.decay.head = 3;
  EXPECT_EQ(bind(kScan, args), "") << "an element's alignment will do";
  args.w = at(kW);
  EXPECT_THAT(bind(kScan, args), HasSubstr("w is given, but the problem's W is vectors"));
  args = of_scan();
  args.source.token = INT64_MAX / 64;
  EXPECT_THAT(bind(kScan, args), HasSubstr("source"));
  args = of_scan();
  args.source.token = int64_t{1} << 31;
  EXPECT_THAT(bind(kScan, args),
              HasSubstr("source's token stride is 2147483648; allowed are strides below 2^31"));
  args = of_scan();
  args.diagonal = {at(kY + 64), 0, 0};
  EXPECT_THAT(bind(kScan, args), HasSubstr("y overlaps diagonal"));
  args.diagonal = args.decay;  // inputs may overlap
  EXPECT_EQ(bind(kScan, args), "");
  args = plain();
  args.target = {at(kOther), 0, 0};
  EXPECT_THAT(bind(kForward, args), HasSubstr("target is given, but only a scan has a use for it"));
  args = plain();
  args.decay_high = 1;
  EXPECT_THAT(bind(kForward, args), HasSubstr("decay_low=0.000000 and decay_high=1.000000 are given"));
}

TEST(BindArguments, WUnchangedIsOfOpsThatReadW) {
  trigen_args args = plain();
  args.w_unchanged = 1;
  EXPECT_EQ(bind(kForward, args), "");
  args.w_unchanged = 2;
  EXPECT_EQ(bind(kForward, args), "w_unchanged is 2; allowed are 0 and 1; start from TRIGEN_ARGS_INIT");
  args.w_unchanged = 1;
  EXPECT_THAT(bind("grad_weight,dtype=bf16,B=4,T=64,D=32", args),
              HasSubstr("w_unchanged is 1, but the problem reads no w: grad_weight,"));
  args = of_scan();
  args.w_unchanged = 1;
  EXPECT_THAT(bind(kScan, args), HasSubstr("w_unchanged is 1, but the problem reads no w: scan,"));
}

TEST(BindArguments, GradientsOfVectorsLieApart) {
  constexpr const char* kProblem = "scan_grad_weight,dtype=bf16,B=4,H=2,T=64,D=32,wdtype=f32";
  Params params;
  trigen_args args = of_scan();
  args.residual.data = at(0x70000000);
  args.workspace = at(0x80000000), args.workspace_size = 4096;
  ASSERT_EQ(bind(kProblem, args, 4096, &params), "");
  EXPECT_EQ(params.residual.row, 64);
  EXPECT_EQ(params.residual.head, 4 * 64);
  args.residual.data = at(kW + 64 * 4);
  EXPECT_THAT(bind(kProblem, args, 4096), HasSubstr("residual (dw) overlaps source"));
  args.residual.data = nullptr;
  EXPECT_THAT(bind(kProblem, args, 4096), HasSubstr("residual (dw) is null"));
}

TEST(BindArguments, AllocatesNothingOnSuccess) {
  const Problem full = problem("forward,dtype=bf16,B=4,T=64,D=32,epilogue=bias+gelu+pre+gate+residual");
  trigen_args args = plain();
  args.bias = at(kOther);
  args.pre.data = at(0x50000000);
  args.gate.data = at(0x60000000);
  args.residual.data = at(0x70000000);
  args.workspace = at(0x80000000);
  args.workspace_size = 4096;
  Params params;
  const int before = allocations;
  const bool failed = static_cast<bool>(bind_arguments(full, 4096, args, params));
  EXPECT_EQ(allocations, before);
  EXPECT_FALSE(failed);
  const Problem scans = problem(kScan);
  trigen_args vectors = of_scan();
  vectors.decay_low = 0.5F, vectors.decay_high = 1;
  const int before_scan = allocations;
  EXPECT_FALSE(static_cast<bool>(bind_arguments(scans, 0, vectors, params)));
  EXPECT_EQ(allocations, before_scan);
  args.x.data = nullptr;
  EXPECT_NE(error_of(bind_arguments(full, 4096, args, params)), "");
  EXPECT_GT(allocations, before) << "the counter counts";
}

}  // namespace
}  // namespace trigen
