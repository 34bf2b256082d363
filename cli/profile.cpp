// trigen profile: what a problem's kernels do, counted exactly by the emulated device.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "check/profile.h"
#include "check/text.h"
#include "cli/command.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "cli/terminal.h"

namespace trigen::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kNote =
    "counts are exact and the same on every run; time is not modelled, so nothing here is a speed";

// A row of the table: one number of a kernel's counters, or the quotient of two.
struct Row {
  const char* group;
  const char* name;
  const char* key;
  const char* per = nullptr;  // divided by this counter
};
constexpr Row kRows[] = {
    {"global loads", "requests", "global_load_requests"},
    {"", "sectors of 32 bytes", "global_load_sectors"},
    {"", "sectors per request", "global_load_sectors", "global_load_requests"},
    {"", "bytes", "global_load_bytes"},
    {"global stores", "requests", "global_store_requests"},
    {"", "sectors of 32 bytes", "global_store_sectors"},
    {"", "sectors per request", "global_store_sectors", "global_store_requests"},
    {"", "bytes", "global_store_bytes"},
    {"shared loads", "requests", "shared_load_requests"},
    {"", "wavefronts", "shared_load_wavefronts"},
    {"", "bank conflicts", "shared_load_conflicts"},
    {"", "bytes", "shared_load_bytes"},
    {"shared stores", "requests", "shared_store_requests"},
    {"", "wavefronts", "shared_store_wavefronts"},
    {"", "bank conflicts", "shared_store_conflicts"},
    {"", "bytes", "shared_store_bytes"},
    {"into shared", "asynchronous copy bytes", "async_copy_bytes"},
    {"bulk copies", "bytes", "bulk_bytes"},
    {"local memory", "bytes", "local_bytes"},
    {"atomics", "requests", "atomic_requests"},
    {"matrix", "operations", "matrix_operations"},
    {"", "flop", "matrix_flops"},
    {"waits", "barrier arrivals of warps", "barrier_waits"},
    {"", "mbarrier phases", "mbarrier_waits"},
    {"branches", "divergent", "divergent_branches"},
};

struct Profile {
  ProblemOptions problems;
  TargetOptions where;
  bool as_json = false;
  double limit = 1.0e9;

  static uint64_t number(const ordered_json& counters, const char* key) {
    return counters.value(key, uint64_t{0});
  }

  static std::string cell(const KernelProfile& kernel, const Row& row) {
    const uint64_t value = number(kernel.counters, row.key);
    if (row.per == nullptr) return std::to_string(value);
    const uint64_t count = number(kernel.counters, row.per);
    return count == 0 ? "-" : format("%.2f", static_cast<double>(value) / static_cast<double>(count));
  }

  static void print(const std::vector<KernelProfile>& kernels) {
    std::vector<std::string> headings = {"", ""};
    for (const KernelProfile& kernel : kernels) headings.push_back(">" + kernel.launch.entry);
    Table table(headings);
    auto add = [&](const char* group, const std::string& name, auto&& value) {
      std::vector<std::string> cells = {group, name};
      for (const KernelProfile& kernel : kernels) cells.push_back(value(kernel));
      table.add(std::move(cells));
    };
    auto size = [](const uint32_t(&n)[3]) { return format("%ux%ux%u", n[0], n[1], n[2]); };
    add("launch", "blocks", [&](const KernelProfile& kernel) { return size(kernel.launch.grid); });
    add("", "threads of a block", [&](const KernelProfile& kernel) { return size(kernel.launch.block); });
    add("", "dynamic shared bytes",
        [&](const KernelProfile& kernel) { return std::to_string(kernel.launch.shared_bytes); });
    const char* group = "warp instructions";
    for (const auto& [name, ignored] : kernels.front().counters["instructions"].items()) {
      const std::string key = name;
      auto count = [&](const KernelProfile& kernel) {
        return number(kernel.counters["instructions"], key.c_str());
      };
      if (!llvm::any_of(kernels, count)) continue;  // classes that no kernel uses
      add(group, key, [&](const KernelProfile& kernel) { return std::to_string(count(kernel)); });
      group = "";
    }
    add("thread instructions", "total", [](const KernelProfile& kernel) {
      return std::to_string(number(kernel.counters, "thread_instructions"));
    });
    for (const Row& row : kRows)
      add(row.group, row.name, [&](const KernelProfile& kernel) { return cell(kernel, row); });
    table.print();
  }

  static ordered_json to_json(const KernelProfile& kernel) {
    const Launch& launch = kernel.launch;
    ordered_json out = {{"kernel", launch.entry},
                        {"grid", launch.grid},
                        {"block", launch.block},
                        {"cluster", launch.cluster},
                        {"dynamic_shared_bytes", launch.shared_bytes}};
    out.update(kernel.counters);
    return out;
  }

  llvm::Expected<int> run() const {
    auto problem = problems.problem();
    if (!problem) return problem.takeError();
    auto target = where.target();
    if (!target) return target.takeError();
    const std::string spec = !where.device.empty()
                                 ? where.device
                                 : "emulated:" + (*target != nullptr ? (*target)->name.str() : "sm_70");
    auto opened = Device::open(spec);
    if (!opened) return opened.takeError();
    const Device& device = **opened;
    if (!device.info().emulated) {
      return make_error(ErrorKind::kBadRequest,
                        "--device " + spec + " is " + device.info().name +
                            ", which trigen reads no counters of; allowed is the emulated device, as in "
                            "--device emulated:sm_70");
    }
    if (*target == nullptr) *target = &device.target();
    if (!device.runs_ptx_of(**target)) {
      return make_error(ErrorKind::kBadRequest, spec + " does not run PTX of " + (*target)->name.str() +
                                                    "; leave --device out, or name an older --arch");
    }
    const double products = count_work(*problem).dense_flop / 2;
    if (products > limit) {
      return make_error(
          ErrorKind::kBadRequest,
          format(
              "%s has %.1e multiply-adds; the emulated device takes %.0e; name a smaller problem, or raise "
              "--limit",
              to_string(*problem).c_str(), products, limit));
    }

    auto made = where.build_choice(*problem, **target);
    if (!made) return made.takeError();
    auto plan = Plan::of(made->candidate, std::move(made->binary), device, LoadFrom::kPtx);
    if (!plan) return plan.takeError();
    auto bench = Workbench::create(device, *problem);
    if (!bench) return bench.takeError();
    auto kernels = profile(**plan, **bench);
    if (!kernels) return kernels.takeError();

    if (as_json) {
      ordered_json out = {{"problem", to_string(*problem)},
                          {"candidate", describe(made->candidate)},
                          {"target", (*target)->name.str()},
                          {"device", device.info().spec()},
                          {"note", kNote},
                          {"kernels", ordered_json::array()}};
      for (const KernelProfile& kernel : *kernels) out["kernels"].push_back(to_json(kernel));
      std::printf("%s\n", out.dump(2, ' ', true, ordered_json::error_handler_t::replace).c_str());
    } else {
      std::printf("%s\n%s, %s kernels on %s\n\n", to_string(*problem).c_str(),
                  describe(made->candidate).c_str(), (*target)->name.data(), device.info().spec().c_str());
      print(*kernels);
      std::printf("\n");
      print_prose(kNote);
    }
    return kDone;
  }
};

}  // namespace

void add_profile(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("profile", "exact counts of a problem's kernels on the emulated device")
                      ->group(kLookGroup);
  auto profile = std::make_shared<Profile>();
  profile->problems.add_to(*sub);
  profile->where.add_arch(*sub);
  profile->where.add_gpu(*sub);
  sub->add_option("--device", profile->where.device,
                  "emulated device: emulated:sm_70 (default: of the --arch target, else sm_70)")
      ->group("Target");
  profile->where.add_family(*sub);
  profile->where.add_cache(*sub);
  sub->add_option("--limit", profile->limit, "largest problem to run, in multiply-adds (1e9)")
      ->check(decimal_number());
  sub->add_flag("--json", profile->as_json, "counters as JSON on standard output");
  commands.push_back({sub, [profile] { return report(profile->run()); }});
}

}  // namespace trigen::cli
