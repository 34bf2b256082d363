// A bench in a worker process. A candidate that hangs, faults, gives a wrong result (and may have written
// anywhere) or kills the worker costs the worker alone: the next call starts another one with the same inputs.
#pragma once

#include <set>

#include "tuner/bench.h"
#include "tuner/worker/process.h"

namespace trigen::worker {

class RemoteBench : public Bench {
 public:
  // `process` outlives it and may serve several benches, each with its `slot`.
  RemoteBench(Process& process, const Target& target, int slot)
      : process_(process), target_(target), slot_(slot) {}
  llvm::Error begin(const Problem& problem, const WorkbenchOptions& options) override;
  llvm::Expected<Trial> trial(size_t id, const Candidate& candidate, const Binary& binary,
                              const TrialOptions& options) override;
  bool holds(size_t id) const override;
  void drop(size_t id) override;
  llvm::Expected<double> replay(size_t id) override;
  llvm::Expected<int64_t> spin(size_t id, double seconds) override;
  bool renews() const override { return true; }
  bool has_context() const { return process_.running() && generation_ == process_.generation(); }

 private:
  // The worker's answer to a request about a held candidate; errors cost the worker.
  llvm::Expected<nlohmann::json> ask(const nlohmann::json& message);
  // A running worker with this bench's problem. Errors end the tune: a fresh worker could not do it either.
  llvm::Error ready();
  nlohmann::json request(const char* op) const { return {{"op", op}, {"slot", slot_}}; }

  Process& process_;
  const Target& target_;
  const int slot_;
  std::string problem_;
  WorkbenchOptions options_;
  int generation_ = 0;  // of the worker that has the problem
  std::set<size_t> held_;
};

}  // namespace trigen::worker
