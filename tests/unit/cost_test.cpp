#include "generator/cost/cost.h"

#include <gmock/gmock.h>
#include <time.h>

#include "generator/error.h"
#include "generator/problem_lists.h"
#include "problem_testing.h"

namespace trigen {
namespace {

using trigen::testing::problem_of;
using trigen::testing::target_of;

std::vector<Candidate> candidates_of(const Problem& problem, const Target& target,
                                     const Family* family = nullptr) {
  auto list = list_candidates(problem, target, family);
  if (list) return *list;
  ADD_FAILURE() << take_error(list.takeError()).message;
  return {};
}

double seconds_of(const Candidate& candidate, std::optional<Resources> resources = std::nullopt) {
  return predict(candidate, model_of(*candidate.target), resources).seconds;
}

// Calls `body` with the model's first choice for the problem in every family and target that make it.
template <class Body>
void for_each_choice(const std::string& text, Body body) {
  const Problem problem = problem_of(text);
  for (const Target& target : targets())
    for (const Family* family : families()) {
      if (!family->serves(target) || family->configs(problem, target).empty()) continue;
      const Candidate candidate = candidates_of(problem, target, family).front();
      SCOPED_TRACE(target.name.str() + " " + describe(candidate));
      body(candidate);
    }
}

TEST(CostModel, MoreWorkTakesLonger) {
  for (const char* op : {"forward", "grad_input", "grad_weight"})
    for_each_choice(std::string(op) + ",dtype=f16,B=16,T=512,D=1024", [](Candidate candidate) {
      const auto grows = [&](int64_t Problem::*size) {
        Candidate larger = candidate;
        double previous = seconds_of(larger);
        for (int i = 0; i < 4; ++i) {
          larger.problem.*size *= 2;
          const double now = seconds_of(larger);
          EXPECT_GT(now, previous) << to_string(larger.problem);
          previous = now;
        }
      };
      grows(&Problem::T);
      grows(&Problem::B);
      grows(&Problem::D);
    });
}

TEST(CostModel, ATriangleTakesLessThanTwiceHalfADenseProduct) {
  // The same sizes with every element inside (diag = T - 1): the triangle must come out cheaper, at most by
  // half.
  for_each_choice("forward,dtype=f16,B=16,T=4096,D=1024", [](Candidate candidate) {
    const double triangle = seconds_of(candidate);
    candidate.problem.diag = candidate.problem.T - 1;
    const double dense = seconds_of(candidate);
    EXPECT_LT(triangle, 0.75 * dense);
    EXPECT_GT(triangle, 0.45 * dense);
  });
}

TEST(CostModel, SingleElementsAreSlowerThanVectors) {
  for (const char* op : {"forward", "grad_input", "grad_weight"})
    for_each_choice(std::string(op) + ",dtype=f16,B=16,T=1024,D=1024", [](Candidate candidate) {
      ASSERT_GT(candidate.config.vec_a, 1);
      const double vectors = seconds_of(candidate);
      candidate.config.vec_a = candidate.config.vec_b = candidate.config.vec_c = 1;
      candidate.config.weights = candidate.config.activations = Access::kPacked;  // where TMA reads them
      EXPECT_GT(seconds_of(candidate), 1.01 * vectors);
    });
}

TEST(CostModel, SpillsAndRegistersCost) {
  for_each_choice("forward,dtype=f16,B=16,T=1024,D=1024", [](const Candidate& candidate) {
    const double clean = seconds_of(candidate, Resources{.registers = 96});
    EXPECT_GT(seconds_of(candidate, Resources{.registers = 96, .spill_bytes = 64}), clean);
    EXPECT_GT(seconds_of(candidate, Resources{.registers = 96, .spill_bytes = 512}), 1.1 * clean);
    // (Fewer blocks on an SM may end a wave a little earlier.)
    EXPECT_GE(seconds_of(candidate, Resources{.registers = 255}), 0.97 * clean);
    const Prediction few = predict(candidate, model_of(*candidate.target), Resources{.registers = 255});
    const Prediction many = predict(candidate, model_of(*candidate.target), Resources{.registers = 32});
    EXPECT_LE(few.blocks_per_sm, many.blocks_per_sm);
    EXPECT_LE(few.blocks_per_sm * candidate.config.warps_m * candidate.config.warps_n * 32 * 255,
              candidate.target->registers_per_sm);
  });
}

TEST(CostModel, FirstChoicesLeaveRoomForRegisters) {
  // Kernels that would spill for a certain gain are left to a tuner that measures.
  for (const char* text :
       {"forward,dtype=f32,B=16,T=1024,D=1024,math=tf32", "forward,dtype=bf16,B=16,T=1024,D=1024",
        "grad_weight,dtype=f16,B=16,T=1024,D=1024,wdtype=f32,epilogue=bias"})
    for_each_choice(text, [](const Candidate& candidate) {
      const double unreported = seconds_of(candidate);
      // Sums alone take tile_m * tile_n / threads registers.
      const Config& c = candidate.config;
      EXPECT_LE(c.tile_m * c.tile_n / (32 * c.warps_m * c.warps_n), 128);
      EXPECT_LT(unreported, seconds_of(candidate, Resources{.registers = 255, .spill_bytes = 48}));
    });
}

TEST(CostModel, DeeperPipelinesHideMore) {
  for_each_choice("forward,dtype=f16,B=1,T=256,D=512", [](Candidate candidate) {
    if (candidate.family->name() != "mma_sm80") return;  // the other families keep one tile in flight
    candidate.config.stages = 2;
    const double shallow = seconds_of(candidate);
    candidate.config.stages = 3;
    EXPECT_LT(seconds_of(candidate), shallow);
  });
}

TEST(CostModel, HugeTilesLoseAtSmallSizes) {
  for_each_choice("forward,dtype=f16,B=4,T=64,D=128", [](const Candidate& candidate) {
    EXPECT_LE(candidate.config.tile_m, 64);
    Candidate huge = candidate;
    huge.config.tile_m *= 4, huge.config.warps_m *= 2, huge.config.tile_n *= 2, huge.config.warps_n *= 2;
    EXPECT_GT(seconds_of(huge), seconds_of(candidate));
  });
}

TEST(CostModel, AFewTilesAreSplitOverTheMachine) {
  // 512 x 512 weights are 10 tiles of 128 x 128 in the triangle, with a sum over 32768 products.
  for_each_choice("grad_weight,dtype=f16,B=32,T=512,D=1024", [](Candidate candidate) {
    EXPECT_GT(candidate.config.split_k, 1);
    const double split = seconds_of(candidate);
    candidate.config.split_k = 1;
    EXPECT_GT(seconds_of(candidate), 1.5 * split);
  });
}

TEST(CostModel, FewerSmsAndSlowerMemoryTakeLonger) {
  for_each_choice("forward,dtype=f16,B=32,T=2048,D=1024", [](const Candidate& candidate) {
    DeviceModel device = model_of(*candidate.target);
    const double whole = predict(candidate, device).seconds;
    DeviceModel half = device, slow = device;
    half.sms /= 2, slow.dram_bytes_per_s /= 100;
    EXPECT_GT(predict(candidate, half).seconds, 1.5 * whole);
    const Prediction starved = predict(candidate, slow);
    EXPECT_GT(starved.seconds, whole);
    EXPECT_EQ(starved.limiter, "dram");
  });
}

TEST(CostModel, AGpuHasItsOwnUnits) {
  // An L40S has twice the tensor rate of sm_89's model device, an RTX 4090.
  const Target& gpu = *llvm::cantFail(find_gpu("L40S"));
  const Candidate choice =
      candidates_of(problem_of("forward,dtype=f16,B=32,T=2048,D=1024"), target_of("sm_89")).front();
  DeviceModel by_sizes = model_of(gpu);
  by_sizes.gpu = choice.target;
  EXPECT_LT(predict(choice, model_of(gpu)).seconds, 0.8 * predict(choice, by_sizes).seconds);
}

TEST(CostModel, PersistentGridsTakeWholeWaves) {
  // A grid for 132 SMs on the 114 of an H100 PCIe: the last blocks start when the first ones end.
  const Problem problem = problem_of("forward,dtype=bf16,B=8,T=4096,D=2048");
  size_t persistent = 0;
  for (const Candidate& candidate : candidates_of(problem, target_of("sm_90a"))) {
    const Work work =
        candidate.family->work(candidate.problem, *candidate.target, candidate.config, candidate.target->sms);
    if (work.loop != Loop::kStreamed || work.grid * work.cluster != 132) continue;
    SCOPED_TRACE(describe(candidate));
    DeviceModel device = model_of(*candidate.target);
    const auto blocks_s = [&](int sms) {
      device.sms = sms;
      const Prediction p = predict(candidate, device);
      return p.compute_s + p.tail_s;
    };
    const double one_wave = blocks_s(132), two_waves = blocks_s(114);
    EXPECT_GT(two_waves, 1.8 * one_wave);
    EXPECT_LT(two_waves, 2.05 * one_wave);
    EXPECT_NEAR(blocks_s(66), 2 * one_wave, 0.05 * one_wave);
    EXPECT_NEAR(blocks_s(200), one_wave, 1e-9);
    ++persistent;
  }
  EXPECT_GT(persistent, 10U);
}

TEST(CostModel, NeverBeatsTheMachine) {
  auto core = parse_problem_list(core_problem_list());
  ASSERT_TRUE(static_cast<bool>(core));
  for (const Target& target : targets())
    for (const Problem& problem : *core) {
      SCOPED_TRACE(target.name.str() + " " + to_string(problem));
      const Totals work = count_work(problem);
      const double bound = std::max(work.triangle_flop / std::max(target.mma16_flops, target.fp32_flops),
                                    work.min_bytes / target.dram_bytes_per_s);
      const std::vector<Candidate> candidates = candidates_of(problem, target);
      for (const Candidate& candidate : candidates)
        EXPECT_GE(seconds_of(candidate), bound) << describe(candidate);
      // Nor is the first choice absurd: within what FFMA without tensor cores would take, fourfold.
      EXPECT_LT(seconds_of(candidates.front()), 4 * std::max(work.triangle_flop / target.fp32_flops,
                                                             work.min_bytes / target.dram_bytes_per_s) +
                                                    20e-6);
    }
}

TEST(CostModel, CoreProblemsGetSaneChoices) {
  auto core = parse_problem_list(core_problem_list());
  ASSERT_TRUE(static_cast<bool>(core));
  for (const Target& target : targets())
    for (const Problem& problem : *core) {
      const Candidate choice = candidates_of(problem, target).front();
      SCOPED_TRACE(target.name.str() + " " + to_string(problem) + " " + describe(choice));
      const Config& c = choice.config;
      EXPECT_GE(c.tile_m, 32);
      EXPECT_LE(c.tile_m, 256);
      EXPECT_GE(c.tile_n, 64);
      EXPECT_LE(c.tile_n, 256);
      EXPECT_GE(c.warps_m * c.warps_n, 2);
      const Prediction p = predict(choice, model_of(target));
      // The tail is small: most of the machine works most of the time.
      EXPECT_LT(p.tail_s, 0.5 * p.compute_s + 2e-6);
      // Every family with tensor cores comes before FFMA.
      bool tensor = false;
      for (const Family* family : families())
        tensor |=
            family->name() != "simt" && family->serves(target) && !family->configs(problem, target).empty();
      EXPECT_EQ(choice.family->name() == "simt", !tensor);
    }
}

TEST(CostModel, IsFast) {
  const Problem problem = problem_of("forward,dtype=f16,B=64,T=16384,D=2048,K=4,H=2");
  const std::vector<Candidate> candidates = candidates_of(problem, target_of("sm_80"));
  const auto spent = [] {  // by this thread alone: neighbours of the machine do not count
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
  };
  const double start = spent();
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i)
    for (const Candidate& candidate : candidates) ASSERT_GT(seconds_of(candidate), 0);
  const double each = (spent() - start) / static_cast<double>(kRounds * candidates.size());
  RecordProperty("us_per_prediction", std::to_string(each));
  EXPECT_LT(each, 400);  // 10 us; sanitizers on busy cores take 150 to 210
}

}  // namespace
}  // namespace trigen
