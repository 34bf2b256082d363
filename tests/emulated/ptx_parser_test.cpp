// PTX text as it is read: what declarations, scopes, operands and instructions become, and what is refused. No
// text, however it ends, may hang the load of a module or read past its end.
#include <gmock/gmock.h>

#include <cmath>

#include "emulator/ptx_ast.h"
#include "emulator/ptx_lexer.h"

namespace trigen::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";

ModuleAst module_of(const std::string& text) { return parse_ptx(kHead + text); }
Function body_of(const std::string& statements) {
  return module_of(".visible .entry f() {\n" + statements + "\n}").functions.at(0);
}
std::string refusal(const std::string& text) {
  try {
    parse_ptx(text);
  } catch (const PtxError& error) {
    return error.what();
  }
  return "no error";
}
std::string refusal_of_body(const std::string& statements) {
  return refusal(kHead + (".entry f() {\n" + statements + "\n}"));
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (const Token& token : tokenize(text))
    if (token.kind != Token::Kind::kEnd) out.push_back(token.text);
  return out;
}

TEST(PtxLexer, WordsHoldTheirModifiersAndCommentsAreDropped) {
  EXPECT_THAT(words("ld.global.L1::no_allocate.u32 %r1, [%rd2+8]; // x\n/* y\n */ @!%p1 bra $L_1;"),
              ElementsAre("ld.global.L1::no_allocate.u32", "%r1", ",", "[", "%rd2", "+", "8", "]", ";", "@",
                          "!", "%p1", "bra", "$L_1", ";"));
  const auto tokens = tokenize("a\n/* b\n */ c");
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].line, 1);
  EXPECT_EQ(tokens[1].line, 3);
}

TEST(PtxLexer, NumbersKeepTheirBits) {
  const auto number = [](const char* text) { return tokenize(text).at(0); };
  EXPECT_EQ(number("0x1F").integer, 31);
  EXPECT_EQ(number("0xFFFFFFFFFFFFFFFF").integer, -1);
  EXPECT_EQ(number("12U").integer, 12);
  EXPECT_EQ(number("010").integer, 8);
  EXPECT_EQ(number("0f3F800000").real, 1.0);
  EXPECT_EQ(number("0d3FF8000000000000").real, 1.5);
  EXPECT_EQ(number("0f7FC00001").integer, 0x7FC00001) << "a NaN's payload";
  EXPECT_TRUE(std::isnan(number("0f7FC00001").real));
  EXPECT_EQ(number("1.25").real, 1.25);
  EXPECT_EQ(number("1e3").real, 1000.0);
}

TEST(PtxLexer, RefusesWhatIsCutOff) {
  EXPECT_EQ(refusal("0f3F8"), "ptx line 1: '0f' needs 8 hexadecimal digits, found '3F8'");
  EXPECT_EQ(refusal("0d3FF80000;"), "ptx line 1: '0d' needs 16 hexadecimal digits, found '3FF80000;'");
  EXPECT_EQ(refusal("\n.file 1 \"a.cu"), "ptx line 2: a string is not closed");
  EXPECT_EQ(refusal("mov \x07"), "ptx line 1: unexpected character '\x07'");
}

TEST(PtxParser, AModulesHeadAndVariables) {
  const ModuleAst module = module_of(
      ".global .align 16 .b8 bytes[5] = {1, 2, 0xFF};\n"
      ".const .f32 half = 0f3F000000;\n"
      ".global .s16 negative[2] = {-1, -2};\n"
      ".extern .shared .align 1024 .b8 dynamic[];\n"
      ".visible .global .v4 .f32 four;\n"
      ".global .f64 two[2] = {2.0, -0.5};");
  EXPECT_EQ(module.version, "8.0");
  EXPECT_EQ(module.target, "sm_80");
  ASSERT_EQ(module.variables.size(), 6u);
  const Variable& bytes = module.variables[0];
  EXPECT_EQ(bytes.name, "bytes");
  EXPECT_EQ(bytes.space, Space::kGlobal);
  EXPECT_EQ(bytes.align, 16u);
  EXPECT_EQ(bytes.bytes, 5u);
  EXPECT_THAT(bytes.init, ElementsAre(1, 2, 0xFF, 0, 0));
  EXPECT_EQ(module.variables[1].space, Space::kConst);
  EXPECT_THAT(module.variables[1].init, ElementsAre(0, 0, 0, 0x3F));
  EXPECT_THAT(module.variables[2].init, ElementsAre(0xFF, 0xFF, 0xFE, 0xFF));
  EXPECT_TRUE(module.variables[3].is_extern);
  EXPECT_EQ(module.variables[3].bytes, 0u);
  EXPECT_EQ(module.variables[3].align, 1024u);
  EXPECT_EQ(module.variables[4].bytes, 16u);
  EXPECT_EQ(module.variables[4].align, 16u) << "a vector's own size";
  EXPECT_EQ(module.variables[5].init[7], 0x40) << "2.0";
  EXPECT_EQ(module.variables[5].init[15], 0xBF) << "-0.5";
}

TEST(PtxParser, AFunctionsParametersAndDirectives) {
  const ModuleAst module = module_of(
      ".entry k(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24])\n"
      ".reqntid 128, 2\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 4\n.maxnreg 96\n{ ret; }\n"
      ".func (.param .b32 out) g(.param .b32 in);\n"
      ".func (.param .b32 out) g(.param .b32 in) { ret; }");
  ASSERT_EQ(module.functions.size(), 2u) << "a body replaces its declaration";
  const Function& k = module.functions[0];
  EXPECT_TRUE(k.is_entry);
  ASSERT_EQ(k.parameters.size(), 2u);
  EXPECT_EQ(k.parameters[0].bytes, 8u);
  EXPECT_EQ(k.parameters[0].align, 8u) << "of the parameter, not of what it points at";
  EXPECT_EQ(k.parameters[1].bytes, 24u);
  EXPECT_THAT(k.required_threads, ElementsAre(128, 2, 1));
  EXPECT_THAT(k.required_cluster, ElementsAre(4, 1, 1));
  EXPECT_TRUE(k.explicit_cluster);
  EXPECT_EQ(k.max_registers, 96u);
  const Function& g = module.functions[1];
  EXPECT_FALSE(g.is_entry);
  EXPECT_TRUE(g.has_body);
  EXPECT_EQ(g.returns.size(), 1u);
}

TEST(PtxParser, InnerScopesHideRegistersOfTheSameName) {
  const Function f = body_of(
      ".reg .b32 %r<3>; .reg .pred p;\n"
      "mov.b32 %r1, 1;\n"
      "{ .reg .b64 %r<3>; mov.b64 %r1, 2; }\n"
      "mov.b32 %r1, 3; mov.b32 %r2, 4;");
  ASSERT_EQ(f.statements.size(), 4u);
  const auto reg = [&](size_t i) { return f.statements[i].operands[0].reg; };
  EXPECT_EQ(reg(0), reg(2));
  EXPECT_NE(reg(0), reg(1));
  EXPECT_NE(reg(0), reg(3));
  EXPECT_EQ(f.registers[static_cast<size_t>(reg(0))].type, Type::kB32);
  EXPECT_EQ(f.registers[static_cast<size_t>(reg(1))].type, Type::kB64);
  EXPECT_THAT(f.scope_parent, ElementsAre(-1, 0));
  EXPECT_EQ(f.statements[1].scope, 1);
}

TEST(PtxParser, RegistersBeyondAFamilysCountAreNames) {
  const Function f = body_of(".reg .b32 %r<3>;\nmov.b32 %r2, %r3;");
  EXPECT_EQ(f.statements[0].operands[0].kind, Operand::Kind::kRegister);
  EXPECT_EQ(f.statements[0].operands[1].kind, Operand::Kind::kSpecial) << "the decoder refuses its name";
}

TEST(PtxParser, OperandsOfEveryKind) {
  const Function f = body_of(
      ".reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<3>;\n"
      "@!%p1 st.shared.v2.b32 [%rd1+-16], {%r1, _};\n"
      "setp.lt.s32 %p1|%p2, %r1, -5;\n"
      "mov.u32 %r2, %tid.x;\n"
      "mov.u64 %rd2, bytes+8;\n"
      "fma.rn.f32 %r3, %r4, 0fBF800000, -1.5;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile [%rd1], [%rd2, {%r1, %r2}], [%r5];\n"
      "mov.b32 %r6, WARP_SZ;\n"
      "and.pred %p1, %p2, !%p1;");
  const auto operand = [&](size_t statement, size_t i) { return f.statements[statement].operands.at(i); };
  EXPECT_GE(f.statements[0].guard, 0);
  EXPECT_TRUE(f.statements[0].guard_negated);
  EXPECT_THAT(f.statements[0].modifiers, ElementsAre("shared", "v2", "b32"));
  EXPECT_EQ(operand(0, 0).kind, Operand::Kind::kAddress);
  EXPECT_EQ(operand(0, 0).integer, -16);
  ASSERT_EQ(operand(0, 1).elements.size(), 2u);
  EXPECT_EQ(operand(0, 1).elements[1].kind, Operand::Kind::kSink);
  EXPECT_NE(operand(1, 0).second, -1);
  EXPECT_EQ(operand(1, 2).integer, -5);
  EXPECT_EQ(operand(2, 1).kind, Operand::Kind::kSpecial);
  EXPECT_EQ(operand(2, 1).name, "%tid.x");
  EXPECT_EQ(operand(3, 1).kind, Operand::Kind::kName);
  EXPECT_EQ(operand(3, 1).integer, 8);
  EXPECT_EQ(operand(4, 2).real, -1.0);
  EXPECT_EQ(operand(4, 3).real, -1.5);
  ASSERT_EQ(operand(5, 1).elements.size(), 2u) << "a tensor map and its coordinates";
  EXPECT_EQ(operand(5, 1).elements[1].elements.size(), 2u);
  EXPECT_EQ(operand(6, 1).integer, 32);
  EXPECT_TRUE(operand(7, 2).negated);
  EXPECT_THAT(f.statements[0].text, StartsWith("@!%p1 st.shared.v2.b32 [%rd1+-16]"));
}

TEST(PtxParser, LabelsBranchTargetsAndLinesOfTheSource) {
  const Function f = body_of(
      ".reg .b32 %r<2>;\n.loc 1 2 3\n.loc 1 4 5, function_name $L, inlined_at 1 6 7\n"
      "T: .branchtargets A, B;\n"
      "brx.idx %r1, T;\n"
      "A:\n.pragma \"nounroll\";\nB: ret;");
  EXPECT_THAT(f.branch_targets.at("T"), ElementsAre("A", "B"));
  ASSERT_EQ(f.statements.size(), 4u);
  EXPECT_EQ(f.statements[0].opcode, "brx");
  EXPECT_EQ(f.statements[1].label, "A");
  EXPECT_EQ(f.statements[2].label, "B");
  EXPECT_EQ(f.statements[3].opcode, "ret");
}

TEST(PtxParser, RefusalsSayLineAndWhatWasFound) {
  EXPECT_EQ(refusal_of_body("mov.b32 %r1 %r2;"), "ptx line 5: expected ',' or ';', found '%r2'");
  EXPECT_EQ(refusal_of_body("@%p1 bra L;"), "ptx line 5: unknown predicate '%p1'");
  EXPECT_EQ(refusal_of_body(". %r1;"), "ptx line 5: expected an instruction, found '.'");
  EXPECT_EQ(refusal_of_body(".reg .b33 %r<2>;"), "ptx line 5: unknown register type");
  EXPECT_EQ(refusal_of_body("mov.b32 -x, 1;"), "ptx line 5: a minus sign stands before 'x'");
  EXPECT_EQ(refusal(".address_size 32"), "ptx line 1: address size is not 64");
  EXPECT_EQ(refusal(".texref t;"), "ptx line 1: expected a state space, found '.texref'");
  EXPECT_EQ(refusal(".global .b31 x;"), "ptx line 1: unknown type '.b31' in a declaration");
  EXPECT_THAT(refusal(".global .u64 p = bytes;"), HasSubstr("addresses in initial values are not supported"));
  EXPECT_EQ(refusal(".entry f() .sideways { ret; }"),
            "ptx line 1: unknown directive '.sideways' of a function");
  EXPECT_THAT(refusal(".func f(.reg .b32 r) { ret; }"), HasSubstr("register parameters"));
}

// Each of these crashed or filled the machine's memory.
TEST(PtxParser, RefusesWhatNoGpuHasOrNoStackHolds) {
  const auto deep = [](const char* open) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += open;
    return text;
  };
  for (const char* open : {"{", "mov.b32 %r1, {"})
    EXPECT_THAT(refusal_of_body(deep(open)), HasSubstr("nested more than 64 deep"));
  for (const char* open : {"[", "("})
    EXPECT_THAT(refusal_of_body("mov.b32 %r1, " + deep(open)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal(".entry f(.param .b8 a[1073741824]) { ret; }"),
              HasSubstr("larger than the 32764 bytes"));
  EXPECT_THAT(refusal(".global .b8 g[16000000000] = {1};"), HasSubstr("'g' is larger than"));
  EXPECT_THAT(refusal(".shared .b8 s[4294967296];"), HasSubstr("larger than the 262144 bytes"));
  EXPECT_THAT(refusal(".global .b64 g[4294967296][4294967296];"), HasSubstr("'g' is larger than"));
  EXPECT_THAT(refusal(".global .b8 g[-1];"), HasSubstr("'g' is larger than"));
  for (const char* align : {"0", "3", "8192", "-16"})
    EXPECT_THAT(refusal(std::string(".global .align ") + align + " .b8 g;"),
                HasSubstr("allowed are powers of two"));
  EXPECT_EQ(refusal(".global .s64 g = -9223372036854775808;"), "no error");
  EXPECT_EQ(refusal_of_body("mov.b32 %r1, -9223372036854775808;"), "no error");
}

// A module cut off after any of its bytes: read or refused, never read on behind its end, never for ever.
TEST(PtxParser, ATextThatEndsAnywhereIsReadOrRefused) {
  const std::string whole =
      std::string(kHead) +
      ".file 1 \"a.cu\", 1, 2\n.global .f32 x[2] = {0f3F800000, 1.5};\n"
      ".entry f(.param .u64 p) .maxntid 32 {\n.reg .b32 %r<4>; .reg .pred %p<2>;\n"
      ".pragma \"nounroll\";\nL: @%p1 mov.b32 %r1, {%r2, %r3};\n"
      "T: .branchtargets L;\nP: .callprototype ();\n{ st.b32 [%r1+4], 0d3FF0000000000000; }\n"
      "/* end */ ret;\n}\n.section .debug { .b8 1 }\n";
  EXPECT_EQ(refusal(whole), "no error");
  int read = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string text = refusal(whole.substr(0, length));
    if (text == "no error")
      ++read;
    else
      EXPECT_THAT(text, StartsWith("ptx line ")) << length;
  }
  EXPECT_GT(read, 10);
  EXPECT_EQ(refusal(".section .debug"), "ptx line 1: expected '{', found the end of the text");
  EXPECT_EQ(refusal(".pragma \"nounroll\""), "ptx line 1: expected ';', found the end of the text");
  EXPECT_EQ(refusal(".global .attribute(.managed"), "ptx line 1: expected ')', found the end of the text");
}

}  // namespace
}  // namespace trigen::emulator
