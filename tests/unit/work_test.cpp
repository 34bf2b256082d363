#include "generator/work.h"

#include <gmock/gmock.h>
#include <algorithm>

#include <filesystem>
#include <fstream>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/random_problem.h"
#include "generator/rates.h"
#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;

// Calls `body` with every config of every family for problems of each op and kind, on targets that have each
// family.
template <class Body>
void for_each_work(const Body& body) {
  std::vector<Problem> problems;
  for (const char* text : {
           "forward,dtype=bf16,B=8,T=512,D=256",
           "forward,dtype=bf16,B=3,T=200,D=72,epilogue=bias+residual",
           "forward,dtype=bf16,B=3,T=200,D=72,epilogue=gelu+pre+gate+residual",
           "forward,dtype=f16,B=16,T=1000,D=512,wdtype=f32,fill=upper,diag=3",
           "forward,dtype=bf16,B=4,T=300,D=129",
           "grad_input,dtype=f16,B=4,H=2,T=513,D=128,diag=-70",
           "grad_input,dtype=bf16,B=4,T=256,D=200,layout=bdt",
           "grad_weight,dtype=bf16,B=16,T=640,D=512,epilogue=bias",
           "grad_weight,dtype=f16,B=4,H=2,T=333,D=72,wdtype=f32,fill=upper,epilogue=bias+zero_outside",
           "grad_weight,dtype=bf16,B=4,T=333,D=72,diag=-40",
           "forward,dtype=f32,B=4,T=512,D=256,math=tf32",
           "grad_input,dtype=f32,B=4,T=301,D=200,math=tf32",
           "grad_weight,dtype=f32,B=8,T=512,D=256,math=tf32,epilogue=bias",
           "forward,dtype=f32,B=4,T=512,D=256,math=f16x3",
           "grad_input,dtype=f32,B=4,T=301,D=200,math=f16x3",
           "grad_weight,dtype=f32,B=8,T=512,D=256,math=f16x3,epilogue=bias",
           "forward,dtype=bf16,B=4,T=512,D=256,K=4",
           "grad_input,dtype=bf16,B=4,T=333,D=264,K=5,pad=1,diag=-7",
           "grad_weight,dtype=bf16,B=4,T=512,D=256,K=8",
           "grad_weight,dtype=bf16,B=4,T=333,D=264,K=3",
           "forward,dtype=f32,B=4,T=256,D=128,math=simt",
           "gram,dtype=bf16,B=1,H=2,T=640,D=2048,epilogue=residual+mirror",
           "gram,dtype=f16,B=4,T=333,D=72,wdtype=f32,fill=upper,epilogue=mirror",
           "gram,dtype=f32,B=8,T=512,D=256,math=f16x3,epilogue=residual",
           "decode,dtype=bf16,B=8,T=1024,D=512",
           "grad_epilogue,dtype=bf16,B=8,T=512,D=256,epilogue=gelu+gate",
           "scan,dtype=bf16,B=8,H=2,T=512,D=256,wdtype=f32,epilogue=bias",
           "scan_grad_input,dtype=f32,B=2,T=333,D=100,layout=bdt",
           "scan_grad_weight,dtype=bf16,B=2,T=2048,D=256,wdtype=f32,epilogue=bias",
           "scan_grad_weight,dtype=bf16,B=2,T=2048,D=256,wdtype=f32,epilogue=bias+grad_input",
           "decode,dtype=f16,B=4,T=333,D=100,K=3,rows=3,layout=bdt",
           "newton_schulz,dtype=bf16,B=64,T=128,D=1024,K=5",
           "newton_schulz,dtype=f32,B=7,T=77,D=90,K=5,layout=bdt",
           "newton_schulz,dtype=bf16,B=32,T=160,D=512,K=5",
           "forward,dtype=bf16,B=1,T=64,D=64",
           "grad_weight,dtype=bf16,B=1,T=64,D=64",
       })
    problems.push_back(problem_of(text));
  for (const char* name : {"sm_70", "sm_75", "sm_80", "sm_90a"}) {
    const Target& target = **find_target(name);
    for (const Problem& problem : problems)
      for (const Family* family : families()) {
        if (!family->serves(target)) continue;
        for (const Config& config : family->configs(problem, target)) {
          const Candidate candidate{problem, &target, family, config, false};
          SCOPED_TRACE(target.name.str() + " " + to_string(problem) + " " + describe(candidate));
          body(candidate, family->work(problem, target, config, target.sms));
          if (::testing::Test::HasFailure()) return;
        }
      }
  }
}

double products_of(const Work& work) {
  double sum = 0;
  for (size_t kind = 0; kind < work.steps.size(); ++kind)
    sum += work.all.steps[kind] * work.steps[kind].products;
  return sum * work.cluster;
}

// Multiply-adds of whole blocks of `rows` x `columns` of W that hold an element of the triangle, all padded.
double covered_products(const Problem& p, int64_t rows, int64_t columns) {
  double blocks = 0;
  for (int64_t row = 0; row < p.T; row += rows)
    for (int64_t column = 0; column < p.T; column += columns) {
      // Lower keeps s <= t + diag, upper s >= t + diag: the corner that is furthest inside.
      const int64_t t = p.fill == Fill::kLower ? row + rows - 1 : row;
      const int64_t s = p.fill == Fill::kLower ? column : column + columns - 1;
      blocks += (p.fill == Fill::kLower ? s <= t + p.diag : s >= t + p.diag) ? 1 : 0;
    }
  const auto padded = [](int64_t n, int64_t to) { return static_cast<double>((n + to - 1) / to * to); };
  return blocks * static_cast<double>(rows * columns) * padded(p.D, 128) * padded(p.B, 16) *
         static_cast<double>(p.H) * padded(p.K, 8);
}

TEST(Work, StepsOverAllBlocksMultiplyTheTriangle) {
  for_each_work([](const Candidate& candidate, const Work& work) {
    const Problem& p = candidate.problem;
    if (!is_whole_product(p.op)) return;  // loads alone
    const double planes = p.math == Math::kF16x3 && work.loop == Loop::kStreamed ? 3 : 1;
    const double products = products_of(work) / planes;
    EXPECT_GE(products, count_work(p).triangle_flop / 2 * 0.999);
    // No more than blocks of 256 around the triangle, and a step a tile for a residual.
    EXPECT_LE(products, 1.3 * covered_products(p, 256, 256));
  });
}

// 64 x 64 blocks of W that a product's rows of 64 touch, counted one by one.
TEST(Work, PersistentProductsTakeTheBlocksThatTouchTheTriangle) {
  for (const char* text :
       {"forward,dtype=bf16,B=2,T=512,D=256", "forward,dtype=bf16,B=2,T=512,D=256,diag=-65",
        "forward,dtype=bf16,B=2,T=512,D=256,fill=upper,diag=64",
        "grad_input,dtype=bf16,B=2,T=512,D=256,diag=3", "grad_input,dtype=bf16,B=2,T=512,D=256,fill=upper"}) {
    const Problem p = problem_of(text);
    const Target& target = **find_target("sm_90a");
    double blocks = 0;
    for (int64_t row = 0; row < 8; ++row)
      for (int64_t column = 0; column < 8; ++column) {
        bool touched = false;
        for (int64_t t = 64 * row; t < 64 * row + 64; ++t)
          for (int64_t s = 64 * column; s < 64 * column + 64; ++s)
            touched |= p.fill == Fill::kLower ? s <= t + p.diag : s >= t + p.diag;
        blocks += touched ? 1 : 0;
      }
    size_t seen = 0;
    for (const Family* family : families()) {
      if (!family->serves(target)) continue;
      for (const Config& c : family->configs(p, target)) {
        const Work work = family->work(p, target, c, target.sms);
        // Tiles of 64 columns at least, none of them cut off: 512 columns of output.
        if (work.loop != Loop::kStreamed || c.tile_m % 64 != 0 || 512 % (c.tile_n * c.cluster) != 0) continue;
        SCOPED_TRACE(std::string(text) + " " + describe({p, &target, family, c, false}));
        EXPECT_DOUBLE_EQ(products_of(work), blocks * 64 * 64 * 512);
        ++seen;
      }
    }
    EXPECT_GT(seen, 0U) << text;
  }
}

TEST(Work, RunsHoldEveryBlock) {
  for_each_work([](const Candidate& candidate, const Work& work) {
    int64_t count = 0;
    double tiles = 0, steps = 0, all = 0;
    for (const auto& run : work.runs) {
      ASSERT_EQ(run.steps.size(), work.steps.size());
      ASSERT_GT(run.count, 0);
      count += run.count;
      tiles += run.tiles * static_cast<double>(run.count * work.repeats);
      for (const double n : run.steps) steps += n * static_cast<double>(run.count * work.repeats);
    }
    ASSERT_EQ(work.all.steps.size(), work.steps.size());
    for (const double n : work.all.steps) all += n;
    if (work.loop == Loop::kStreamed) {
      EXPECT_EQ(count, work.all.count);
      EXPECT_EQ(static_cast<double>(count), work.grid);
      // Blocks of grad_weight are walked one by one; of many tiles, or clusters of a product, some stand for
      // all. A product's slices take as long as the longest, which of three or four may be more than twice the mean.
      const bool weight = makes_weights(candidate.problem.op),
                 pairs = !weight && candidate.config.split_k > 1;
      const bool exact = weight || work.grid <= 4;
      EXPECT_NEAR(steps, all, (pairs ? std::max(1, candidate.config.cluster - 1) : exact ? 1e-6 : 0.5) * all);
    } else {
      // The last section of columns may be narrower than the others.
      EXPECT_GE(steps, all);
      EXPECT_GE(tiles, work.all.tiles);
      EXPECT_LT(steps, 2 * all + 1e-9);
      EXPECT_GE(work.grid, static_cast<double>(work.all.count));
    }
  });
}

TEST(Work, MovesAtLeastEveryByteOnce) {
  for_each_work([](const Candidate& candidate, const Work& work) {
    const Problem& p = candidate.problem;
    double bytes = work.memory_bytes;
    for (const Pass& pass : work.passes)
      if (pass.rates == "pack_taps") bytes += pass.bytes;  // it has read W for the product
    EXPECT_GE(bytes, count_work(p).min_bytes);
    for (const Reread& reread : work.rereads) {
      EXPECT_GE(reread.bytes, 0);
      EXPECT_GT(reread.set, 0);
    }
    // Every element that the op multiplies comes through the L2. Rows that no triangle touches do not.
    const double activation = static_cast<double>(p.B * p.H * p.D * (p.T - std::abs(p.diag))) *
                              static_cast<double>(element_size(p.dtype));
    EXPECT_GE(work.l2_bytes, activation);
    for (const Pass& pass : work.passes) EXPECT_GE(pass.bytes + pass.memory_bytes, 0);
  });
}

TEST(Work, IsOfThePlansLaunches) {
  for_each_work([](const Candidate& candidate, const Work& work) {
    const LaunchPlan plan =
        candidate.family->launch_plan(candidate.problem, *candidate.target, candidate.config);
    size_t launches = 1;
    for (const Pass& pass : work.passes) launches += static_cast<size_t>(pass.launches);
    EXPECT_EQ(launches, plan.launches.size());
    const Launch& product = product_launch(plan, candidate.problem.op);
    EXPECT_EQ(work.grid * work.cluster,
              static_cast<double>(product.grid[0]) * product.grid[1] * product.grid[2]);
    EXPECT_EQ(work.cluster, static_cast<int>(std::max(1U, product.cluster)));
    if (work.threads > 0) {
      EXPECT_EQ(work.threads, static_cast<int>(product.block[0]));
      EXPECT_EQ(work.shared_bytes, product.shared_bytes);
    }
  });
}

TEST(Work, NamesSectionsOfTheTable) {
  for_each_work([](const Candidate& candidate, const Work& work) {
    const Rates& rates = rates_of(*candidate.target);
    EXPECT_TRUE(rates.has_loop(work.rates)) << work.rates.str();
    for (const Pass& pass : work.passes) EXPECT_TRUE(rates.has_pass(pass.rates)) << pass.rates.str();
  });
}

// A family's name stands in its own files and in one list: what comes next is added without a change
// elsewhere.
TEST(Work, NothingElseNamesAFamily) {
  const std::filesystem::path source = TRIGEN_SOURCE;
  size_t files = 0;
  for (const char* folder : {"generator", "runtime", "check", "tuner", "peers", "cli"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source / folder)) {
      const std::filesystem::path path = entry.path();
      if (path.extension() != ".cpp" && path.extension() != ".h") continue;
      if (path.parent_path().filename() == "families") continue;
      std::ifstream in(path);
      ++files;
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        const llvm::StringRef code = llvm::StringRef(line).split("//").first.split("/*").first;
        for (const Family* family : families()) {
          const llvm::StringRef name = family->name();
          // Also words of the problem: math=simt, op decode.
          if (!name.contains("_sm")) continue;
          EXPECT_FALSE(code.contains(name)) << path << ":" << number << ": " << line;
        }
      }
    }
  EXPECT_GT(files, 60U);
}

}  // namespace
}  // namespace trigen
