// Heads that begin inside a piece of 16 bytes (templates/persistent/heads.h) in memory of every kind: input and output that begin
// apart, padded heads, heads that lie outermost, rows that no tensor map has. The numbers must be those of contiguous tensors, gaps
// stay as they were, and what is not finite stays in its head. On the emulated sm_90a, and (with TRIGEN_TEST_GPU=1) on this machine's
// GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "check/workbench.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "runtime/arguments.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

struct Case {
  const char *config, *problem;
};

struct View {
  int64_t begin, head, row;  // elements
};
struct Layout {
  View input, output;
};

class Heads : public trigen::testing::HopperTest<Case> {
 protected:
  void SetUp() override {
    HopperTest::SetUp();
    if (IsSkipped()) return;
    problem_ = llvm::cantFail(parse_problem(GetParam().problem));
    const Candidate candidate =
        llvm::cantFail(parse_candidate(problem_, device_->target(), GetParam().config));
    plan_ = llvm::cantFail(Plan::of(
        candidate, llvm::cantFail(compile(candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
    bench_ = llvm::cantFail(Workbench::create(*device_, problem_));
    const bool forward = problem_.op == Op::kForward;
    in_ = bench_->list().find(forward ? Role::kX : Role::kY);
    out_ = bench_->list().find(forward ? Role::kY : Role::kX);
    const auto* from = reinterpret_cast<const uint16_t*>(data_of(bench_->list(), *in_, bench_->inputs()));
    each_row(*in_, [&](int64_t at, int64_t, int64_t, int64_t) {
      numbers_.insert(numbers_.end(), from + at, from + at + problem_.D);
    });
  }

  // move(element of the row, batch, head, token)
  template <class Strides, class Move>
  void each_row(const Strides& s, const Move& move) const {
    for (int64_t b = 0; b < problem_.B; ++b)
      for (int64_t h = 0; h < problem_.H; ++h)
        for (int64_t t = 0; t < problem_.T; ++t) move(b * s.batch + h * s.head + t * s.row, b, h, t);
  }
  struct Strides {
    int64_t batch, head, row;
  };
  Strides strides(const View& v) const {
    return {std::max(problem_.H * v.head, problem_.T * v.row), v.head, v.row};
  }

  // Output rows, behind each other, of input rows in such a layout.
  std::vector<uint16_t> run(const std::vector<uint16_t>& numbers, const Layout& layout) {
    const ContextScope scope(device_->api(), bench_->context());
    const DriverApi& api = device_->api();
    constexpr uint16_t kNaN = 0xFFFF;
    const Strides in = strides(layout.input), out = strides(layout.output);
    const int64_t slot = problem_.B * std::max(in.batch, out.batch) + 64;  // elements
    std::vector<uint16_t> memory(static_cast<size_t>(2 * slot), kNaN);
    auto row = numbers.begin();
    each_row(in, [&](int64_t at, int64_t, int64_t, int64_t) {
      std::copy(row, row + problem_.D, memory.begin() + layout.input.begin + at);
      row += problem_.D;
    });
    cuda::CUdeviceptr base = 0;
    const auto bytes = static_cast<cuda::size_type>(2 * memory.size());
    EXPECT_EQ(api.cuMemAlloc(&base, bytes), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api.cuMemcpyHtoD(base, memory.data(), bytes), cuda::CUDA_SUCCESS);
    trigen_args args = llvm::cantFail(bench_->args(0, plan_->workspace_bytes()));
    const auto set = [&](const Tensor& t, const Strides& s, int64_t element) {
      Tensor view = t;
      view.batch = s.batch, view.head = s.head, view.row = s.row;
      set_argument(args, view, device_pointer(base + static_cast<cuda::CUdeviceptr>(2 * element)));
    };
    set(*in_, in, layout.input.begin);
    set(*out_, out, slot + layout.output.begin);
    llvm::cantFail(plan_->run(args, bench_->stream()));
    llvm::cantFail(bench_->synchronize());
    EXPECT_EQ(api.cuMemcpyDtoH(memory.data(), base, bytes), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api.cuMemFree(base), cuda::CUDA_SUCCESS);
    std::vector<uint16_t> result;
    each_row(out, [&](int64_t at, int64_t, int64_t, int64_t) {
      const auto first = memory.begin() + slot + layout.output.begin + at;
      result.insert(result.end(), first, first + problem_.D);
      std::fill(first, first + problem_.D, kNaN);
    });
    EXPECT_EQ(std::count(memory.begin() + slot, memory.end(), kNaN), slot) << "a gap was written";
    return result;
  }

  Problem problem_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Workbench> bench_;
  const Tensor *in_ = nullptr, *out_ = nullptr;
  std::vector<uint16_t> numbers_;  // the input's rows, behind each other
};

// The most by which bits differ. Activations of two neighbours are made together: where a head begins says of which.
int difference(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  int most = a.size() == b.size() ? 0 : INT_MAX;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST_P(Heads, LieAnywhere) {
  TAKES_ONE_OF(2);
  const int64_t D = problem_.D, row = problem_.H * D, unit = problem_.align / 2;
  const View plain{0, D, row};
  const std::vector<uint16_t> expected = run(numbers_, {plain, plain});
  const int64_t padded = (D + 7) / 8 * 8, outer = problem_.T * padded;
  for (const Layout& layout : {
           Layout{{unit, D, row}, plain},
           Layout{plain, {unit, D, row}},
           Layout{{unit, D, row + 8}, {unit, D, row + 16}},
           Layout{{0, padded, problem_.H * padded}, plain},
           Layout{{unit, padded, problem_.H * padded}, {unit, padded, problem_.H * padded}},
           Layout{{0, outer, padded}, {0, outer, padded}},
           Layout{{0, D, row + unit}, plain},            // no map has this input
           Layout{plain, {0, D, row + unit}},            // nor this output
           Layout{{unit, outer + unit, padded}, plain},  // nor this input
           Layout{{unit, D, row + unit}, {0, D, row + 3 * unit}},
       })
    EXPECT_LE(difference(run(numbers_, layout), expected), problem_.epilogue.act == Activation::kNone ? 0 : 1)
        << "from " << layout.input.begin << ", " << layout.input.head << ", " << layout.input.row << " to "
        << layout.output.begin << ", " << layout.output.head << ", " << layout.output.row;
}

TEST_P(Heads, KeepWhatIsNotFinite) {
  TAKES_ONE_OF(2);
  const View plain{0, problem_.D, problem_.H * problem_.D};
  std::vector<uint16_t> numbers = numbers_;
  const std::vector<uint16_t> expected = run(numbers, {plain, plain});
  const int64_t one = problem_.H / 2;
  const auto rows = Strides{problem_.H * problem_.T * problem_.D, problem_.T * problem_.D, problem_.D};
  each_row(rows, [&](int64_t at, int64_t, int64_t h, int64_t) {
    if (h == one) std::fill_n(numbers.begin() + at, problem_.D, uint16_t{0x7FC0});  // NaN as f16 and as bf16
  });
  const std::vector<uint16_t> found = run(numbers, {plain, plain});
  int64_t changed = 0;
  each_row(rows, [&](int64_t at, int64_t, int64_t h, int64_t) {
    if (h != one && !std::equal(found.begin() + at, found.begin() + at + problem_.D, expected.begin() + at))
      ++changed;
  });
  EXPECT_EQ(changed, 0) << "rows of other heads";
}

INSTANTIATE_TEST_SUITE_P(
    Configs, Heads,
    ::testing::Values(
        Case{"wgmma_sm90:tile=128x256x64,warps=8x1,stages=3,splitk=1,vec=8x1x1,cluster=1,blocks=1",
             "forward,dtype=bf16,B=3,H=8,T=200,D=23,epilogue=bias+gelu"},
        Case{"wgmma_sm90:tile=64x128x64,warps=4x1,stages=4,splitk=1,vec=8x1x1,cluster=1,box=32,blocks=1",
             "forward,dtype=f16,B=5,H=16,T=64,D=15,epilogue=bias"},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=4,splitk=1,vec=8x4x4,cluster=2,blocks=1",
             "grad_input,dtype=bf16,B=3,H=8,T=136,D=60"},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=4,splitk=2,vec=8x1x1,cluster=2,blocks=1",
             "grad_input,dtype=bf16,B=1,H=8,T=264,D=33,wdtype=f32"}));

}  // namespace
}  // namespace trigen
