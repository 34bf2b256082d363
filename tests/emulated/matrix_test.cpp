// Every family over op x data type x layout x taps x epilogue, with odd sizes, on the emulated device against
// the double-precision reference. Each cell either runs and is right, or is one that `missing` names with its
// reason; a family that begins to serve such a cell, or stops to serve another, fails here.
#include <gtest/gtest.h>

#include <algorithm>

#include "check/selection.h"
#include "check/verify.h"
#include "runtime/compile.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

// f32 data that matrix instructions multiply as something narrower.
bool splits(const std::string& type) { return type == "tf32" || type == "f16x3"; }

struct Cell {
  std::string op, type, layout, epilogue;
  int taps = 1;
  int place = 0;   // the sum of the places of type, layout, epilogue and taps in their lists
  int fourth = 0;  // which fourth of its op's cells: in each any two of these four meet in all ways

  // Sizes are no multiple of a tile's; `copies`: so many tokens, and rows of x and y come in 16-byte pieces, as
  // TMA needs; 0: any rows.
  std::string problem(int copies) const {
    std::string text = op + (splits(type) ? ",dtype=f32,math=" + type : ",dtype=" + type) +
                       ",layout=" + layout + ",K=" + std::to_string(taps);
    text += copies > 0 ? ",B=2,D=40,T=" +
                             std::to_string(op == "newton_schulz" ? 125 : copies)  // every target takes 128
            : op == "decode" ? ",B=3,T=67,D=33,rows=3"
                             : ",B=3,T=67,D=33";
    if (copies > 0 && type == "tf32") text += ",align=16,walign=16";
    return epilogue.empty() ? text : text + ",epilogue=" + epilogue;
  }
};

bool one_of(const std::string& text, std::initializer_list<const char*> list) {
  for (const char* each : list)
    if (text == each) return true;
  return false;
}

bool scans(const std::string& op) { return one_of(op, {"scan", "scan_grad_input", "scan_grad_weight"}); }

std::vector<Cell> all_cells() {
  const std::vector<std::string> forward = {"", "bias", "bias+gelu+pre", "bias+silu+gate+residual"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> ops = {
      {"forward", forward},
      {"grad_input", {"", "residual"}},
      {"grad_weight", {"", "bias", "bias+accumulate", "bias+zero_outside"}},
      {"decode", forward},
      {"grad_epilogue", {"gelu", "silu+gate", "gate"}},
      {"gram", {"", "mirror", "residual", "residual+mirror"}},
      {"scan", forward},
      {"scan_grad_input", {"", "residual"}},
      {"scan_grad_weight", {"", "bias", "grad_input"}},
      {"newton_schulz", {""}}};
  const std::vector<std::string> types = {"f16", "bf16", "f32", "tf32", "f16x3"}, layouts = {"btd", "bdt"};
  std::vector<Cell> cells;
  for (const auto& [op, epilogues] : ops)
    for (size_t type = 0; type < types.size(); ++type)
      for (size_t layout = 0; layout < layouts.size(); ++layout)
        for (const int taps : {1, 4})
          for (size_t epilogue = 0; epilogue < epilogues.size(); ++epilogue)
            if ((!(one_of(op, {"decode", "grad_epilogue", "newton_schulz"}) || scans(op)) ||
                 !splits(types[type])) &&
                (!(one_of(op, {"grad_epilogue", "gram"}) || scans(op)) || taps == 1))  // else no such problem
              cells.push_back({op, types[type], layouts[layout], epilogues[epilogue], taps,
                               static_cast<int>(type + layout + epilogue) + (taps > 1),
                               static_cast<int>((type + layout + epilogue) % 2 +
                                                (type + epilogue / 2 + (taps > 1)) % 2 * 2)});
  return cells;
}

// The reason why a family does not serve a cell, "" where it does. A family without an entry fails.
std::string missing(const std::string& family, const Cell& cell) {
  const bool sixteen = one_of(cell.type, {"f16", "bf16"}),
             product = one_of(cell.op, {"forward", "grad_input"});
  const bool contiguous = cell.layout == "btd";
  if (family == "decode")
    return cell.op != "decode"   ? "makes decode only"
           : cell.type == "tf32" ? "has no matrix instructions"
                                 : "";
  if (family == "grad_epilogue") return cell.op == family ? "" : "makes grad_epilogue only";
  if (family == "scan") return scans(cell.op) ? "" : "makes scans only";
  if (one_of(family, {"newton_schulz_sm80", "newton_schulz_sm90"}))
    return cell.op == "newton_schulz" ? "" : "makes newton_schulz only";
  if (one_of(cell.op, {"decode", "grad_epilogue", "newton_schulz"}) || scans(cell.op))
    return "makes whole products";
  if (family == "simt") return cell.type == "tf32" ? "has no matrix instructions" : "";  // f16x3 as f32
  if (one_of(family, {"mma_sm70", "mma_sm75"})) return cell.type == "f16" ? "" : "multiplies f16";
  if (family == "mma_sm80") return sixteen || cell.type == "tf32" ? "" : "multiplies f16, bf16 and tf32";
  if (family == "mma_tma_sm90")
    return !sixteen        ? "multiplies f16 and bf16"
           : !product      ? "makes forward and grad_input"
           : cell.taps > 1 ? "has one tap"
           : !contiguous   ? "reads contiguous features"
                           : "";
  if (family == "wgmma_sm90")
    return !sixteen                   ? "multiplies f16 and bf16"
           : product && cell.taps > 1 ? "has taps in grad_weight only"
                                      : "";
  if (family == "wgmma_rows_sm90")
    return !sixteen        ? "multiplies f16 and bf16"
           : !product      ? "makes forward and grad_input"
           : cell.taps > 1 ? "has one tap"
           : !contiguous   ? "reads contiguous features"
                           : "";
  if (family == "wgmma_tf32_sm90")
    return cell.type != "tf32"         ? "multiplies tf32"
           : !product && cell.taps > 1 ? "has taps in forward and grad_input only"
                                       : "";
  if (family == "wgmma_resident_sm90")
    return !sixteen        ? "multiplies f16 and bf16"
           : !product      ? "makes forward and grad_input"
           : cell.taps > 1 ? "has one tap"
           : !contiguous   ? "moves tokens in rows of 16 bytes, T=53 has none"
           : one_of(cell.epilogue, {"", "bias", "residual"}) ? ""
                                                             : "adds and activates only: no pre, no gate";
  if (family == "wgmma_split_sm90")
    return cell.type != "f16x3" ? "multiplies f32 as planes of f16"
           : !contiguous        ? "reads contiguous features"
           : cell.taps > 1      ? "has one tap"
                                : "";
  if (family == "wgmma_taps_sm90")
    return !sixteen && (cell.type != "tf32" || product) ? "multiplies f16 and bf16, and tf32 for grad_weight"
           : cell.taps < 2                              ? "has two taps or more"
                                                        : "";
  return "?";
}

// The first target that has the family's instructions.
const Target* home_of(const Family& family) {
  for (const char* name : {"sm_70", "sm_75", "sm_80", "sm_100a", "sm_90a"}) {
    auto target = find_target(name);
    if (!target) {
      ADD_FAILURE() << llvm::toString(target.takeError());
      return nullptr;
    }
    if (family.serves(**target) &&
        (!one_of(family.name().str(), {"decode", "grad_epilogue", "scan"}) || (*target)->name == "sm_80"))
      return *target;
  }
  return nullptr;
}

struct Served {
  Cell cell;
  Candidate candidate;
  std::optional<Binary> binary;
};

// "" or what was wrong.
std::string check(const Device& device, const Served& run) {
  for (const Rows& rows : rows_to_check(run.candidate.problem)) {
    WorkbenchOptions options;
    options.rows = rows;
    auto bench = Workbench::create(device, run.candidate.problem, options);
    if (!bench) return llvm::toString(bench.takeError());
    const Reference reference(run.candidate.problem, (*bench)->list(), (*bench)->inputs(), {});
    auto plan = Plan::of(run.candidate, *run.binary, device, LoadFrom::kPtx);
    if (!plan) return llvm::toString(plan.takeError());
    auto result = verify(**plan, **bench, reference);
    if (!result) return llvm::toString(result.takeError());
    if (!result->ok) return result->failure;
  }
  return "";
}

class Matrix : public ::testing::TestWithParam<std::string> {};

TEST_P(Matrix, EveryCellRunsOrIsNamed) {
  const std::string& name = GetParam();
  auto found = find_family(name);
  ASSERT_TRUE(static_cast<bool>(found)) << llvm::toString(found.takeError());
  const Family& family = **found;
  const Target* target = home_of(family);
  ASSERT_NE(target, nullptr) << name << " serves no target of the list";
  // A Hopper runs every older target's PTX, too.
  auto device = Device::open(target->name == "sm_100a" ? "emulated:sm_100a" : "emulated:sm_90a");
  ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
  auto store = Store::open({});
  const bool copies_boxes =
      (name.rfind("wgmma", 0) == 0 && name != "wgmma_rows_sm90") || name == "mma_tma_sm90";
  const int copies = name == "wgmma_resident_sm90" ? 53 : copies_boxes ? 133 : 0;

  std::vector<Served> runs;
  std::map<std::string, int> unsupported;
  for (const Cell& cell : all_cells()) {
    const std::string text = cell.problem(copies), why = missing(name, cell);
    ASSERT_NE(why, "?") << name << " has no entry in the list of what families do not serve";
    auto problem = parse_problem(text);
    ASSERT_TRUE(static_cast<bool>(problem)) << text << ": " << llvm::toString(problem.takeError());
    Selection selection;
    selection.family = &family;
    auto selected = select(*problem, *target, nullptr, *store, selection);
    if (why.empty() && selected) {
      runs.push_back({cell, selected->front(), std::nullopt});
    } else if (why.empty()) {
      ADD_FAILURE() << text << ": " << name << " does not serve it: " << llvm::toString(selected.takeError());
    } else {
      EXPECT_FALSE(static_cast<bool>(selected))
          << text << ": " << name << " serves it now, the list says: " << why;
      if (!selected) llvm::consumeError(selected.takeError());
      ++unsupported[why];
    }
  }
  ASSERT_FALSE(runs.empty());
  // Of a family with many cells a quick run takes the even places: where n of type, layout, taps and epilogue vary
  // for an op, any n - 1 of them meet in all ways. Of an op with 16 and more one fourth: where all four vary any two
  // meet, elsewhere each is there. Of newton_schulz, which compiles for seconds, each type once.
  if (runs.size() >= 32 || runs.front().cell.op == "newton_schulz") {
    std::map<std::string, int> of_op;
    for (const Served& run : runs) ++of_op[run.cell.op];
    const auto left_out = [&](const Served& run) {
      return of_op[run.cell.op] >= 16 ? !takes(run.cell.fourth, 4) : !takes(run.cell.place, 2);
    };
    runs.erase(std::remove_if(runs.begin(), runs.end(), left_out), runs.end());
  }

  std::vector<ErrorText> failures(runs.size());
  std::vector<Candidate> candidates;
  for (const Served& run : runs) candidates.push_back(run.candidate);
  BuildAllOptions options;
  options.code = Code::kPtx;
  build_all(candidates, *store, options, [&](size_t index, llvm::Expected<BuiltBinary> built) {
    if (built)
      runs[index].binary = std::move(built->binary);
    else
      failures[index] = take_error(built.takeError());
    return true;
  });
  if (failures.front().kind == ErrorKind::kNoCompiler) GTEST_SKIP() << failures.front().message;

  std::map<std::string, int> right;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Served& run = runs[i];
    const std::string failure = run.binary ? check(**device, run) : failures[i].message;
    EXPECT_EQ(failure, "") << to_string(run.candidate.problem) << " " << describe(run.candidate);
    if (failure.empty())
      ++right[run.cell.op + " " + run.cell.type + " " + run.cell.layout +
              " K=" + std::to_string(run.cell.taps)];
  }
  std::printf("%s on %s, %s:\n", name.c_str(), target->name.data(),
              copies > 0 ? ("T=" + std::to_string(copies) + ", D=40").c_str() : "T=67, D=33");
  for (const auto& [row, count] : right) std::printf("  %-28s %d epilogues\n", row.c_str(), count);
  for (const auto& [why, count] : unsupported) std::printf("  %d cells not served: %s\n", count, why.c_str());
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.push_back(family->name().str());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, Matrix, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trigen
