// Tables, the progress bar and the option parsing, without running the program.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "check/text.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "generator/error.h"

namespace trigen::cli {
namespace {

using testing::HasSubstr;

TEST(Table, ShowsWhatATerminalWouldObey) {
  Table table({"device"});
  table.add({"\x1b]52;c;cm0gLXJm\x07 na\xc3\xafve \xe2\x82\xac\xc2\x9b 2J\xff\n\x7f"});
  EXPECT_EQ(table.text(),
            "device\n\\x1b]52;c;cm0gLXJm\\x07 na\xc3\xafve \xe2\x82\xac\\xc2\\x9b 2J\\xff\\x0a\\x7f\n");
}

TEST(Table, AlignsColumns) {
  Table table({"name", ">us"});
  table.add({"a", "12.5"});
  table.add({"longer", "1"});
  EXPECT_EQ(table.text(), "name      us\na       12.5\nlonger     1\n");
}

TEST(Progress, BarShowsBestAndEta) {
  TuneProgress progress;
  progress.problem = "forward,dtype=f16,B=1,H=1,T=8,D=8,K=1,pad=0";
  progress.phase = "measuring";
  progress.done = 16;
  progress.total = 64;
  progress.best_s = 31.25e-6;
  progress.best = "simt:tile=64x64x8";
  progress.eta_s = 12;
  EXPECT_EQ(
      ProgressDisplay::bar(progress, 1, 3, 40, 0),
      "[2/3] #####............... measuring 16/64, best 31.2 us, eta 12 s (list 40 s)  simt:tile=64x64x8  " +
          progress.problem);
  EXPECT_EQ(ProgressDisplay::bar(progress, 1, 3, 40, 60).size(), 59U);
}

TEST(Progress, PlainLinesHaveNoControlCharacters) {
  std::FILE* file = std::tmpfile();
  TuneProgress progress;
  progress.phase = "compiling";
  progress.total = 8;
  {
    ProgressDisplay display(file, false, 80, 1);
    for (progress.done = 0; progress.done < 8; ++progress.done) display.show(progress);
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);  // one line for the phase, the rest is too soon
}

TEST(Format, ThreeDigits) {
  EXPECT_EQ(format_seconds(1.234e-6), "1.23 us");
  EXPECT_EQ(format_seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(format_seconds(123.4e-6), "123 us");
  EXPECT_EQ(format_seconds(1.234e-3), "1.23 ms");
  EXPECT_EQ(format_seconds(12), "12.0 s");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
}

llvm::Expected<std::vector<Problem>> parse(std::vector<std::string> arguments,
                                           llvm::StringRef fallback = "") {
  CLI::App app;
  ProblemOptions options;
  options.add_to(app);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return options.problems(fallback);
}

std::string message(llvm::Expected<std::vector<Problem>> result) {
  if (result) return "";
  return take_error(result.takeError()).message;
}

TEST(ProblemOptions, FlagsAndTextAreTheSameProblem) {
  auto flags = parse({"--op",     "forward", "--dtype",  "bf16",  "-B",         "32",       "-H",       "2",
                      "-T",       "512",     "-D",       "1024",  "-K",         "3",        "--pad",    "2",
                      "--layout", "bdt",     "--fill",   "upper", "--diag",     "-1",       "--wdtype", "f32",
                      "--align",  "4",       "--walign", "8",     "--epilogue", "bias+gelu"});
  auto text = parse(
      {"forward,dtype=bf16,B=32,H=2,T=512,D=1024,K=3,pad=2,layout=bdt,fill=upper,diag=-1,wdtype=f32,align=4,"
       "walign=8,epilogue=bias+gelu"});
  ASSERT_TRUE(static_cast<bool>(flags));
  ASSERT_TRUE(static_cast<bool>(text));
  ASSERT_EQ(flags->size(), 1U);
  EXPECT_EQ(flags->front(), text->front());
  auto tf32 =
      parse({"--op", "grad_weight", "--dtype", "f32", "--math", "tf32", "-B", "1", "-T", "2", "-D", "3"});
  ASSERT_TRUE(static_cast<bool>(tf32));
  EXPECT_EQ(to_string(tf32->front()), "grad_weight,dtype=f32,B=1,H=1,T=2,D=3,K=1,pad=0,math=tf32");
}

TEST(ProblemOptions, EverythingThatIsNamedIsTaken) {
  const std::string path = testing::TempDir() + "/list" + std::to_string(::getpid()) + ".txt";
  std::ofstream(path) << "# two\nforward,dtype=f16,B=1,T=2,D=3\n\ngrad_input,dtype=f16,B=1,T=2,D=3 # tail\n";
  auto list = parse({"forward,dtype=f32,B=1,T=2,D=3", "--problems", path, "--op", "forward", "--dtype",
                     "bf16", "-B", "1", "-T", "2", "-D", "3"});
  ASSERT_TRUE(static_cast<bool>(list));
  ASSERT_EQ(list->size(), 4U);
  EXPECT_EQ((*list)[2].op, Op::kGradInput);
  EXPECT_EQ((*list)[3].dtype, DType::kBF16);
  std::ofstream(path) << "forward,dtype=f16,B=1,T=2,D=3\nforward,dtype=f16,B=1,T=zwei,D=3\n";
  EXPECT_THAT(message(parse({"--problems", path})),
              testing::AllOf(HasSubstr(path), HasSubstr("2"), HasSubstr("zwei")));
  ::unlink(path.c_str());
}

TEST(ProblemOptions, ShippedListsParse) {
  for (const char* name : {"core", "mixers"}) {
    auto list = parse({"--list", name});
    ASSERT_TRUE(static_cast<bool>(list)) << name;
    EXPECT_GT(list->size(), 9U);
    auto by_file_option = parse({"--problems", name});
    ASSERT_TRUE(static_cast<bool>(by_file_option));
    EXPECT_EQ(by_file_option->size(), list->size());
  }
  auto fallback = parse({}, "core");
  ASSERT_TRUE(static_cast<bool>(fallback));
  EXPECT_GT(fallback->size(), 9U);
}

TEST(ProblemOptions, ErrorsSayWhatIsAllowed) {
  EXPECT_THAT(message(parse({})), HasSubstr("no problem is named"));
  EXPECT_THAT(message(parse({"--list", "cores"})), HasSubstr("shipped are core or mixers"));
  EXPECT_THAT(message(parse({"-T", "4"})), HasSubstr("add --op"));
  EXPECT_THAT(message(parse({"--op", "forward", "--dtype", "f16", "-B", "1", "-T", "0", "-D", "3"})),
              HasSubstr("T=0; allowed are 1"));
  EXPECT_THAT(message(parse({"--problems", "/nowhere/list.txt"})),
              HasSubstr("cannot read the problem list /nowhere/list.txt"));
}

}  // namespace
}  // namespace trigen::cli
