// The tile families: what they accept and refuse, and the texts.
#include <gmock/gmock.h>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/families/tile_family.h"
#include "generator/random_problem.h"

namespace trigen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Problem problem(const char* text) { return llvm::cantFail(parse_problem(text)); }
std::string refusal(const char* family, const char* target, const char* text, const char* config) {
  const Target& t = *llvm::cantFail(find_target(target));
  return llvm::cantFail(find_family(family))
      ->reject(problem(text), t, llvm::cantFail(parse_config(config)))
      .value_or("");
}

constexpr const char* kForward = "forward,dtype=bf16,B=32,T=512,D=1024";
constexpr const char* kConfig = "tile=128x128x32,warps=2x2,stages=3,splitk=1,vec=8x8x8";

TEST(Families, RefusalsNameWhatWasFoundWhatIsAllowedAndTheNextStep) {
  EXPECT_EQ(refusal("mma_sm80", "sm_80", kForward, kConfig), "");
  EXPECT_EQ(refusal("mma_sm80", "sm_75", kForward, kConfig), "mma_sm80 does not run on sm_75");
  EXPECT_EQ(refusal("mma_sm70", "sm_70", kForward, kConfig),
            "mma_sm70 multiplies f16 only, found dtype=bf16; try family simt");
  EXPECT_EQ(refusal("mma_sm80", "sm_80", "forward,dtype=f32,B=32,T=512,D=1024", kConfig),
            "mma_sm80 multiplies f32 as tf32 only, math=simt asks for f32; try math=tf32 or family simt");
  EXPECT_EQ(refusal("mma_sm80", "sm_86", kForward, "tile=128x256x64,warps=2x4,stages=3,splitk=1,vec=8x8x8"),
            "stages=3 needs 147456 B of shared memory, sm_86 allows 101376 B; try stages=2");
  EXPECT_EQ(refusal("mma_sm80", "sm_80", kForward, "tile=128x96x32,warps=2x2,stages=3,splitk=1,vec=8x8x8"),
            "tile_n=96 is not a power of two; try tile_n=128");
  EXPECT_EQ(refusal("mma_sm80", "sm_80", kForward, "tile=128x128x16,warps=2x2,stages=3,splitk=1,vec=8x8x8"),
            "tile_k=16 is not a multiple of 32; try 32");
  EXPECT_EQ(refusal("mma_sm80", "sm_80", kForward, "tile=128x128x32,warps=2x2,stages=9,splitk=1,vec=8x8x8"),
            "stages=9: mma_sm80 takes 2, 3, 4 or 5; try stages=5");
  EXPECT_EQ(refusal("mma_sm80", "sm_80", kForward, "tile=128x128x32,warps=2x2,stages=3,splitk=4,vec=8x8x8"),
            "split_k=4 is for grad_weight and gram only; try split_k=1");
  EXPECT_THAT(refusal("mma_sm80", "sm_80", kForward, "tile=256x256x32,warps=2x2,stages=3,splitk=1,vec=8x8x8"),
              HasSubstr("needs 512 registers for sums"));
  EXPECT_THAT(refusal("mma_sm80", "sm_80", "forward,dtype=bf16,B=32,T=511,D=1023", kConfig),
              HasSubstr("vec_a=8: alignment, contiguity and sizes allow powers of two to 1; try vec_a=1"));
  EXPECT_THAT(refusal("mma_sm80", "sm_80", "grad_input,dtype=bf16,B=32,T=512,D=1024,K=16",
                      "tile=128x128x32,warps=2x4,stages=3,splitk=1,vec=8x4x8"),
              HasSubstr("vec_b=4: features shifted by taps or padding are loaded singly or in vectors of 8"));
  EXPECT_THAT(refusal("simt", "sm_70", "grad_input,dtype=f32,B=32,T=512,D=1024,K=16",
                      "tile=64x64x8,warps=2x2,stages=2,splitk=1,vec=4x4x4"),
              HasSubstr("vec_a=4 holds the 16 taps of a token, of which tile_k=8 is no multiple"));
}

TEST(Families, MmaByTmaRefusalsNameTheRule) {
  const auto refused = [](const char* text, const char* config) {
    return refusal("mma_tma_sm90", "sm_120a", text, config);
  };
  const char* const kTile = "tile=128x128x64,warps=2x4,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1";
  EXPECT_EQ(refused(kForward, kTile), "");
  EXPECT_EQ(refusal("mma_tma_sm90", "sm_90a", kForward, kTile), "");  // to measure it
  EXPECT_EQ(refusal("mma_tma_sm90", "sm_100a", kForward, kTile), "");
  EXPECT_EQ(refusal("mma_tma_sm90", "sm_120", kForward, kTile),
            "mma_tma_sm90 does not run on sm_120; it needs sm_90a, sm_100a or sm_120a");
  const Family& family = *llvm::cantFail(find_family("mma_tma_sm90"));
  const auto candidates = [&](const char* target) {
    const Target& t = *llvm::cantFail(find_target(target));
    return family.configs(problem(kForward), t).size() +
           family.generic_config(problem(kForward), t).has_value();
  };
  EXPECT_EQ(candidates("sm_90a"), 0u);  // wgmma is faster
  EXPECT_GT(candidates("sm_100a"), 1u);
  EXPECT_GT(candidates("sm_120a"), 1u);
  EXPECT_EQ(refused("forward,dtype=bf16,B=32,T=512,D=1023", kTile),
            "mma_tma_sm90 reads rows of 16-byte pieces along the features (layout=btd); use another family");
  EXPECT_EQ(refused("grad_weight,dtype=bf16,B=32,T=512,D=1024", kTile),
            "mma_tma_sm90 makes forward and grad_input; use another family");
  EXPECT_EQ(refused(kForward, "tile=128x128x64,warps=1x4,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "warps_m=1: 4 or 8 warps multiply 32 or 64 rows each; try warps_m=2");
  EXPECT_EQ(refused(kForward, "tile=128x128x64,warps=2x4,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "stages=4 need 131328 B of shared memory, sm_120a allows 101376 B; try stages=3");
  EXPECT_EQ(refused(kForward, "tile=128x256x64,warps=4x4,stages=2,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "warps_m=4: 4 or 8 warps multiply 32 or 64 rows each; try warps_m=2");
}

TEST(Families, DecodeRefusalsNameTheRule) {
  constexpr const char* kDecode = "decode,dtype=bf16,B=32,T=512,D=1024";
  const auto decode = [](const char* text, const char* config) {
    return refusal("decode", "sm_70", text, config);
  };
  EXPECT_EQ(decode(kDecode, "tile=1x1024x8,warps=2x4,stages=1,splitk=1,vec=1x8x8"), "");
  EXPECT_EQ(decode(kForward, "tile=1x1024x8,warps=2x4,stages=1,splitk=1,vec=1x8x8"),
            "decode makes decode only, the op is forward");
  EXPECT_EQ(refusal("simt", "sm_70", kDecode, "tile=64x64x8,warps=2x2,stages=2,splitk=1,vec=4x4x4"),
            "simt makes whole products, the op is decode");
  EXPECT_EQ(decode(kDecode, "tile=1x512x8,warps=2x4,stages=1,splitk=1,vec=1x8x8"),
            "tile_n=512: 4 warps with vectors of 8 have 1024 features; try that");
  EXPECT_EQ(
      decode("decode,dtype=bf16,B=32,T=512,D=1028", "tile=1x1024x8,warps=2x4,stages=1,splitk=1,vec=1x8x8"),
      "vec_b=8: align=8 and D=1028 allow vectors of 4; try vec_b=4");
  EXPECT_EQ(decode(kDecode, "tile=8x1024x8,warps=2x4,stages=1,splitk=1,vec=1x8x8"),
            "rows, taps and warps need 73728 B of shared memory, decode takes 49152 B; try a smaller tile_n "
            "or fewer "
            "warps");
  EXPECT_EQ(decode("decode,dtype=bf16,B=32,T=512,D=1024,layout=bdt",
                   "tile=1x256x8,warps=1x4,stages=1,splitk=1,vec=1x8x2"),
            "vec_c=2: the features of bdt are not contiguous; try vec_c=1");
}

// Paths have names of their own: a config that another version wrote with widths alone is refused with the
// word that it lacks.
TEST(Families, PathsOfOperandsAreRefusedByName) {
  const std::string tile = "tile=128x256x64,warps=8x1,stages=4,splitk=1,";
  const auto wgmma = [&](const char* text, const char* rest) {
    return refusal("wgmma_sm90", "sm_90a", text, (tile + rest).c_str());
  };
  constexpr const char* kUnaligned = "forward,dtype=bf16,B=4,T=512,D=1024,walign=4";
  constexpr const char* kF32 = "forward,dtype=bf16,B=4,T=512,D=1024,wdtype=f32";
  EXPECT_EQ(wgmma(kUnaligned, "vec=2x8x8,cluster=1,blocks=1,weights=packed"), "");
  EXPECT_EQ(wgmma(kUnaligned, "vec=2x8x8,cluster=1,blocks=1"),
            "weights=direct: TMA reads rows of 16 bytes, and f32 or unaligned weights alone are packed; try "
            "weights=packed");
  EXPECT_EQ(wgmma(kUnaligned, "vec=4x8x8,cluster=1,blocks=1,weights=packed"),
            "vec_a=4: walign=4 allows 1 to 2, powers of two; try vec_a=2");
  EXPECT_EQ(wgmma(kForward, "vec=4x8x8,cluster=1,blocks=1,weights=packed"),
            "weights=packed: TMA reads rows of 16 bytes, and f32 or unaligned weights alone are packed; try "
            "weights=direct");
  // Both ways: f32 weights that are aligned.
  EXPECT_EQ(wgmma(kF32, "vec=4x8x8,cluster=1,blocks=1,weights=packed"), "");
  EXPECT_EQ(refusal("wgmma_sm90", "sm_90a", kF32,
                    "tile=128x128x64,warps=8x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "");
  EXPECT_THAT(wgmma(kF32, "vec=4x8x8,cluster=1,blocks=1"), HasSubstr("try vec_a=8"));
  EXPECT_EQ(wgmma("forward,dtype=bf16,B=4,T=512,D=1023", "vec=8x1x1,cluster=1,blocks=1"),
            "activations=direct: what TMA cannot take is packed, and nothing else; try activations=packed");
  EXPECT_EQ(
      refusal("wgmma_taps_sm90", "sm_90a", "forward,dtype=bf16,B=4,T=512,D=1024,K=4",
              "tile=256x128x64,warps=1x8,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1,weights=packed"),
      "weights=packed: wgmma_taps_sm90 has no such key; leave it out");
  EXPECT_EQ(refusal("mma_sm80", "sm_80", kForward,
                    "tile=128x128x32,warps=2x2,stages=3,splitk=1,vec=8x8x8,activations=packed"),
            "activations=packed: mma_sm80 has no such key; leave it out");
  EXPECT_THAT(refusal("decode", "sm_70", "decode,dtype=bf16,B=32,T=512,D=1024",
                      "tile=1x1024x8,warps=2x4,stages=1,splitk=1,vec=1x8x8,weights=packed"),
              HasSubstr("weights=packed: decode has no such key; leave it out"));
}

// Numbers that stand for W: strips of both forms, a Toeplitz matrix's in shared memory; gradients element by element.
TEST(Families, FormsOfWAreRefusedByName) {
  const auto wgmma = [&](const char* problem, const char* config) {
    return refusal("wgmma_sm90", "sm_90a", problem, config);
  };
  constexpr const char* kToeplitz = "forward,dtype=bf16,B=4,T=512,D=1024,w=toeplitz";
  constexpr const char* kBand = "forward,dtype=bf16,B=4,T=512,D=1024,w=band,width=96";
  constexpr const char* kGradient = "grad_weight,dtype=bf16,B=4,T=512,D=1024,w=toeplitz";
  constexpr const char* kGradientOfBand = "grad_weight,dtype=bf16,B=4,T=512,D=1024,w=band,width=96";
  EXPECT_EQ(wgmma(kToeplitz, "tile=128x256x64,warps=8x1,stages=5,splitk=1,vec=1x8x8,cluster=1,blocks=1"), "");
  EXPECT_EQ(wgmma(kToeplitz, "tile=128x256x64,warps=8x1,stages=5,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "vec_a=8: w=toeplitz allows 1 to 1, powers of two; try vec_a=1");
  EXPECT_EQ(wgmma(kToeplitz, "tile=128x256x64,warps=8x1,stages=4,splitk=1,vec=1x8x8,cluster=2,blocks=1"),
            "weights=direct: blocks of a cluster share loads of strips; try weights=packed");
  EXPECT_EQ(wgmma(kBand, "tile=128x256x64,warps=8x1,stages=4,splitk=1,vec=1x8x8,cluster=1,blocks=1"),
            "weights=direct: a launch writes strips of a band; try weights=packed");
  EXPECT_EQ(wgmma(kGradient, "tile=128x128x64,warps=8x1,stages=6,splitk=3,vec=8x8x1,cluster=4,blocks=1"), "");
  EXPECT_EQ(wgmma(kGradient, "tile=128x128x64,warps=8x1,stages=6,splitk=3,vec=8x8x8,cluster=4,blocks=1"),
            "vec_c=8: w=toeplitz is written by elements; try vec_c=1");
  EXPECT_EQ(wgmma(kGradient, "tile=128x128x64,warps=4x1,stages=6,splitk=1,vec=8x8x1,cluster=1,blocks=1"),
            "warps_m=4: a warpgroup multiplies 64 rows; try warps_m=8");
  EXPECT_EQ(wgmma(kGradient, "tile=128x128x64,warps=8x1,stages=6,splitk=2,vec=8x8x1,cluster=2,blocks=1"),
            "cluster=2: wgmma_sm90 takes 1 or 4; try cluster=1");
  EXPECT_EQ(
      wgmma(kGradientOfBand, "tile=128x128x64,warps=8x1,stages=6,splitk=2,vec=8x8x1,cluster=2,blocks=1"), "");
  EXPECT_EQ(
      wgmma(kGradientOfBand, "tile=128x128x64,warps=4x1,stages=6,splitk=1,vec=8x8x1,cluster=1,blocks=1"), "");
  EXPECT_THAT(
      refusal("wgmma_tf32_sm90", "sm_90a", "grad_weight,dtype=f32,B=4,T=512,D=1024,math=tf32,w=toeplitz",
              "tile=128x128x32,warps=8x1,stages=4,splitk=2,vec=4x4x8,cluster=1,blocks=1"),
      HasSubstr("multiplies with a W that is a matrix, w=toeplitz stands for one"));
  // Many heads' numbers are no quick start, and have no room: no search tries that.
  const auto direct = [](const char* text) {
    auto problem = parse_problem(text);
    EXPECT_TRUE(static_cast<bool>(problem));
    int count = 0;
    for (const Config& c :
         llvm::cantFail(find_family("wgmma_sm90"))->configs(*problem, **find_target("sm_90a")))
      count += c.weights == Access::kDirect;
    return count;
  };
  EXPECT_GT(direct(kToeplitz), 5);
  EXPECT_GT(direct("forward,dtype=bf16,B=4,H=8,T=512,D=128,w=toeplitz"), 5);
  EXPECT_EQ(direct("forward,dtype=bf16,B=4,H=32,T=512,D=64,w=toeplitz"), 0);
  EXPECT_THAT(wgmma("forward,dtype=bf16,B=4,H=4096,T=4096,D=64,w=toeplitz",
                    "tile=128x64x64,warps=8x1,stages=2,splitk=1,vec=1x8x8,cluster=1,blocks=1"),
              HasSubstr("leave too little of 232448 B"));
  EXPECT_EQ(direct(kBand), 0);
}

// Slices of several taps: two to four blocks for two row tiles of 64 tokens, each with a slice.
TEST(Families, SlicesOfTaps) {
  constexpr const char* kSmall = "grad_input,dtype=bf16,B=4,T=512,D=256,K=3,wdtype=f32";
  const auto taps = [&](const char* config) { return refusal("wgmma_taps_sm90", "sm_90a", kSmall, config); };
  EXPECT_EQ(taps("tile=64x64x64,warps=1x4,stages=12,splitk=2,vec=4x8x8,cluster=2,blocks=1"), "");
  EXPECT_EQ(taps("tile=64x64x64,warps=1x4,stages=4,splitk=4,vec=4x8x8,cluster=4,blocks=1"), "");
  EXPECT_EQ(taps("tile=64x64x64,warps=1x4,stages=12,splitk=5,vec=4x8x8,cluster=5,blocks=1"),
            "cluster=5: wgmma_taps_sm90 takes 1, 2, 3 or 4; try cluster=4");
  EXPECT_EQ(taps("tile=64x64x64,warps=1x4,stages=12,splitk=1,vec=4x8x8,cluster=2,blocks=1"),
            "split_k=1: every block of a cluster of such tiles has a slice; try split_k=2");
  EXPECT_EQ(taps("tile=64x64x64,warps=1x4,stages=12,splitk=2,vec=4x8x8,cluster=1,blocks=1"),
            "split_k=2 is for grad_weight, gram and clusters of tiles of 64 tokens; try split_k=1");
  EXPECT_EQ(taps("tile=128x64x64,warps=1x4,stages=8,splitk=2,vec=4x8x8,cluster=2,blocks=1"),
            "split_k=2 is for grad_weight, gram and clusters of tiles of 64 tokens; try split_k=1");
  EXPECT_EQ(taps("tile=64x64x64,warps=1x4,stages=12,splitk=2,raster=8,vec=4x8x8,cluster=2,blocks=1"),
            "raster=8: slices have no sections; try raster=0");
  EXPECT_EQ(
      taps("tile=64x128x64,warps=1x8,stages=8,splitk=4,vec=4x8x8,cluster=4,blocks=1"),
      "stages=8 of 8192 B leave too little of 232448 B of shared memory to stage the output; try stages=7");
  // The search has two where all clusters run at the same time.
  const auto slices = [](const char* text) {
    std::vector<int> found;
    auto problem = parse_problem(text);
    EXPECT_TRUE(static_cast<bool>(problem));
    for (const Config& c :
         llvm::cantFail(find_family("wgmma_taps_sm90"))->configs(*problem, **find_target("sm_90a")))
      if (c.split_k > 1) found.push_back(c.tile_n * 10 + c.split_k);
    return found;
  };
  EXPECT_THAT(slices(kSmall), ElementsAre(642, 1282));
  EXPECT_THAT(slices("forward,dtype=bf16,B=1,T=320,D=128,K=3,layout=bdt,epilogue=gelu+pre+gate+residual"),
              ElementsAre(642, 1282));
  EXPECT_THAT(slices("forward,dtype=bf16,B=1,T=320,D=64,K=3"), ElementsAre(642))
      << "one warpgroup's features";
  EXPECT_THAT(slices("forward,dtype=bf16,B=32,T=320,D=128,K=3"), IsEmpty());
  EXPECT_THAT(slices("forward,dtype=bf16,B=1,T=64,D=64,K=3"), IsEmpty()) << "one row tile";
}

// One table of keys: the value, what is allowed, what to try.
TEST(Families, KeysOfPersistentFamiliesAreRefusedByTheirTables) {
  const auto wgmma = [&](const char* config) { return refusal("wgmma_sm90", "sm_90a", kForward, config); };
  EXPECT_EQ(wgmma("tile=96x256x64,warps=6x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "tile_m=96: wgmma_sm90 takes 64 or 128; try tile_m=128");
  EXPECT_EQ(wgmma("tile=128x256x64,warps=4x2,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "warps_m=4: a warpgroup multiplies 64 rows; try warps_m=8");
  EXPECT_EQ(wgmma("tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=2,blocks=1"),
            "split_k=1: every block of a cluster of such tiles has a slice; try split_k=2");
  EXPECT_EQ(wgmma("tile=64x128x64,warps=4x1,stages=4,splitk=2,raster=8,vec=8x8x8,cluster=2,blocks=1"),
            "raster=8: slices have no sections; try raster=0");
  EXPECT_EQ(wgmma("tile=64x128x64,warps=4x1,stages=4,splitk=2,vec=8x8x8,cluster=2,blocks=1"), "");
  EXPECT_EQ(wgmma("tile=128x256x64,warps=8x1,stages=13,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
            "stages=13: wgmma_sm90 takes 2 to 12; try stages=12");
  EXPECT_EQ(
      wgmma("tile=128x256x64,warps=8x1,stages=5,splitk=1,vec=8x8x8,cluster=1,blocks=1"),
      "stages=5 of 49152 B leave too little of 232448 B of shared memory to stage the output; try stages=4");
  EXPECT_EQ(wgmma("tile=128x256x64,warps=8x1,stages=4,splitk=2,vec=8x8x8,cluster=1,blocks=1"),
            "split_k=2 is for grad_weight, gram and clusters of tiles of 64 rows; try split_k=1");
  // The advice is of the key that is wrong, not of one that would be with it.
  EXPECT_EQ(wgmma("tile=128x256x64,warps=8x1,stages=4,splitk=2,raster=33,vec=8x8x8,cluster=1,blocks=1"),
            "split_k=2 is for grad_weight, gram and clusters of tiles of 64 rows; try split_k=1");
  EXPECT_EQ(refusal("wgmma_tf32_sm90", "sm_90a", "grad_weight,dtype=f32,B=4,T=512,D=1024,math=tf32",
                    "tile=128x256x32,warps=8x1,stages=4,splitk=2,vec=4x4x8,cluster=4,blocks=1"),
            "cluster=4: wgmma_tf32_sm90 takes 1 or 2; try cluster=2");
}

TEST(Families, SplitRefusalsNameTheRule) {
  constexpr const char* kSplit = "forward,dtype=f32,B=8,T=2048,D=1024,math=f16x3";
  constexpr const char* kTile = "tile=128x128x64,warps=8x1,stages=3,splitk=1,vec=4x4x2,cluster=1,blocks=1";
  const auto split = [](const char* text, const char* config) {
    return refusal("wgmma_split_sm90", "sm_90a", text, config);
  };
  EXPECT_EQ(split(kSplit, kTile), "");
  EXPECT_EQ(refusal("wgmma_split_sm90", "sm_80", kSplit, kTile),
            "wgmma_split_sm90 does not run on sm_80; it needs sm_90a");
  EXPECT_EQ(split(kForward, kTile),
            "wgmma_split_sm90 splits f32 data, dtype=bf16 needs no split; use another family");
  EXPECT_EQ(
      split("forward,dtype=f32,B=8,T=2048,D=1024", kTile),
      "wgmma_split_sm90 multiplies planes of f16, math=simt asks for something else; use another family");
  EXPECT_THAT(split("forward,dtype=f32,B=8,T=2048,D=1024,K=4,math=f16x3", kTile),
              HasSubstr("makes K=1 with pad=0"));
  EXPECT_THAT(split("forward,dtype=f32,B=8,T=2048,D=1024,layout=bdt,math=f16x3", kTile),
              HasSubstr("layout=bdt has contiguous tokens"));
  EXPECT_THAT(split(kSplit, "tile=128x256x64,warps=8x1,stages=2,splitk=1,vec=4x4x2,cluster=1,blocks=1"),
              HasSubstr("there are registers for the sums of tile=128x128x64; try tile_n=128"));
  EXPECT_THAT(split(kSplit, "tile=128x128x64,warps=8x1,stages=4,splitk=1,vec=4x4x2,cluster=1,blocks=1"),
              HasSubstr("try stages=3"));
  EXPECT_THAT(split(kSplit, "tile=128x128x64,warps=8x1,stages=3,splitk=2,vec=4x4x2,cluster=1,blocks=1"),
              HasSubstr("try split_k=1"));
  constexpr const char* kHalf = "tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=4x4x2,cluster=1,blocks=1";
  EXPECT_EQ(split(kSplit, kHalf), "");
  EXPECT_THAT(split(kSplit, "tile=64x128x64,warps=4x1,stages=5,splitk=1,vec=4x4x2,cluster=1,blocks=1"),
              HasSubstr("try stages=4"));
  EXPECT_THAT(split(kSplit, "tile=64x128x64,warps=8x1,stages=4,splitk=1,vec=4x4x2,cluster=1,blocks=1"),
              HasSubstr("a warpgroup multiplies 64 rows; try warps_m=4"));
  EXPECT_THAT(split(kSplit, "tile=192x128x64,warps=12x1,stages=2,splitk=1,vec=4x4x2,cluster=1,blocks=1"),
              HasSubstr("sums of tile=128x128x64 or 64x128x64; try tile_m=128"));
  constexpr const char* kInside =
      "tile=128x128x64,warps=8x1,stages=2,splitk=4,vec=4x4x2,cluster=1,box=32,blocks=1";
  EXPECT_EQ(split("grad_weight,dtype=f32,B=8,T=512,D=1024,math=f16x3", kInside), "");
  EXPECT_THAT(split("grad_weight,dtype=f32,B=8,T=512,D=1024,align=8,math=f16x3", kInside),
              HasSubstr("box=32: are of grad_weight whose rows TMA takes"));
  EXPECT_THAT(split("gram,dtype=f32,B=1,H=8,T=512,D=512,math=f16x3", kInside), HasSubstr("try box=0"));
  EXPECT_THAT(split("grad_weight,dtype=f32,B=8,T=512,D=1024,math=f16x3",
                    "tile=128x128x64,warps=8x1,stages=3,splitk=4,vec=4x4x2,cluster=1,box=32,blocks=1"),
              HasSubstr("stages=3"));
  EXPECT_THAT(split("grad_weight,dtype=f32,B=8,T=2048,D=1024,math=f16x3", kHalf),
              HasSubstr("blocks share sums by tiles of 128 rows; try tile_m=128"));
  EXPECT_THAT(split("forward,dtype=f32,B=8,T=2047,D=1023,math=f16x3", kTile), HasSubstr("allow 1 or 1x1x1"));
  EXPECT_THAT(split(kSplit, "tile=128x128x64,warps=8x1,stages=3,splitk=1,vec=4x4x2,cluster=2,blocks=1"),
              HasSubstr("blocks share nothing; try cluster=1"));
}

TEST(Families, IterationsByWgmmaRefuseByRule) {
  constexpr const char* kProblem = "newton_schulz,dtype=bf16,B=8,T=200,D=1024,K=5";
  const auto refused = [](const char* text, const char* config) {
    return refusal("newton_schulz_sm90", "sm_90a", text, config);
  };
  constexpr const char* kOne = "tile=256x64x16,warps=8x1,stages=2,splitk=1,vec=1x8x2,blocks=1";
  EXPECT_EQ(refused(kProblem, kOne), "");
  EXPECT_EQ(refusal("newton_schulz_sm90", "sm_80", kProblem, kOne),
            "newton_schulz_sm90 does not run on sm_80; it needs sm_90a");
  EXPECT_EQ(refused(kForward, kOne), "newton_schulz_sm90 makes newton_schulz only, the op is forward");
  EXPECT_THAT(refused(kProblem, "tile=192x64x16,warps=12x1,stages=2,splitk=1,vec=1x8x2,blocks=1"),
              HasSubstr("T in all, in tiles of 64 rows; try tile_m=256"));
  EXPECT_THAT(refused(kProblem, "tile=256x64x16,warps=8x1,stages=2,splitk=2,vec=1x8x2,cluster=4,blocks=1"),
              HasSubstr("split_k=2"));
  EXPECT_THAT(refused(kProblem, "tile=256x64x16,warps=8x1,stages=1,splitk=1,vec=1x8x2,cluster=4,blocks=1"),
              HasSubstr("try stages=2 or a larger cluster"));
  EXPECT_EQ(refused(kProblem, "tile=256x64x16,warps=8x1,stages=1,splitk=1,vec=1x8x2,cluster=8,blocks=1"), "");
  EXPECT_THAT(refused("newton_schulz,dtype=bf16,B=8,T=200,D=192,K=5",
                      "tile=256x64x16,warps=8x1,stages=1,splitk=1,vec=1x8x2,cluster=4,blocks=1"),
              HasSubstr("cluster=4 leaves a block without one of 3 panels"));
}

// By mma.sync 128 rows are the most.
TEST(Families, IterationsOfMoreRowsAreHoppersAlone) {
  EXPECT_EQ(
      refusal("newton_schulz_sm80", "sm_80", "newton_schulz,dtype=bf16,B=2,T=200,D=256,K=5",
              "tile=128x32x16,warps=4x2,stages=2,splitk=1,vec=1x8x2"),
      "T=200; newton_schulz_sm80 takes at most 128 rows, newton_schulz_sm90 256 on sm_90a; give larger ones "
      "to gram, product by product");
}

// Whatever this family takes, it has configs for, each of them legal, and the workspace holds both operands.
TEST(Families, SplitConfigsAreLegal) {
  const Family& family = *llvm::cantFail(find_family("wgmma_split_sm90"));
  const Target& target = *llvm::cantFail(find_target("sm_90a"));
  RandomProblem random(21);
  int served = 0;
  for (int i = 0; i < 5000; ++i) {
    Problem p = random.next();
    if (p.math != Math::kF16x3) continue;
    if (i % 2 == 0) p.K = 1, p.pad = 0, p.layout = Layout::kBTD;
    const auto generic = family.generic_config(p, target);
    const auto configs = family.configs(p, target);
    EXPECT_EQ(generic.has_value(), !configs.empty()) << to_string(p);
    if (!generic) continue;
    ++served;
    for (const Config& config : configs)
      EXPECT_EQ(family.reject(p, target, config).value_or(""), "") << to_string(p) << to_string(config);
    const LaunchPlan plan = family.launch_plan(p, target, configs.front());
    EXPECT_GE(plan.workspace_bytes, 4 * p.B * p.H * p.T * p.D) << to_string(p);
    EXPECT_EQ(plan.launches[0].entry, "trigen_split");
    EXPECT_EQ(plan.launches[1].entry, entry_name(p.op));
  }
  EXPECT_GT(served, 90);
}

TEST(Families, RowsThatBeginAnywhereAreRefusedOrLegal) {
  const auto refused = [](const char* text, const char* config) {
    return refusal("wgmma_rows_sm90", "sm_90a", text, config);
  };
  const char* const kTile = "tile=256x128x64,warps=8x1,stages=4,splitk=1,vec=8x2x2,cluster=1,blocks=1";
  EXPECT_EQ(refused("forward,dtype=bf16,B=32,T=512,D=1022", kTile), "");
  EXPECT_EQ(refused("forward,dtype=bf16,B=32,T=512,D=1024", kTile),
            "wgmma_rows_sm90 is for rows that TMA cannot take, these begin and end at 16 bytes; use another "
            "family");
  EXPECT_THAT(refused("forward,dtype=bf16,B=32,T=512,D=1021", kTile), HasSubstr("align=2 leaves no choice"));
  EXPECT_THAT(refused("forward,dtype=bf16,wdtype=f32,B=32,T=512,D=1022", kTile),
              HasSubstr("TMA reads 16-bit rows of W that begin at 16 bytes, a launch packs all others"));
  EXPECT_THAT(refused("grad_weight,dtype=bf16,B=32,T=512,D=1022", kTile), HasSubstr("makes rows"));
  EXPECT_THAT(refused("forward,dtype=bf16,B=32,T=511,D=1024,layout=bdt", kTile), HasSubstr("layout=bdt"));
  const Family& family = *llvm::cantFail(find_family("wgmma_rows_sm90"));
  const Target& target = *llvm::cantFail(find_target("sm_90a"));
  RandomProblem random(22);
  int served = 0;
  for (int i = 0; i < 4000; ++i) {
    Problem p = random.next();
    if (makes_weights(p.op)) continue;
    if (i % 2 == 0) p.K = 1, p.pad = 0, p.layout = Layout::kBTD, p.w = WeightForm::kDense, p.width = 0;
    const auto configs = family.configs(p, target);
    served += configs.empty() ? 0 : 1;
    for (const Config& config : configs)
      EXPECT_EQ(family.reject(p, target, config).value_or(""), "") << to_string(p) << to_string(config);
  }
  EXPECT_GT(served, 90);
}

// grad_weight whose threads bring rows: one tile, no map of dy or x, no copy; everything else is copied.
TEST(Families, RowsOfGradWeightAreBroughtOrCopied) {
  const auto refused = [](const char* text, const char* rest) {
    return refusal("wgmma_sm90", "sm_90a", text, (std::string("tile=128x128x64,warps=8x1,") + rest).c_str());
  };
  constexpr const char* kOdd = "grad_weight,dtype=bf16,B=32,T=512,D=1021";
  EXPECT_EQ(refused(kOdd, "stages=5,splitk=3,vec=1x1x8,cluster=1,blocks=1"), "");
  EXPECT_EQ(refused(kOdd, "stages=5,splitk=3,vec=1x1x8,cluster=4,blocks=1,activations=packed"), "");
  EXPECT_THAT(refused(kOdd, "stages=5,splitk=3,vec=1x1x8,cluster=4,blocks=1"), HasSubstr("try cluster=1"));
  EXPECT_THAT(refused(kOdd, "stages=5,splitk=3,vec=1x1x8,cluster=1,box=16,blocks=1"),
              HasSubstr("box=16: are TMA's, threads bring these rows; try box=0"));
  EXPECT_THAT(refused(kOdd, "stages=6,splitk=3,vec=1x1x8,cluster=1,blocks=1"),
              HasSubstr("stages=6 of 36864 B leave too little"));
  for (const char* copied :
       {"gram,dtype=bf16,B=1,T=512,D=1021", "grad_weight,dtype=bf16,B=32,T=512,D=1021,w=toeplitz",
        "grad_weight,dtype=bf16,B=32,T=511,D=1024,layout=bdt"})
    EXPECT_EQ(refused(copied, "stages=5,splitk=3,vec=1x1x1,cluster=1,blocks=1"),
              "activations=direct: what TMA cannot take is packed, and contiguous tokens may be; rows of one "
              "tap need not be; try activations=packed");
  const Family& family = *llvm::cantFail(find_family("wgmma_sm90"));
  const Target& target = *llvm::cantFail(find_target("sm_90a"));
  int brought = 0;
  for (const Config& c : family.configs(problem(kOdd), target)) {
    if (c.activations != Access::kDirect) continue;
    ++brought;
    const LaunchPlan plan = family.launch_plan(problem(kOdd), target, c);
    EXPECT_EQ(plan.launches.front().entry, "trigen_grad_weight");
    EXPECT_EQ(plan.launches.front().maps.size(), 1u);  // dW's
    EXPECT_FALSE(plan.launches.front().packed);
  }
  EXPECT_GE(brought, 3);
}

// Rows of 64 are tried where tiles of 128 leave SMs idle, and nowhere else; the model then takes them where
// they shorten the longest block.
TEST(Families, SplitTilesOf64RowsAreForFewTiles) {
  const Target& target = *llvm::cantFail(find_target("sm_90a"));
  const auto first_rows = [&](const char* text) {
    bool offered = false;
    const auto ranked = llvm::cantFail(
        rank_candidates(problem(text), target, llvm::cantFail(find_family("wgmma_split_sm90"))));
    for (const Candidate& candidate : ranked) offered |= candidate.config.tile_m == 64;
    return std::make_pair(offered, ranked.front().config.tile_m);
  };
  // 8 x 4 tiles of 128 rows, and 64 x 1 long ones.
  EXPECT_EQ(first_rows("forward,dtype=f32,B=1,T=1024,D=512,math=f16x3"), std::make_pair(true, 64));
  EXPECT_EQ(first_rows("grad_input,dtype=f32,B=1,T=8192,D=128,math=f16x3"), std::make_pair(true, 64));
  EXPECT_EQ(first_rows("forward,dtype=f32,B=16,T=1024,D=1024,math=f16x3"), std::make_pair(false, 128));
  EXPECT_EQ(first_rows("grad_weight,dtype=f32,B=1,T=1024,D=512,math=f16x3"), std::make_pair(false, 128));
}

// Launches that copy activations stand around those that see the copies; their slots are whole lines, in
// front of the rest of the workspace.
TEST(Families, ActivationsArePackedWhereTmaCannotTakeThem) {
  const Target& target = *llvm::cantFail(find_target("sm_90a"));
  const auto entries = [&](const char* family_name, const char* text, int64_t slots) {
    const Problem p = problem(text);
    const Family& family = *llvm::cantFail(find_family(family_name));
    const auto configs = family.configs(p, target);
    if (configs.empty()) return std::string("none");
    const LaunchPlan plan = family.launch_plan(p, target, configs.front());
    std::string list;
    for (const Launch& launch : plan.launches) {
      EXPECT_EQ(launch.packed,
                slots > 0 && launch.entry != kPackActivationsEntry && launch.entry != kUnpackActivationsEntry)
          << text << launch.entry;
      list += (list.empty() ? "" : " ") + launch.entry.substr(sizeof("trigen_") - 1);
    }
    EXPECT_GE(plan.workspace_bytes, slots) << text;
    EXPECT_LE(plan.workspace_bytes, slots + (int64_t{32} << 20)) << text;
    return list;
  };
  constexpr int64_t kSlot = int64_t{16} * 512 * 1088 * 2;
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=512,D=1024", 0), "forward");
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=512,D=1025", 2 * kSlot),
            "pack_activations forward unpack_activations");
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=511,D=1025,epilogue=pre+gate+residual",
                    5 * (kSlot / 512 * 511)),
            "pack_activations pack_weights forward unpack_activations");
  EXPECT_EQ(entries("wgmma_sm90", "grad_weight,dtype=f16,B=16,T=512,D=1025", 2 * kSlot),
            "pack_activations grad_weight reduce");
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=512,D=1088,align=8", 2 * kSlot),
            "pack_activations forward unpack_activations");
  // Rows of features may be read, not written, where they end inside 16 bytes.
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=512,D=1084,align=16", 2 * kSlot),
            "pack_activations forward unpack_activations");
  // Threads write heads that begin or end there, where rows lie whole pieces apart and nothing else has x's shape.
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,H=8,T=512,D=135", 0), "forward");
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,H=8,T=512,D=135,align=2,epilogue=gate",
                    8 * 3 * int64_t{16} * 512 * 192 * 2),
            "pack_activations forward unpack_activations");
  EXPECT_EQ(
      entries("wgmma_sm90", "forward,dtype=f16,B=16,H=7,T=512,D=135", 7 * 2 * int64_t{16} * 512 * 192 * 2),
      "pack_activations forward unpack_activations");
  // bdt lies as the product takes it where tokens come in 16-byte pieces and nothing else has x's shape, but
  // a residual that is multiplied.
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=512,D=1025,layout=bdt", 0), "forward");
  EXPECT_EQ(
      entries("wgmma_sm90", "grad_input,dtype=f16,B=16,T=511,D=1025,layout=bdt", 2 * (kSlot / 512 * 511)),
      "pack_activations pack_weights grad_input unpack_activations");
  EXPECT_EQ(entries("wgmma_sm90", "forward,dtype=f16,B=16,T=512,D=1025,layout=bdt,epilogue=gelu+residual",
                    3 * kSlot),
            "pack_activations forward unpack_activations");
  EXPECT_EQ(entries("wgmma_sm90", "grad_input,dtype=f16,B=16,T=512,D=1025,layout=bdt,epilogue=residual", 0),
            "grad_input");
  EXPECT_EQ(entries("wgmma_tf32_sm90", "grad_input,dtype=f32,B=16,T=512,D=1025,math=tf32",
                    2 * (kSlot / 1088 * 1056 * 2)),
            "pack_activations pack_weights grad_input unpack_activations");
}

TEST(Families, WidestVectorsFollowAlignmentAndContiguity) {
  const auto widest = [](const char* text) {
    const Vectors v = widest_vectors(problem(text));
    return std::to_string(v.a) + "x" + std::to_string(v.b) + "x" + std::to_string(v.c);
  };
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1024"), "8x8x8");
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1024,wdtype=f32"), "8x8x8");  // two 16-byte reads of W
  EXPECT_EQ(widest("forward,dtype=f32,B=2,T=512,D=1024"), "4x4x4");
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=257,D=1024"), "1x8x8");
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1025"), "8x1x1");
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1024,align=4"), "8x2x2");
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1024,K=4"), "8x8x8");  // cut out of two
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1028,K=4"), "8x1x4");
  EXPECT_EQ(widest("forward,dtype=bf16,B=2,T=512,D=1024,K=4,layout=bdt"), "8x1x8");  // taps lie rows apart
  EXPECT_EQ(widest("grad_input,dtype=bf16,B=2,T=512,D=1024,K=3"), "1x8x8");  // a vector would cut a token
  EXPECT_EQ(widest("grad_input,dtype=bf16,B=2,T=512,D=1024,K=8"), "8x8x8");
  EXPECT_EQ(widest("grad_weight,dtype=bf16,B=2,T=512,D=1024,wdtype=f32"), "8x8x4");
}

// A kernel that was made for any shape has one config per kind of problem: the sizes must not change it.
TEST(Families, GenericConfigsDoNotFollowTheSizes) {
  for (const Family* family : families())
    for (const Target& target : targets()) {
      if (!family->serves(target)) continue;
      for (const char* op : {"forward", "grad_input", "grad_weight"})
        for (const char* kind : {"D=64", "D=63", "D=64,K=3"}) {
          std::optional<Config> first;
          for (const char* sizes : {"B=1,T=64", "B=7,T=512", "B=64,T=1000"}) {
            const Problem p = problem((std::string(op) + ",dtype=f16," + sizes + "," + kind).c_str());
            const std::optional<Config> config = family->generic_config(p, target);
            if (!config) continue;
            if (!first) first = config;
            // Splits may follow the number of tiles; they are counted as kinds of their own.
            Config a = *first, b = *config;
            a.split_k = b.split_k;
            EXPECT_EQ(to_string(a), to_string(b))
                << family->name().str() << " " << target.name.str() << " " << to_string(p);
          }
        }
    }
}

// What families that are made for an op that is no whole product begin with, "" for the others.
llvm::StringRef own_family(Op op) { return is_scan(op) ? "scan" : is_whole_product(op) ? "" : to_string(op); }
// Does the family make the op, as its other ops?
bool makes(const Family& family, Op op) {
  for (const llvm::StringRef single : {"decode", "grad_epilogue", "scan", "newton_schulz"})
    if (family.name().startswith(single)) return own_family(op) == single;
  return own_family(op).empty();
}

// Families that make only some problems of their dtypes.
bool chooses(const Family& family) {
  return family.name().startswith("wgmma") || family.name() == "mma_tma_sm90";
}

// Whatever a family multiplies, it has a config for: specialised, and one of the shape-generic kind.
TEST(Families, NoProblemIsLeftWithoutAConfig) {
  RandomProblem random(11);
  for (int i = 0; i < 400; ++i) {
    const Problem p = random.next();
    for (const Family* family : families())
      for (const Target& target : targets()) {
        if (!family->serves(target) || chooses(*family)) continue;
        if (!makes(*family, p.op)) continue;
        const bool wrong_dtype = is_whole_product(p.op) &&
                                 (p.math == Math::kTF32) == (family->name() == "simt") &&
                                 p.dtype == DType::kF32;
        if (wrong_dtype ||
            (p.dtype != DType::kF16 && (family->name() == "mma_sm70" || family->name() == "mma_sm75")))
          continue;
        EXPECT_FALSE(family->configs(p, target).empty())
            << family->name().str() << " " << target.name.str() << " " << to_string(p);
        EXPECT_TRUE(family->generic_config(p, target))
            << family->name().str() << " " << target.name.str() << " " << to_string(p);
      }
  }
}

TEST(Families, ScansTakeClustersWhereThereAreSome) {
  const char* const text = "scan,dtype=bf16,B=4,T=4096,D=1024";
  const auto tile = [](int parts, int cluster) {
    return "tile=256x64x16,warps=8x1,stages=2,splitk=" + std::to_string(parts) +
           ",vec=1x8x4,cluster=" + std::to_string(cluster);
  };
  EXPECT_EQ(refusal("scan", "sm_90", text, tile(1, 8).c_str()), "");
  EXPECT_EQ(refusal("scan", "sm_90", text, tile(1, 7).c_str()), "");
  EXPECT_EQ(refusal("scan", "sm_90", text, tile(1, 1).c_str()),
            "cluster=1: scan takes 0, 2, 3, 4, 5, 6, 7 or 8; try cluster=2");
  EXPECT_EQ(refusal("scan", "sm_80", text, tile(1, 4).c_str()),
            "cluster=4: sm_80 has no clusters of thread blocks; try cluster=0");
  EXPECT_EQ(refusal("scan", "sm_90", text, tile(2, 4).c_str()),
            "cluster=4 is for tokens in one part, split_k=1; try cluster=0");
  const Problem p = problem(text);
  for (const Target& target : targets())
    EXPECT_EQ(llvm::any_of(llvm::cantFail(find_family("scan"))->configs(p, target),
                           [](const Config& c) { return c.cluster > 0; }),
              target.compute_capability == 90)
        << target.name.str();
}

TEST(Families, EveryConfigOfTheSpaceIsLegalAndThereAreEnough) {
  for (const Family* family : families())
    for (const Target& target : targets()) {
      if (!family->serves(target) || chooses(*family)) continue;
      for (const char* text :
           {"forward,dtype=f16,B=32,T=512,D=1024", "grad_input,dtype=f16,B=4,T=4096,D=1024,layout=bdt",
            "grad_weight,dtype=f16,B=16,T=1024,D=1024,epilogue=bias", "decode,dtype=f16,B=256,T=512,D=1024",
            "decode,dtype=f16,B=4,T=4096,D=1024,K=4,rows=4,layout=bdt", "scan,dtype=f16,B=16,T=1024,D=1024",
            "scan_grad_input,dtype=f16,B=4,T=4096,D=1024,layout=bdt",
            "scan_grad_weight,dtype=f16,B=1,H=4,T=4096,D=256,wdtype=f32"}) {
        const Problem p = problem(text);
        if (!makes(*family, p.op)) continue;
        const auto configs = family->configs(p, target);
        EXPECT_GE(configs.size(), 30u) << family->name().str() << " " << target.name.str() << " " << text;
        for (const Config& config : configs)
          EXPECT_EQ(family->reject(p, target, config).value_or(""), "") << to_string(config);
      }
    }
}

// The plan of the family's first config.
LaunchPlan first_plan(const char* family, const std::string& text) {
  const Problem p = problem(text.c_str());
  const Target& target = *llvm::cantFail(find_target("sm_90a"));
  const Family& of = *llvm::cantFail(find_family(family));
  const std::vector<Config> configs = of.configs(p, target);
  EXPECT_FALSE(configs.empty()) << family << " " << text;
  return configs.empty() ? LaunchPlan{} : of.launch_plan(p, target, configs.front());
}

TEST(Families, WhatIsPreparedOfWHasTheSameNameWhereItIsTheSame) {
  const auto prepared = [](const char* family, const std::string& text) {
    const LaunchPlan plan = first_plan(family, text);
    bool launches = false;
    for (const Launch& launch : plan.launches) launches = launches || launch.prepares_w;
    EXPECT_EQ(launches, !plan.prepared.empty()) << text;
    EXPECT_EQ(plan.prepared_bytes > 0, launches) << text;
    EXPECT_LE(plan.prepared_bytes, plan.workspace_bytes) << text;
    return plan.prepared;
  };
  const std::string odd = ",dtype=bf16,B=2,T=301,D=64";
  EXPECT_EQ(prepared("wgmma_sm90", "forward" + odd), "blocks of bf16, H=1, T=301, K=1, lower, diag=0");
  EXPECT_EQ(prepared("wgmma_sm90", "grad_input" + odd), prepared("wgmma_sm90", "forward" + odd));
  EXPECT_EQ(prepared("wgmma_sm90", "forward" + odd + ",wdtype=f32"), prepared("wgmma_sm90", "forward" + odd));
  EXPECT_NE(prepared("wgmma_sm90", "forward,dtype=f16,B=2,T=301,D=64"),
            prepared("wgmma_sm90", "forward" + odd));
  EXPECT_EQ(prepared("wgmma_sm90", "forward,dtype=bf16,B=2,T=304,D=64"), "") << "read as it lies";
  // Of several taps each op has its tokens run backwards in blocks of 64, in rows or in columns.
  EXPECT_EQ(prepared("wgmma_taps_sm90", "forward" + odd + ",K=3"),
            "blocks of bf16, H=1, T=301, K=3, lower, diag=0, rows backwards in 64");
  EXPECT_EQ(prepared("wgmma_taps_sm90", "grad_input" + odd + ",K=3,fill=upper"),
            "blocks of bf16, H=1, T=301, K=3, upper, diag=0, columns backwards in 64");
  EXPECT_EQ(prepared("wgmma_sm90", "forward" + odd + ",w=band,width=40"),
            "strips of bf16, H=1, T=301, K=1, lower, diag=0, band, width=40");
  const std::string tf32 = ",dtype=f32,B=2,T=301,D=64,math=tf32";
  EXPECT_NE(prepared("wgmma_tf32_sm90", "forward" + tf32), prepared("wgmma_tf32_sm90", "grad_input" + tf32));
}

}  // namespace
}  // namespace trigen
