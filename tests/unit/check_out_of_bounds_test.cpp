#include "check/out_of_bounds.h"

#include <gtest/gtest.h>

#include "numerics/numbers.h"

namespace trigen {
namespace {

// A written tensor of a problem, every element of its own a number and all else poison.
struct Written {
  Problem problem;
  TensorList list;
  const Tensor* tensor;
  std::vector<std::byte> buffer;
  std::vector<int64_t> own;  // elements that the op writes

  Written(const std::string& text, Role role, int gap = 0)
      : problem(llvm::cantFail(parse_problem(text))),
        list(tensors_of(problem, gap)),
        tensor(list.find(role)),
        buffer(static_cast<size_t>(tensor->buffer_bytes()), std::byte{kPoison}) {
    const Problem& p = problem;
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t t = 0; t < p.T; ++t) {
        if (role == Role::kBias) own.push_back(h * p.T + t);
        if (role == Role::kW)
          for (int64_t s = 0; s < p.T; ++s)
            for (int64_t j = 0; j < p.K && in_triangle(p, t, s) && (s == 0 || p.w != WeightForm::kToeplitz);
                 ++j)
              own.push_back(weight_index(p, *tensor, h, t, s, j));
        if (role == Role::kY || role == Role::kX)
          for (int64_t b = 0; b < p.B; ++b)
            for (int64_t d = 0; d < p.D; ++d) own.push_back(activation_index(p, *tensor, b, h, t, d));
      }
    for (const int64_t i : own) put(i, 1);
  }
  void put(int64_t element, float value) {
    store_element(tensor->dtype, buffer.data() + tensor->offset_bytes, element, value);
  }
  std::string find() const { return find_out_of_bounds_write(problem, *tensor, buffer.data()); }
};

constexpr const char* kOutputs[][2] = {
    {"forward,dtype=bf16,B=2,H=2,T=5,D=6", "y"},
    {"forward,dtype=f32,B=2,H=2,T=5,D=6,layout=bdt", "y"},
    {"grad_input,dtype=f16,B=2,T=4,D=3,align=2", "x"},
    {"grad_weight,dtype=bf16,B=1,H=2,T=5,D=3,K=2,pad=0", "w"},
    {"grad_weight,dtype=f16,B=1,T=6,D=3,fill=upper,diag=-1,walign=2", "w"},
    {"grad_weight,dtype=bf16,B=1,H=2,T=5,D=3,epilogue=bias", "bias"},
    {"grad_weight,dtype=bf16,B=1,H=2,T=5,D=3,w=toeplitz", "w"},
    {"grad_weight,dtype=f16,B=1,H=2,T=6,D=3,w=band,width=3", "w"},
    {"grad_weight,dtype=f16,B=1,T=6,D=3,w=band,width=6,walign=2", "w"},
    {"gram,dtype=bf16,B=1,H=2,T=5,D=3", "w"},
    {"gram,dtype=f16,B=1,T=6,D=3,wdtype=f32,fill=upper,epilogue=residual", "w"},
};
Role role_of(const std::string& name) {
  return name == "y" ? Role::kY : name == "x" ? Role::kX : name == "w" ? Role::kW : Role::kBias;
}

// Each byte of a buffer that is not an output's is written in turn, and each element of the output left out.
TEST(OutOfBounds, EveryByteOutsideAndEveryElementInside) {
  for (const auto& [text, name] : kOutputs)
    for (const int gap : {0, 1}) {
      Written right(text, role_of(name), gap);
      ASSERT_EQ(right.find(), "") << text;
      std::vector<bool> inside(right.buffer.size());
      const int64_t size = element_size(right.tensor->dtype);
      for (const int64_t i : right.own)
        for (int64_t byte = 0; byte < size; ++byte)
          inside[static_cast<size_t>(right.tensor->offset_bytes + i * size + byte)] = true;
      for (size_t at = 0; at < right.buffer.size(); ++at) {
        if (inside[at]) continue;
        Written wrong = right;
        wrong.tensor = wrong.list.find(right.tensor->role);
        wrong.buffer[at] = std::byte{0x42};
        EXPECT_NE(wrong.find(), "") << text << ": byte " << at;
      }
      for (const int64_t i : right.own) {
        Written wrong = right;
        wrong.tensor = wrong.list.find(right.tensor->role);
        for (int64_t byte = 0; byte < size; ++byte)
          wrong.buffer[static_cast<size_t>(wrong.tensor->offset_bytes + i * size + byte)] =
              std::byte{kPoison};
        EXPECT_NE(wrong.find().find(" is nan or was never written"), std::string::npos) << text << ": " << i;
      }
    }
}

TEST(OutOfBounds, NamesThePlace) {
  Written y("forward,dtype=bf16,B=2,H=2,T=5,D=6", Role::kY);
  y.buffer[static_cast<size_t>(y.tensor->offset_bytes + y.tensor->bytes())] = std::byte{0};
  EXPECT_EQ(y.find(), "y: bytes behind its end were written");
  Written left("forward,dtype=bf16,B=2,H=2,T=5,D=6,align=2", Role::kY);
  ASSERT_GT(left.tensor->offset_bytes, 0);
  left.buffer[0] = std::byte{0};
  EXPECT_EQ(left.find(), "y: bytes before its start were written");
  Written dx("grad_input,dtype=f32,B=2,T=4,D=3", Role::kX);
  dx.put(activation_index(dx.problem, *dx.tensor, 1, 0, 2, 1), NAN);
  EXPECT_EQ(dx.find(), "dx[b=1,h=0,s=2,d=1] is nan or was never written");
}

TEST(OutOfBounds, WeightsOutsideTheTriangle) {
  Written dw("grad_weight,dtype=bf16,B=1,T=5,D=3,K=2,pad=0", Role::kW);
  dw.put(weight_index(dw.problem, *dw.tensor, 0, 1, 3, 1), 0);
  EXPECT_EQ(dw.find(), "dW[h=0,t=1,s=3,j=1] is outside the triangle and was written");
  Written zeros("grad_weight,dtype=bf16,B=1,T=3,D=3,epilogue=zero_outside", Role::kW);
  EXPECT_EQ(zeros.find(), "dW[h=0,t=0,s=1,j=0] is outside the triangle and not zero");
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t s = t + 1; s < 3; ++s) zeros.put(weight_index(zeros.problem, *zeros.tensor, 0, t, s, 0), 0);
  EXPECT_EQ(zeros.find(), "");
}

TEST(OutOfBounds, MirroredElementsHaveTheirBits) {
  for (const char* fill : {"", "fill=upper,"}) {
    Written d(std::string("gram,dtype=bf16,B=1,H=2,T=4,D=3,walign=2,") + fill + "epilogue=mirror", Role::kW,
              1);
    const auto at = [&](int64_t h, int64_t t, int64_t s) {
      return weight_index(d.problem, *d.tensor, h, t, s, 0);
    };
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t s = 0; s < t; ++s) {
          const float value = static_cast<float>(1 + h + 10 * t + s);
          d.put(at(h, t, s), value), d.put(at(h, s, t), value);
        }
    ASSERT_EQ(d.find(), "");
    const bool upper = *fill != 0;
    const int64_t row = upper ? 3 : 1, column = upper ? 1 : 3;
    const std::string place = "d[h=1,t=" + std::to_string(row) + ",s=" + std::to_string(column) + ",j=0]";
    const auto bytes = [&](int64_t element) {
      return d.buffer.data() + d.tensor->offset_bytes + 2 * element;
    };
    bytes(at(1, row, column))[0] ^= std::byte{1};  // the last bit
    EXPECT_EQ(d.find(), place + " is not the bits of the element mirrored at the diagonal");
    bytes(at(1, row, column))[0] ^= std::byte{1};
    ASSERT_EQ(d.find(), "");
    std::fill_n(bytes(at(1, 2, 2)), 2, std::byte{kPoison});
    EXPECT_EQ(d.find(), "d[h=1,t=2,s=2,j=0] is nan or was never written");
    d.put(at(1, 2, 2), 1);
    d.put(at(0, 3, 3) + 1, 1);
    EXPECT_EQ(d.find(), "d: the gap after row h=0 t=3 was written");
  }
}

}  // namespace
}  // namespace trigen
