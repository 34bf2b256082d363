#include "lab/model_clock.h"

#include "generator/error.h"
#include "lab/clock/clock.h"
#include "lab/clock/disassembler.h"
#include "runtime/compile.h"

namespace trigen {
namespace {

// Candidates whose main loops are the same: the order of blocks and the parts of a sum are not the loop's.
std::string loop_key(const Candidate& candidate) {
  Candidate plain = candidate;
  plain.problem.B = 0;
  plain.config = without_order(plain.config);
  return to_string(plain.problem) + " " + describe(plain);
}

struct Machine {
  std::vector<MachineFunction> functions;
  Resources resources;
};

llvm::Expected<Machine> machine_of(const Candidate& candidate, Store& store) {
  auto built = build(candidate, store);
  if (!built) return built.takeError();
  auto functions = disassemble(built->binary.cubin);
  if (!functions) return functions.takeError();
  return Machine{std::move(*functions), resources_of(built->binary)};
}

}  // namespace

llvm::Expected<ClockedSpaces> clock_spaces(const std::vector<RecordedSpace>& spaces, Store& store,
                                           const std::function<void(size_t done, size_t all)>& progress) {
  ClockedSpaces out;
  std::map<std::string, Machine> machines;
  size_t all = 0;
  size_t done = 0;
  for (const RecordedSpace& space : spaces)
    all += llvm::count_if(space.rows, [](const auto& row) { return row.work.loop == Loop::kInterleaved; });
  for (const RecordedSpace& space : spaces) {
    RecordedSpace rows = space;
    rows.rows.clear();
    std::vector<double> estimated;
    std::vector<double> clocked;
    const DeviceModel device = model_of(*space.target);
    for (const RecordedSpace::Row& row : space.rows) {
      if (row.work.loop != Loop::kInterleaved) continue;
      const std::string key = loop_key(row.candidate);
      auto found = machines.find(key);
      if (found == machines.end()) {
        auto machine = machine_of(row.candidate, store);
        if (!machine) return machine.takeError();
        found = machines.emplace(key, std::move(*machine)).first;
      }
      progress(++done, all);
      const Machine& machine = found->second;
      auto loop = clock_candidate(row.candidate, machine.functions, device, machine.resources);
      if (!loop) {
        out.refused.push_back(row.text + ": " + take_error(loop.takeError()).message);
        continue;
      }
      rows.rows.push_back(row);
      estimated.push_back(predict(row.work, *space.target, device).seconds * 1e6);
      clocked.push_back(
          predict(row.work, *space.target, device, machine.resources, loop->step_cycles).seconds * 1e6);
    }
    if (rows.rows.empty()) continue;
    out.spaces.push_back(std::move(rows));
    out.estimated_us.push_back(std::move(estimated));
    out.clocked_us.push_back(std::move(clocked));
  }
  return out;
}

}  // namespace trigen
