// Tables, the progress bar and the option parsing, without running the program.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "check/text.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "generator/error.h"
#include "lab/result_tables.h"
#include "tests/unit/table_testing.h"

namespace trigen::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

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

// Four rows as `tune` prints them, 150 columns wide.
Table choices() {
  Table table({"=problem", "target", "=choice", ">time", "?>quartiles", "?>error"});
  for (const char* sizes : {"B=32,H=1,T=512", "B=16,H=1,T=1024", "B=8,H=4,T=2048"})
    table.add({std::string("forward,dtype=bf16,") + sizes + ",D=1024,K=1,pad=0", "sm_80",
               std::string("mma_sm80:tile=") + (sizes[2] == '8' ? "64x64x32" : "128x128x32") +
                   ",warps=2x2,stages=4,splitk=1,vec=8x8x8",
               "12.5 us", "12.3 us - 12.9 us", "1.2e-04"});
  return table;
}

TEST(Table, WhatAllRowsShareGoesAboveThem) {
  EXPECT_EQ(choices().text(80),
            "all rows: problem forward,dtype=bf16,D=1024; target sm_80; choice\n"
            "mma_sm80,warps=2x2,stages=4,splitk=1,vec=8x8x8\n"
            "problem         choice              time          quartiles    error\n"
            "B=32,T=512      tile=128x128x32  12.5 us  12.3 us - 12.9 us  1.2e-04\n"
            "B=16,T=1024     tile=128x128x32  12.5 us  12.3 us - 12.9 us  1.2e-04\n"
            "B=8,H=4,T=2048  tile=64x64x32    12.5 us  12.3 us - 12.9 us  1.2e-04\n");
}

TEST(Table, ColumnsThatAreLeftOutAreNamed) {
  EXPECT_EQ(choices().text(50),
            "all rows: problem forward,dtype=bf16,D=1024;\n"
            "target sm_80; choice\n"
            "mma_sm80,warps=2x2,stages=4,splitk=1,vec=8x8x8\n"
            "problem         choice              time\n"
            "B=32,T=512      tile=128x128x32  12.5 us\n"
            "B=16,T=1024     tile=128x128x32  12.5 us\n"
            "B=8,H=4,T=2048  tile=64x64x32    12.5 us\n"
            "left out: quartiles, error; --wide shows\n"
            "everything\n");
}

TEST(Table, NoRowIsWiderThanTheTerminal) {
  for (const int columns : {40, 60, 80, 100, 120}) {
    std::istringstream lines(choices().text(columns));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
  }
  Table one({"=problem", "note"});
  one.add(
      {"forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0,epilogue=bias+gelu", "a remark of several words"});
  EXPECT_EQ(one.text(40),
            "forward,dtype=bf16,B=32,T=512,D=1024,\n"
            "epilogue=bias+gelu\n"
            "  note  a remark of several words\n");
}

// The last column counts, and numbers are never broken.
TEST(Table, ARowThatIsTooWideIsACard) {
  Table table({"=problem", "target", "=choice", ">time", "?>quartiles", "provenance", ">dense", "?>error"});
  const std::vector<std::string> row = {
      "forward,dtype=f16,B=8,H=1,T=256,D=512,K=1,pad=0",
      "sm_90a",
      "wgmma_sm90:tile=128x128x64,warps=8x1,stages=5,splitk=1,raster=18,groups=1",
      "4.59 us",
      "-",
      "predicted",
      "7.54 us est.",
      "2.1e-04"};
  table.add(row);
  const std::string card =
      "forward,dtype=f16,B=8,T=256,D=512\n"
      "  target      sm_90a\n"
      "  choice      wgmma_sm90:tile=128x128x64,warps=8x1,stages=5,splitk=1,raster=18,\n"
      "              groups=1\n"
      "  time        4.59 us\n"
      "  provenance  predicted\n"
      "  dense       7.54 us est.\n"
      "  error       2.1e-04\n";
  EXPECT_EQ(table.text(80), card);
  // Several that no narrowing makes fit.
  std::vector<std::string> other = row;
  other[0] = "grad_input,dtype=bf16,B=4,H=1,T=128,D=96,K=1,pad=0", other[1] = "sm_80",
  other[2] = "simt:tile=64x64x8";
  other[5] = "measured before";
  table.add(other);
  std::istringstream lines(table.text(44));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 44u) << line;
}

TEST(Table, ColumnsThatHaveNothingAreForFilesAlone) {
  Table table({"name", ">error", "note"});
  table.add({"a", "-", ""});
  table.add({"b", "-", "-"});
  EXPECT_EQ(table.text(80), "name\na\nb\n");
  EXPECT_EQ(table.text(0), "name  error  note\na         -\nb         -  -\n");
}

// In a file and with --wide: the texts that other commands take, whole.
TEST(Table, WithoutALimitNothingIsShortened) {
  EXPECT_THAT(choices().text(0), HasSubstr("forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0   sm_80"));
}

TEST(Terminal, WrapsAtSpacesAndInsideLongWordsAfterCommas) {
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("tile=64x64x32,warps=2x2,stages=4", 20),
            (std::vector<std::string>{"tile=64x64x32,", "warps=2x2,stages=4"}));
  EXPECT_EQ(wrap("na\xc3\xafve \xe2\x82\xac", 7), (std::vector<std::string>{"na\xc3\xafve \xe2\x82\xac"}));
  EXPECT_EQ(wrap("aaaaaaaaaaaa", 5), (std::vector<std::string>{"aaaaa", "aaaaa", "aa"}));
  EXPECT_EQ(wrap("", 5), (std::vector<std::string>{""}));
}

TEST(Terminal, DurationsInHoursAndMinutes) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(119), "119 s");
  EXPECT_EQ(format_duration(120), "2 min");
  EXPECT_EQ(format_duration(3688), "61 min");
  EXPECT_EQ(format_duration(7200 + 300), "2 h 05 min");
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
      "[2/3] #####............... measuring 16/64, best 31.2 us, 12 s left (list 40 s)  simt:tile=64x64x8  "
      "forward,dtype=f16,B=1,T=8,D=8");
  EXPECT_EQ(ProgressDisplay::bar(progress, 1, 3, 40, 60).size(), 59U);
}

// What a display of a tune of `problems` has written once `use` is done with the first one.
template <class Use>
std::string displayed(bool terminal, int columns, size_t problems, const Use& use) {
  std::FILE* file = std::tmpfile();
  {
    ProgressDisplay display(file, terminal, columns, problems);
    display.begin(0);
    use(display);
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

// A log: a line for each finished problem, nothing for phases, no control characters.
TEST(Progress, ALogHasOneLineForEachFinishedProblem) {
  TuneProgress progress;
  progress.phase = "compiling";
  progress.total = 8;
  const std::string text = displayed(false, 0, 2, [&](ProgressDisplay& display) {
    for (progress.done = 0; progress.done < 8; ++progress.done) display.show(progress);
    display.finish("forward,dtype=f16,B=1,H=1,T=8,D=8,K=1,pad=0", "12.5 us measured", "simt:tile=64x64x8");
  });
  EXPECT_EQ(text,
            "[1/2] forward,dtype=f16,B=1,T=8,D=8  12.5 us measured (0 s, 0 s left)  simt:tile=64x64x8\n");
}

TEST(Progress, ATerminalKeepsTheFinishedLineAndRemovesTheBar) {
  TuneProgress progress;
  progress.phase = "compiling";
  progress.total = 8;
  const std::string text = displayed(true, 40, 1, [&](ProgressDisplay& display) {
    display.show(progress);
    display.finish("forward,dtype=f16,B=1,H=1,T=8,D=8,K=1,pad=0", "12.5 us measured", "simt:tile=64x64x8");
  });
  EXPECT_THAT(text, testing::StartsWith("\r\033[K[1/1] ...."));
  EXPECT_THAT(text, testing::EndsWith("\r\033[K[1/1] forwar...  12.5 us measured (0 s)\n"));
}

// The problem gives way, never the time that is left.
TEST(Progress, TheFinishedLineKeepsTheTimeThatIsLeft) {
  const std::string text = displayed(true, 80, 6, [](ProgressDisplay& display) {
    display.finish("forward,dtype=bf16,B=16,H=1,T=1024,D=1024,K=1,pad=0,epilogue=bias",
                   "4.59 us predicted, interrupted", "mma_sm80:tile=64x64x32");
  });
  EXPECT_THAT(text, testing::StartsWith(
                        "[1/6] forward,...epilogue=bias  4.59 us predicted, interrupted (0 s, 0 s left)"));
  EXPECT_LE(text.size(), 80U) << text;
}

TEST(ResultTables, TextHasAskedGotAndVerdict) {
  TableResult lacking = measured(0, 1.5, 0, false);
  lacking.problem = "grad_input,dtype=bf16,B=16,T=1024,D=1024";
  lacking.ran = false;
  lacking.note = "no kernel\nand a long tail";
  const std::string text = tables_text({measured(1.6, 1.5, 1.75, false), lacking}, 0);
  EXPECT_THAT(text, HasSubstr("t: a < b & c\n"));
  EXPECT_THAT(text, HasSubstr("1.50 (1.75)  1.600  met"));
  EXPECT_THAT(text, HasSubstr("missing"));
  EXPECT_THAT(text, HasSubstr("no kernel\n"));
  EXPECT_THAT(text, Not(HasSubstr("long tail")));
  EXPECT_THAT(tables_text({measured(1.6, 0, 0, false)}, 0), Not(HasSubstr("asked"))) << "no goal, no column";
}

TEST(ResultTables, NotesOfManyRowsAreCounted) {
  std::vector<TableResult> rows;
  for (const char* tokens : {"256", "512", "1024", "2048", "4096"}) {
    rows.push_back(measured(1.6, 1.5, 1.75, false));
    rows.back().problem = std::string("forward,dtype=bf16,B=16,D=1024,T=") + tokens;
    if (rows.size() > 1) rows.back().note = "the device slowed down meanwhile";
  }
  rows[0].note = "only here";
  const std::string text = tables_text(rows, 0);
  EXPECT_THAT(text, HasSubstr("4 of 5 rows: the device slowed down meanwhile\n"));
  EXPECT_THAT(text, HasSubstr("16,256,1024 forward: only here\n"));
  std::istringstream narrow(tables_text(rows, 60));
  for (std::string line; std::getline(narrow, line);) EXPECT_LE(line.size(), 60u) << line;
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

// A list that is shipped for every GPU has problems that an old one lacks the instructions for.
TEST(ProblemOptions, WhatATargetCannotDoIsLeftOutOfShippedListsAlone) {
  const std::string tf32 = "forward,dtype=f32,B=16,T=512,D=1024,math=tf32,epilogue=bias";
  const auto dropped = [](std::vector<std::string> arguments, const char* target) {
    CLI::App app;
    ProblemOptions options;
    options.add_to(app);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    auto list = llvm::cantFail(options.problems("core"));
    const size_t before = list.size();
    const size_t count = options.drop_unsupported(list, *llvm::cantFail(find_target(target)), "core");
    EXPECT_EQ(list.size(), before - count);
    return count;
  };
  EXPECT_GT(dropped({"--list", "mixers"}, "sm_70"), 0U);
  EXPECT_EQ(dropped({"--list", "mixers"}, "sm_80"), 0U);
  EXPECT_EQ(dropped({tf32}, "sm_70"), 0U);
  EXPECT_EQ(dropped({}, "sm_70"), 0U);
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
