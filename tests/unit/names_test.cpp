#include "generator/names.h"

#include <gmock/gmock.h>

#include "generator/error.h"

namespace trigen {
namespace {

using ::testing::IsEmpty;

template <class T>
std::string refusal(llvm::Expected<T> value) {
  return value ? "no error" : take_error(value.takeError()).message;
}

TEST(Names, QuotedTokensAreShortAndHarmless) {
  EXPECT_EQ(trigen::quoted("dtype"), "'dtype'");
  EXPECT_EQ(trigen::quoted("a\x1b[2J"), "'a\\x1b[2J'");
  EXPECT_EQ(trigen::quoted(std::string(41, 'x')), "'" + std::string(40, 'x') + "...'");
  EXPECT_EQ(trigen::quoted(std::string(40, 'x')), "'" + std::string(40, 'x') + "'");
  EXPECT_EQ(trigen::quoted(llvm::StringRef("a\0b", 3)), "'a\\x00b'");
}

// Control characters, in any disguise, are spelled out; other alphabets are not.
TEST(Names, PrintableTextHoldsNoControlCharacters) {
  EXPECT_EQ(printable("plain text, 100 %"), "plain text, 100 %");
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_EQ(printable("a\nb\tc\r", /*lines=*/true), "a\nb\tc\\x0d");
  EXPECT_EQ(printable("gr\xc3\xb6\xc3\x9f"
                      "e"),
            "gr\xc3\xb6\xc3\x9f"
            "e");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J")
      << "the control sequence introducer as U+009B";
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "\\x9b2J")
      << "and as a byte";
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut off";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  for (const char* mark : {"\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8", "\xe2\x80\xaa",
                           "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"}) {
    for (const char c : printable(mark)) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << "a mark that turns text";
  }
  EXPECT_EQ(printable("\xe2\x80\x93 \xe2\x82\xac \xe2\x81\xb0"), "\xe2\x80\x93 \xe2\x82\xac \xe2\x81\xb0")
      << "their neighbours";
  for (int byte = 0; byte < 256; ++byte) {
    const char text[] = {static_cast<char>(byte), 0};
    for (const char c : printable(llvm::StringRef(text, 1))) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << byte;
  }
}

TEST(Names, CloseNamesAreOffered) {
  const llvm::StringRef names[] = {"dtype", "wdtype", "layout", "fill"};
  EXPECT_EQ(did_you_mean("dtyp", names), "; did you mean 'dtype'?");
  EXPECT_EQ(did_you_mean("DTYPE", names), "; did you mean 'dtype'?");
  EXPECT_EQ(did_you_mean("layouts", names), "; did you mean 'layout'?");
  EXPECT_EQ(did_you_mean("x", names), "") << "too short to mean anything";
  EXPECT_EQ(did_you_mean("something", names), "");
  EXPECT_EQ(did_you_mean(std::string(100000, 'd'), names), "");
}

TEST(Names, ListsInWords) {
  EXPECT_EQ(one_of({"a"}), "a");
  EXPECT_EQ(one_of({"a", "b"}), "a or b");
  EXPECT_EQ(one_of({"a", "b", "c"}), "a, b or c");
  EXPECT_EQ(all_of({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(one_of({}), "");
}

TEST(Names, IntegersAreWholeTokensOf64Bits) {
  EXPECT_EQ(llvm::cantFail(parse_integer("T", "-12")), -12);
  EXPECT_EQ(llvm::cantFail(parse_integer("T", "9223372036854775807")), INT64_MAX);
  EXPECT_EQ(llvm::cantFail(parse_integer("T", "-9223372036854775808")), INT64_MIN);
  EXPECT_EQ(llvm::cantFail(parse_integer("T", "007")), 7) << "decimal, whatever leads";
  EXPECT_EQ(refusal(parse_integer("T", "9223372036854775808")),
            "T='9223372036854775808' does not fit 64 bits; give a smaller number");
  for (const char* text : {"", "-", "1k", "0x10", " 1", "1 ", "+1", "1.0", "--1"})
    EXPECT_EQ(refusal(parse_integer("T", text)),
              "T='" + std::string(text) + "' is not a number; give decimal digits, as in T=1024");
}

TEST(Names, FieldsKnowTheirColumns) {
  const auto fields = llvm::cantFail(split_fields("problem", "forward, T=8\tD=,x=y=z"));
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(fields[0].key, "forward");
  EXPECT_FALSE(fields[0].has_value);
  EXPECT_EQ(fields[1].key, "T");
  EXPECT_EQ(fields[1].value, "8");
  EXPECT_EQ(fields[1].column, 10u);
  EXPECT_TRUE(fields[2].has_value);
  EXPECT_EQ(fields[2].value, "");
  EXPECT_EQ(fields[2].column, 14u);
  EXPECT_EQ(fields[3].key, "x");
  EXPECT_EQ(fields[3].value, "y=z") << "the first = divides";
  EXPECT_THAT(llvm::cantFail(split_fields("problem", " \n")), IsEmpty());
}

TEST(Names, EmptyFieldsAndEndlessTextAreRefused) {
  const auto at = [](const char* text) { return refusal(split_fields("config", text)); };
  const std::string rest = " of the config; put one comma between two fields and none at the ends";
  EXPECT_EQ(at("a,,b"), "empty field at column 3" + rest);
  EXPECT_EQ(at(",a"), "empty field at column 1" + rest);
  EXPECT_EQ(at("a,"), "empty field at column 2" + rest);
  EXPECT_EQ(at("a, ,b"), "empty field at column 4" + rest);
  EXPECT_EQ(refusal(split_fields("config", std::string(4096, 'a'))), "no error");
  EXPECT_EQ(refusal(split_fields("config", std::string(4097, 'a'))),
            "config text of 4097 bytes; allowed are 4096, check that it is one config");
}

}  // namespace
}  // namespace trigen
