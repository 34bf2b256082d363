// newton_schulz.hpp on the emulated device: which form is taken, and that every form makes the same of the same X.
#include <gmock/gmock.h>
#include <trigen/newton_schulz.hpp>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/thorough.h"
#include "without_internals.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Options = NewtonSchulzOptions;
using Matrix = std::vector<double>;

size_t element(trigen_dtype dtype) { return dtype == TRIGEN_F32 ? 4 : 2; }

// The element's bits, rounded to nearest, as the number that they are; normal or subnormal.
uint32_t bits_of(float value, trigen_dtype dtype) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (dtype == TRIGEN_F32) return bits;
  if (dtype == TRIGEN_BF16) return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  int exponent;
  std::frexp(value, &exponent);
  exponent = std::max(exponent, -13);
  const float steps = std::nearbyint(std::ldexp(std::abs(value), 11 - exponent));
  return (bits >> 31 << 15) + (static_cast<uint32_t>(exponent + 13) << 10) + static_cast<uint32_t>(steps);
}
float number_of(uint32_t bits, trigen_dtype dtype) {
  if (dtype != TRIGEN_F16) {
    if (dtype == TRIGEN_BF16) bits <<= 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  const int exponent = static_cast<int>(bits >> 10 & 31), steps = static_cast<int>(bits & 1023);
  if (exponent == 31) return NAN;
  const float size =
      std::ldexp(static_cast<float>(exponent > 0 ? 1024 + steps : steps), std::max(exponent, 1) - 25);
  return bits >> 15 != 0 ? -size : size;
}

// Numbers between -1 and 1 whose squares' mean is a third.
float drawn(size_t i) {
  const uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<float>(static_cast<int32_t>((mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u >> 32)) *
         0x1p-31F;
}

// (a I + b R + c R R) X of every step, for [m, k].
Matrix iterate(Matrix x, size_t m, size_t k, const std::vector<NewtonSchulzStep>& steps) {
  const auto squared = [m](const Matrix& a, size_t columns) {
    Matrix made(m * m);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < m; ++j)
        for (size_t l = 0; l < columns; ++l) made[i * m + j] += a[i * columns + l] * a[j * columns + l];
    return made;
  };
  for (const NewtonSchulzStep& step : steps) {
    const Matrix r = squared(x, k), rr = squared(r, m);
    Matrix next(m * k);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < m; ++j) {
        const double z = (i == j ? static_cast<double>(step[0]) : 0) +
                         static_cast<double>(step[1]) * r[i * m + j] +
                         static_cast<double>(step[2]) * rr[i * m + j];
        for (size_t l = 0; l < k; ++l) next[i * k + l] += z * x[j * k + l];
      }
    x = std::move(next);
  }
  return x;
}

class NewtonSchulzHeader : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!trigen::testing::has_emulated_device("sm_80")) GTEST_SKIP() << "[SKIP] no emulated device";
    if (!trigen::testing::has_compiler("sm_80"))
      GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_80; set TRIGEN_NVRTC";
    runtime_ = std::make_unique<Runtime>(of_device(""));
  }
  static trigen::Options of_device(const char* target) {
    trigen::Options options;
    options.driver = "emulated:sm_80", options.target = target;
    return options;
  }
  NewtonSchulz make(const Options& options) const { return NewtonSchulz(*runtime_, options, 0); }
  std::string refusal(const Options& options) const {
    try {
      make(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  // Device memory, freed with the test.
  void* allocate(size_t bytes) {
    void* made = nullptr;
    check(trigen_memory_allocate(runtime_->get(), 0, bytes, &made));
    memory_.emplace_back(made, [this](void* one) { trigen_memory_free(runtime_->get(), 0, one); });
    return made;
  }
  void* upload(const std::vector<float>& values, trigen_dtype dtype) {
    std::vector<char> stored(values.size() * element(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = bits_of(values[i], dtype);
      std::memcpy(&stored[i * element(dtype)], &bits, element(dtype));  // little-endian, as the device is
    }
    void* const made = allocate(stored.size());
    check(trigen_memory_write(runtime_->get(), 0, made, stored.data(), stored.size()));
    return made;
  }
  void* poisoned(size_t bytes) {
    void* const made = allocate(bytes);
    const std::vector<unsigned char> nans(bytes, 0xff);
    check(trigen_memory_write(runtime_->get(), 0, made, nans.data(), bytes));
    return made;
  }
  std::vector<float> download(const void* from, size_t count, trigen_dtype dtype) const {
    std::vector<char> stored(count * element(dtype));
    check(trigen_memory_read(runtime_->get(), 0, stored.data(), from, stored.size()));
    std::vector<float> values;
    for (size_t i = 0; i < count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &stored[i * element(dtype)], element(dtype));
      values.push_back(number_of(bits, dtype));
    }
    return values;
  }

  std::unique_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<void, std::function<void(void*)>>> memory_;
};

Options options_of(int64_t count, int64_t rows, int64_t columns, trigen_dtype dtype = TRIGEN_F16,
                   Options::Form form = Options::kAuto) {
  Options made;
  made.count = count, made.rows = rows, made.columns = columns;
  made.dtype = dtype, made.form = form;
  return made;
}

TEST_F(NewtonSchulzHeader, SmallMatricesOf16BitsTakeOneLaunchWhereTheGpuHasIt) {
  EXPECT_EQ(make(options_of(2, 20, 60)).form(), Options::kOneLaunch);
  EXPECT_EQ(make(options_of(2, 60, 20, TRIGEN_BF16)).form(), Options::kOneLaunch);
  EXPECT_EQ(make(options_of(2, 20, 60, TRIGEN_F32)).form(), Options::kGram) << "f32 between products";
  EXPECT_EQ(make(options_of(2, 20, 60, TRIGEN_F32, Options::kOneLaunch)).form(), Options::kOneLaunch);
  EXPECT_EQ(make(options_of(2, 20, 20, TRIGEN_F16, Options::kClassic)).form(), Options::kClassic);
  EXPECT_EQ(make(options_of(1, 65, 1032)).form(), Options::kGram) << "few with many columns";
  Options many = options_of(2, 20, 22);
  many.steps.assign(65, kJordan);
  EXPECT_EQ(make(many).form(), Options::kClassic);
}

TEST(NewtonSchulzOnHopper, ClustersShareFewMatricesWithManyColumns) {
  if (!trigen::testing::has_emulated_device("sm_90a"))
    GTEST_SKIP() << "[SKIP] no emulated device, or the process has another one: run this test alone";
  if (!trigen::testing::has_compiler("sm_90a"))
    GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_90a; set TRIGEN_NVRTC";
  trigen::Options options;
  options.driver = "emulated:sm_90a";
  const Runtime runtime(options);
  EXPECT_EQ(NewtonSchulz(runtime, options_of(1, 65, 1032), 0).form(), Options::kOneLaunch);
  EXPECT_EQ(NewtonSchulz(runtime, options_of(1, 9, 4104), 0).form(), Options::kGram);
}

TEST_F(NewtonSchulzHeader, AnOlderGpuHasProducts) {
  if (!trigen::testing::has_compiler("sm_75")) GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_75";
  const Runtime older(of_device("sm_75"));
  EXPECT_EQ(NewtonSchulz(older, options_of(2, 20, 60), 0).form(), Options::kGram);
  try {
    const NewtonSchulz made(older, options_of(2, 20, 60, TRIGEN_F16, Options::kOneLaunch), 0);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TRIGEN_UNSUPPORTED);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("newton_schulz"), HasSubstr("sm_75")));
  }
}

TEST_F(NewtonSchulzHeader, OneLaunchByNameIsRefusedInWords) {
  EXPECT_THAT(refusal(options_of(1, 257, 300, TRIGEN_F16, Options::kOneLaunch)), HasSubstr("T=257"));
  Options many = options_of(1, 20, 60, TRIGEN_F16, Options::kOneLaunch);
  many.steps.assign(65, kJordan);
  EXPECT_THAT(refusal(many), HasSubstr("K=65"));
  many.steps = {{1.5F, -0.5F, 0}};
  EXPECT_THAT(refusal(many), HasSubstr("c of a step is 0"));
}

// X has singular values of at most 1 and a norm of 2, which nobody divides by; odd sizes, rows as they lie.
TEST_F(NewtonSchulzHeader, EveryFormMakesTheSameOfX) {
  struct Case {
    int64_t rows, columns;
    trigen_dtype dtype;
    double limit;
  };
  int index = 0;
  for (const Case& given : {Case{19, 45, TRIGEN_F16, 4e-3}, Case{45, 19, TRIGEN_BF16, 3e-2},
                            Case{24, 24, TRIGEN_F16, 4e-3}, Case{33, 18, TRIGEN_F32, 4e-3}}) {
    if (!takes(index++, 3)) continue;
    const auto rows = static_cast<size_t>(given.rows), columns = static_cast<size_t>(given.columns);
    const size_t each = rows * columns, m = std::min(rows, columns), k = std::max(rows, columns);
    Options options = options_of(2, given.rows, given.columns, given.dtype);
    options.steps = {{1.9F, -1.2F, 0.4F}, {1.7F, -0.9F, 0.3F}, {1.8F, -1.1F, 0.35F}, {1.6F, -0.8F, 0.25F}};
    std::vector<float> values(2 * each);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = number_of(bits_of(drawn(i) * 2 * std::sqrt(3 / static_cast<float>(each)), given.dtype),
                            given.dtype);
    void* const x = upload(values, given.dtype);
    for (const Options::Form form : {Options::kClassic, Options::kGram, Options::kOneLaunch}) {
      SCOPED_TRACE(::testing::Message()
                   << rows << " x " << columns << ", dtype " << given.dtype << ", form " << form);
      options.form = form;
      const NewtonSchulz iterations = make(options);
      void* const y = poisoned(values.size() * element(given.dtype));
      void* const workspace = poisoned(iterations.workspace_size());
      iterations.run(x, y, workspace);
      const std::vector<float> made = download(y, values.size(), given.dtype);
      iterations.run(x, y, workspace);
      EXPECT_EQ(download(y, values.size(), given.dtype), made) << "the same bits again";
      for (size_t one = 0; one < 2; ++one) {
        // Of element i of [m, k].
        const auto place = [&](size_t i) { return one * each + (rows > columns ? i % k * m + i / k : i); };
        Matrix wide(each);
        for (size_t i = 0; i < each; ++i) wide[i] = static_cast<double>(values[place(i)]);
        const Matrix exact = iterate(wide, m, k, options.steps);
        double difference = 0, norm = 0;
        for (size_t i = 0; i < each; ++i)
          difference += std::pow(static_cast<double>(made[place(i)]) - exact[i], 2),
              norm += exact[i] * exact[i];
        EXPECT_LE(std::sqrt(difference / norm), given.limit);
      }
    }
  }
}

TEST_F(NewtonSchulzHeader, OneLaunchTakesMatricesThatLieAnywhere) {
  const NewtonSchulz iterations = make(options_of(3, 45, 19, TRIGEN_BF16));
  ASSERT_EQ(iterations.form(), Options::kOneLaunch);
  constexpr size_t kEach = 45 * 19;
  std::vector<float> given(3 * kEach);
  for (size_t i = 0; i < given.size(); ++i) given[i] = drawn(i) / 20;
  void* const workspace = allocate(iterations.workspace_size());
  void *const together = upload(given, TRIGEN_BF16), *const out = poisoned(given.size() * 2);
  iterations.run(together, out, workspace);
  const std::vector<float> wanted = download(out, given.size(), TRIGEN_BF16);

  std::vector<void*> x(3), y(3);
  for (const size_t i : {2, 0, 1}) {
    const auto first = given.begin() + static_cast<ptrdiff_t>(i * kEach);
    x[i] = upload(std::vector<float>(first, first + kEach), TRIGEN_BF16);
    y[i] = poisoned(kEach * 2);
  }
  const auto array_of = [&](const std::vector<void*>& pointers) {
    void* const made = allocate(pointers.size() * sizeof(void*));
    check(trigen_memory_write(runtime_->get(), 0, made, pointers.data(), pointers.size() * sizeof(void*)));
    return static_cast<void**>(made);
  };
  iterations.run(array_of(x), array_of(y), workspace);
  for (size_t i = 0; i < 3; ++i) {
    const auto first = wanted.begin() + static_cast<ptrdiff_t>(i * kEach);
    EXPECT_EQ(download(y[i], kEach, TRIGEN_BF16), std::vector<float>(first, first + kEach)) << i;
  }
  try {
    make(options_of(3, 20, 20, TRIGEN_F16, Options::kClassic)).run(array_of(x), array_of(y), workspace);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TRIGEN_BAD_REQUEST);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("form() is kClassic"), HasSubstr("allowed: kOneLaunch"), HasSubstr("copy")));
  }
}

TEST_F(NewtonSchulzHeader, OneLaunchIsCapturedAndReplayed) {
  const NewtonSchulz iterations = make(options_of(1, 16, 32, TRIGEN_BF16));
  ASSERT_EQ(iterations.form(), Options::kOneLaunch);
  std::vector<float> given(16 * 32);
  for (size_t i = 0; i < given.size(); ++i) given[i] = drawn(i) / 20;
  void *const x = upload(given, TRIGEN_BF16), *const y = poisoned(given.size() * 2),
              *const z = poisoned(given.size() * 2), *const workspace = allocate(iterations.workspace_size());
  iterations.run(x, y, workspace);
  const std::vector<float> wanted = download(y, given.size(), TRIGEN_BF16);
  trigen::testing::capture_and_replay(
      [&](void* stream) { iterations.run(x, z, workspace, stream); },
      [&] { EXPECT_TRUE(std::isnan(download(z, 1, TRIGEN_BF16)[0])) << "captured, not run"; });
  EXPECT_EQ(download(z, given.size(), TRIGEN_BF16), wanted);
}

}  // namespace
}  // namespace trigen
