#include "check/recurrence.h"

#include <algorithm>

#include "check/parallel.h"
#include "numerics/numbers.h"

namespace trigen {

Recurrences::Recurrences(const Problem& p, const TensorList& list, const HostBuffers& inputs)
    : problem_(p), list_(list), inputs_(inputs) {
  const Data w = data(Role::kW);
  const VectorForms& forms = w.tensor->vectors;
  for (int64_t h = 0; h < p.H; ++h)
    for (int64_t i = 0; i < scan::kVectors; ++i)
      for (int64_t t = 0; t < p.T; ++t) {
        const auto read = [&](int64_t j) {
          return load_element(w.tensor->dtype, w.data, vector_index(*w.tensor, h, j, t));
        };
        const bool counts = i != scan::kDecay || t > 0;
        vectors_.push_back(counts ? vector_of(forms, static_cast<scan::Vector>(i), read) : 0);
        if (i == scan::kDecay) clipped_.push_back(counts && forms.is_clipped(read(i)));
      }
}

Recurrences::Data Recurrences::data(Role role) const {
  const Tensor* tensor = list_.find(role);
  return {tensor, data_of(list_, *tensor, inputs_)};
}

const double* Recurrences::vector(int64_t h, int i) const {
  return &vectors_[static_cast<size_t>((h * scan::kVectors + i) * problem_.T)];
}

std::vector<double> Recurrences::elements(const Data& from, int64_t h, int64_t column) const {
  const Problem& p = problem_;
  std::vector<double> out(static_cast<size_t>(p.T));
  for (int64_t t = 0; t < p.T; ++t)
    out[static_cast<size_t>(t)] = load_element(
        from.tensor->dtype, from.data, activation_index(p, *from.tensor, column / p.D, h, t, column % p.D));
  return out;
}

std::vector<double> Recurrences::column(int64_t h, int64_t column) const {
  const bool backward = !makes_rows(problem_.op);
  const double *source = vector(h, scan::kSource), *target = vector(h, scan::kTarget),
               *decay = vector(h, scan::kDecay), *diagonal = vector(h, scan::kDiagonal);
  std::vector<double> out = elements(data(backward ? Role::kY : Role::kX), h, column);
  double state = 0;
  for (int64_t i = 0; i < problem_.T; ++i) {
    const int64_t t = backward ? problem_.T - 1 - i : i;
    double& value = out[static_cast<size_t>(t)];
    const double in = value;
    if (backward) {
      value = source[t] * state + diagonal[t] * in;
      state = decay[t] * (state + target[t] * in);
    } else {
      state *= decay[t];
      value = target[t] * state + diagonal[t] * in;
      state += source[t] * in;
    }
  }
  return out;
}

std::vector<double> Recurrences::gradients() const {
  const Problem& p = problem_;
  constexpr size_t kSums = scan::kVectors + 1;
  const Data x = data(Role::kX), dy = data(Role::kY);
  const VectorForms& forms = list_.find(Role::kW)->vectors;
  std::vector<double> all(static_cast<size_t>(p.H * p.T) * kSums);
  const int64_t columns = p.B * p.D, parts = std::min<int64_t>(columns, 64);  // that are added in their order
  for (int64_t h = 0; h < p.H; ++h) {
    const double *source = vector(h, scan::kSource), *target = vector(h, scan::kTarget),
                 *decay = vector(h, scan::kDecay);
    std::vector<std::vector<double>> sums_of(static_cast<size_t>(parts));
    parallel_for(parts, 1, [&](int64_t part, int64_t) {
      std::vector<double>& sums = sums_of[static_cast<size_t>(part)];
      sums.resize(static_cast<size_t>(p.T) * kSums);
      std::vector<double> before(static_cast<size_t>(p.T));
      for (int64_t column = columns * part / parts; column < columns * (part + 1) / parts; ++column) {
        const std::vector<double> in = elements(x, h, column), outer = elements(dy, h, column);
        double state = 0;
        for (int64_t t = 0; t < p.T; ++t) {
          before[static_cast<size_t>(t)] = state;
          state = decay[t] * state + source[t] * in[static_cast<size_t>(t)];
        }
        state = 0;
        for (int64_t t = p.T - 1; t >= 0; --t) {
          const auto at = static_cast<size_t>(t);
          double* sum = &sums[at * kSums];
          sum[scan::kSource] += in[at] * state;
          sum[scan::kTarget] += outer[at] * decay[t] * before[at];
          if (!clipped_[static_cast<size_t>(h * p.T + t)])
            sum[scan::kDecay] += (state + target[t] * outer[at]) * before[at];
          if (!forms.of[scan::kDiagonal].given) {
            sum[scan::kSource] += target[t] * outer[at] * in[at];
            sum[scan::kTarget] += source[t] * outer[at] * in[at];
          }
          sum[scan::kDiagonal] += outer[at] * in[at];
          sum[scan::kVectors] += outer[at];
          state = decay[t] * (state + target[t] * outer[at]);
        }
      }
    });
    for (const std::vector<double>& sums : sums_of)
      for (size_t i = 0; i < sums.size(); ++i) all[static_cast<size_t>(h * p.T) * kSums + i] += sums[i];
  }
  return all;
}

}  // namespace trigen
