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
  EXPECT_EQ(argument_name(Op::kGram, Role::kX), "x (b)");
  EXPECT_EQ(argument_name(Op::kGram, Role::kResidual), "residual (c)");
}

// What trigen.h says of gram's arguments.
TEST(Ops, GramWritesOneMatrixOfTwoAndReadsAThird) {
  const OpRow& gram = op_row(Op::kGram);
  EXPECT_TRUE(makes_weights(Op::kGram) && is_whole_product(Op::kGram));
  EXPECT_TRUE(gram.takes(kFactorsField | kFillField | kWeightTypeField | kMathField));
  EXPECT_FALSE(gram.takes(kTapFields) || gram.takes(kDiagonalField) || gram.takes(kRowsField));
  EXPECT_EQ(gram.output().role, Role::kW);
  EXPECT_EQ(gram.product->a, Role::kY);
  EXPECT_EQ(gram.product->b, Role::kX);
  const OpTensor* const c = tensor_of(Op::kGram, Role::kResidual);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->axes, Axes::kWeights);
  EXPECT_FALSE(c->written || c->is_in({}));
  EXPECT_TRUE(c->is_in({.residual = true}));
  for (const Op op : {Op::kForward, Op::kGradInput, Op::kGradWeight, Op::kDecode, Op::kGradEpilogue})
    EXPECT_FALSE(op_row(op).takes(kFactorsField) || op_row(op).parts.mirror) << op_row(op).name.str();
}

}  // namespace
}  // namespace trigen
