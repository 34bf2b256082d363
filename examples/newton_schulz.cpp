// What Muon makes of a list of matrices, in C++: trigen::NewtonSchulz for each shape, the workspace stated before, one
// stream, no synchronisation between. Small ones of f16 or bf16 take one launch, where the GPU has it. Each result is
// checked against the iterations in double precision.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <trigen/newton_schulz.hpp>
#include <vector>

#include "device.h"

namespace {

using Matrix = std::vector<double>;  // rows one behind the other

// A B^T of [m, k] and [n, k].
Matrix product(const Matrix& a, const Matrix& b, size_t m, size_t n, size_t k) {
  Matrix made(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t l = 0; l < k; ++l) made[i * n + j] += a[i * k + l] * b[j * k + l];
  return made;
}

Matrix transposed(const Matrix& a, size_t m, size_t n) {
  Matrix made(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) made[j * m + i] = a[i * n + j];
  return made;
}

// X <- (a I + b R + c R R) X with R = X X^T.
Matrix iterate(Matrix x, size_t rows, size_t columns, const std::vector<trigen::NewtonSchulzStep>& steps) {
  if (rows > columns)
    return transposed(iterate(transposed(x, rows, columns), columns, rows, steps), columns, rows);
  for (const auto& [a, b, c] : steps) {
    const Matrix r = product(x, x, rows, rows, columns);
    Matrix z = product(r, r, rows, rows, rows);
    for (size_t i = 0; i < z.size(); ++i) z[i] = c * z[i] + b * r[i] + (i % (rows + 1) == 0 ? a : 0);
    x = product(z, transposed(x, rows, columns), rows, columns, rows);
  }
  return x;
}

// A bf16 is a float's upper half.
uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Matrices of one shape, on both sides.
struct Group {
  trigen::NewtonSchulzOptions options;
  std::vector<float> host = {};
  void *x = nullptr, *y = nullptr;

  size_t size() const { return static_cast<size_t>(options.rows * options.columns); }
  bool is_bf16() const { return options.dtype == TRIGEN_BF16; }
  size_t bytes() const { return host.size() * (is_bf16() ? sizeof(uint16_t) : sizeof(float)); }
  void fill(std::mt19937& random) {
    std::normal_distribution<float> numbers;
    host.resize(size() * static_cast<size_t>(options.count));
    for (auto one = host.begin(); one != host.end(); one += static_cast<std::ptrdiff_t>(size())) {
      double norm = 0;
      std::for_each(one, one + static_cast<std::ptrdiff_t>(size()), [&](float& value) {
        value = numbers(random), norm += static_cast<double>(value) * value;
      });
      std::for_each(one, one + static_cast<std::ptrdiff_t>(size()),
                    [&](float& value) { value /= static_cast<float>(std::sqrt(norm)); });
    }
    x = device_allocate(bytes());
    y = device_allocate(bytes());
    if (!is_bf16()) return device_upload(x, host.data(), bytes());
    std::vector<uint16_t> halves(host.size());
    std::transform(host.begin(), host.end(), halves.begin(), to_bf16);
    std::transform(halves.begin(), halves.end(), host.begin(), from_bf16);  // what the device has
    device_upload(x, halves.data(), bytes());
  }
  // The largest relative error of a matrix.
  double error() const {
    std::vector<float> made(host.size());
    if (is_bf16()) {
      std::vector<uint16_t> halves(host.size());
      device_download(halves.data(), y, bytes());
      std::transform(halves.begin(), halves.end(), made.begin(), from_bf16);
    } else {
      device_download(made.data(), y, bytes());
    }
    double worst = 0;
    for (size_t first = 0; first < host.size(); first += size()) {
      const Matrix given(host.begin() + static_cast<std::ptrdiff_t>(first),
                         host.begin() + static_cast<std::ptrdiff_t>(first + size()));
      const Matrix exact = iterate(given, static_cast<size_t>(options.rows),
                                   static_cast<size_t>(options.columns), options.steps);
      double difference = 0, norm = 0;
      for (size_t i = 0; i < exact.size(); ++i)
        difference += std::pow(made[first + i] - exact[i], 2), norm += exact[i] * exact[i];
      const double one = std::sqrt(difference / norm);
      worst = one <= worst ? worst : one;  // NaN is worse
    }
    return worst;
  }
};

bool run() {
  const auto group = [](int64_t count, int64_t rows, int64_t columns,
                        std::vector<trigen::NewtonSchulzStep> steps, trigen_dtype dtype = TRIGEN_F32) {
    trigen::NewtonSchulzOptions options;
    options.count = count, options.rows = rows, options.columns = columns;
    options.dtype = dtype, options.steps = std::move(steps);
    return Group{options};
  };
  const std::vector<trigen::NewtonSchulzStep> jordan(5, trigen::kJordan);
  std::vector<Group> groups = {group(2, 24, 72, jordan),
                               group(3, 40, 16, trigen::polar_express(8)),
                               group(1, 20, 20, jordan),
                               group(2, 1, 8, jordan),
                               group(1, 21, 27, {{1.875f, -1.25f, 0.375f}}),
                               group(3, 32, 96, jordan, TRIGEN_BF16),
                               group(2, 90, 33, trigen::polar_express(5), TRIGEN_BF16)};
  const trigen::Runtime runtime;
  std::vector<trigen::NewtonSchulz> iterations;
  size_t bytes = 0;
  std::mt19937 random(7);
  for (Group& one : groups) {
    one.fill(random);
    iterations.emplace_back(runtime, one.options);
    bytes = std::max(bytes, iterations.back().workspace_size());
  }
  void* const workspace = device_allocate(bytes);  // on one stream they follow each other
  for (size_t i = 0; i < groups.size(); ++i) iterations[i].run(groups[i].x, groups[i].y, workspace);

  bool right = true;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& one = groups[i];
    const double error = one.error();
    const bool at_once = iterations[i].form() == trigen::NewtonSchulzOptions::kOneLaunch;
    std::printf("%lld of %lld x %lld, %s, %zu steps%s: relative error %.1g\n",
                static_cast<long long>(one.options.count), static_cast<long long>(one.options.rows),
                static_cast<long long>(one.options.columns), one.is_bf16() ? "bf16" : "f32",
                one.options.steps.size(), at_once ? " in one launch" : "", error);
    right = right && error < (one.is_bf16() ? 0.05 : 1e-4);
  }
  if (!right) std::fprintf(stderr, "wrong result\n");
  return right;
}

}  // namespace

int main() {
  device_open();
  try {
    return run() ? 0 : 1;
  } catch (const trigen::Error& error) {
    std::fprintf(stderr, "%s: %s\n", trigen_status_name(error.status()), error.what());
    return 1;
  }
}
