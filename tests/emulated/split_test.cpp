// math=f16x3 on wgmma_split_sm90 through libtrigen.so, with the data that a split into f16 could get wrong:
// magnitudes far apart, at f32's ends, infinite (docs/decisions/0042). On the emulated sm_90a, and (with
// TRIGEN_TEST_GPU) on this machine's GPU.
#include <gmock/gmock.h>
#include <trigen/trigen.h>

#include <bit>
#include <cmath>
#include <random>

#include "../unit/runtime_testing.h"
#include "cache/store.h"
#include "generator/candidate.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "test_driver.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using trigen::testing::Folder;
using Values = std::vector<float>;

using trigen::testing::kOnGpu;
using trigen::testing::load_test_driver;

const Driver* find_driver() {
  static const Driver* const driver = load_test_driver("sm_90a");
  return driver;
}

class Memory {
 public:
  explicit Memory(size_t bytes) : context_(llvm::cantFail(device().context())) {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuMemAlloc(&pointer_, bytes), cuda::CUDA_SUCCESS);
  }
  explicit Memory(const Values& values) : Memory(values.size() * 4) {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuMemcpyHtoD(pointer_, values.data(), values.size() * 4), cuda::CUDA_SUCCESS);
  }
  ~Memory() {
    const ContextScope scope(api(), context_);
    api().cuMemFree(pointer_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return reinterpret_cast<void*>(pointer_); }
  void take(Values& values) const {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuCtxSynchronize(), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api().cuMemcpyDtoH(values.data(), pointer_, values.size() * 4), cuda::CUDA_SUCCESS);
  }
  static const Device& device() { return *llvm::cantFail(Device::open(*find_driver(), 0)); }

 private:
  static const DriverApi& api() { return find_driver()->api(); }
  cuda::CUcontext context_;
  cuda::CUdeviceptr pointer_ = 0;
};

constexpr int kT = 200, kD = 72;  // two row tiles, four blocks of k; the last ones are not full
constexpr int kBlock = 64;        // elements that share a scale

// An op as a plain product: out[row, column] = sum over k of a(row, k) * b(k, column), zero outside the
// triangle of W.
struct Op {
  const char* name;
  int rows, columns, depth;
};
constexpr Op kForward{"forward", kT, kD, kT}, kGradInput{"grad_input", kT, kD, kT},
    kGradWeight{"grad_weight", kT, kT, kD};
constexpr Op kOps[] = {kForward, kGradInput, kGradWeight};

bool is(const Op& op, const Op& other) { return op.name == other.name; }

// The op's operands: W [kT, kT], or dy [kT, kD] for grad_weight; and x (dy) [kT, kD].
struct Operands {
  Values a, b;
};

double factor_a(const Op& op, const Operands& v, int row, int k) {
  if (is(op, kForward)) return k <= row ? v.a[row * kT + k] : 0.0;
  if (is(op, kGradInput)) return row <= k ? v.a[k * kT + row] : 0.0;
  return v.a[row * kD + k];
}
double factor_b(const Op& op, const Operands& v, int k, int column) {
  return is(op, kGradWeight) ? v.b[column * kD + k] : v.b[k * kD + column];
}
bool made(const Op& op, int row, int column) { return !is(op, kGradWeight) || column <= row; }

Operands random_operands(const Op& op, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Operands v{Values(is(op, kGradWeight) ? kT * kD : kT * kT), Values(kT * kD)};
  for (float& x : v.a) x = normal(generator);
  for (float& x : v.b) x = normal(generator);
  if (!is(op, kGradWeight))
    for (int t = 0; t < kT; ++t)
      for (int s = t + 1; s < kT; ++s) v.a[t * kT + s] = NAN;
  return v;
}

class SplitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_driver() == nullptr)
      GTEST_SKIP() << "[SKIP] " << probe_driver(kOnGpu ? "" : "emulated:sm_90a").text;
    if (!Memory::device().target().wgmma) GTEST_SKIP() << "[SKIP] the family is Hopper's";
    if (trigen::testing::real_nvrtc("sm_90a") == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_90a; set TRIGEN_NVRTC";
    layer_ = cache_.c_str();
  }
  void TearDown() override { forget(); }
  void forget() {
    for (trigen_plan* plan : plans_) trigen_plan_destroy(plan);
    trigen_runtime_destroy(runtime_);
    plans_.clear(), by_op_.clear();
    runtime_ = nullptr;
  }

  // Later runs use tiles of so many rows, and boxes that are split inside the product's launch (0: none).
  void use_tiles(int rows, int box = 0) {
    forget();
    rows_ = rows, box_ = box;
    cache_ = folder_ / ("cache" + std::to_string(rows) + "_" + std::to_string(box) + ".db");
    layer_ = cache_.c_str();
  }

  // A plan of the family: the cache has the record, so that the cost model has no say.
  trigen_plan* plan(const Op& op) {
    const std::string text = std::string(op.name) + ",dtype=f32,B=1,T=" + std::to_string(kT) +
                             ",D=" + std::to_string(kD) + ",math=f16x3";
    const Problem problem = llvm::cantFail(parse_problem(text));
    const Device& device = Memory::device();
    for (const Candidate& candidate : llvm::cantFail(list_candidates(problem, device.target()))) {
      const Config& config = candidate.config;
      if (candidate.family->name() != "wgmma_split_sm90" || config.tile_m != rows_ || config.box != box_)
        continue;
      Store::Options options;
      options.layers = {cache_};
      auto store = Store::open(options);
      auto compiled = Store::open({});  // every test has the same kernels
      Record record;
      record.problem = to_string(problem);
      record.arch = device.target().name.str();
      record.candidate = describe(candidate);
      record.provenance = Provenance::kMeasured;  // a prediction of no version would be chosen anew
      BuildOptions build_options;
      build_options.code = code_for(device);
      const Binary binary = llvm::cantFail(build(candidate, *compiled, build_options)).binary;
      record.binary = binary.key;
      EXPECT_EQ(trigen::testing::error_of(store->put_binary(binary)), "");
      EXPECT_EQ(trigen::testing::error_of(store->put_record(record)), "");
      break;
    }
    if (runtime_ == nullptr) {
      trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
      options.layers = &layer_;
      options.layer_count = 1;
      options.driver = find_driver()->path().c_str();
      EXPECT_EQ(trigen_runtime_create(&options, &runtime_), TRIGEN_OK) << trigen_last_error();
    }
    trigen_problem request;
    request.struct_size = sizeof request;
    EXPECT_EQ(trigen_problem_parse(text.c_str(), &request), TRIGEN_OK) << trigen_last_error();
    trigen_plan* found = nullptr;
    EXPECT_EQ(trigen_plan_create(runtime_, &request, 0, &found), TRIGEN_OK) << trigen_last_error();
    plans_.push_back(found);
    trigen_plan_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(trigen_plan_describe(found, &info), TRIGEN_OK);
    EXPECT_THAT(info.candidate, HasSubstr("wgmma_split_sm90:tile=" + std::to_string(rows_) + "x128x64"));
    return found;
  }

  // Outputs of one run; what lies outside dW's triangle is -1, as it was before.
  Values run(const Op& op, const Operands& v) {
    trigen_plan*& own = by_op_[op.name];
    if (own == nullptr) own = plan(op);
    const Memory a(v.a), b(v.b), space(std::max<size_t>(trigen_plan_workspace_size(own), 1));
    Values out(static_cast<size_t>(op.rows) * op.columns, -1.0f);
    const Memory result(out);
    trigen_args args = TRIGEN_ARGS_INIT;
    args.workspace = space.get();
    args.workspace_size = trigen_plan_workspace_size(own);
    if (is(op, kForward)) args.w = a.get(), args.x.data = b.get(), args.y.data = result.get();
    if (is(op, kGradInput)) args.w = a.get(), args.y.data = b.get(), args.x.data = result.get();
    if (is(op, kGradWeight)) args.y.data = a.get(), args.x.data = b.get(), args.w = result.get();
    EXPECT_EQ(trigen_plan_run(own, &args, nullptr), TRIGEN_OK) << trigen_last_error();
    result.take(out);
    return out;
  }

  // The largest error over what the decision allows: 1 is all of it.
  double worst(const Op& op, const Operands& v) {
    const Values out = run(op, v);
    double most = 0;
    for (int row = 0; row < op.rows; ++row)
      for (int column = 0; column < op.columns; ++column) {
        const double found = out[row * op.columns + column];
        if (!made(op, row, column)) {
          EXPECT_EQ(found, -1) << op.name << " wrote outside the triangle";
          continue;
        }
        double exact = 0, magnitude = 0, floor = 0;
        for (int first = 0; first < op.depth; first += kBlock) {
          double sum_a = 0, sum_b = 0, most_a = 0, most_b = 0;
          for (int k = first; k < std::min(first + kBlock, op.depth); ++k) {
            const double a = factor_a(op, v, row, k), b = factor_b(op, v, k, column);
            exact += a * b, magnitude += std::abs(a * b);
            sum_a += std::abs(a), sum_b += std::abs(b);
            most_a = std::max(most_a, std::abs(a)), most_b = std::max(most_b, std::abs(b));
          }
          floor += most_a * sum_b + most_b * sum_a;
        }
        const double allowed = (0x1p-19 + 4 * 0x1p-24) * magnitude + 0x1p-38 * floor;
        const double error = std::abs(found - exact);
        // NaN is not within any bound.
        if (!(error <= allowed)) {
          ADD_FAILURE() << op.name << " [" << row << ", " << column << "] is " << found << ", not " << exact
                        << ": allowed are " << allowed;
          return HUGE_VAL;
        }
        if (allowed > 0) most = std::max(most, error / allowed);
      }
    return most;
  }

  const Folder folder_;
  std::string cache_ = folder_ / "cache.db";
  int rows_ = 128, box_ = 0;
  const char* layer_ = nullptr;
  trigen_runtime* runtime_ = nullptr;
  std::vector<trigen_plan*> plans_;
  std::map<std::string, trigen_plan*> by_op_;
};

TEST_F(SplitTest, NormalData) {
  for (const Op& op : kOps) EXPECT_LT(worst(op, random_operands(op, 1)), 0.5);
}

// Elements of one scale that differ by up to 2^40, in one operand and in both, and large ones that meet small
// ones.
TEST_F(SplitTest, MagnitudesFarApart) {
  for (const Op& op : kOps)
    for (const bool inverse : {false, true}) {
      Operands v = random_operands(op, 2);
      std::mt19937 generator(3);
      std::uniform_int_distribution<int> exponent(-20, 20);
      for (float& x : v.b) x = std::ldexp(x, exponent(generator));
      if (inverse) {  // b's factors depend on k alone, and a has their inverses
        v = random_operands(op, 2);
        std::vector<int> of_k(op.depth);
        for (int& e : of_k) e = exponent(generator);
        for (size_t i = 0; i < v.b.size(); ++i)
          v.b[i] = std::ldexp(v.b[i], of_k[is(op, kGradWeight) ? i % kD : i / kD]);
        for (size_t i = 0; i < v.a.size(); ++i)
          v.a[i] = std::ldexp(v.a[i], -of_k[is(op, kGradWeight) ? i % kD
                                            : is(op, kForward)  ? i % kT
                                                                : i / kT]);
      }
      EXPECT_LT(worst(op, v), 1) << "inverse " << inverse;
    }
}

// Powers of two for every row of a and every column of b come out as they went in.
TEST_F(SplitTest, ScalesChangeNoBit) {
  for (const Op& op : kOps) {
    const Operands plain = random_operands(op, 4);
    Operands scaled = plain;
    std::mt19937 generator(5);
    std::uniform_int_distribution<int> exponent(-30, 30);
    std::vector<int> rows(op.rows), columns(op.columns);
    for (int& e : rows) e = exponent(generator);
    for (int& e : columns) e = exponent(generator);
    for (size_t i = 0; i < scaled.a.size(); ++i)
      scaled.a[i] = std::ldexp(plain.a[i], rows[is(op, kGradWeight) ? i / kD
                                                : is(op, kForward)  ? i / kT
                                                                    : i % kT]);
    for (size_t i = 0; i < scaled.b.size(); ++i)
      scaled.b[i] = std::ldexp(plain.b[i], columns[is(op, kGradWeight) ? i / kD : i % kD]);
    const Values out = run(op, plain), of_scaled = run(op, scaled);
    int differing = 0;
    for (int row = 0; row < op.rows; ++row)
      for (int column = 0; column < op.columns; ++column) {
        const int at = row * op.columns + column;
        if (made(op, row, column))
          differing += of_scaled[at] != std::ldexp(out[at], rows[row] + columns[column]);
      }
    EXPECT_EQ(differing, 0) << op.name;
  }
}

// Values at both ends of f32, subnormal ones among them, whose products are ordinary numbers.
TEST_F(SplitTest, EndsOfTheRange) {
  for (const Op& op : kOps)
    for (const int exponent : {126, -126, -140}) {
      Operands v = random_operands(op, 6);
      std::mt19937 generator(7);
      std::uniform_real_distribution<float> positive(1.0f, 1.9f);
      for (float& x : v.a)
        if (!std::isnan(x)) x = std::ldexp(positive(generator), exponent);
      for (float& x : v.b) x = std::ldexp(positive(generator), std::min(-exponent, 120));
      EXPECT_LT(worst(op, v), 1) << "2^" << exponent;
    }
}

// A row's sum has the same order in both tiles, so the bounds that one keeps hold for the other.
TEST_F(SplitTest, TilesOf64RowsGiveTheSameBits) {
  for (const Op& op : {kForward, kGradInput}) {
    const Operands v = random_operands(op, 11);
    use_tiles(128);
    const Values wide = run(op, v);
    use_tiles(64);
    const Values narrow = run(op, v);
    EXPECT_EQ(wide, narrow) << op.name;
  }
}

// Splitting inside the product's launch leaves the same planes: of ordinary numbers, of both ends of f32's range, of magnitudes
// far apart, and of what is not finite. (A half of a panel that is not there counts as zeros.)
TEST_F(SplitTest, SplittingInsideGivesTheSameBits) {
  const Op& op = kGradWeight;
  std::vector<Operands> data(5, random_operands(op, 12));
  std::mt19937 generator(13);
  std::uniform_int_distribution<int> exponent(-20, 20);
  for (float& x : data[1].a) x = std::ldexp(x, exponent(generator));
  for (float& x : data[1].b) x = std::ldexp(x, exponent(generator));
  for (float& x : data[2].a) x = std::ldexp(x, -139);
  for (float& x : data[2].b) x = std::ldexp(x, 120);
  for (const int at : {3, 3 * kD + 70, 150 * kD}) data[3].a[at] = INFINITY, data[3].b[at + kD] = -INFINITY;
  for (const int at : {5, 70 * kD + 66}) data[4].a[at] = NAN, data[4].b[at + 3 * kD] = -NAN;
  const auto bits = [&](const Operands& v) {
    std::vector<uint32_t> out;
    for (const float x : run(op, v)) out.push_back(std::isnan(x) ? 0x7fffffff : std::bit_cast<uint32_t>(x));
    return out;
  };
  std::vector<std::vector<uint32_t>> packed, inside;
  use_tiles(128);
  for (const Operands& v : data) packed.push_back(bits(v));
  use_tiles(128, 32);
  for (const Operands& v : data) inside.push_back(bits(v));
  for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(packed[i], inside[i]) << i;
  EXPECT_LT(worst(op, data[0]), 0.5);
}

TEST_F(SplitTest, ZerosGiveZeros) {
  for (const Op& op : kOps) {
    Operands v = random_operands(op, 8);
    std::fill(v.b.begin(), v.b.end(), 0.0f);
    EXPECT_EQ(worst(op, v), 0);
  }
}

// An infinity or a NaN reaches the sums it is part of, and of the others those of its own column in its block
// of tokens alone (docs/decisions/0020).
TEST_F(SplitTest, NonFiniteValuesStayInTheirSums) {
  const Operands plain = random_operands(kForward, 9);
  const Values before = run(kForward, plain);
  for (const float value : {INFINITY, -INFINITY, NAN}) {
    constexpr int kToken = 100, kFeature = 5;
    Operands v = plain;
    v.b[kToken * kD + kFeature] = value;
    const Values out = run(kForward, v);
    for (int t = 0; t < kT; ++t)
      for (int d = 0; d < kD; ++d) {
        const float found = out[t * kD + d];
        if (d == kFeature && t >= kToken) {
          ASSERT_FALSE(std::isfinite(found)) << t;
        } else if (d != kFeature || t < kToken / kBlock * kBlock) {
          ASSERT_EQ(found, before[t * kD + d]) << t << "," << d;
        }
      }
  }
}

TEST_F(SplitTest, TheWorkspaceIsAskedFor) {
  trigen_plan* own = plan(kForward);
  // Two planes of 64 x 64 f16 and 64 scales for each box of W and x.
  EXPECT_EQ(trigen_plan_workspace_size(own), (4u * 4 + 4u * 2) * (2 * 64 * 64 * 2 + 64));
  const Operands v = random_operands(kForward, 10);
  const Memory w(v.a), x(v.b), y(v.b);
  trigen_args args = TRIGEN_ARGS_INIT;
  args.w = w.get(), args.x.data = x.get(), args.y.data = y.get();
  EXPECT_EQ(trigen_plan_run(own, &args, nullptr), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(), HasSubstr("workspace is null, the plan needs"));
}

}  // namespace
}  // namespace trigen
