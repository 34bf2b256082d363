// trigen verify: kernels against the double-precision reference, on the device or on the emulated one.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "check/memory.h"
#include "check/selection.h"
#include "check/text.h"
#include "check/verify.h"
#include "cli/command.h"
#include "cli/each_target.h"
#include "cli/problem_options.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "generator/random_problem.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/compile.h"

namespace trigen::cli {
namespace {

using nlohmann::json;

// 5.1e7 -> 6e7
double one_digit_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  return std::ceil(value / power) * power;
}

struct Verify {
  ProblemOptions problems;
  TargetOptions where;
  std::string families;
  bool generic = false, no_jit = false, full = false, as_json = false, build_only = false, ptx = false;
  int gap = 0, random = 0, samples = 0;
  uint64_t seed = 20240912;
  double limit = 3.0e7;
  double memory = 0;  // GB; 0: half of what is free

  // Options of trigen-lab.
  void add_lab_options(CLI::App& app) {
    app.add_option("--families", families, "all: the first choice of every family that serves the target");
    app.add_flag("--ptx", ptx, "load the PTX also where the device runs the machine code");
    app.add_option("--gap", gap, "alignment units between rows, to check strides (0)")
        ->check(CLI::Range(0, 64));
    CLI::Option* option =
        app.add_option("--random", random,
                       "this many small random problems of every kind, instead of named ones")
            ->check(CLI::Range(1, 1000000));
    for (const char* name : {"problem", "--problems", "--list", "--op"})
      option->excludes(app.get_option(name));
  }

  json rows = json::array();
  int passed = 0, failed = 0, skipped = 0;
  int no_compiler = 0;  // of those that failed

  void line(const char* status, const std::string& problem, const std::string& candidate,
            const CheckResult* result, const std::string& note, double seconds) {
    if (as_json) {
      json row = {{"status", status}, {"problem", problem}, {"candidate", candidate}, {"seconds", seconds}};
      if (result != nullptr) {
        row["error"] = result->error;
        row["tolerance"] = result->tolerance;
        row["worst_element"] = result->max_error;
        row["checked"] = result->checked;
        row["outputs"] = result->outputs;
        row["signed_sums"] = result->projected;
        row["on_integers"] = result->exact;
      }
      if (!note.empty()) row["note"] = note;
      rows.push_back(std::move(row));
      return;
    }
    std::fputs(text_line(status, problem, candidate, result, note).c_str(), stdout);
    std::fflush(stdout);
  }

  // One line a kernel in a file or a pipe; on a terminal what fits, and reasons in lines of their own.
  static std::string text_line(const char* status, const std::string& problem, const std::string& candidate,
                               const CheckResult* result, const std::string& note) {
    const bool good = result != nullptr && result->ok;
    const Style style = llvm::StringRef(status) == "FAIL"   ? Style::kBad
                        : llvm::StringRef(status) == "SKIP" ? Style::kWarning
                                                            : Style::kGood;
    const std::string head = styled(stdout, style, format("%-5s", status));
    const int width = columns(stdout);
    if (width == 0) {
      std::string numbers;
      if (result != nullptr) {
        numbers = format(
            "  error %.1e, allowed %.1e, worst element at %.0f %% of its limit, %s", result->error,
            result->tolerance, 100 * result->max_error,
            result->checked == result->outputs ? "all outputs"
            : result->projected
                ? format("%lld outputs and signed sums of all", static_cast<long long>(result->checked))
                      .c_str()
                : format("%lld outputs", static_cast<long long>(result->checked)).c_str());
        if (result->checked < result->outputs && result->exact == result->outputs)
          numbers += ", all on small integers";
      }
      return head + " " + problem + "  " + candidate + numbers + (note.empty() ? "" : "  " + note) + "\n";
    }
    const std::string kernel = good ? candidate.substr(0, candidate.find(':')) : candidate;
    std::string rest = short_problem(problem) + (candidate == "-" ? "" : "  " + kernel);
    if (result != nullptr) rest += format("  error %.1e of %.1e", result->error, result->tolerance);
    std::string out;
    const size_t room = width > 26 ? static_cast<size_t>(width) - 6 : 20;
    auto lines = wrap(rest, width_of(rest) <= room ? 0 : room);
    if (!note.empty()) llvm::append_range(lines, wrap(note, room));
    for (size_t i = 0; i < lines.size(); ++i) out += (i == 0 ? head + " " : "      ") + lines[i] + "\n";
    return out;
  }

  // One problem of the list with the kernels that it will run.
  struct Work {
    Problem problem;
    std::vector<Candidate> candidates;
    std::vector<std::optional<Binary>> binaries;
    std::vector<ErrorText> failures;  // why there is no binary
    std::string refused;              // why there is no candidate; `skip`: that is as it should be
    bool skip = false;
    std::string name, part;  // the problem, and how much of its batch the kernels run on
  };

  Work prepare(const Problem& problem, const Target& target, const Device* device, Store& store,
               const Selection& selection) const {
    Work work;
    work.problem = problem;
    work.name = to_string(problem);
    if (samples > 0) work.problem.B = std::min<int64_t>(problem.B, samples);
    const bool emulated = device != nullptr && device->info().emulated;
    const double products = count_work(work.problem).dense_flop / 2;
    if (emulated && products > limit) {
      work.skip = true;
      work.refused = format(
          "%.1e multiply-adds; the emulated device takes %.0e; --limit %.0e takes these, --samples N a part",
          products, limit, one_digit_up(products));
      return work;
    }
    auto candidates = select(problem, target, emulated ? nullptr : device, store, selection);
    if (candidates) {
      work.candidates = std::move(*candidates);
      if (work.problem.B < problem.B) take_part(problem, work);
      if (emulated && work.refused.empty()) work.refused = too_much_memory(work);
      work.skip = !work.refused.empty();
      if (work.skip) work.candidates.clear();
    } else {
      ErrorText text = take_error(candidates.takeError());
      work.skip = text.kind == ErrorKind::kUnsupported;  // no such kernel can be (tf32 on sm_70)
      std::replace(text.message.begin(), text.message.end(), '\n', ' ');
      work.refused = std::move(text.message);
    }
    work.binaries.resize(work.candidates.size());
    work.failures.resize(work.candidates.size());
    return work;
  }

  // The kernels of `problem` on a part of its batch: what they are made of does not know B.
  static void take_part(const Problem& problem, Work& work) {
    const auto samples = static_cast<long long>(work.problem.B), all = static_cast<long long>(problem.B);
    work.part = format("on %lld of %lld samples", samples, all);
    for (Candidate& candidate : work.candidates) {
      const std::string whole = render(candidate).text;
      candidate.problem.B = work.problem.B;
      if (render(candidate).text != whole)
        work.refused = format("%s is another kernel for %lld of the %lld samples; leave --samples out",
                              describe(candidate).c_str(), samples, all);
    }
  }

  // Why the emulated device would take too much of this machine; empty where it does not.
  std::string too_much_memory(const Work& work) const {
    int64_t workspace = 0;
    for (const Candidate& c : work.candidates)
      workspace = std::max(workspace, c.family->launch_plan(c.problem, *c.target, c.config).workspace_bytes);
    const double needed = 1e-9 * emulated_bytes(work.problem, workspace, gap, full),
                 most = memory > 0 ? memory : 1e-9 * available_memory() / 2;
    if (needed <= most) return "";
    return format("%.1f GB of memory; the emulated device takes %.1f, %s, --memory changes that", needed,
                  most, memory > 0 ? "as asked" : "half of what is free");
  }

  // Everything that the list needs is compiled at once, on all cores, before the first kernel runs.
  void build_list(std::vector<Work>& list, const Device* device, Store& store,
                  const std::atomic<bool>& interrupted) const {
    std::vector<Candidate> all;
    std::vector<std::pair<size_t, size_t>> place;
    for (size_t w = 0; w < list.size(); ++w) {
      for (size_t c = 0; c < list[w].candidates.size(); ++c) {
        all.push_back(list[w].candidates[c]);
        place.emplace_back(w, c);
      }
    }
    BuildAllOptions options;
    options.no_jit = no_jit;
    options.cancel = &interrupted;
    if (device != nullptr && !build_only) options.code = code_for(*device);
    build_all(all, store, options, [&](size_t index, llvm::Expected<BuiltBinary> built) {
      Work& work = list[place[index].first];
      const size_t at = place[index].second;
      if (!built) {
        work.failures[at] = take_error(built.takeError());
      } else {
        if (!built->cache_problem.empty()) log_cache(built->cache_problem);
        work.binaries[at] = std::move(built->binary);
      }
      return !interrupted.load();
    });
  }

  // False when the device's context is broken and nothing can run any more.
  bool check(Work& work, const Device* device) {
    const std::string& text = work.name;
    auto fail = [&](const std::string& candidate, const std::string& why) {
      ++failed;
      line("FAIL", text, candidate, nullptr, why, 0);
    };
    if (!work.refused.empty()) {
      if (!work.skip) {
        fail("-", work.refused);
      } else {
        ++skipped;
        line("SKIP", text, "-", nullptr, work.refused, 0);
      }
      return true;
    }
    for (size_t i = 0; i < work.candidates.size(); ++i) {
      if (!work.binaries[i]) {
        fail(describe(work.candidates[i]), work.failures[i].message);
        no_compiler += work.failures[i].kind == ErrorKind::kNoCompiler ? 1 : 0;
      }
      if (!work.binaries[i] || !build_only) continue;
      ++passed;
      line("built", text, describe(work.candidates[i]), nullptr, "", 0);
    }
    if (build_only) return true;
    // One plan of decode serves every row: several are checked, and the worst of them is shown.
    std::vector<Outcome> outcomes(work.candidates.size());
    bool alive = true;
    for (const Rows& rows : rows_to_check(work.problem))
      if (alive) alive = check_rows(work, *device, rows, outcomes);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& outcome = outcomes[i];
      if (!work.binaries[i] || (!outcome.result && outcome.error.empty())) continue;
      const std::string name = describe(work.candidates[i]);
      if (!outcome.error.empty()) {
        fail(name, outcome.error);
        continue;
      }
      (outcome.result->ok ? passed : failed) += 1;
      const std::string note = outcome.result->failure.empty() ? work.part : outcome.result->failure;
      line(outcome.result->ok ? "ok" : "FAIL", text, name, &*outcome.result, note, outcome.seconds);
    }
    return alive;
  }

  // Findings of the checks of one candidate.
  struct Outcome {
    std::optional<CheckResult> result;  // the worst one; elements of all of them
    std::string error;                  // of the device
    double seconds = 0;
    void add(CheckResult next, const std::string& where) {
      if (!next.failure.empty()) next.failure = where + next.failure;
      if (!result) {
        result = std::move(next);
        return;
      }
      const int64_t checked = result->checked + next.checked, outputs = result->outputs + next.outputs,
                    exact = result->exact + next.exact;
      if (result->ok && (!next.ok || next.max_error > result->max_error)) result = std::move(next);
      result->checked = checked;
      result->outputs = outputs;
      result->exact = exact;
    }
  };

  // False when the device's context is broken and nothing can run any more.
  bool check_rows(const Work& work, const Device& device, const Rows& rows,
                  std::vector<Outcome>& outcomes) const {
    const std::string where = op_row(work.problem.op).takes(kRowsField)
                                  ? format("rows %lld to %lld: ", static_cast<long long>(rows.first),
                                           static_cast<long long>(rows.first + rows.count - 1))
                                  : "";
    WorkbenchOptions bench_options;
    bench_options.seed = seed;
    bench_options.gap = gap;
    bench_options.rows = rows;
    auto bench = Workbench::create(device, work.problem, bench_options);
    if (!bench) {
      const std::string text = take_error(bench.takeError()).message;
      for (Outcome& outcome : outcomes) outcome.error = where + text;
      return true;
    }
    ReferenceOptions reference_options;
    reference_options.full = full;
    const Reference reference(work.problem, (*bench)->list(), (*bench)->inputs(), reference_options);
    for (size_t i = 0; i < work.candidates.size(); ++i) {
      Outcome& outcome = outcomes[i];
      if (!work.binaries[i] || !outcome.error.empty()) continue;
      const auto start = std::chrono::steady_clock::now();
      auto plan =
          Plan::of(work.candidates[i], *work.binaries[i], device, ptx ? LoadFrom::kPtx : LoadFrom::kAuto);
      if (!plan) {
        outcome.error = where + take_error(plan.takeError()).message;
        continue;
      }
      auto result = verify(**plan, **bench, reference);
      if (!result) {
        outcome.error = where + take_error(result.takeError()).message;
        if (auto dead = (*bench)->synchronize()) {
          llvm::consumeError(std::move(dead));
          return false;
        }
        continue;
      }
      outcome.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      outcome.add(std::move(*result), where);
    }
    return true;
  }

  llvm::Expected<int> run_all() {
    std::vector<Problem> list;
    if (random == 0) {
      auto named = problems.problems();
      if (!named) return named.takeError();
      list = std::move(*named);
    }
    return for_each_target(where, as_json, [&] { return run_list(list); });
  }

  llvm::Expected<int> run_list(std::vector<Problem> list) {
    auto target = where.target();
    if (!target) return target.takeError();
    auto choice = where.choice();
    if (!choice) return choice.takeError();
    Selection selection;
    selection.generic = generic;
    selection.family = choice->family;
    selection.config = choice->config;
    selection.config_generic = choice->generic;
    if (families == "all") {
      selection.all_families = true;
    } else if (!families.empty()) {
      return make_error(ErrorKind::kBadRequest,
                        "--families " + families + "; allowed is all; --family names one");
    }
    no_jit = no_jit || no_jit_from_environment();

    const Device* device = nullptr;
    if (!build_only) {
      std::string why;
      auto opened = where.open_device(why);
      if (!opened) return opened.takeError();
      device = *opened;
      if (device == nullptr) {
        const std::string spec =
            "emulated:" + (*target != nullptr ? (*target)->name.str() : std::string("sm_80"));
        auto emulated = Device::open(spec);
        if (!emulated) {
          return make_error(ErrorKind::kDevice, "no device to verify on: " + why + "; and " +
                                                    take_error(emulated.takeError()).message);
        }
        device = *emulated;
        remark("no GPU here (" + what_was_found(why) +
               "; see `trigen doctor`): running on the emulated device " + spec);
      }
    }
    if (*target == nullptr) {
      if (device == nullptr)
        return make_error(ErrorKind::kBadRequest, "--build-only needs a target; add --arch sm_70");
      *target = &device->target();
    }
    if (device != nullptr && !device->info().emulated && !device->runs_cubin_of(**target) &&
        !device->runs_ptx_of(**target)) {
      return make_error(ErrorKind::kBadRequest,
                        device->info().name + " runs neither machine code nor PTX of " +
                            (*target)->name.str() + "; name an older target without suffix");
    }
    if (random > 0) {
      const auto number = static_cast<unsigned long long>(seed);
      remark(format("random problems of seed %llu; one alone: trigen verify --seed %llu \"<problem>\"",
                    number, number));
      RandomProblem draw(seed);
      for (int i = 0; i < random; ++i) list.push_back(draw.next_small((*target)->tf32_mma));
    }
    if (!as_json && device != nullptr) {
      remark(format("%zu problem%s, %s kernels on %s%s", list.size(), list.size() == 1 ? "" : "s",
                    (*target)->name.data(), device->info().name.c_str(),
                    device->info().emulated                   ? " (emulated)"
                    : ptx || !device->runs_cubin_of(**target) ? ", from PTX"
                                                              : ""));
    }
    // One kernel may run for minutes on the emulated device; what was compiled is in the cache already.
    const std::atomic<bool>& interrupted = catch_interrupts(/*terminations=*/false);
    auto store = where.open_store();
    std::vector<Work> works;
    for (const Problem& problem : list) {
      if (interrupted.load()) break;
      works.push_back(prepare(problem, **target, device, *store, selection));
    }
    build_list(works, device, *store, interrupted);
    for (Work& work : works) {
      if (interrupted.load()) break;
      if (check(work, device)) continue;
      remark(
          "error: that kernel broke the device's context, the rest of the list cannot run in this process; "
          "leave the problem out, or name it alone");
      break;
    }
    if (as_json) {
      const json out = {{"device", device != nullptr ? device->info().name : ""},
                        {"target", (*target)->name.str()},
                        {"passed", passed},
                        {"failed", failed},
                        {"skipped", skipped},
                        {"seed", seed},
                        {"results", rows}};
      std::printf("%s\n", out.dump(2, ' ', true, json::error_handler_t::replace).c_str());
    } else {
      std::printf("%d %s, %d failed, %d skipped\n", passed, build_only ? "built" : "passed", failed, skipped);
    }
    if (passed + failed == 0 && skipped > 0 && !interrupted.load())
      remark(format("error: nothing was verified: %s skipped, for the reason above",
                    skipped == 1 ? "the one problem was" : format("all %d problems were", skipped).c_str()));
    if (interrupted.load()) return interrupted_code();
    if (no_compiler > 0 && no_compiler == failed) return kNoCompiler;
    return failed > 0 || passed == 0 ? kFailure : kDone;
  }
};

}  // namespace

void add_verify(CLI::App& app, Commands& commands, bool lab) {
  CLI::App* sub =
      app.add_subcommand("verify", "check kernels against the double-precision reference")->group(kWorkGroup);
  auto verify = std::make_shared<Verify>();
  verify->problems.add_to(*sub);
  verify->where.add_arch(*sub, /*several=*/true);
  verify->where.add_device(*sub);
  verify->where.add_family(*sub);
  verify->where.add_cache(*sub);
  sub->add_flag("--generic", verify->generic, "the shape-generic kernels, too");
  sub->add_flag("--no-jit", verify->no_jit, "use the cache's kernels only, as TRIGEN_NO_JIT=1");
  sub->add_flag("--full", verify->full, "check big problems element by element (slow)");
  sub->add_flag("--build-only", verify->build_only,
                "compile the kernels into the cache without running them; needs no device");
  sub->add_option("--seed", verify->seed, "of the random inputs (20240912)")
      ->check(whole_number(0, UINT64_MAX));
  sub->add_option("--limit", verify->limit, "largest problem for the emulated device, in multiply-adds (3e7)")
      ->check(decimal_number());
  sub->add_option("--samples", verify->samples,
                  "run on at most this many samples of the batch, with the whole problem's kernels")
      ->check(CLI::Range(1, 1000000000));
  sub->add_option("--memory", verify->memory,
                  "most memory that the emulated device may take, in GB (half of the free memory)")
      ->check(CLI::PositiveNumber & decimal_number());
  sub->add_flag("--json", verify->as_json, "results as JSON on standard output");
  if (lab) verify->add_lab_options(*sub);
  commands.push_back({sub, [verify] { return report(verify->run_all()); }});
}

}  // namespace trigen::cli
