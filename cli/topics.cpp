// The pages of `trigen help` that are no command's.
#include "check/text.h"
#include "cli/command.h"
#include "cli/help.h"
#include "generator/names.h"
#include "generator/problem_fields.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

// "; of forward and decode: bias, gelu or silu, ...; of grad_input: residual; ...": ops with the same parts together.
std::string parts_of_ops() {
  std::vector<std::pair<std::string, std::string>> groups;  // parts, ops
  for (size_t op = 0; op < std::size(kOpNames); ++op) {
    std::string parts;
    for (const ProblemField& field : problem_fields())
      if (field.place == ProblemField::kPart && field.takes(static_cast<Op>(op)))
        parts += (parts.empty() ? "" : ", ") +
                 (field.names == nullptr ? field.key.str()
                                         : llvm::join(llvm::drop_begin(names_of(*field.names)), " or "));
    const auto same = llvm::find_if(groups, [&](const auto& group) { return group.first == parts; });
    if (same != groups.end())
      same->second += (" and " + kOpNames[op].text).str();
    else if (!parts.empty())
      groups.emplace_back(parts, kOpNames[op].text.str());
  }
  std::string out;
  for (const auto& [parts, ops] : groups) out += "; of " + ops + ": " + parts;
  return out;
}

std::string problem_page() {
  std::string out =
      "A problem says what to compute. Its text is an op and key=value pairs, separated by commas, and is "
      "the "
      "same on the command line, in lists, logs, errors, caches, C and Python:\n"
      "\n"
      "  forward,dtype=bf16,B=32,T=512,D=1024\n"
      "  forward,dtype=bf16,B=16,H=4,T=1024,D=256,layout=bdt,epilogue=bias+gelu\n"
      "\n"
      "y[b,h,t,d] = bias[h,t] + sum over s <= t, j < K of W[h,t,s,j] * x[b,h,s,d+j-pad]\n"
      "\n"
      "Where one problem is enough each key may be a flag, too: --op forward --dtype bf16 -B 32 -T 512 -D "
      "1024.\n"
      "\n";
  for (const ProblemField& field : problem_fields()) {
    if (field.place == ProblemField::kPart) continue;
    out += "  " + field.key.str() + "\t" + field.help + " [" + field.flags + "]\n";
  }
  out +=
      "  epilogue\tsum of " + llvm::join(epilogue_words(), ", ") + parts_of_ops() +
      " [--epilogue]\n"
      "\n"
      "In parentheses: what a key that is left out stands for. Lists have one problem a line, '#' begins a "
      "comment: --problems FILE, --problems - for standard input; core and mixers are shipped.\n";
  return out;
}

std::string exit_codes_page() {
  std::string out = "What the program returns, the same for every command:\n\n";
  for (const ExitCode& code : kExitCodes) out += format("  %d\t%s\n", code.value, code.meaning);
  out +=
      "\n"
      "verify: problems that are skipped, each with its reason, change nothing as long as one kernel passed "
      "and "
      "none failed. Where every problem was skipped nothing is known, which is 1 and said. bench: 1 where a "
      "problem failed or a kernel's result was wrong. doctor: 1 where it finds an error, 0 with warnings "
      "alone.\n";
  return out;
}

std::string tables_page() {
  return "What the columns of tables mean. A terminal that is too narrow for all of them is told which ones "
         "are left out: --wide, or a file, has everything.\n"
         "\n"
         "tune: the choices\n"
         "  time\tof one run of the choice, the median of what was measured, or the cost model's prediction\n"
         "  quartiles\tof the measured times\n"
         "  provenance\tmeasured on the device that is named, or predicted by the cost model\n"
         "  dense\ta library's dense product on a weight that was masked before, of gram on both triangles; "
         "est.: estimated, not timed\n"
         "  of ceiling\tthe time that arithmetic or memory would take at the device's full rate, whichever "
         "is longer, as a share of the choice's time\n"
         "  error\tof the result against double precision: norm of the difference over norm of the result\n"
         "\n"
         "tune: the search\n"
         "  space\tthe candidates that there are\n"
         "  tried\tthose that were compiled, and where a device is, timed\n"
         "  passed over\tthe others, and why\n"
         "  expected loss\twhat the best candidate that was not timed is expected to save, of the choice's "
         "time\n"
         "\n"
         "emit --explain\n"
         "  predicted\tby the cost model, from the parts that follow\n"
         "  limit\tthe longest of these parts: tensor or fma (arithmetic), dram, l2, tail, launch\n"
         "  compute\tarithmetic, in the unit that does it\n"
         "  dram, l2\tmoving the data through memory and through the L2 cache\n"
         "  tail\tthe last blocks, while other multiprocessors have nothing to do\n"
         "  fixed\twhat every launch costs\n"
         "\n"
         "bench\n"
         "  / trigen\tthe arm's time over trigen's, the median over the rounds\n";
}

}  // namespace

const std::vector<Topic>& topics() {
  static const std::vector<Topic> all = {
      {"problem", "the text of a problem: keys, defaults, flags", "Problems", problem_page},
      {"tables", "the meaning of the columns of tables", "Tables", tables_page},
      {"exit-codes", "the program's exit codes", "Exit status", exit_codes_page}};
  return all;
}

}  // namespace trigen::cli
