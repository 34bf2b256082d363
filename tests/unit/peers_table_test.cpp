// Benchmark tables: the list, the lines of results, the verdicts, and the drawing.
#include <gmock/gmock.h>

#include "generator/error.h"
#include "lab/plot.h"
#include "tests/files.h"
#include "tests/unit/table_testing.h"

namespace trigen {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<TableGroup> parse(const char* text) {
  auto groups = parse_table_list(text);
  EXPECT_TRUE(static_cast<bool>(groups)) << take_error(groups.takeError()).message;
  return *groups;
}

std::string refusal(const char* text) {
  auto groups = parse_table_list(text);
  if (groups) return "";
  return take_error(groups.takeError()).message;
}

TEST(TableList, ReadsTablesRowsAndFigures) {
  const auto groups = parse(
      "# first\n[a] Some title\nforward,dtype=f16,B=1,T=8,D=8 | ask=1.2 stretch=1.35 # why\n\n"
      "[b]\nforward,B=1 + grad_input,B=1 | at_most=0.62 over=pass\nnothing,asked=1\n");
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].title, "Some title");
  EXPECT_DOUBLE_EQ(groups[0].rows[0].asked, 1.2);
  EXPECT_DOUBLE_EQ(groups[0].rows[0].stretch, 1.35);
  EXPECT_EQ(groups[0].rows[0].over, PeerKind::kCublas);
  EXPECT_EQ(groups[1].rows[0].problems, (std::vector<std::string>{"forward,B=1", "grad_input,B=1"}));
  EXPECT_TRUE(groups[1].rows[0].at_most);
  EXPECT_EQ(groups[1].rows[0].over, PeerKind::kPass);
  EXPECT_EQ(groups[1].rows[1].asked, 0);
}

TEST(TableList, RowsOfDecodeAreRowsOfTheirOwn) {
  const auto groups = parse(
      "[a] x\ndecode,dtype=f16,B=1,T=8,D=8 | over=copy\ndecode,dtype=f16,B=1,T=8,D=8 | over=copy "
      "first_row=3\n");
  EXPECT_FALSE(groups[0].rows[0].first_row.has_value());
  EXPECT_EQ(groups[0].rows[1].first_row, 3);
  EXPECT_EQ(groups[0].rows[1].text(), "decode,dtype=f16,B=1,T=8,D=8 at row 3");
  EXPECT_EQ(short_label(groups[0].rows[1].text()), "1,8,8 f16 at row 3");
  EXPECT_EQ(llvm::cantFail(problems_of(groups)).size(), 1U) << "one plan serves both";
  EXPECT_THAT(refusal("[a] x\ndecode | first_row=-1\n"),
              HasSubstr("'first_row=-1'; first_row is a row of decode"));
}

TEST(TableList, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(refusal(""), HasSubstr("no table"));
  EXPECT_THAT(refusal("forward,B=1\n"), HasSubstr("line 1: a row before the first [table]"));
  EXPECT_THAT(refusal("[a] x\n\n[a] y\n"), HasSubstr("line 3: table a is there twice"));
  EXPECT_THAT(refusal("[a] x\nforward | over=fast\n"),
              HasSubstr("line 2: 'over=fast'; allowed are over=cublas"));
  EXPECT_THAT(refusal("[a] x\nforward | ask=-1\n"), HasSubstr("'ask=-1' after '|'"));
  EXPECT_THAT(refusal("[a] x\nforward | ask=1 at_most=1\n"), HasSubstr("two figures"));
  EXPECT_THAT(refusal("[a] x\n | ask=1\n"), HasSubstr("no problem before"));
  EXPECT_THAT(refusal("[a\nforward\n"), HasSubstr("a table is [name] title"));
}

// The list that the repository ships parses, and every row asks for something.
TEST(TableList, TheHopperListIsWhole) {
  const auto groups = parse(slurp(TRIGEN_SOURCE "/bench/hopper.txt").c_str());
  ASSERT_GE(groups.size(), 8U);
  EXPECT_EQ(groups[0].rows.size(), 24U);
  for (const TableGroup& group : groups)
    for (const TableRow& row : group.rows) EXPECT_GT(row.asked, 0) << row.text();
}

TEST(TableList, GivesItsProblemsOnceWithThePlainOnes) {
  const char* text =
      "# x\n[a] A\nforward,dtype=f16,B=1,T=8,D=8 + grad_input,dtype=f16,B=1,T=8,D=8\n"
      "forward,dtype=f16,B=1,T=8,D=8\nunknown,B=1\n[b] B\nforward,dtype=f16,B=1,T=16,D=8,epilogue=bias | "
      "over=plain\n";
  EXPECT_TRUE(is_table_list(text));
  EXPECT_FALSE(is_table_list("# x\nforward,dtype=f16,B=1,T=8,D=8\n"));
  const auto groups = parse(text);
  EXPECT_EQ(llvm::cantFail(problems_of(groups)).size(), 4U);
  const auto second = llvm::cantFail(problems_of(groups, "b"));
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(to_string(second[1]), "forward,dtype=f16,B=1,H=1,T=16,D=8,K=1,pad=0");
  auto none = problems_of(groups, "c");
  ASSERT_FALSE(static_cast<bool>(none));
  EXPECT_THAT(take_error(none.takeError()).message, HasSubstr("no table c; the list has a, b"));
}

TEST(TableResult, Verdicts) {
  EXPECT_EQ(measured(1.6, 1.5, 1.75, false).verdict(), Verdict::kMet);
  EXPECT_EQ(measured(1.8, 1.5, 1.75, false).verdict(), Verdict::kStretch);
  EXPECT_EQ(measured(1.4, 1.5, 1.75, false).verdict(), Verdict::kMissed);
  EXPECT_EQ(measured(0.6, 0.62, 0, true).verdict(), Verdict::kMet);
  EXPECT_EQ(measured(0.63, 0.62, 0, true).verdict(), Verdict::kMissed);
  EXPECT_EQ(measured(1.1, 0, 0, false).verdict(), Verdict::kMeasured);
  TableResult none = measured(0, 1.5, 0, false);
  EXPECT_EQ(none.verdict(), Verdict::kRuns);
  none.ran = false;
  EXPECT_EQ(none.verdict(), Verdict::kMissing);
}

TEST(TableResult, LineRoundTripAndDamage) {
  TableResult result = measured(0.6, 0.62, 0, true);
  result.behind_got = 0.7;
  result.behind_seconds = 33e-6;
  result.behind_peer_seconds = 47e-6;
  result.floor_seconds = 20e-6;
  result.bound = "bytes";
  const std::string line = to_json_line(result);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = read_json_line(line);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(to_json_line(*read), line);
  EXPECT_TRUE(read->at_most);
  EXPECT_NEAR(read->arms[1].upper_s, 51e-6, 1e-12);
  EXPECT_NEAR(read->behind_peer_seconds, 47e-6, 1e-12);
  for (size_t cut = 0; cut < line.size(); ++cut)
    EXPECT_FALSE(read_json_line(line.substr(0, cut)).has_value());
}

TEST(TableResult, TheLatestLineOfARowCountsButNoFailureHidesAFigure) {
  TableResult skipped = measured(0, 1.5, 0, false);
  skipped.ran = false;
  const auto kept = latest({skipped, measured(1.4, 1.5, 0, false), measured(1.6, 1.5, 0, false), skipped});
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_DOUBLE_EQ(kept[0].got, 1.6);
}

// A kernel that became wrong does not show its old figure alone, and the figure is not lost either.
TEST(TableResult, AFailureStandsBesideTheOlderFigure) {
  TableResult failure = measured(0, 1.5, 0, false);
  failure.ran = false;
  failure.failed = true;
  failure.note = "gives a wrong result";
  const TableResult figure = measured(1.6, 1.5, 0, false);
  const auto after = latest({figure, *read_json_line(to_json_line(failure))});
  ASSERT_EQ(after.size(), 1U);
  EXPECT_DOUBLE_EQ(after[0].got, 1.6);
  EXPECT_EQ(after[0].verdict(), Verdict::kFails);
  EXPECT_EQ(after[0].note, "gives a wrong result; the figure is an earlier run's");
  EXPECT_EQ(latest({figure, failure, figure})[0].verdict(), Verdict::kMet) << "cured";
  EXPECT_EQ(latest({failure})[0].verdict(), Verdict::kFails);
}

TEST(TableResult, Labels) {
  EXPECT_EQ(short_label("forward,dtype=bf16,B=16,T=1024,D=1024"), "16,1024,1024");
  EXPECT_EQ(short_label("forward,dtype=bf16,B=16,H=4,T=1024,D=256,K=4"), "16,1024,4x256 K=4 pad=1");
  EXPECT_EQ(short_label("forward,dtype=f16,B=2,T=64,D=64,wdtype=f32,epilogue=bias+silu"),
            "2,64,64 f16 W f32 bias+silu");
  EXPECT_EQ(short_label("unknown,B=1"), "unknown,B=1");
}

TEST(Plot, DrawsBarsMarksAndEscapes) {
  TableResult grad = measured(1.2, 1.5, 0, false);
  grad.problem = "grad_weight,dtype=bf16,B=16,T=1024,D=1024";
  TableResult lacking = measured(0, 1.5, 0, false);
  lacking.problem = "grad_input,dtype=bf16,B=16,T=1024,D=1024";
  lacking.ran = false;
  const std::string svg = plot_svg({measured(1.6, 1.5, 1.75, false), grad, lacking});
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, Not(HasSubstr("a < b")));
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<title>"), 2U);                  // two bars
  EXPECT_EQ(count("fill-opacity=\"0.45\""), 1U);    // one of them missed
  EXPECT_EQ(count("stroke-width=\"2.5\""), 3U);     // three figures asked
  EXPECT_EQ(count("stroke-width=\"0.8\""), 1U);     // one stretch
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));  // the line at 1
}

}  // namespace
}  // namespace trigen
