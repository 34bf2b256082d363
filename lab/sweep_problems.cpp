#include "lab/sweep_problems.h"

#include <algorithm>
#include <cmath>

#include "llvm/Support/Error.h"

namespace trigen {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 28;  // of a tensor: 0.5 GB at 16 bits
constexpr double kMostProducts = 0x1p41;  // dense multiply-adds: about 6 ms of an H200's tensor cores

// {size, weight}
constexpr std::pair<int64_t, int> kPowers[] = {{32, 4},    {64, 6},    {128, 10}, {256, 16}, {512, 20},
                                               {1024, 18}, {2048, 12}, {4096, 8}, {8192, 4}, {16384, 2}};
constexpr std::pair<int64_t, int> kOddLengths[] = {{49, 1},   {50, 1},   {100, 1}, {196, 2},  {197, 2},
                                                   {257, 1},  {500, 1},  {577, 1}, {1000, 2}, {1500, 1},
                                                   {2000, 1}, {3000, 1}, {6000, 1}};
constexpr std::pair<int64_t, int> kWidths[] = {{64, 3},   {128, 5},  {192, 4},  {256, 9},   {384, 8},
                                               {512, 16}, {640, 3},  {768, 14}, {1024, 16}, {1280, 4},
                                               {1536, 4}, {2048, 8}, {2560, 2}, {3072, 2},  {4096, 2}};
constexpr std::pair<int64_t, int> kHeads[] = {{2, 2}, {4, 4}, {8, 4}, {16, 2}};
constexpr std::pair<int64_t, int> kTaps[] = {{2, 1}, {3, 3}, {4, 3}, {5, 1}, {7, 1}, {8, 2}, {16, 1}};

bool same_sizes(const Problem& a, const Problem& b) {
  return a.B == b.B && a.H == b.H && a.T == b.T && a.D == b.D && a.K == b.K;
}

}  // namespace

SweepHalf half_of(const Problem& p) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the sizes' bytes
  for (const int64_t size : {p.B, p.H, p.T, p.D, p.K})
    for (int byte = 0; byte < 8; ++byte)
      hash = (hash ^ ((static_cast<uint64_t>(size) >> (8 * byte)) & 0xff)) * 0x100000001b3;
  return (hash >> 32 & 1) != 0 ? SweepHalf::kReported : SweepHalf::kFitting;
}

double SweepProblems::logarithmic(double low, double high) { return low * std::pow(high / low, real()); }

template <size_t N>
int64_t SweepProblems::weighted(const std::pair<int64_t, int> (&choices)[N]) {
  int all = 0;
  for (const auto& [size, weight] : choices) all += weight;
  double left = real() * all;
  for (const auto& [size, weight] : choices) {
    left -= weight;
    if (left < 0) return size;
  }
  return choices[N - 1].first;
}

int64_t SweepProblems::draw_tokens() {
  const double kind = real();
  if (kind < 0.7) return weighted(kPowers);
  if (kind < 0.9) return std::max<int64_t>(1, std::llround(logarithmic(32, 8192) / 32)) * 32;
  return weighted(kOddLengths);
}

int64_t SweepProblems::draw_width() {
  const double kind = real();
  if (kind < 0.85) return weighted(kWidths);
  if (kind < 0.97) return std::llround(logarithmic(64, 4096) / 8) * 8;
  return std::llround(logarithmic(64, 4096));
}

void SweepProblems::draw_sizes(Problem& p) {
  p.T = draw_tokens();
  const int64_t width = draw_width();
  const int64_t heads = chance(12) ? weighted(kHeads) : 1;
  p.H = width % heads == 0 && width / heads >= 16 ? heads : 1;
  p.D = width / p.H;
  const int64_t taps = chance(8) ? weighted(kTaps) : 1;
  p.K = p.H == 1 && p.T <= 2048 ? taps : 1;
  p.pad = (p.K - 1) / 2;
  p.B = std::max<int64_t>(1, std::llround(logarithmic(2048, 131072)) / p.T);
  if (chance(60)) p.B = int64_t{1} << std::lround(std::log2(static_cast<double>(p.B)));
  const auto too_large = [&] {
    const auto products = static_cast<double>(p.B * width * p.T) * static_cast<double>(p.T * p.K);
    return p.B * p.T * width > kMostElements || products > kMostProducts;
  };
  while (p.B > 1 && too_large()) p.B /= 2;
}

Problem SweepProblems::draw() {
  Problem p;
  draw_sizes(p);
  const double type = real();
  p.dtype = type < 0.60 ? DType::kBF16 : type < 0.92 ? DType::kF16 : DType::kF32;
  p.math = p.dtype != DType::kF32 ? Math::kDefault : type < 0.98 ? Math::kTF32 : Math::kF16x3;
  p.wdtype = p.dtype != DType::kF32 && chance(50) ? DType::kF32 : p.dtype;
  p.layout = chance(4) ? Layout::kBDT : Layout::kBTD;
  const double op = real() * 3;
  const double term = real();
  Epilogue& e = p.epilogue;
  if (op < 1) {
    p.op = Op::kForward;
    e.bias = term >= 0.20;
    if (term >= 0.70 && term < 0.80) e.act = Activation::kGELU;
    if (term >= 0.80 && term < 0.90) e.residual = true;
    if (term >= 0.90 && term < 0.96) e.gate = true;
    if (term >= 0.96) e.act = Activation::kGELU, e.residual = true;
  } else if (op < 2) {
    p.op = Op::kGradInput;
    e.residual = term < 0.10;
  } else {
    p.op = Op::kGradWeight;
    e.zero_outside = true;
    e.bias = term < 0.80;
  }
  set_contiguous_alignment(p);
  return p;
}

Problem SweepProblems::next() {
  for (;;) {
    const Problem p = draw();
    if (half_of(p) != half_) continue;
    if (p.B * p.T * p.H * p.D > kMostElements) continue;
    if (static_cast<double>(p.B * p.H * p.D * p.T) * static_cast<double>(p.T * p.K) > kMostProducts) continue;
    if (std::any_of(seen_.begin(), seen_.end(), [&](const Problem& s) { return same_sizes(s, p); })) continue;
    if (auto error = validate(p)) {
      llvm::consumeError(std::move(error));
      continue;
    }
    return p;
  }
}

}  // namespace trigen
