// A scan's vectors in every way that a run may give them (trigen.h): the same bits as of whole vectors with the ones, the clipped
// decays and the products written out, and gradients of what was given. On the emulated sm_90a, and (with TRIGEN_TEST_GPU=1) on this
// machine's GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>

#include "check/workbench.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "numerics/numbers.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

constexpr float kLow = 0.75F, kHigh = 0.9375F;

struct Case {
  const char* problem;
  const char* config;  // "": the first choice
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.problem << ' ' << c.config; }

class Vectors : public trigen::testing::HopperTest<Case> {
 protected:
  void SetUp() override {
    HopperTest::SetUp();
    if (IsSkipped()) return;
    problem_ = llvm::cantFail(parse_problem(GetParam().problem));
    const std::string config = GetParam().config;
    const Candidate candidate =
        config.empty() ? llvm::cantFail(list_candidates(problem_, device_->target(),
                                                        llvm::cantFail(find_family("scan"))))
                             .front()
                       : llvm::cantFail(parse_candidate(problem_, device_->target(), "scan:" + config));
    plan_ = llvm::cantFail(Plan::of(
        candidate, llvm::cantFail(compile(candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
    bench_ = llvm::cantFail(Workbench::create(*device_, problem_));
    w_ = *bench_->list().find(Role::kW);
    w_.vectors = {};
  }

  // Numbers of few bits, so that products of two are exact in every dtype: decays from 9/16 to 1, some of them at the bounds.
  float number(int64_t h, int i, int64_t t) const {
    const auto bits = static_cast<int64_t>(
        random_bits(5, static_cast<uint64_t>(i), static_cast<uint64_t>(h * 4096 + t)) >> 40);
    return i == scan::kDecay ? static_cast<float>(9 + bits % 8) / 16 : static_cast<float>(bits % 17 - 8) / 8;
  }
  HostBuffers with(const std::function<float(int64_t h, int i, int64_t t)>& value) const {
    HostBuffers inputs = bench_->inputs();
    std::byte* const data =
        inputs[static_cast<size_t>(bench_->list().find(Role::kW) - bench_->list().tensors.data())].data() +
        w_.offset_bytes;
    for (int64_t h = 0; h < problem_.H; ++h)
      for (int i = 0; i < scan::kVectors; ++i)
        for (int64_t t = 0; t < problem_.T; ++t)
          store_element(w_.dtype, data, vector_index(w_, h, i, t), value(h, i, t));
    return inputs;
  }
  HostBuffers run(const HostBuffers& inputs, const VectorForms& forms) {
    const ContextScope scope(device_->api(), bench_->context());
    llvm::cantFail(bench_->put_inputs(inputs));
    trigen_args args = llvm::cantFail(bench_->args(0, plan_->workspace_bytes()));
    args.source = args.target = args.decay = args.diagonal = {};
    Tensor w = w_;
    w.vectors = forms;
    set_argument(args, w, bench_->data(0, Role::kW));
    llvm::cantFail(bench_->poison());
    llvm::cantFail(plan_->run(args, bench_->stream()));
    return llvm::cantFail(bench_->download());
  }

  void compare(const VectorForms& forms, float odd) {
    const auto given = [&](int64_t h, int i, int64_t t) {
      return i == scan::kDecay && odd != 0 && t == problem_.T / 2 ? odd : number(h, i, t);
    };
    const auto whole = [&](int64_t h, int i, int64_t t) {
      const auto read = [&](scan::Vector j) {
        return given(forms.of[j].heads ? h : 0, j, forms.of[j].tokens ? t : 0);
      };
      return static_cast<float>(vector_of(forms, static_cast<scan::Vector>(i), read));
    };
    const HostBuffers from_given = run(with(given), forms), from_whole = run(with(whole), {});
    for (size_t i = 0; i < from_whole.size(); ++i) {
      const Tensor& t = bench_->list().tensors[i];
      if (!t.written) continue;
      if (t.axes != Axes::kVectors) {
        EXPECT_EQ(from_given[i], from_whole[i]) << to_string(t.role);
        continue;
      }
      compare_gradients(forms, t, from_given[i].data() + t.offset_bytes,
                        from_whole[i].data() + t.offset_bytes, given, whole);
    }
  }

 private:
  template <class Given, class Whole>
  void compare_gradients(const VectorForms& forms, const Tensor& dw, const std::byte* from_given,
                         const std::byte* from_whole, const Given& given, const Whole& whole) {
    const double unit = dw.dtype == DType::kF32 ? 1e-6 : dw.dtype == DType::kF16 ? 1e-3 : 8e-3;
    for (int64_t h = 0; h < problem_.H; ++h)
      for (int i = 0; i < scan::kVectors; ++i)
        for (int64_t t = 0; t < problem_.T; ++t) {
          const auto of = [&](const std::byte* from, int j) {
            return static_cast<double>(load_element(dw.dtype, from, vector_index(dw, h, j, t)));
          };
          double want = of(from_whole, i), size = std::abs(want);
          if (i <= scan::kTarget && !forms.of[scan::kDiagonal].given) {
            const double share = whole(h, scan::kTarget - i, t) * of(from_whole, scan::kDiagonal);
            want += share, size += std::abs(share);
          }
          const VectorForm& form = forms.of[i];
          const float decay = form.given ? given(form.heads ? h : 0, i, form.tokens ? t : 0) : 1;
          if (i == scan::kDecay && forms.is_clipped(decay)) want = 0, size = 0;
          const double got = of(from_given, i);
          if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(got)) << kVectorNames[i] << ' ' << h << ' ' << t;
            continue;
          }
          EXPECT_NEAR(got, want, unit * (4 * size + 1)) << kVectorNames[i] << ' ' << h << ' ' << t;
        }
  }

 protected:
  Problem problem_;
  Tensor w_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Workbench> bench_;
};

// Each vector in each way while the others are whole, and the usual ones together; with bounds and without.
TEST_P(Vectors, AsGivenAreAsWrittenOut) {
  TAKES_ONE_OF(2);
  constexpr VectorForm kLeftOut{false}, kOfHeads{true, true, false}, kOfTokens{true, false, true},
      kNumber{true, false, false};
  std::vector<VectorForms> all(1);
  for (int i = 0; i < scan::kVectors; ++i)
    for (const VectorForm& form : {kLeftOut, kOfHeads, kOfTokens, kNumber}) {
      VectorForms forms;
      forms.of[i] = form;
      all.push_back(forms);
    }
  all.push_back({{kLeftOut, {}, kOfHeads, kLeftOut}});
  all.push_back({{{}, kLeftOut, kNumber, kLeftOut}});
  all.push_back({{kLeftOut, kLeftOut, kLeftOut, kLeftOut}});
  all.push_back({{kOfTokens, kOfHeads, kOfTokens, kLeftOut}});
  for (size_t i = 0; i < all.size(); ++i)
    for (const bool bounds : {false, true}) {
      if (bounds) all[i].low = kLow, all[i].high = kHigh;
      SCOPED_TRACE(std::to_string(i) + (bounds ? ", with bounds" : ""));
      compare(all[i], 0);
      if (HasFailure()) return;
    }
}

// A clip leaves a NaN, and neither bound is a number that is not there.
TEST_P(Vectors, DecaysThatAreNoNumbers) {
  TAKES_ONE_OF(2);
  VectorForms forms;
  forms.low = kLow, forms.high = kHigh;
  for (const float odd : {NAN, INFINITY, -INFINITY, -0.5F, kLow, kHigh}) {
    SCOPED_TRACE(odd);
    compare(forms, odd);
  }
  forms.low = -INFINITY;
  compare(forms, -4);
  forms.low = kLow, forms.high = INFINITY;
  compare(forms, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Vectors,
    ::testing::Values(
        Case{"scan,dtype=bf16,B=1,H=2,T=40,D=16,wdtype=f32,epilogue=bias", ""},
        Case{"scan,dtype=f16,B=2,H=3,T=71,D=17,layout=bdt", ""},
        Case{"scan,dtype=bf16,B=1,H=2,T=150,D=24",
             "tile=64x32x4,warps=2x1,stages=2,splitk=1,vec=1x8x8,cluster=2"},
        Case{"scan_grad_input,dtype=f32,B=1,H=2,T=67,D=9", ""},
        Case{"scan_grad_weight,dtype=bf16,B=2,H=2,T=150,D=24,wdtype=f32,epilogue=bias+grad_input",
             "tile=64x32x4,warps=2x1,stages=2,splitk=2,vec=1x8x8"},
        Case{"scan_grad_weight,dtype=f16,B=1,H=2,T=70,D=40",
             "tile=32x32x4,warps=2x1,stages=2,splitk=1,vec=1x8x4,cluster=2"},
        Case{"scan_grad_weight,dtype=f32,B=1,H=2,T=40,D=12,layout=bdt,epilogue=grad_input", ""}),
    [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace trigen
