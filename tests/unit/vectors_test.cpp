// The widest vectors that a problem's sizes and alignments allow, against what a vector must hold.
#include <gtest/gtest.h>

#include "generator/families/tile_family.h"
#include "generator/random_problem.h"
#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;

// Rows of `extent` elements whose first is aligned to `align`: are all vectors of a row whole and aligned?
bool fits(int vec, int64_t extent, int64_t element, int64_t align) {
  return extent % vec == 0 && align % std::min<int64_t>(vec * element, 16) == 0;
}

TEST(Vectors, OfActivationsAreWholeAlignedAndTheWidest) {
  RandomProblem random(17);
  int wide = 0;
  for (int i = 0; i < 3000; ++i) {
    const Problem p = random.next();
    const int64_t contiguous = p.layout == Layout::kBTD ? p.D : p.T, element = element_size(p.dtype);
    const Vectors v = widest_vectors(p);
    SCOPED_TRACE(to_string(p));
    const int vec = makes_weights(p.op) ? v.b : v.c;    // of x where the output has W's axes
    if (p.op == Op::kGradWeight && vec == 1) continue;  // shifted by taps
    ASSERT_TRUE(fits(vec, contiguous, element, p.align));
    ASSERT_LE(vec * element, 16);
    if (vec * element < 16) ASSERT_FALSE(fits(2 * vec, contiguous, element, p.align)) << "twice as wide fits";
    wide += vec * element == 16;
  }
  EXPECT_GT(wide, 100) << "the random problems meet full vectors";
}

TEST(Vectors, ShiftsByTapsAreCutOutOfAlignedVectorsOrSingle) {
  const Problem taps = problem_of("forward,dtype=bf16,B=1,T=64,D=64,K=3"),
                narrow = problem_of("forward,dtype=bf16,B=1,T=64,D=60,K=3"),
                tokens = problem_of("forward,dtype=bf16,B=1,T=64,D=64,K=3,layout=bdt"),
                plain = problem_of("forward,dtype=bf16,B=1,T=64,D=60");
  EXPECT_EQ(widest_vectors(taps).b, 8);
  EXPECT_TRUE(cuts_vectors(taps, 8));
  EXPECT_EQ(widest_vectors(narrow).b, 1) << "vectors of 4 are no whole 16 bytes to cut from";
  EXPECT_EQ(widest_vectors(narrow).c, 4) << "the output is not shifted";
  EXPECT_EQ(widest_vectors(plain).b, 4);
  EXPECT_FALSE(cuts_vectors(plain, 4));
  EXPECT_FALSE(cuts_vectors(tokens, 8)) << "tokens are not shifted by taps";
}

TEST(Vectors, OfWeightsFollowTheirOwnAlignment) {
  EXPECT_EQ(widest_vectors(problem_of("forward,dtype=bf16,B=1,T=512,D=64")).a, 8);
  EXPECT_EQ(widest_vectors(problem_of("forward,dtype=bf16,B=1,T=512,D=64,walign=4")).a, 2);
  EXPECT_EQ(widest_vectors(problem_of("forward,dtype=bf16,B=1,T=511,D=64,walign=2")).a, 1);
  EXPECT_EQ(widest_vectors(problem_of("forward,dtype=bf16,B=1,T=512,D=64,wdtype=f32")).a, 8)
      << "two accesses of 16 bytes: 16 once they are rounded";
  EXPECT_EQ(widest_vectors(problem_of("forward,dtype=bf16,B=1,T=100,D=64,K=2")).a, 8) << "T * K in a row";
}

TEST(Vectors, RowsOfWholePiecesAreWhatTMAStores) {
  EXPECT_TRUE(whole_pieces(64, DType::kBF16));
  EXPECT_TRUE(whole_pieces(8, DType::kF16));
  EXPECT_FALSE(whole_pieces(4, DType::kF16));
  EXPECT_TRUE(whole_pieces(4, DType::kF32));
  EXPECT_FALSE(whole_pieces(65, DType::kF32));
}

}  // namespace
}  // namespace trigen
