// One training step of a causal token mixer in bf16: y = gelu(W x + b), which also stores the value before
// the activation, then dx, dW and db from a gradient dy of that value. Each result is checked against a plain
// loop in double precision.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <trigen/trigen.hpp>
#include <vector>

#include "device.h"

namespace {

constexpr int B = 3, T = 40, D = 24;

// bf16 is the upper half of an f32; rounded to nearest, ties to even.
uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// A bf16 tensor on both sides.
struct Tensor {
  std::vector<uint16_t> host;
  void* data;

  explicit Tensor(size_t size) : host(size), data(device_allocate(size * 2)) {}
  Tensor(size_t size, std::mt19937& random, float scale) : Tensor(size) {
    std::uniform_real_distribution<float> numbers(-scale, scale);
    for (uint16_t& value : host) value = to_bf16(numbers(random));
    device_upload(data, host.data(), size * 2);
  }
  ~Tensor() { device_free(data); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  void download() { device_download(host.data(), data, host.size() * 2); }
  double at(size_t i) const { return from_bf16(host[i]); }
};

size_t at(int b, int t, int d) { return (static_cast<size_t>(b) * T + t) * D + d; }
double gelu(double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }

// Results are rounded to bf16 (8 bits); sums are in f32.
bool close(const char* what, double expected, double found, double scale) {
  if (std::abs(expected - found) <= std::abs(expected) / 128 + scale / 4096) return true;
  std::fprintf(stderr, "%s: %.6g instead of %.6g\n", what, found, expected);
  return false;
}

bool run() {
  std::mt19937 random(7);
  Tensor x(B * T * D, random, 1), w(T * T, random, 0.5f), bias(T, random, 1), dy(B * T * D, random, 1);
  Tensor y(B * T * D), pre(B * T * D), dx(B * T * D), dw(T * T), db(T);
  // trigen writes the triangle alone: start from zeros, as an optimiser would have it.
  device_upload(dw.data, dw.host.data(), dw.host.size() * 2);

  const trigen::Runtime runtime;
  const std::string sizes =
      "dtype=bf16,B=" + std::to_string(B) + ",T=" + std::to_string(T) + ",D=" + std::to_string(D);
  const trigen::Plan forward = runtime.plan("forward," + sizes + ",epilogue=bias+gelu+pre");
  const trigen::Plan grad_input = runtime.plan("grad_input," + sizes);
  const trigen::Plan grad_weight = runtime.plan("grad_weight," + sizes + ",epilogue=bias");
  size_t bytes = 0;
  for (const trigen::Plan* plan : {&forward, &grad_input, &grad_weight}) {
    bytes = std::max(bytes, plan->workspace_size());
    const trigen_plan_info info = plan->describe();
    std::printf("%s\n  %s for %s on %s (%s, kernel from %s)\n", info.problem, info.candidate, info.target,
                info.device, info.provenance, info.binary_from);
  }
  // The three run one after another on one stream, so one workspace serves them all.
  void* space = device_allocate(bytes);
  forward.run(
      trigen::Args().x(x.data).w(w.data).bias(bias.data).y(y.data).pre(pre.data).workspace(space, bytes));
  grad_input.run(trigen::Args().y(dy.data).w(w.data).x(dx.data).workspace(space, bytes));
  grad_weight.run(trigen::Args().y(dy.data).x(x.data).w(dw.data).bias(db.data).workspace(space, bytes));
  for (Tensor* result : {&y, &pre, &dx, &dw, &db}) result->download();
  device_free(space);

  bool right = true;
  for (int b = 0; b < B && right; ++b)
    for (int t = 0; t < T && right; ++t)
      for (int d = 0; d < D && right; ++d) {
        double sum = bias.at(t), back = 0;
        for (int s = 0; s <= t; ++s) sum += w.at(t * T + s) * x.at(at(b, s, d));
        for (int u = t; u < T; ++u) back += w.at(u * T + t) * dy.at(at(b, u, d));
        right = close("pre", sum, pre.at(at(b, t, d)), 1) && close("y", gelu(sum), y.at(at(b, t, d)), 1) &&
                close("dx", back, dx.at(at(b, t, d)), 1);
      }
  for (int t = 0; t < T && right; ++t) {
    double row = 0;
    for (int b = 0; b < B; ++b)
      for (int d = 0; d < D; ++d) row += dy.at(at(b, t, d));
    right = close("grad_bias", row, db.at(t), 8);
    for (int s = 0; s < T && right; ++s) {
      double sum = 0;
      for (int b = 0; b < B && s <= t; ++b)
        for (int d = 0; d < D; ++d) sum += dy.at(at(b, t, d)) * x.at(at(b, s, d));
      right = close("dW", sum, dw.at(t * T + s), 8);
    }
  }
  if (right) std::printf("y, pre, dx, dW and grad_bias agree with the CPU\n");
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
