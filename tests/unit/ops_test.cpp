// The rows of ops.def agree with themselves. None is known by name.
#include "generator/ops.h"

#include <gtest/gtest.h>

#include "generator/names.h"
#include "generator/problem_fields.h"

namespace trigen {
namespace {

TEST(Ops, TensorsComeOnceAndWithPartsThatTheOpTakes) {
  for (const EnumName& name : kOpNames) {
    const OpRow& op = op_row(static_cast<Op>(&name - kOpNames));
    SCOPED_TRACE(op.name.str());
    unsigned seen = 0;
    for (const OpTensor& t : op.list()) {
      EXPECT_EQ(tensor_of(op.op, t.role), &t);
      EXPECT_EQ(seen & 1u << static_cast<unsigned>(t.role), 0u) << t.symbol;
      seen |= 1u << static_cast<unsigned>(t.role);
      EXPECT_TRUE(t.is_in(op.parts)) << t.symbol;
    }
    EXPECT_EQ(op.entry, ("trigen_" + op.name).str());
  }
}

TEST(Ops, AProductMultipliesItsTensors) {
  for (size_t i = 0; i < std::size(kOpNames); ++i) {
    const OpRow& op = op_row(static_cast<Op>(i));
    SCOPED_TRACE(op.name.str());
    if (!op.takes(kTapFields) || !op.takes(kDiagonalField)) {
      EXPECT_NE(op.lacks, nullptr);
    }
    if (!op.product) continue;
    const auto& [a, b, c, transposed] = *op.product;
    for (const Role role : {a, b}) {
      ASSERT_NE(tensor_of(op.op, role), nullptr);
      EXPECT_FALSE(tensor_of(op.op, role)->written);
    }
    EXPECT_EQ(c, op.output().role);
    EXPECT_EQ(transposed, transposes(op.op));
    EXPECT_EQ(makes_rows(op.op) + makes_weights(op.op) + transposes(op.op), 1);
  }
}

TEST(Ops, ArgumentsSayBothNames) {
  EXPECT_EQ(argument_name(Op::kForward, Role::kX), "x");
  EXPECT_EQ(argument_name(Op::kGradInput, Role::kX), "x (dx)");
  EXPECT_EQ(argument_name(Op::kGradWeight, Role::kBias), "bias (grad_bias)");
  EXPECT_EQ(argument_name(Op::kGradInput, Role::kBias), "bias");  // which it has not
}

}  // namespace
}  // namespace trigen
