// Strides past 2^31 elements: every family with a batch, a head or a row of x, or a head or a row of W (or of what has its
// axes), that far from the next one. The bits must be those of dense tensors. Offsets in 32 bits would end in a fault or in other numbers.
#include <gtest/gtest.h>

#include "check/selection.h"
#include "check/workbench.h"
#include "runtime/arguments.h"
#include "runtime/compile.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

constexpr int64_t kFar = (int64_t{1} << 31) + 64;  // elements
// Elements between the starts of two tensors that share the memory, at least an innermost run; of so many tensors.
constexpr int64_t kSlot = 1024, kSlots = 8;

struct Kernel {
  const char *family, *problem;
  bool packs_weights = false, packs_activations = false;
};
const Kernel kKernels[] = {
    {"simt", "forward,dtype=f32,B=2,H=2,T=70,D=40,epilogue=bias+gelu+pre+gate+residual"},
    {"simt", "grad_weight,dtype=f32,B=2,H=2,T=70,D=40,layout=bdt,epilogue=bias"},
    {"simt", "gram,dtype=f32,B=2,H=2,T=70,D=40,epilogue=residual+mirror"},
    {"mma_sm70", "forward,dtype=f16,B=2,H=2,T=136,D=72"},
    {"mma_sm70", "grad_input,dtype=f16,B=2,H=2,T=136,D=72,layout=bdt,epilogue=residual"},
    {"mma_sm75", "forward,dtype=f16,B=2,H=2,T=72,D=40,K=3"},
    {"mma_sm80", "forward,dtype=bf16,B=2,H=2,T=72,D=40,epilogue=bias+gelu+pre+gate+residual"},
    {"mma_sm80", "grad_input,dtype=bf16,B=2,H=2,T=72,D=40,K=4,wdtype=f32"},
    {"mma_sm80", "grad_weight,dtype=bf16,B=2,H=2,T=72,D=40,epilogue=bias+zero_outside"},
    {"mma_sm80", "gram,dtype=bf16,B=2,H=2,T=72,D=40,epilogue=residual+mirror"},
    {"simt", "forward,dtype=bf16,B=2,H=2,T=72,D=24,w=toeplitz"},
    {"simt", "grad_weight,dtype=f32,B=2,H=2,T=72,D=24,w=band,width=20"},
    {"mma_sm80", "grad_input,dtype=bf16,B=2,H=2,T=136,D=72,w=band,width=40"},
    {"mma_sm80", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,w=toeplitz"},
    {"wgmma_sm90", "grad_input,dtype=bf16,B=2,H=2,T=136,D=72,w=toeplitz"},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,w=toeplitz"},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,w=band,width=40,epilogue=zero_outside"},
    {"decode", "decode,dtype=bf16,B=2,H=2,T=72,D=40,rows=3,epilogue=bias+gelu+pre+gate+residual"},
    {"decode", "decode,dtype=bf16,B=2,H=2,T=72,D=40,layout=bdt"},
    {"grad_epilogue", "grad_epilogue,dtype=bf16,B=2,H=2,T=72,D=40,epilogue=gelu+gate"},
    {"newton_schulz_sm80", "newton_schulz,dtype=bf16,B=2,H=2,T=40,D=120,K=4"},
    {"newton_schulz_sm80", "newton_schulz,dtype=bf16,B=2,H=2,T=40,D=32,K=2,layout=bdt"},
    {"newton_schulz_sm90", "newton_schulz,dtype=bf16,B=2,H=2,T=140,D=72,K=2"},
    {"newton_schulz_sm90", "newton_schulz,dtype=bf16,B=2,H=2,T=40,D=120,K=4,layout=bdt"},
    // Three heads: a vector's stride is below 2^31, and two of them are not.
    {"scan", "scan,dtype=bf16,B=2,H=3,T=135,D=40,wdtype=f32,epilogue=bias+gelu+pre+gate+residual"},
    {"scan", "scan_grad_input,dtype=f32,B=2,H=3,T=136,D=39,layout=bdt,epilogue=residual"},
    {"scan", "scan_grad_weight,dtype=f16,B=2,H=3,T=135,D=40,epilogue=bias"},
    {"scan", "scan_grad_weight,dtype=bf16,B=2,H=3,T=135,D=40,epilogue=grad_input"},
    {"wgmma_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=72,epilogue=bias+gelu+pre+gate+residual"},
    {"wgmma_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=72,layout=bdt"},
    {"wgmma_sm90", "grad_input,dtype=bf16,B=2,H=4,T=136,D=60"},
    {"wgmma_sm90", "grad_input,dtype=bf16,B=2,H=2,T=136,D=72,wdtype=f32,epilogue=residual"},
    {"wgmma_sm90", "grad_input,dtype=bf16,B=2,H=2,T=136,D=72,wdtype=f32", true},
    {"wgmma_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=73,epilogue=bias+gelu+pre+gate+residual", false, true},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,epilogue=bias+zero_outside"},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,layout=bdt"},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,layout=bdt", false, true},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,align=2", false, true},
    {"wgmma_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,K=4"},
    {"wgmma_sm90", "gram,dtype=bf16,B=2,H=2,T=136,D=72,epilogue=residual+mirror"},
    {"wgmma_sm90", "gram,dtype=bf16,B=2,H=2,T=136,D=72,wdtype=f32,fill=upper,epilogue=residual+mirror"},
    {"wgmma_resident_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=72,epilogue=bias+residual"},
    {"wgmma_resident_sm90", "grad_input,dtype=bf16,B=2,H=2,T=64,D=72,wdtype=f32"},
    {"wgmma_rows_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=73,epilogue=bias+gelu+pre+gate+residual", true},
    {"wgmma_rows_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=73,epilogue=bias+gelu+gate"},
    {"wgmma_rows_sm90", "grad_input,dtype=bf16,B=2,H=2,T=136,D=70,wdtype=f32,epilogue=residual", true},
    {"wgmma_taps_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=72,K=4,epilogue=bias+gelu+pre+gate+residual"},
    {"wgmma_taps_sm90", "grad_weight,dtype=bf16,B=2,H=2,T=136,D=72,K=8,epilogue=bias+zero_outside"},
    {"wgmma_tf32_sm90",
     "forward,dtype=f32,math=tf32,B=2,H=2,T=136,D=72,epilogue=bias+gelu+pre+gate+residual"},
    {"wgmma_tf32_sm90", "grad_input,dtype=f32,math=tf32,B=2,H=2,T=136,D=72"},
    {"wgmma_tf32_sm90", "grad_weight,dtype=f32,math=tf32,B=2,H=2,T=136,D=72,layout=bdt", false, true},
    {"wgmma_split_sm90",
     "forward,dtype=f32,math=f16x3,B=2,H=2,T=136,D=72,epilogue=bias+gelu+pre+gate+residual"},
    {"wgmma_split_sm90", "grad_weight,dtype=f32,math=f16x3,B=2,H=2,T=136,D=72,epilogue=bias"},
    {"wgmma_split_sm90", "gram,dtype=f32,math=f16x3,B=2,H=2,T=136,D=72,epilogue=residual+mirror"},
    {"mma_tma_sm90", "forward,dtype=bf16,B=2,H=2,T=136,D=72,epilogue=bias+gelu+pre+gate+residual"},
};

enum class Axis { kBatch, kHead, kRow, kWeightHead, kWeightRow };
constexpr Axis kAxes[] = {Axis::kBatch, Axis::kHead, Axis::kRow, Axis::kWeightHead, Axis::kWeightRow};
bool of_weights(Axis axis) { return axis == Axis::kWeightHead || axis == Axis::kWeightRow; }
bool of_weights(const Tensor& t) { return t.axes == Axes::kWeights || t.axes == Axes::kVectors; }

// The innermost runs of a tensor: where they begin in a buffer of its own, and in the far memory.
struct Run {
  int64_t dense, far, bytes;
};
struct FarTensor {
  int64_t batch = 0, head = 0, row = 0;
  std::vector<Run> runs;
};

// Only `far` is far; the other strides are as small as tensors that lie between each other allow.
FarTensor spread(const Problem& p, const Tensor& t, Axis far) {
  const bool weights = of_weights(t), vectors = t.axes == Axes::kVectors;
  const int64_t batches = weights ? 1 : p.B,
                rows = vectors                    ? int64_t{scan::kVectors}
                       : weights                  ? weight_rows(p).count
                       : p.layout == Layout::kBTD ? t.tokens
                                                  : p.D,
                inner = vectors                    ? p.T
                        : weights                  ? weight_rows(p).elements
                        : p.layout == Layout::kBTD ? p.D
                                                   : t.tokens;
  FarTensor out;
  int64_t next = kSlot * kSlots;
  const auto stride = [&](bool is_far, int64_t extent) {
    if (is_far) return (kFar / std::max<int64_t>(1, extent - 1) + 63) / 64 * 64;
    const int64_t own = next;
    next *= extent;
    return own;
  };
  out.head = stride(far == Axis::kHead || far == Axis::kWeightHead, p.H);
  out.batch = stride(far == Axis::kBatch, batches);
  out.row = stride(far == Axis::kRow || far == Axis::kWeightRow, rows);
  const int64_t size = element_size(t.dtype);
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = b * out.batch + h * out.head + row * out.row;
        out.runs.push_back(
            {t.offset_bytes + (b * t.batch + h * t.head + row * t.row) * size, at * size, inner * size});
      }
  return out;
}

// Memory for tensors of one shape, and for decode's x and scan_grad_weight's dw, which have another one: 16-bit there.
struct FarMemory {
  static constexpr int64_t kBytes = 4 * (kFar + (kFar >> 2)), kHalf = kBytes / 2;
  const DriverApi& api;
  cuda::CUdeviceptr begin = 0;
  explicit FarMemory(const DriverApi& a) : api(a) {
    EXPECT_EQ(api.cuMemAlloc(&begin, kBytes), cuda::CUDA_SUCCESS);
  }
  ~FarMemory() { api.cuMemFree(begin); }
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;
};

// "" or what was wrong.
std::string compare(const Plan& plan, Workbench& bench, const HostBuffers& dense, const FarMemory& memory,
                    Axis axis) {
  const DriverApi& api = memory.api;
  auto args = bench.args(0, plan.workspace_bytes());
  if (!args) return llvm::toString(args.takeError());
  const std::vector<Tensor>& tensors = bench.list().tensors;
  std::vector<FarTensor> spreads(tensors.size());
  const auto at = [&](size_t i, int64_t byte) {
    const bool apart = bench.problem().op == Op::kDecode ? tensors[i].role == Role::kX
                                                         : makes_vectors(bench.problem().op) &&
                                                               of_weights(tensors[i]) && tensors[i].written;
    const int64_t first = static_cast<int64_t>(i) * kSlot * element_size(tensors[i].dtype);
    return memory.begin + static_cast<cuda::CUdeviceptr>((apart ? FarMemory::kHalf : 0) + first + byte);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool has_strides = tensors[i].role != Role::kBias && tensors[i].axes != Axes::kSteps;
    if (!has_strides || of_weights(tensors[i]) != of_weights(axis)) continue;
    spreads[i] = spread(bench.problem(), tensors[i], axis);
    const FarTensor& far = spreads[i];
    for (const Run& run : far.runs)  // outputs are poison there
      api.cuMemcpyHtoD(at(i, run.far), bench.inputs()[i].data() + run.dense,
                       static_cast<cuda::size_type>(run.bytes));
    Tensor view = tensors[i];
    view.batch = far.batch, view.head = far.head, view.row = far.row;
    set_argument(*args, view, device_pointer(at(i, 0)));
  }
  if (llvm::Error error = plan.run(*args, bench.stream())) return llvm::toString(std::move(error));
  if (llvm::Error error = bench.synchronize()) return llvm::toString(std::move(error));
  for (size_t i = 0; i < tensors.size(); ++i)
    for (const Run& run : spreads[i].runs) {
      if (!tensors[i].written) break;
      std::vector<std::byte> got(static_cast<size_t>(run.bytes));
      if (api.cuMemcpyDtoH(got.data(), at(i, run.far), got.size()) != cuda::CUDA_SUCCESS ||
          !std::equal(got.begin(), got.end(), dense[i].begin() + run.dense))
        return std::string(to_string(tensors[i].role)) + " differs in the run at byte " +
               std::to_string(run.far);
    }
  return "";
}

class Strides : public ::testing::TestWithParam<std::string> {};

TEST_P(Strides, PastTwoToTheThirtyFirstElementsGiveTheSameBits) {
  const Family* const family = llvm::cantFail(find_family(GetParam()));
  const Target* home = nullptr;  // a Hopper runs every older target's PTX, too
  for (const char* name : {"sm_90a", "sm_100a", "sm_80", "sm_75", "sm_70"})
    if (const Target* const target = llvm::cantFail(find_target(name)); family->serves(*target))
      home = target;
  ASSERT_NE(home, nullptr);
  auto device = Device::open(home->name == "sm_100a" ? "emulated:sm_100a" : "emulated:sm_90a");
  ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
  auto store = Store::open({});
  BuildOptions options;
  options.code = Code::kPtx;
  int kernels = 0;
  for (const Kernel& kernel : kKernels) {
    if (GetParam() != kernel.family || !takes(kernels++, 3)) continue;
    const Problem problem = llvm::cantFail(parse_problem(kernel.problem));
    auto listed = list_candidates(problem, *home, family);
    ASSERT_TRUE(static_cast<bool>(listed)) << llvm::toString(listed.takeError());
    const auto found = llvm::find_if(*listed, [&](const Candidate& c) {
      return (c.config.weights == Access::kPacked) == kernel.packs_weights &&
             (c.config.activations == Access::kPacked) == kernel.packs_activations;
    });
    ASSERT_NE(found, listed->end()) << kernel.problem;
    const std::string what = to_string(problem) + " " + describe(*found);
    auto built = build(*found, *store, options);
    if (!built) {
      const ErrorText why = take_error(built.takeError());
      if (why.kind == ErrorKind::kNoCompiler) GTEST_SKIP() << why.message;
      FAIL() << what << ": " << why.message;
    }
    auto plan = Plan::of(*found, built->binary, **device, LoadFrom::kPtx);
    ASSERT_TRUE(static_cast<bool>(plan)) << what << ": " << llvm::toString(plan.takeError());
    auto bench = Workbench::create(**device, problem);
    ASSERT_TRUE(static_cast<bool>(bench)) << what << ": " << llvm::toString(bench.takeError());
    const trigen_args args = llvm::cantFail((*bench)->args(0, (*plan)->workspace_bytes()));
    ASSERT_FALSE(static_cast<bool>((*bench)->poison())) << what;
    llvm::Error error = (*plan)->run(args, (*bench)->stream());
    ASSERT_FALSE(static_cast<bool>(error)) << what << ": " << llvm::toString(std::move(error));
    auto dense = (*bench)->download();
    ASSERT_TRUE(static_cast<bool>(dense)) << what << ": " << llvm::toString(dense.takeError());
    const ContextScope scope((*device)->api(), (*bench)->context());
    const FarMemory memory((*device)->api());
    for (const Axis axis : kAxes)
      EXPECT_EQ(compare(**plan, **bench, *dense, memory, axis), "")
          << what << ", axis " << static_cast<int>(axis);
  }
  EXPECT_GT(kernels, 0) << "no kernel of " << GetParam() << " in the list";
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.push_back(family->name().str());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, Strides, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trigen
