// Every family for every target that it serves, and the model's first choices.
#include <gtest/gtest.h>

#include <set>

#include "generator/cost/cost.h"
#include "generator/problem_lists.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "runtime/compile.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

template <class T>
T value_of(llvm::Expected<T> expected) {
  if (expected) return std::move(*expected);
  ADD_FAILURE() << take_error(expected.takeError()).message;
  return T{};
}

// The requests to a family: all ops, dtypes, weight dtypes, layouts, generic or not. The sizes fit every
// alignment once and none once; the epilogues take turns.
struct Case {
  std::string problem;
  bool generic;
  int place = 0;            // the sum of the places of op, data type, layout and (twice) generic or not
  const char* of_one = "";  // the family that it is for: in a quick run the others leave it
};
std::vector<Case> cases() {
  const char* const kDtypes[] = {"dtype=f16",           "dtype=bf16",           "dtype=f32",
                                 "dtype=f32,math=tf32", "dtype=f16,wdtype=f32", "dtype=bf16,wdtype=f32",
                                 "dtype=f32,math=f16x3"};
  const char* const kSizes[] = {"B=8,H=2,T=512,D=256", "B=3,T=257,D=65", "B=4,T=192,D=64,K=4",
                                "B=2,T=320,D=64,fill=upper,diag=-3"};
  const std::vector<const char*> kEpilogues[] = {
      // by op
      {"", ",epilogue=bias", ",epilogue=bias+gelu+pre+gate+residual", ",epilogue=silu"},
      {"", ",epilogue=residual"},
      {"", ",epilogue=bias", ",epilogue=bias+accumulate+zero_outside"},
      {"", ",epilogue=bias", ",epilogue=bias+gelu+pre+gate+residual", ",rows=3"},
      {",epilogue=gelu", ",epilogue=silu+gate", ",epilogue=gate"},
      {"", ",epilogue=mirror", ",epilogue=residual+mirror", ",fill=upper,epilogue=residual"}};
  std::vector<Case> out;
  size_t turn = 0;
  for (Op op : {Op::kForward, Op::kGradInput, Op::kGradWeight, Op::kDecode, Op::kGradEpilogue, Op::kGram}) {
    int place = static_cast<int>(op);
    for (const char* dtype : kDtypes) {
      ++place;
      const llvm::StringRef type(dtype);
      if (!is_whole_product(op) && type.contains("math=")) continue;
      if (op == Op::kGradEpilogue && type.contains("wdtype=")) continue;
      for (const char* layout : {"", ",layout=bdt"})
        for (bool generic : {false, true}) {
          const auto& epilogues = kEpilogues[static_cast<int>(op)];
          out.push_back({to_string(op).str() + "," + dtype + "," +
                             kSizes[turn % (op_row(op).takes(kTapFields | kDiagonalField) ? 4 : 2)] + layout +
                             epilogues[turn / 4 % epilogues.size()],
                         generic, place + (*layout != 0) + 2 * generic});
          turn = turn * 5 + 3;  // mixes sizes and epilogues over the loops
          turn %= 1009;
        }
    }
  }
  // Several taps of two bytes an element, which have a family of their own on Hopper.
  for (const char* problem :
       {"forward,dtype=f16,B=4,T=192,D=64,K=4", "forward,dtype=bf16,wdtype=f32,B=8,H=2,T=200,D=136,K=16",
        "forward,dtype=bf16,B=8,T=512,D=256,K=8,epilogue=bias+gelu+pre+gate+residual",
        "grad_input,dtype=bf16,B=4,T=192,D=64,K=4,epilogue=residual",
        "grad_input,dtype=f16,B=8,T=512,D=256,K=3", "forward,dtype=bf16,B=256,T=32,D=256,K=16,epilogue=bias",
        "grad_weight,dtype=f32,B=64,T=96,D=364,K=2,math=tf32,epilogue=bias"})
    out.push_back({problem, false, 0, "wgmma_taps_sm90"});
  // Short contexts, which have one, too.
  for (const char* problem :
       {"forward,dtype=bf16,B=4,T=192,D=64,epilogue=bias", "grad_input,dtype=f16,B=16,T=32,D=256,wdtype=f32",
        "forward,dtype=f16,B=3,H=2,T=120,D=136,epilogue=bias+gelu", "grad_input,dtype=bf16,B=8,T=64,D=512",
        "forward,dtype=bf16,B=8,H=2,T=250,D=32,wdtype=f32,epilogue=bias"})
    out.push_back({problem, false, 0, "wgmma_resident_sm90"});
  // Rows that begin at any element, which have one.
  for (const char* problem :
       {"forward,dtype=bf16,B=4,T=300,D=129,epilogue=bias+gelu", "grad_input,dtype=f16,B=8,T=128,D=250",
        "forward,dtype=f16,B=2,H=2,T=512,D=63,wdtype=f32,epilogue=bias+residual"})
    out.push_back({problem, false, 0, "wgmma_rows_sm90"});
  // Matrices anywhere.
  out.push_back({"gram,dtype=bf16,B=1,H=4,T=256,D=192,pointers=1,epilogue=mirror", false});
  // In a quick run the source for all sizes of the first, the second's own.
  int number = 0;
  for (const char* sizes : {"dtype=bf16,B=64,T=128,D=1024,K=5", "dtype=f32,B=3,T=77,D=90,K=5,layout=bdt",
                            "dtype=bf16,B=32,T=256,D=256,K=5"}) {
    for (const bool generic : {false, true})
      out.push_back({std::string("newton_schulz,") + sizes, generic, number > 1 || generic != (number == 0)});
    ++number;
  }
  // Weights that are vectors.
  for (const char* problem : {"scan,dtype=bf16,B=4,H=2,T=512,D=256,wdtype=f32,epilogue=bias",
                              "scan_grad_input,dtype=f16,B=4,T=512,D=256",
                              "scan_grad_weight,dtype=bf16,B=2,T=2048,D=256,wdtype=f32,epilogue=bias",
                              "scan,dtype=f32,B=1,T=2048,D=64,layout=bdt,epilogue=gelu+pre+gate",
                              "scan_grad_weight,dtype=f16,B=2,T=512,D=64,layout=bdt",
                              "scan_grad_weight,dtype=f16,B=2,T=512,D=64,layout=bdt,epilogue=grad_input"})
    for (const bool generic : {false, true}) out.push_back({problem, generic});
  return out;
}

std::string name_of(llvm::StringRef text) {
  std::string name;
  for (char c : text) name += llvm::isAlnum(c) ? c : '_';
  return name;
}

// An entry's code lies in a section of its name.
bool has_entry(const Binary& binary, const std::string& entry) {
  return binary.cubin.find(".text." + entry) != std::string::npos;
}

void check(const Candidate& candidate, const Nvrtc& nvrtc, bool may_spill) {
  SCOPED_TRACE(candidate.target->name.str() + " " + describe(candidate) + " " + to_string(candidate.problem));
  auto binary = compile(candidate, nvrtc);
  if (!binary) {
    ADD_FAILURE() << take_error(binary.takeError()).message;
    return;
  }
  const LaunchPlan plan =
      candidate.family->launch_plan(candidate.problem, *candidate.target, candidate.config);
  for (const Launch& launch : plan.launches) EXPECT_TRUE(has_entry(*binary, launch.entry)) << launch.entry;
  EXPECT_LE(plan.launches.front().shared_bytes, candidate.target->max_shared_per_block);
  const Resources resources = resources_of(*binary);
  EXPECT_GT(resources.registers, 0) << "no resource report";
  const int threads = static_cast<int>(plan.launches.front().block[0]);
  EXPECT_LE(resources.registers * threads * std::max(1, candidate.config.blocks),
            candidate.target->registers_per_sm);
  EXPECT_EQ(resources.static_shared, 0);
  if (!may_spill) {
    EXPECT_EQ(resources.spill_bytes, 0);
    EXPECT_EQ(resources.stack_bytes, 0);
  }
}

struct Pair {
  const Family* family;
  const Target* target;
  int share;  // which of the family's cases this target takes
};
void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.family->name().str() << " " << pair.target->name.str();
}
// mma_tma_sm90 serves a Hopper by --config alone.
bool lists(const Family& family, const Target& target) {
  return family.serves(target) && !(family.name() == "mma_tma_sm90" && target.wgmma);
}
std::vector<Pair> pairs() {
  std::vector<Pair> out;
  for (const Family* family : families()) {
    int share = 0;
    for (const Target& target : targets())
      if (lists(*family, target)) out.push_back({family, &target, share++});
    // The newest one is the second: where there are fewer cases than targets, it has one.
    for (size_t i = out.size() - share + 1; share > 2 && i < out.size(); ++i)
      out[i].share = out[i].share == share - 1 ? 1 : out[i].share + 1;
  }
  return out;
}
// The targets of a family share its cases out among themselves; of a whole run four do, and further ones compile the same
// again.
int shares(const Family& family, size_t cases) {
  int served = 0;
  for (const Target& target : targets()) served += lists(family, target);
  return std::min(served, thorough() ? 4 : static_cast<int>(cases));
}

class FamilyOnTarget : public ::testing::TestWithParam<Pair> {};

TEST_P(FamilyOnTarget, Compiles) {
  const auto [family, target, share] = GetParam();
  auto nvrtc = Nvrtc::choose(*target);
  if (!nvrtc) GTEST_SKIP() << take_error(nvrtc.takeError()).message;
  std::vector<Case> taken;
  // In a quick run a family with many cases takes an eighth, where each op, data type, layout and generic or not are;
  // one with fewer a fourth or half.
  for (const int every : {8, 4, 2}) {
    if (taken.size() >= 4) break;
    taken.clear();
    for (const Case& c : cases()) {
      if (!takes(c.place, every)) continue;
      if (!thorough() && *c.of_one && family->name() != c.of_one) continue;
      const Problem problem = value_of(parse_problem(c.problem));
      const bool generic = family->generic_config(problem, *target).has_value();
      // Not a problem that this family does not take here, or only without a generic kernel.
      if (generic || (!c.generic && !family->configs(problem, *target).empty())) taken.push_back(c);
    }
  }
  ASSERT_FALSE(taken.empty());
  TRIGEN_LEAVES_OUT(!thorough() && share >= static_cast<int>(taken.size()));  // older targets have them all
  const int step = shares(*family, taken.size());
  for (size_t i = share % step; i < taken.size(); i += step) {
    const Case& c = taken[i];
    const Problem problem = value_of(parse_problem(c.problem));
    if (c.generic) {
      check({problem, target, family, *family->generic_config(problem, *target), true}, **nvrtc, true);
    } else {
      const auto configs = family->configs(problem, *target);
      ASSERT_FALSE(configs.empty()) << c.problem;
      check({problem, target, family, configs[(i + 1) * 7 % configs.size()], false}, **nvrtc, true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyOnTarget, ::testing::ValuesIn(pairs()), [](const auto& info) {
  return name_of(info.param.family->name()) + "_for_" + name_of(info.param.target->name);
});

class FirstChoice : public ::testing::TestWithParam<const Target*> {};

// The candidate that the model ranks first, of the core problem list's first problems: f16 with f32 weights,
// all ops.
TEST_P(FirstChoice, DoesNotSpill) {
  const Target* target = GetParam();
  auto nvrtc = Nvrtc::choose(*target);
  if (!nvrtc) GTEST_SKIP() << take_error(nvrtc.takeError()).message;
  auto problems = value_of(parse_problem_list(core_problem_list()));
  // bf16, f32 and tf32 too, where the list has f16 only.
  for (const char* more :
       {"forward,dtype=bf16,B=32,T=512,D=1024", "grad_weight,dtype=bf16,B=16,T=1024,D=1024,layout=bdt",
        "grad_input,dtype=f32,B=4,T=4096,D=1024", "forward,dtype=f32,math=f16x3,B=4,T=4096,D=1024",
        "forward,dtype=f32,math=tf32,B=4,T=4096,D=1024", "decode,dtype=bf16,B=256,T=512,D=1024",
        "decode,dtype=f16,B=16,T=1024,D=512,K=4,rows=4", "scan,dtype=bf16,B=16,T=1024,D=1024,wdtype=f32",
        "scan_grad_weight,dtype=bf16,B=16,T=1024,D=1024,wdtype=f32"}) {
    problems.insert(problems.begin(), value_of(parse_problem(more)));
  }
  problems.resize(std::min<size_t>(problems.size(), 13));
  int index = static_cast<int>(target - targets().data()) % 3 * 2;  // the next target has others
  for (const Problem& problem : problems) {
    if (!takes(index++, 6)) continue;
    auto candidates = list_candidates(problem, *target);
    if (!candidates) {  // tf32 before sm_80
      EXPECT_EQ(problem.math, Math::kTF32) << take_error(candidates.takeError()).message;
      llvm::consumeError(candidates.takeError());
      continue;
    }
    check(candidates->front(), **nvrtc, false);
  }
}

// ptxas reports where it runs wgmma instructions one after the other: right, but at a fraction of the speed.
class Wgmma : public ::testing::Test {
 protected:
  void SetUp() override {
    auto found = Nvrtc::choose(*target_);
    if (!found) GTEST_SKIP() << take_error(found.takeError()).message;
    nvrtc_ = *found;
  }
  void expect_parallel(const Candidate& candidate) {
    SCOPED_TRACE(describe(candidate) + " " + to_string(candidate.problem));
    const Binary binary = value_of(compile(candidate, *nvrtc_));
    EXPECT_FALSE(binary.cubin.empty());
    EXPECT_EQ(binary.log.find("serialized"), std::string::npos) << binary.log;
    int64_t spilled = 0;
    // Sizes that come at run time cost a few bytes.
    if (candidate.family->name() == "wgmma_split_sm90" && candidate.generic) spilled = 256;
    // 160 sums of R, and where a cluster's have their owners.
    if (candidate.family->name() == "newton_schulz_sm90" && candidate.config.tile_m == 256 &&
        candidate.config.cluster > 1)
      spilled = 200;
    // Sums of 256 tokens beside a residual: 4 bytes stored, 12 loaded.
    if (candidate.family->name() == "wgmma_tf32_sm90" && candidate.config.tile_m == 256 &&
        candidate.problem.epilogue.residual)
      spilled = 16;
    EXPECT_LE(resources_of(binary).spill_bytes, spilled);
  }
  // One in `every` of the configs that `counts`; how many there are.
  int expect_parallel(const char* family_name, std::initializer_list<const char*> problems, int every,
                      llvm::function_ref<bool(const Config&)> counts) {
    const Family* family = value_of(find_family(family_name));
    int index = 0;
    for (const char* text : problems) {
      const Problem problem = value_of(parse_problem(text));
      for (const Config& config : family->configs(problem, *target_))
        if (counts(config) && takes(index++, every))
          expect_parallel({problem, target_, family, config, false});
    }
    return index;
  }
  const Target* const target_ = value_of(find_target("sm_90a"));
  const Nvrtc* nvrtc_ = nullptr;
};
using WgmmaTf32 = Wgmma;
using WgmmaSplit = Wgmma;
using WgmmaResident = Wgmma;
using WgmmaRows = Wgmma;
using WgmmaIterations = Wgmma;

// Every kind of epilogue with the family's tiles in turn.
TEST_F(Wgmma, ProductsAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_sm90"));
  int index = 0;
  for (const char* sizes :
       {",B=32,T=1024,D=1024", ",B=32,H=2,T=511,D=512", ",B=8,T=512,D=1024,K=4", ",B=51,H=4,T=512,D=96"})
    for (const char* wdtype : {"", ",wdtype=f32"})
      for (const char* epilogue : {"", ",epilogue=bias", ",epilogue=bias+zero_outside",
                                   ",epilogue=zero_outside", ",epilogue=bias+accumulate"}) {
        const Problem problem =
            value_of(parse_problem(std::string("grad_weight,dtype=bf16") + sizes + wdtype + epilogue));
        const auto configs = family->configs(problem, *target_);
        ASSERT_FALSE(configs.empty()) << to_string(problem);
        // 256 columns, 128, and 256 by pairs of blocks.
        const size_t last = configs.size() - 1;
        const Config config = configs[index % 3 * last / 2];
        if (takes(index++, 16)) expect_parallel({problem, target_, family, config, false});
      }
  EXPECT_EQ(index, 40);
}

// Rows that threads bring beside the products, in parts and whole: sums have fewer registers than where TMA loads.
TEST_F(Wgmma, ProductsOfBroughtRowsAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_sm90"));
  int index = 0;
  for (const char* text : {"grad_weight,dtype=f16,B=94,H=8,T=128,D=87,wdtype=f32,epilogue=bias+zero_outside",
                           "grad_weight,dtype=bf16,B=19,T=1024,D=2165,epilogue=bias+zero_outside",
                           "grad_weight,dtype=bf16,B=512,T=128,D=1366,wdtype=f32,epilogue=bias",
                           "grad_weight,dtype=bf16,B=3,H=2,T=511,D=70,fill=upper,epilogue=bias+accumulate",
                           "grad_weight,dtype=f16,B=128,T=64,D=241,wdtype=f32,epilogue=bias+zero_outside"}) {
    const Problem problem = value_of(parse_problem(text));
    std::set<std::pair<int, bool>> seen;  // columns, and in parts
    for (const Config& config : family->configs(problem, *target_)) {
      if (config.activations != Access::kDirect || !seen.insert({config.tile_n, config.split_k > 1}).second)
        continue;
      if (takes(index++, 5)) expect_parallel({problem, target_, family, config, false});
    }
    EXPECT_EQ(seen.size(), problem.T <= 64 ? 4u : 2u) << text;  // stacks of short contexts beside tiles
  }
}

// gram's sums are grad_weight's; what becomes of them are other registers.
TEST_F(Wgmma, ProductsOfGramAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_sm90"));
  int index = 0;
  for (const char* sizes :
       {",B=1,H=4,T=1024,D=4096", ",B=2,H=1,T=2048,D=1000,layout=bdt", ",B=1,H=3,T=511,D=512"})
    for (const char* rest : {"", ",epilogue=mirror", ",epilogue=residual+mirror",
                             ",fill=upper,epilogue=residual", ",wdtype=f32,epilogue=residual+mirror"}) {
      const Problem problem = value_of(parse_problem(std::string("gram,dtype=bf16") + sizes + rest));
      const auto configs = family->configs(problem, *target_);
      ASSERT_FALSE(configs.empty()) << to_string(problem);
      const Config config = configs[index % 3 * (configs.size() - 1) / 2];
      if (takes(index++, 15)) expect_parallel({problem, target_, family, config, false});
    }
  EXPECT_EQ(index, 15);
}

// f32 weights go through registers, two sets in turn: every tile, and the source for all sizes.
TEST_F(Wgmma, ProductsWithF32WeightsAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_sm90"));
  int compiled = 0;
  for (const char* text :
       {"forward,dtype=f16,B=32,T=1024,D=1024,wdtype=f32,epilogue=bias",
        "forward,dtype=bf16,B=8,H=2,T=1000,D=1024,wdtype=f32,epilogue=bias+gelu+gate+residual",
        "forward,dtype=bf16,B=32,T=512,D=512,fill=upper,diag=2,wdtype=f32",
        "grad_input,dtype=bf16,B=32,T=1024,D=1024,wdtype=f32,epilogue=residual",
        "grad_input,dtype=f16,B=8,H=4,T=1000,D=256,fill=upper,diag=-5,wdtype=f32"}) {
    const Problem problem = value_of(parse_problem(text));
    std::set<std::string> tiles;
    for (const Config& config : family->configs(problem, *target_)) {
      if (config.weights != Access::kDirect ||
          !tiles
               .insert(std::to_string(config.tile_m) + "x" + std::to_string(config.tile_n) + ":" +
                       std::to_string(config.cluster))
               .second)
        continue;
      for (const bool generic : {false, true}) {
        if (generic && config.tile_n != 256) continue;
        if (takes(compiled++, 20)) expect_parallel({problem, target_, family, config, generic});
      }
    }
    EXPECT_GE(tiles.size(), 8u) << text;
  }
  EXPECT_GE(compiled, 45);
}

// Slices add sums to their own between products and stores.
TEST_F(Wgmma, SlicesAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_sm90"));
  int index = 0;
  for (const char* text :
       {"forward,dtype=bf16,B=1,T=1024,D=256,epilogue=bias",
        "forward,dtype=f16,B=2,T=960,D=256,wdtype=f32,epilogue=bias+gelu",
        "forward,dtype=bf16,B=1,T=1000,D=256,wdtype=f32,epilogue=bias+gelu+pre+gate+residual",
        "grad_input,dtype=bf16,B=1,T=1024,D=256,wdtype=f32,epilogue=residual",
        "grad_input,dtype=f16,B=1,T=1000,D=256,fill=upper,diag=-5"}) {
    const Problem problem = value_of(parse_problem(text));
    std::set<int> columns;
    for (const Config& config : family->configs(problem, *target_)) {
      if (config.split_k == 1 || config.weights != Access::kDirect) continue;
      columns.insert(config.tile_n);
      if (takes(index++, 8)) expect_parallel({problem, target_, family, config, false});
    }
    EXPECT_EQ(columns.size(), 4u) << text;
  }
}

// A matrix by a block and by clusters: rows of one, two and three warpgroups' turns, both layouts, all that a block can make.
TEST_F(WgmmaIterations, ProductsAreNotSerialised) {
  const Family* family = value_of(find_family("newton_schulz_sm90"));
  int index = 0;
  for (const char* text : {"newton_schulz,dtype=bf16,B=8,T=256,D=512,K=5",
                           "newton_schulz,dtype=f32,B=16,T=192,D=768,K=5,layout=bdt",
                           "newton_schulz,dtype=f16,B=8,T=128,D=1024,K=5"}) {
    const Problem problem = value_of(parse_problem(text));
    std::set<std::string> kinds;
    for (const Config& config : family->configs(problem, *target_)) {
      kinds.insert(std::to_string(config.stages) + ":" + std::to_string(config.cluster) + ":" +
                   std::to_string(config.split_k));
      if (takes(index++, 40)) expect_parallel({problem, target_, family, config, false});
    }
    EXPECT_GE(kinds.size(), problem.T > 192 ? 4u : 6u) << text;
  }
}

TEST_F(WgmmaTf32, ProductsAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_tf32_sm90"));
  std::set<std::string> tiles;
  for (const char* start :
       {"forward", "forward,fill=upper", "grad_input", "grad_input,fill=upper", "grad_weight"})
    for (const char* epilogue :
         {"", ",epilogue=residual", ",epilogue=bias", ",epilogue=bias+gelu+pre+gate",
          ",epilogue=bias+accumulate", ",epilogue=bias+zero_outside", ",T=200", ",T=60"}) {
      // The last two are too small for the large tiles.
      const bool small = llvm::StringRef(epilogue).startswith(",T");
      auto problem = parse_problem(std::string(start) + ",dtype=f32,math=tf32,D=1024" +
                                   (small ? ",B=1" : ",B=8,T=2000") + epilogue);
      if (!problem) {  // no such epilogue
        llvm::consumeError(problem.takeError());
        continue;
      }
      int tried = 0;
      for (const Config& config : family->configs(*problem, *target_)) {
        // One config of every tile: without an epilogue all of them, with one the first two.
        const std::string tile = std::string(start) + epilogue + std::to_string(config.tile_m) + "x" +
                                 std::to_string(config.tile_n) + ":" + std::to_string(config.cluster);
        if ((*epilogue && !small && tried >= 2) || !tiles.insert(tile).second) continue;
        ++tried;
        if (takes(static_cast<int>(tiles.size()), 28))
          expect_parallel({*problem, target_, family, config, false});
      }
      EXPECT_GT(tried, 0) << to_string(*problem);
    }
  EXPECT_GT(tiles.size(), 45u);
}

// Every tile of wgmma_taps_sm90, with what changes its sums and its epilogue.
TEST_F(Wgmma, TapsAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_taps_sm90"));
  std::set<std::string> seen;
  for (const char* text :
       {"forward,dtype=bf16,B=32,T=512,D=1024,K=4,epilogue=bias+gelu",
        "grad_input,dtype=f16,wdtype=f32,B=32,H=2,T=511,D=512,K=16,pad=15",
        "forward,dtype=f16,B=8,T=1000,D=1024,K=3,fill=upper,diag=5,epilogue=bias",
        "forward,dtype=bf16,B=64,T=256,D=512,K=16",
        "forward,dtype=bf16,B=32,T=512,D=1024,K=4,epilogue=bias+gelu+pre+gate+residual",
        "forward,dtype=f16,B=8,T=1000,D=1024,K=3,layout=bdt,epilogue=bias+gelu+pre+gate+residual",
        "grad_input,dtype=bf16,B=8,T=512,D=768,K=3,layout=bdt,epilogue=residual",
        "grad_weight,dtype=bf16,B=64,T=256,D=512,K=16,epilogue=bias+zero_outside",
        "grad_weight,dtype=f16,wdtype=f32,B=8,T=1000,D=264,K=5,epilogue=accumulate",
        "grad_weight,dtype=bf16,B=16,T=1024,D=72,K=2,epilogue=bias+zero_outside",
        "grad_weight,dtype=f16,B=4,T=512,D=2048,K=3,epilogue=accumulate",
        "grad_weight,dtype=f16,wdtype=f32,B=8,T=1001,D=104,K=3,fill=upper,diag=5,epilogue=bias+accumulate+"
        "zero_outside",
        "grad_weight,dtype=bf16,wdtype=f32,B=4,T=1024,D=128,K=4",
        "grad_weight,dtype=bf16,B=32,H=2,T=511,D=72,K=4,epilogue=bias+accumulate",
        "grad_weight,dtype=f32,B=512,T=96,D=364,K=2,math=tf32,epilogue=bias+zero_outside",
        "grad_weight,dtype=f32,B=8,T=1001,D=104,K=3,math=tf32,fill=upper,diag=5,epilogue=bias+accumulate",
        "grad_weight,dtype=f32,B=4,T=2048,D=128,K=4,math=tf32,epilogue=bias",
        "grad_weight,dtype=f32,B=64,T=256,D=512,K=16,math=tf32,epilogue=bias+zero_outside",
        "forward,dtype=bf16,B=2048,T=32,D=2048,K=16,epilogue=bias",
        "grad_input,dtype=f16,B=512,T=48,D=768,K=3,epilogue=residual"}) {
    const Problem problem = value_of(parse_problem(text));
    for (const Config& config : family->configs(problem, *target_)) {
      if (config.raster > 0) continue;
      if (!seen.insert(std::to_string(config.tile_m) + "x" + std::to_string(config.tile_n) + " " +
                       std::to_string(config.cluster) + " " + text)
               .second)
        continue;
      if (takes(static_cast<int>(seen.size()), 28))
        expect_parallel({problem, target_, family, config, false});
    }
  }
  EXPECT_GE(seen.size(), 40u);
}

TEST_F(WgmmaSplit, ProductsAreNotSerialised) {
  const Family* family = value_of(find_family("wgmma_split_sm90"));
  int index = 0;
  for (const char* text :
       {"forward,dtype=f32,B=16,T=1024,D=1024,math=f16x3",
        "forward,dtype=f32,B=2,H=2,T=511,D=513,math=f16x3,epilogue=bias+gelu+pre+gate+residual",
        "grad_input,dtype=f32,B=8,T=2048,D=1024,math=f16x3,epilogue=residual",
        "grad_weight,dtype=f32,B=8,T=1024,D=1024,math=f16x3",
        "grad_weight,dtype=f32,B=8,T=1023,D=1023,math=f16x3,epilogue=bias+accumulate+zero_outside"}) {
    const Problem problem = value_of(parse_problem(text));
    for (const bool generic : {false, true}) {
      if (!takes(index++, 5)) continue;
      const auto configs = family->configs(problem, *target_);
      ASSERT_FALSE(configs.empty()) << text;
      const Config config = generic ? *family->generic_config(problem, *target_) : configs.front();
      expect_parallel({problem, target_, family, config, generic});
    }
  }
}

// Small products, which get tiles of 64 rows.
TEST_F(WgmmaSplit, TilesOf64RowsAreNotSerialised) {
  const int count = expect_parallel(
      "wgmma_split_sm90",
      {"forward,dtype=f32,math=f16x3,B=1,T=1024,D=1024,epilogue=bias",
       "forward,dtype=f32,math=f16x3,B=1,H=2,T=511,D=257,fill=upper,epilogue=bias+gelu+pre+gate+residual",
       "grad_input,dtype=f32,math=f16x3,B=2,T=1000,D=512,epilogue=residual"},
      3, [](const Config& config) { return config.tile_m == 64 && config.raster <= 0; });
  EXPECT_EQ(count, 6) << "four stages and three of each problem";
}

// Operands that are split inside: short contexts of one set of columns and of two, features that end in half a panel.
TEST_F(WgmmaSplit, SplitsInsideBesideProducts) {
  const int count = expect_parallel(
      "wgmma_split_sm90",
      {"grad_weight,dtype=f32,math=f16x3,B=597,T=128,D=544,epilogue=bias+zero_outside",
       "grad_weight,dtype=f32,math=f16x3,B=1024,T=32,D=104,epilogue=bias+zero_outside",
       "grad_weight,dtype=f32,math=f16x3,B=512,H=8,T=256,D=96,epilogue=zero_outside",
       "grad_weight,dtype=f32,math=f16x3,B=32,H=16,T=512,D=24",
       "grad_weight,dtype=f32,math=f16x3,B=64,T=600,D=512,fill=upper,epilogue=bias+accumulate"},
      16, [](const Config& config) { return config.box != 0; });
  EXPECT_GE(count, 15) << "three numbers of parts of each problem";
}

// W's registers beside the sums of two rows of blocks, on the most warpgroups and blocks that the rules allow.
TEST_F(WgmmaResident, ProductsAreNotSerialised) {
  const int count = expect_parallel(
      "wgmma_resident_sm90",
      {"forward,dtype=bf16,B=256,T=64,D=512,epilogue=bias+gelu",
       "grad_input,dtype=f16,B=256,H=2,T=128,D=80,layout=bdt", "forward,dtype=bf16,B=256,T=128,D=512",
       "forward,dtype=f16,wdtype=f32,B=128,T=32,D=512,epilogue=bias+residual",
       "forward,dtype=f16,B=128,T=192,D=512,epilogue=bias+gelu",
       "forward,dtype=bf16,B=128,T=192,D=512,epilogue=bias+residual",
       "grad_input,dtype=bf16,B=128,T=192,D=512",
       "forward,dtype=bf16,B=128,T=256,D=512,epilogue=bias+residual",
       "grad_input,dtype=f16,B=128,H=4,T=256,D=32"},
      12, [](const Config&) { return true; });
  EXPECT_GE(count, 20);
}

// Sums of fewer panels of tokens from one diagonal block to the next, x in registers beside them.
TEST_F(WgmmaRows, ProductsAreNotSerialised) {
  const int count =
      expect_parallel("wgmma_rows_sm90",
                      {"forward,dtype=bf16,B=64,T=1024,D=633,epilogue=bias+gelu+gate+residual",
                       "forward,dtype=f16,wdtype=f32,B=64,T=1024,D=630,epilogue=bias+silu+pre+gate+residual",
                       "grad_input,dtype=f16,B=64,T=1024,D=630,epilogue=residual",
                       "forward,dtype=bf16,fill=upper,B=64,T=1024,D=631"},
                      16, [](const Config& config) { return config.raster <= 0; });
  EXPECT_GE(count, 28);
}

std::vector<const Target*> every_target() {
  std::vector<const Target*> out;
  for (const Target& target : targets()) out.push_back(&target);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, FirstChoice, ::testing::ValuesIn(every_target()),
                         [](const auto& info) { return name_of(info.param->name); });

}  // namespace
}  // namespace trigen
