#include "generator/problem.h"
#include "generator/ops.h"

#include <gmock/gmock.h>

#include "generator/error.h"
#include "generator/random_problem.h"

namespace trigen {
namespace {

using testing::HasSubstr;

std::string error_of(llvm::StringRef text) {
  auto problem = parse_problem(text);
  if (problem) return "parsed as " + to_string(*problem);
  return take_error(problem.takeError()).message;
}

Problem parsed(llvm::StringRef text) {
  auto problem = parse_problem(text);
  if (problem) return *problem;
  ADD_FAILURE() << text.str() << ": " << take_error(problem.takeError()).message;
  return {};
}

TEST(ProblemText, PrintsTheDocumentedForm) {
  EXPECT_EQ(to_string(parsed("forward,dtype=bf16,B=32,T=512,D=1024")),
            "forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0");
  EXPECT_EQ(
      to_string(parsed(
          "forward D=256 T=1024 H=4 B=16  dtype=bf16, diag=2 fill=upper\tlayout=bdt epilogue=gelu+bias "
          "align=2 wdtype=f32")),
      "forward,dtype=bf16,B=16,H=4,T=1024,D=256,K=1,pad=0,layout=bdt,fill=upper,diag=2,wdtype=f32,align=2,"
      "epilogue=bias+gelu");
  EXPECT_EQ(to_string(parsed("grad_weight,dtype=f32,B=8,T=2048,D=1024,math=tf32,epilogue=accumulate+bias")),
            "grad_weight,dtype=f32,B=8,H=1,T=2048,D=1024,K=1,pad=0,math=tf32,epilogue=bias+accumulate");
  EXPECT_EQ(to_string(parsed("gram,dtype=bf16,B=1,H=4,T=512,D=1024,epilogue=mirror+residual")),
            "gram,dtype=bf16,B=1,H=4,T=512,D=1024,K=1,pad=0,epilogue=residual+mirror");
  EXPECT_EQ(to_string(parsed("gram,dtype=f16,B=2,T=65,D=40,layout=bdt,fill=upper,wdtype=f32,walign=4")),
            "gram,dtype=f16,B=2,H=1,T=65,D=40,K=1,pad=0,layout=bdt,fill=upper,wdtype=f32");
  EXPECT_EQ(to_string(parsed("forward,dtype=bf16,B=4,T=8192,D=1024,width=256,w=band")),
            "forward,dtype=bf16,B=4,H=1,T=8192,D=1024,K=1,pad=0,w=band,width=256");
  EXPECT_EQ(to_string(parsed("grad_weight,dtype=bf16,B=4,T=8192,D=1024,w=toeplitz,wdtype=f32")),
            "grad_weight,dtype=bf16,B=4,H=1,T=8192,D=1024,K=1,pad=0,w=toeplitz,wdtype=f32");
  EXPECT_EQ(short_text(parsed("gram,dtype=bf16,B=1,H=4,T=512,D=1024,K=1,pad=0,epilogue=residual+mirror")),
            "gram,dtype=bf16,B=1,H=4,T=512,D=1024,epilogue=residual+mirror");
}

TEST(ProblemText, FillsInTheDefaults) {
  const Problem p = parsed("grad_input,dtype=f32,B=2,T=64,D=64,K=8");
  EXPECT_EQ(p.pad, 3);  // 'same' of nn.Conv1d: (K-1)/2
  EXPECT_EQ(p.H, 1);
  EXPECT_EQ(p.wdtype, DType::kF32);
  EXPECT_EQ(p.math, Math::kSimt);
  EXPECT_EQ(p.layout, Layout::kBTD);
  EXPECT_EQ(parsed("forward,dtype=f16,B=1,T=64,D=64").math, Math::kDefault);
}

using Alignments = std::pair<int64_t, int64_t>;

TEST(ProblemText, AlignmentDefaultsToThatOfContiguousTensors) {
  const auto alignments = [](llvm::StringRef text) {
    const Problem p = parsed(text);
    return std::pair(p.align, p.walign);
  };
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=512,D=1024"), Alignments(16, 16));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=257,D=512"), Alignments(16, 2));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=512,D=1025"), Alignments(2, 16));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=257,D=512,layout=bdt"), Alignments(2, 2));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=260,D=512,wdtype=f32"), Alignments(16, 16));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=257,D=512,wdtype=f32"), Alignments(16, 4));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=257,D=512,K=8"), Alignments(16, 16));
  EXPECT_EQ(alignments("forward,dtype=f32,B=1,T=6,D=7"), Alignments(4, 8));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=257,D=512,w=band,width=64"), Alignments(16, 16));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=512,D=512,w=band,width=65"), Alignments(16, 2));
  EXPECT_EQ(alignments("forward,dtype=f16,B=1,T=260,D=512,w=toeplitz"), Alignments(16, 8));
}

TEST(ProblemText, RoundTripsRandomProblems) {
  RandomProblem random(20240901);
  for (int i = 0; i < 20000; ++i) {
    const Problem problem = random.next();
    ASSERT_FALSE(static_cast<bool>(validate(problem))) << to_string(problem);
    auto again = parse_problem(to_string(problem));
    ASSERT_TRUE(static_cast<bool>(again))
        << to_string(problem) << ": " << take_error(again.takeError()).message;
    ASSERT_TRUE(*again == problem) << to_string(problem);
    ASSERT_EQ(to_string(*again), to_string(problem));
    auto from_short = parse_problem(short_text(problem));
    ASSERT_TRUE(static_cast<bool>(from_short)) << short_text(problem);
    ASSERT_TRUE(*from_short == problem) << short_text(problem);
  }
}

struct BadText {
  const char* text;
  const char* message;
};

class ProblemErrors : public testing::TestWithParam<BadText> {};

TEST_P(ProblemErrors, SayWhatIsAllowed) { EXPECT_EQ(error_of(GetParam().text), GetParam().message); }

INSTANTIATE_TEST_SUITE_P(
    Texts, ProblemErrors,
    testing::Values(
        BadText{"", "empty problem; write one as forward,dtype=bf16,B=32,T=512,D=1024"},
        BadText{"dtype=f16,B=1",
                "the problem starts with 'dtype'; the first field is the op: forward, "
                "grad_input, grad_weight, decode, grad_epilogue, gram, scan, scan_grad_input, "
                "scan_grad_weight or newton_schulz"},
        BadText{"foward,dtype=f16",
                "op='foward' is unknown; allowed are forward, grad_input, grad_weight, decode, "
                "grad_epilogue, gram, scan, scan_grad_input, scan_grad_weight or newton_schulz; did "
                "you mean 'forward'?"},
        BadText{"forward,dtype=f16,B=1,T=0,D=8",
                "T=0; allowed are 1 to 2147418112; give the number of tokens"},
        BadText{"forward,dtype=f16,B=-3,T=8,D=8", "B=-3; allowed are 1 to 2147418112; give the batch size"},
        BadText{"forward,dtype=f16,B=1,T=8,D=2147483648",
                "D=2147483648; allowed are 1 to 2147418112; give the features of one head"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,K=0",
                "K=0; allowed are 1 to 2147418112; give the number of taps, 1 for a plain product, or of "
                "newton_schulz's steps"},
        BadText{"forward,dtype=f16,B=99999999999999999999,T=8,D=8",
                "B='99999999999999999999' does not fit 64 bits; give a smaller number (column 19)"},
        BadText{"forward,dtype=f16,B=65536,T=8,D=65536",
                "B*D is larger than 2147418112, what the kernels' 32-bit tile coordinates allow; split the "
                "batch"},
        BadText{"forward,dtype=f16,B=1,H=65536,T=8,D=65536",
                "H*D is larger than 2147418112, what the kernels' 32-bit tile coordinates allow; split the "
                "heads"},
        BadText{"forward,dtype=f16,B=1,T=1073741824,D=8,K=2",
                "T*K is larger than 2147418112, what the kernels' 32-bit tile coordinates allow; use fewer "
                "tokens or taps"},
        BadText{"forward,dtype=f16,B=2000000000,H=2000000000,T=2000000000,D=1",
                "B*H*T*D elements pass 2^62 bytes; allowed are fewer, split the batch"},
        BadText{"forward,dtype=f16,B=1,H=2000,T=2000000000,D=1",
                "H*T*T*K weights pass 2^62 bytes; allowed are fewer, split the heads"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,K=4,pad=4",
                "pad=4; allowed are 0 to 3; give 0 to K-1, (K-1)/2 for 'same'"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,diag=8",
                "diag=8; allowed are -7 to 7; outside that the triangle is empty or "
                "everything; use a dense product"},
        BadText{"forward,dtyp=f16,B=1,T=8,D=8",
                "unknown key 'dtyp' at column 9; allowed are dtype, B, H, T, D, K, pad, rows, layout, fill, "
                "diag, "
                "w, width, wdtype, math, "
                "align, walign, pointers or epilogue; did you mean 'dtype'?"},
        BadText{
            "forward,dtype=f16,b=1,T=8,D=8",
            "unknown key 'b' at column 19; allowed are dtype, B, H, T, D, K, pad, rows, layout, fill, diag, "
            "w, width, wdtype, math, "
            "align, walign, pointers or epilogue; did you mean 'B'?"},
        BadText{"forward,dtype=fp16,B=1,T=8,D=8",
                "dtype='fp16' is unknown; allowed are f16, bf16 or f32; did you mean 'f16'? (column 9)"},
        BadText{"forward,dtype=f16,B=1,T=8",
                "the problem has no D; dtype, B, T and D have no default: "
                "forward,dtype=bf16,B=32,T=512,D=1024"},
        BadText{"forward",
                "the problem has no dtype, B, T, D; dtype, B, T and D have no default: "
                "forward,dtype=bf16,B=32,T=512,D=1024"},
        BadText{"forward,dtype=f16,B=1,B=2,T=8,D=8", "key 'B' at column 23 is given twice; give it once"},
        BadText{"forward,dtype=f16,B,T=8,D=8", "key 'B' at column 19 has no value; write B=value"},
        BadText{"forward,dtype=f16,B=1x,T=8,D=8",
                "B='1x' is not a number; give decimal digits, as in B=1024 (column 19)"},
        BadText{
            "forward,,dtype=f16",
            "empty field at column 9 of the problem; put one comma between two fields and none at the ends"},
        BadText{
            "forward,dtype=f16,",
            "empty field at column 18 of the problem; put one comma between two fields and none at the ends"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,wdtype=bf16",
                "wdtype=bf16 with dtype=f16; allowed are f16 and f32; convert the weights"},
        BadText{"forward,dtype=f32,B=1,T=8,D=8,wdtype=f16",
                "wdtype=f16 with dtype=f32; allowed are f32; convert the weights"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,math=tf32",
                "math=tf32 with dtype=f16; it chooses how f32 is multiplied; leave it out"},
        BadText{"forward,dtype=f32,B=1,T=8,D=8,math=default",
                "math=default with dtype=f32; allowed are simt, tf32 and f16x3; choose simt for full f32 "
                "accuracy"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,rows=2",
                "rows=2 with forward; only decode makes a few rows; leave rows out"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,pointers=1",
                "pointers=1 with forward; only gram has kernels of their own for arrays of pointers; leave "
                "pointers out"},
        BadText{"gram,dtype=f16,B=2,T=8,D=8,pointers=1",
                "pointers=1; allowed are 0 to 0; 1 is for runs that give pointers to the matrices of H, B is "
                "1 then"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,pointers=2",
                "pointers=2; allowed are 0 to 1; 1 is for runs that give pointers to the matrices of H, B is "
                "1 then"},
        BadText{"decode,dtype=f16,B=1,T=8,D=8,rows=9",
                "rows=9; allowed are 1 to 8; the most rows of one run; use forward for more"},
        BadText{"decode,dtype=f16,B=1,T=800,D=8,rows=65",
                "rows=65; allowed are 1 to 64; the most rows of one run; use forward for more"},
        BadText{
            "decode,dtype=f32,B=1,T=8,D=8,math=tf32",
            "math=tf32 with decode; it reads more than it multiplies and has math=simt only; leave math out"},
        BadText{"decode,dtype=f16,B=1,T=8,D=8,epilogue=accumulate",
                "epilogue accumulate with decode; allowed are bias, gelu, silu, pre, gate and residual; "
                "compute the "
                "rest outside"},
        BadText{
            "grad_epilogue,dtype=f16,B=1,T=8,D=8",
            "grad_epilogue without an activation or a gate copies dy; allowed are gelu, silu and gate; pass "
            "dy on"},
        BadText{"grad_epilogue,dtype=f16,B=1,T=8,D=8,K=2,epilogue=gelu",
                "K=2 with grad_epilogue; grad_epilogue takes activations alone, it has no product; leave K "
                "out"},
        BadText{"grad_epilogue,dtype=f16,B=1,T=8,D=8,fill=upper,epilogue=gelu",
                "fill, wdtype or math with grad_epilogue; it has no choice of these; leave them out"},
        BadText{"grad_epilogue,dtype=f16,B=1,T=8,D=8,epilogue=gelu+pre",
                "epilogue pre with grad_epilogue; allowed are gelu, silu and gate; compute the rest outside"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,align=12", "align=12; allowed are 16, 8, 4 and 2 bytes"},
        BadText{"forward,dtype=f32,B=1,T=8,D=8,align=2",
                "align=2 with f32 elements; allowed are 4 to 16 bytes; align pointers and strides to their "
                "elements"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,wdtype=f32,walign=2",
                "walign=2 with f32 elements; allowed are 4 to 16 bytes; align pointers and strides to their "
                "elements"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,epilogue=bias+relu",
                "epilogue part 'relu' is unknown; allowed are bias, gelu, silu, pre, gate, residual, "
                "accumulate, zero_outside, mirror or grad_input, joined by '+' (column 31)"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,epilogue=bias+bias",
                "epilogue has 'bias' twice; name it once (column 31)"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,epilogue=gelu+silu",
                "epilogue has two activations, gelu and silu; name one (column 31)"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,epilogue=pre+bias",
                "epilogue pre without an activation or a gate stores the output twice; allowed is pre with "
                "gelu, silu or "
                "gate; leave pre out"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,epilogue=accumulate",
                "epilogue accumulate with forward; allowed are bias, gelu, silu, pre, gate and residual; "
                "compute the rest "
                "outside"},
        BadText{"grad_input,dtype=f16,B=1,T=8,D=8,epilogue=bias+gelu+residual",
                "epilogue bias+gelu with grad_input; allowed are residual; compute the rest outside"},
        BadText{"grad_weight,dtype=f16,B=1,T=8,D=8,epilogue=gate",
                "epilogue gate with grad_weight; allowed are bias, accumulate and zero_outside; compute the "
                "rest outside"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,epilogue=mirror",
                "epilogue mirror with forward; allowed are bias, gelu, silu, pre, gate and residual; compute "
                "the rest outside"},
        BadText{"grad_weight,dtype=f16,B=1,T=8,D=8,epilogue=mirror",
                "epilogue mirror with grad_weight; allowed are bias, accumulate and zero_outside; compute "
                "the rest outside"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,w=toepliz",
                "w='toepliz' is unknown; allowed are dense, toeplitz or band; did you mean 'toeplitz'? "
                "(column 31)"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,w=band",
                "the problem has no width; dtype, B, T, D and width have no default: "
                "forward,dtype=bf16,B=32,T=512,D=1024,w=band,width=64"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,w=band,width=9",
                "width=9 with w=band; allowed are 1 to T=8; give the tokens of a row of the band, its "
                "diagonal included"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,w=band,width=0",
                "width=0 with w=band; allowed are 1 to T=8; give the tokens of a row of the band, its "
                "diagonal included"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,w=toeplitz,width=4",
                "width=4 with w=toeplitz; only a band has one; add w=band or leave width out"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,width=4",
                "width=4 with w=dense; only a band has one; add w=band or leave width out"},
        BadText{"forward,dtype=f16,B=1,T=8,D=8,K=3,w=toeplitz",
                "K=3 taps with w=toeplitz; allowed is K=1; use w=dense for the others"},
        BadText{"grad_input,dtype=f16,B=1,T=8,D=8,diag=1,w=band,width=4",
                "diag=1 with w=band; allowed is diag=0; use w=dense for the others"},
        BadText{"grad_weight,dtype=f16,B=1,T=8,D=8,fill=upper,w=band,width=4",
                "fill=upper with w=band; allowed is fill=lower; use w=dense for the others"},
        BadText{"decode,dtype=f16,B=1,T=8,D=8,w=toeplitz",
                "w=toeplitz with decode; only forward, grad_input and grad_weight take numbers that stand "
                "for W; leave w out"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,w=band,width=4",
                "width=4 with gram; only a W of forward and its gradients may be a band; leave width out"},
        BadText{"gram,dtype=f16,B=1,T=0,D=8", "T=0; allowed are 1 to 2147418112; give the number of tokens"},
        BadText{"gram,dtype=f16,B=1,T=8,D=0",
                "D=0; allowed are 1 to 2147418112; give the features of one head"},
        BadText{"gram,dtype=f16,B=1,T=2147418113,D=8",
                "T=2147418113; allowed are 1 to 2147418112; give the number of tokens"},
        BadText{"gram,dtype=f16,B=1,H=8,T=2000000000,D=1",
                "H*T*T*K weights pass 2^62 bytes; allowed are fewer, split the heads"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,K=2",
                "K=2 with gram; gram multiplies whole matrices, it has no taps and no diagonal; leave K out"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,diag=-1",
                "diag=-1 with gram; gram multiplies whole matrices, it has no taps and no diagonal; leave "
                "diag out"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,rows=2",
                "rows=2 with gram; only decode makes a few rows; leave rows out"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,layout=dbt",
                "layout='dbt' is unknown; allowed are btd or bdt; did you mean 'bdt'? (column 28)"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,math=tf32",
                "math=tf32 with dtype=f16; it chooses how f32 is multiplied; leave it out"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,wdtype=bf16",
                "wdtype=bf16 with dtype=f16; allowed are f16 and f32; convert the weights"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,epilogue=bias",
                "epilogue bias with gram; allowed are residual and mirror; compute the rest outside"},
        BadText{
            "gram,dtype=f16,B=1,T=8,D=8,epilogue=silu+pre+gate",
            "epilogue silu+pre+gate with gram; allowed are residual and mirror; compute the rest outside"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,epilogue=accumulate+zero_outside+mirror",
                "epilogue accumulate+zero_outside with gram; allowed are residual and mirror; compute the "
                "rest outside"},
        BadText{
            "gram,dtype=f16,B=1,T=8,D=8,epilogue=miror",
            "epilogue part 'miror' is unknown; allowed are bias, gelu, silu, pre, gate, residual, "
            "accumulate, zero_outside, mirror or grad_input, joined by '+'; did you mean 'mirror'? (column "
            "28)"},
        BadText{"scan_grad_input,dtype=f16,B=1,T=8,D=8,epilogue=grad_input",
                "epilogue grad_input with scan_grad_input; allowed are residual; compute the rest outside"},
        BadText{
            "scan_grad_weight,dtype=f16,B=1,T=8,D=8,epilogue=pre+grad_input",
            "epilogue pre with scan_grad_weight; allowed are bias and grad_input; compute the rest outside"},
        BadText{"gram,dtype=f16,B=1,T=8,D=8,epilogue=mirror+mirror",
                "epilogue has 'mirror' twice; name it once (column 28)"}));

TEST(ProblemErrorText, ShortensAndEscapesWhatItQuotes) {
  EXPECT_THAT(error_of(std::string("forward,dtype=f16,B=1,T=8,D=8,") + std::string(100, 'q')),
              HasSubstr("unknown key '" + std::string(40, 'q') + "...'"));
  EXPECT_THAT(error_of(llvm::StringRef("for\x01\0ward", 9)), HasSubstr("op='for\\x01\\x00ward' is unknown"));
  EXPECT_THAT(error_of(std::string(5000, 'a')), HasSubstr("problem text of 5000 bytes; allowed are 4096"));
}

TEST(ProblemErrorText, IsABadRequest) {
  auto problem = parse_problem("forward");
  ASSERT_FALSE(static_cast<bool>(problem));
  EXPECT_EQ(take_error(problem.takeError()).kind, ErrorKind::kBadRequest);
}

TEST(ProblemValidate, RefusesEnumerationsThatDoNotExist) {
  Problem p = parsed("forward,dtype=f16,B=1,T=8,D=8");
  p.op = static_cast<Op>(op_rows::kPlaces.size());
  EXPECT_THAT(take_error(validate(p)).message, HasSubstr("a value that does not exist"));
}

TEST(ProblemList, SkipsCommentsAndNamesTheLine) {
  auto list = parse_problem_list(
      "# a list\n\nforward,dtype=f16,B=1,T=8,D=8  # S1\r\n  grad_input dtype=f16 B=1 T=8 D=8");
  ASSERT_TRUE(static_cast<bool>(list));
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[1].op, Op::kGradInput);
  auto wrong = parse_problem_list("# one\nforward,dtype=f16,B=1,T=8,D=8\nforward,T=8\n");
  ASSERT_FALSE(static_cast<bool>(wrong));
  EXPECT_THAT(take_error(wrong.takeError()).message, HasSubstr("line 3: the problem has no dtype, B, D"));
}

// Counts by enumeration.
double count_products(const Problem& p) {
  double count = 0;
  for (int64_t t = 0; t < p.T; ++t)
    for (int64_t s = 0; s < p.T; ++s) {
      if (p.fill == Fill::kLower ? s > t + p.diag : s < t + p.diag) continue;
      if (p.w == WeightForm::kBand && t - s >= p.width) continue;
      for (int64_t d = 0; d < p.D; ++d)
        for (int64_t j = 0; j < p.K; ++j) count += d + j - p.pad >= 0 && d + j - p.pad < p.D;
    }
  return count * static_cast<double>(p.B * p.H);
}

TEST(ProblemWork, CountsTheTriangleExactly) {
  RandomProblem random(7);
  for (int i = 0; i < 300; ++i) {
    Problem p = random.next();
    if (!is_whole_product(p.op)) p.op = Op::kForward, p.rows = 1;
    p.T = 1 + random.pick(12), p.D = 1 + random.pick(9), p.K = 1 + random.pick(14), p.pad = random.pick(p.K);
    p.diag = random.pick(2 * p.T - 1) - (p.T - 1);
    if (p.w != WeightForm::kDense) p.K = 1, p.pad = p.diag = 0;
    if (p.w == WeightForm::kBand) p.width = 1 + random.pick(p.T);
    EXPECT_EQ(count_work(p).triangle_flop, 2 * count_products(p)) << to_string(p);
    EXPECT_EQ(count_work(p).dense_flop, 2.0 * p.B * p.H * p.T * p.T * p.D * p.K) << to_string(p);
  }
}

TEST(ProblemWork, CountsBytesOnce) {
  // x and y: 2*3*8*16*2 bytes; W: 36 pairs * 3 heads * 2 bytes; bias: 3*8*2.
  EXPECT_EQ(count_work(parsed("forward,dtype=f16,B=2,H=3,T=8,D=16,epilogue=bias")).min_bytes,
            2 * 1536 + 36 * 3 * 2 + 48);
  // Strictly lower: the last token of x is not read.
  EXPECT_EQ(count_work(parsed("forward,dtype=f16,B=2,H=3,T=8,D=16,diag=-1")).min_bytes,
            1536 * 7 / 8 + 1536 + 28 * 3 * 2);
  // f32 dW, accumulated: read and written.
  EXPECT_EQ(
      count_work(parsed("grad_weight,dtype=f16,wdtype=f32,B=2,H=3,T=8,D=16,epilogue=accumulate")).min_bytes,
      2 * 1536 + 2 * 36 * 3 * 4);
  // A Toeplitz matrix, a band of 8 + 7 + 6 numbers, and all of its rows where those outside are zeroed.
  EXPECT_EQ(count_work(parsed("forward,dtype=f16,B=2,H=3,T=8,D=16,w=toeplitz")).min_bytes,
            2 * 1536 + 8 * 3 * 2);
  EXPECT_EQ(count_work(parsed("forward,dtype=f16,B=2,H=3,T=8,D=16,w=band,width=3")).min_bytes,
            2 * 1536 + 21 * 3 * 2);
  EXPECT_EQ(count_work(parsed("grad_weight,dtype=f16,B=2,H=3,T=8,D=16,w=band,width=3,epilogue=zero_outside"))
                .min_bytes,
            2 * 1536 + 24 * 3 * 2);
  EXPECT_EQ(
      count_work(parsed("grad_weight,dtype=f16,B=2,H=3,T=8,D=16,w=toeplitz,epilogue=accumulate")).min_bytes,
      2 * 1536 + 2 * 24 * 2);
  // dy, pre and dz; then gate and grad_gate, too.
  EXPECT_EQ(count_work(parsed("grad_epilogue,dtype=f16,B=2,H=3,T=8,D=16,epilogue=gelu")).min_bytes, 3 * 1536);
  EXPECT_EQ(count_work(parsed("grad_epilogue,dtype=f16,B=2,H=3,T=8,D=16,epilogue=gelu")).min_written, 1536);
  EXPECT_EQ(count_work(parsed("grad_epilogue,dtype=f16,B=2,H=3,T=8,D=16,epilogue=gate")).min_bytes, 5 * 1536);
  EXPECT_EQ(count_work(parsed("scan,dtype=f16,B=2,H=3,T=8,D=16,epilogue=bias")).min_bytes, 2 * 1536 + 5 * 48);
  EXPECT_EQ(count_work(parsed("scan_grad_weight,dtype=f16,B=2,H=3,T=8,D=16")).min_bytes, 2 * 1536 + 8 * 48);
  const Totals both = count_work(parsed("scan_grad_weight,dtype=f16,B=2,H=3,T=8,D=16,epilogue=grad_input"));
  EXPECT_EQ(both.min_bytes, 3 * 1536 + 8 * 48);
  EXPECT_EQ(both.min_written, 1536 + 4 * 48);
  // A, which B may be; the triangle of D, then that of C; then the whole of D.
  EXPECT_EQ(count_work(parsed("gram,dtype=f16,B=2,H=3,T=8,D=16")).min_bytes, 1536 + 36 * 3 * 2);
  EXPECT_EQ(count_work(parsed("gram,dtype=f16,B=2,H=3,T=8,D=16,wdtype=f32,epilogue=residual")).min_bytes,
            1536 + 2 * 36 * 3 * 4);
  EXPECT_EQ(count_work(parsed("gram,dtype=f16,B=2,H=3,T=8,D=16,epilogue=residual+mirror")).min_bytes,
            1536 + (64 + 36) * 3 * 2);
}

TEST(ProblemWork, CountsTheRowsOfDecode) {
  // The last row of W and the whole of x: 3 rows with 6, 7 and 8 tokens when T=8.
  const Problem p = parsed("decode,dtype=f16,B=2,H=3,T=8,D=16,rows=3,epilogue=bias");
  EXPECT_EQ(longest_rows(p).first, 5);
  EXPECT_EQ(count_work(p).triangle_flop, 2.0 * 2 * 3 * 16 * (6 + 7 + 8));
  EXPECT_EQ(count_work(p).dense_flop, 2.0 * 2 * 3 * 16 * 3 * 8);
  EXPECT_EQ(count_work(p).min_bytes, 1536 + 21 * 3 * 2 + 3 * 3 * 2 + 2 * 3 * 3 * 16 * 2);
  // Row 1 alone reads two tokens.
  EXPECT_EQ(count_work(p, {1, 1}).min_bytes, 2 * 3 * 2 * 16 * 2 + 2 * 3 * 2 + 3 * 2 + 2 * 3 * 16 * 2);
  const Problem upper = parsed("decode,dtype=f16,B=1,T=8,D=16,fill=upper,diag=2");
  EXPECT_EQ(longest_rows(upper).first, 0);
  EXPECT_EQ(tokens_of_rows(upper, {3, 2}).first, 5);
  EXPECT_EQ(tokens_of_rows(upper, {3, 2}).last, 8);
  EXPECT_EQ(tokens_of_rows(upper, {7, 1}).last, 0);
  // Every row alone together does the triangle's work.
  for (const char* text :
       {"forward,dtype=f32,B=2,T=9,D=5,K=3,diag=-2", "forward,dtype=f32,B=2,T=9,D=5,fill=upper,diag=1"}) {
    Problem whole = parsed(text), rows = whole;
    rows.op = Op::kDecode;
    double sum = 0;
    for (int64_t t = 0; t < rows.T; ++t) sum += count_work(rows, {t, 1}).triangle_flop;
    EXPECT_EQ(sum, count_work(whole).triangle_flop) << text;
  }
}

}  // namespace
}  // namespace trigen
