// Every cuBLAS and cuBLASLt arm asks for the product that it should: on the emulated device, through a stand-in
// library that computes them on the CPU.
#include "lab/peer_arms.h"

#include <gmock/gmock.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "lab/foreign.h"
#include "lab/sweep_run.h"

namespace trigen {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

struct Case {
  const char* problem;
  bool epilogue;
  std::vector<std::string> arms;   // all of them, in order
  std::vector<std::string> exact;  // whose results the reference checks
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.problem; }

class Arms : public testing::Test {
 protected:
  static void SetUpTestSuite() { ::setenv("TRIGEN_CUBLAS", CUBLAS_STAND_IN, 1); }
};

int64_t narrow_matrices() {
  void* library = ::dlopen(CUBLAS_STAND_IN, RTLD_NOW);
  return reinterpret_cast<int64_t (*)()>(::dlsym(library, "cublas_stand_in_narrow"))();
}

class ArmsOf : public Arms, public testing::WithParamInterface<Case> {};

TEST_P(ArmsOf, ComputeTheProblem) {
  const Device* device = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
  const Problem p = llvm::cantFail(parse_problem(GetParam().problem));
  auto bench = llvm::cantFail(Workbench::create(*device, p));
  const Reference reference(p, bench->list(), bench->inputs());
  PeerArms peers = peer_arms(*bench, GetParam().epilogue, &reference);
  ASSERT_TRUE(peers.cublas != nullptr) << testing::PrintToString(peers.notes);
  EXPECT_EQ(peers.library, "cublas 13.1.0");
  std::vector<std::string> names, exact, notes;
  for (const NamedLaunch& arm : peers.arms) names.push_back(arm.name);
  EXPECT_EQ(names, GetParam().arms) << testing::PrintToString(peers.notes);
  EXPECT_THAT(peers.notes, Not(Contains(HasSubstr("differs"))));
  for (const CublasPeer::Arm& arm : peers.cublas->arms(GetParam().epilogue, notes)) {
    if (!arm.exact) continue;
    exact.push_back(arm.name);
    narrow_matrices();
    EXPECT_LT(llvm::cantFail(peers.cublas->error_of(arm, reference)), 5e-3) << arm.name;
    // at its best: what is the peer's own has rows that wide loads take, whatever T is
    if (p.layout == Layout::kBTD && p.D % 8 == 0 && p.K == 1) {
      EXPECT_EQ(narrow_matrices(), 0) << arm.name;
    }
  }
  EXPECT_EQ(exact, GetParam().exact);
}

const char* const kBatched = "cublas batched";
const char* const kFlat = "cublas flat";
const char* const kSplit = "cublas split";
const char* const kLtSplit = "cublaslt split";
const char* const kLtBatched = "cublaslt batched";
const char* const kLtFlat = "cublaslt flat";
const char* const kLtTransposed = "cublaslt transposed";

INSTANTIATE_TEST_SUITE_P(
    Problems, ArmsOf,
    testing::Values(
        Case{"forward,dtype=bf16,B=2,T=24,D=16",
             false,
             {kBatched, kFlat, kLtBatched, kLtFlat, kLtTransposed},
             {kBatched, kLtBatched}},
        // one batch lies as [T, B*D] does, and bdt as [B*D, T]: those views are the problem's, too
        Case{"forward,dtype=f16,B=1,H=1,T=24,D=16",
             false,
             {kBatched, kLtBatched, kLtTransposed},
             {kBatched, kLtBatched}},
        Case{"grad_input,dtype=bf16,B=1,H=2,T=24,D=16",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched}},
        Case{"grad_input,dtype=f16,B=1,H=2,T=24,D=16,layout=bdt",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched, kLtTransposed}},
        Case{"forward,dtype=bf16,B=1,H=3,T=24,D=16,layout=bdt",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched, kLtTransposed}},
        // heads: one array of pointers, in both layouts, and with taps
        Case{"forward,dtype=bf16,B=2,H=3,T=24,D=16",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched}},
        Case{"forward,dtype=bf16,B=2,H=3,T=24,D=16,layout=bdt",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched}},
        Case{"grad_input,dtype=f16,B=2,H=2,T=16,D=16,K=3", false, {kBatched}, {kBatched}},
        Case{"decode,dtype=bf16,B=2,H=2,T=24,D=16,rows=4", false, {kBatched}, {kBatched}},
        // taps: a product each, and one over the shifted copies
        Case{"forward,dtype=f16,B=1,T=16,D=16,K=3",
             false,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {kBatched, "cublas im2col", "cublaslt im2col"}},
        Case{"forward,dtype=bf16,B=1,T=16,D=20,K=4,pad=3,epilogue=bias",
             true,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {}},
        Case{"grad_input,dtype=bf16,B=1,T=16,D=24,K=4,pad=0",
             false,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {kBatched, "cublas im2col", "cublaslt im2col"}},
        Case{"grad_weight,dtype=bf16,B=3,T=16,D=16,K=3,wdtype=f32",
             false,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {kBatched}},
        // sums over the batches
        Case{"grad_weight,dtype=bf16,B=3,T=24,D=16,wdtype=f32,epilogue=bias+zero_outside",
             true,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched}},
        Case{"grad_weight,dtype=bf16,B=2,H=3,T=24,D=16",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched}},
        Case{"grad_weight,dtype=f16,B=1,H=3,T=24,D=16,layout=bdt",
             false,
             {kBatched, kFlat, kLtBatched, kLtFlat, kLtTransposed},
             {kBatched, kLtBatched, kLtTransposed}},
        Case{"grad_weight,dtype=f16,B=2,H=2,T=16,D=16,K=2", false, {kBatched}, {kBatched}},
        // few rows and a long k: parts of it, on the data as it lies in bdt, too
        Case{"grad_weight,dtype=bf16,B=2,H=3,T=24,D=64",
             false,
             {kBatched, kFlat, kSplit, kLtFlat, kLtTransposed, "cublaslt split, 2 parts"},
             {kBatched, kSplit}},
        Case{"grad_weight,dtype=bf16,B=20,T=33,D=64,wdtype=f32,epilogue=zero_outside",
             true,
             {kBatched, kFlat, kSplit, kLtFlat, kLtTransposed, kLtSplit, "cublaslt split, 20 parts"},
             {kBatched, kSplit, kLtSplit}},
        Case{"grad_weight,dtype=f16,B=1,H=2,T=17,D=4608,layout=bdt",
             false,
             {kBatched, kFlat, kLtBatched, kLtFlat, kLtTransposed, "cublaslt split, 64 parts",
              "cublaslt split, 72 parts"},
             {kBatched, kLtBatched, kLtTransposed, "cublaslt split, 64 parts", "cublaslt split, 72 parts"}},
        Case{"grad_weight,dtype=f32,math=tf32,B=3,T=21,D=128,layout=bdt",
             false,
             {kBatched, kFlat, kSplit, kLtBatched, kLtFlat, kLtSplit, "cublaslt split, 6 parts"},
             {kBatched, kSplit, kLtBatched, kLtSplit, "cublaslt split, 6 parts"}},
        // odd lengths: weights and dW in padded rows
        Case{"forward,dtype=bf16,B=1,T=23,D=16",
             false,
             {kBatched, kLtBatched, kLtTransposed},
             {kBatched, kLtBatched}},
        Case{"grad_input,dtype=f16,B=2,H=3,T=25,D=16,layout=bdt",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched}},
        Case{"grad_input,dtype=f16,B=1,H=2,T=25,D=16,layout=bdt",
             false,
             {kBatched, kFlat, kLtFlat, kLtTransposed},
             {kBatched, kLtTransposed}},
        Case{"decode,dtype=bf16,B=2,T=25,D=16,rows=4", false, {kBatched, kLtBatched}, {kBatched, kLtBatched}},
        Case{"forward,dtype=f16,B=1,T=17,D=16,K=3",
             false,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {kBatched, "cublas im2col", "cublaslt im2col"}},
        Case{"grad_input,dtype=f16,B=1,T=17,D=16,K=3",
             false,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {kBatched, "cublas im2col", "cublaslt im2col"}},
        Case{"grad_weight,dtype=f16,B=2,T=17,D=16,K=3",
             false,
             {kBatched, "cublas im2col", "cublaslt im2col"},
             {kBatched}},
        // epilogues: what cuBLASLt does, and a pass for the rest
        Case{"forward,dtype=bf16,B=2,T=24,D=16,epilogue=bias+gelu",
             true,
             {"cublas batched + pass", "cublas flat + pass", "cublaslt batched + pass",
              "cublaslt flat + pass", "cublaslt transposed, bias gelu"},
             {"cublas batched + pass", "cublaslt batched + pass"}},
        Case{"forward,dtype=bf16,B=2,T=24,D=16,epilogue=residual",
             true,
             {"cublas batched + pass", "cublas flat + pass", "cublaslt batched, residual",
              "cublaslt flat, residual", "cublaslt transposed, residual"},
             {"cublas batched + pass", "cublaslt batched, residual"}},
        Case{"forward,dtype=f16,B=2,T=24,D=16,wdtype=f32,epilogue=bias+gelu+residual",
             true,
             {"cublas batched + pass", "cublas flat + pass", "cublaslt batched + pass",
              "cublaslt flat + pass", "cublaslt transposed, bias gelu + pass"},
             {"cublas batched + pass", "cublaslt batched + pass"}},
        Case{"grad_input,dtype=bf16,B=2,T=24,D=16,epilogue=residual",
             true,
             {"cublas batched + pass", "cublas flat + pass", "cublaslt batched, residual",
              "cublaslt flat, residual", "cublaslt transposed, residual"},
             {"cublas batched + pass", "cublaslt batched, residual"}},
        // no pass serves bdt, but cuBLASLt does all of it
        Case{"forward,dtype=bf16,B=2,T=24,D=16,layout=bdt,epilogue=bias+gelu",
             true,
             {"cublaslt batched, bias gelu"},
             {"cublaslt batched, bias gelu"}},
        Case{"forward,dtype=f32,B=1,H=2,T=24,D=16,layout=bdt,epilogue=bias+residual",
             true,
             {"cublaslt transposed, bias residual"},
             {"cublaslt transposed, bias residual"}},
        // nothing does all of it: every arm leaves it out
        Case{"forward,dtype=bf16,B=2,T=24,D=16,layout=bdt,epilogue=bias+silu",
             true,
             {kBatched, kFlat, kLtBatched, kLtFlat},
             {}}));

TEST(ForeignKernel, RunsAheadOfALaunch) {
  const Device* device = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
  auto bench = llvm::cantFail(
      Workbench::create(*device, llvm::cantFail(parse_problem("forward,dtype=bf16,B=1,T=8,D=8"))));
  auto foreign = llvm::cantFail(ForeignKernel::create(*bench));
  const ContextScope scope(device->api(), bench->context());
  int runs = 0;
  const LaunchOn both = foreign->ahead_of([&](int set, cuda::CUstream) {
    runs += 1 + set;
    return llvm::Error::success();
  });
  llvm::cantFail(both(1, bench->stream()));
  llvm::cantFail(bench->synchronize());
  EXPECT_EQ(runs, 2);
}

// Data that lies as the peer likes it is aligned as it likes it, too, however odd the problem's own rows are.
TEST_F(Arms, OfOtherLayoutsAreAligned) {
  const Device* device = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
  for (const char* text : {"forward,dtype=bf16,B=8,T=21,D=15,epilogue=residual",
                           "grad_weight,dtype=bf16,B=8,T=24,D=15,align=2"}) {
    auto bench = llvm::cantFail(Workbench::create(*device, llvm::cantFail(parse_problem(text))));
    auto peer = llvm::cantFail(CublasPeer::create(*bench));
    std::vector<std::string> notes;
    int seen = 0;
    const ContextScope scope(device->api(), bench->context());
    for (const CublasPeer::Arm& arm : peer->arms(true, notes)) {
      if (arm.name.find("flat") == std::string::npos) continue;
      narrow_matrices();
      llvm::cantFail(arm.launch(0, bench->stream()));
      llvm::cantFail(bench->synchronize());
      EXPECT_EQ(narrow_matrices(), 0) << text << ": " << arm.name;
      ++seen;
    }
    EXPECT_GT(seen, 0) << text;
  }
}

// A sweep's row but for its times: both choices and every peer run, and are right.
TEST_F(Arms, OfASweepsRow) {
  const Device* device = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
  const std::string path = testing::TempDir() + "trigen_sweep_" + std::to_string(::getpid()) + ".db";
  Store::Options layers;
  layers.layers = {path};
  const auto store = Store::open(layers);
  SweepOptions options;
  options.tuning.predict_candidates = 1;
  const Problem p =
      llvm::cantFail(parse_problem("grad_weight,dtype=bf16,B=2,T=64,D=64,epilogue=bias+zero_outside"));
  const auto rows = run_sweep_problem(p, *device, *store, options);
  ASSERT_EQ(rows.size(), 2U);
  if (rows[0].note.find("no compiler here makes") != std::string::npos)
    GTEST_SKIP() << "[SKIP] " << rows[0].note;
  for (const TableResult& row : rows) {
    EXPECT_TRUE(row.ran) << row.note;
    EXPECT_EQ(row.verdict(), Verdict::kRuns) << row.note;
    EXPECT_EQ(row.provenance, "predicted");
    EXPECT_THAT(row.note, HasSubstr("cublas runs without grad_bias"));
    EXPECT_EQ(row.library, "cublas 13.1.0");
  }
  EXPECT_EQ(rows[0].table, kUntuned);
  EXPECT_EQ(rows[1].table, kTuned);
}

// Rotating sets outgrow the L2, and a timed graph has a launch for each of them.
TEST(Sets, OutgrowTheL2) {
  const Device* device = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
  WorkbenchOptions options;
  options.rotate = true;
  auto bench = llvm::cantFail(Workbench::create(
      *device, llvm::cantFail(parse_problem("forward,dtype=bf16,B=1,T=64,D=512")), options));
  EXPECT_GT(bench->sets(), 400);
  EXPECT_TRUE(bench->outgrows_l2());
  EXPECT_GE(launches_for(*bench, 1e-3), bench->sets());
}

}  // namespace
}  // namespace trigen
