// The bench that candidates run on: a problem's tensors and reference, and the loaded candidates. In this process
// (LocalBench), or in a worker process that a broken candidate takes down alone (worker/remote_bench.h).
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check/reference.h"
#include "check/workbench.h"
#include "tuner/measure.h"

namespace trigen {

struct TrialOptions {
  bool check = true, time = true;
  double expected_s = 0;  // of one run, predicted: what a deadline rests on
  // Of both: what takes longer is timed alone.
  double check_below_s = std::numeric_limits<double>::infinity();
};

// The result of a candidate's run on a bench.
struct Trial {
  enum class End : int { kDone = 0, kWrong = 1, kFailed = 2 };  // sent between processes of one program
  End end = End::kDone;
  bool poisoned = false;  // the bench is of no further use: the device's context is broken
  std::string note;       // wrong or failed: why
  double error = 0, tolerance = 0;
  std::vector<double> samples;  // seconds, timed alone
};

class Bench {
 public:
  virtual ~Bench() = default;
  // Makes the problem's inputs and reference; what was loaded for another problem is dropped. With the same
  // arguments as before nothing is done.
  virtual llvm::Error begin(const Problem& problem, const WorkbenchOptions& options) = 0;
  // Loads the candidate, times and checks it as asked, and holds it under `id`; a held one is not loaded anew.
  // Errors are the bench's own: no later trial can do better.
  virtual llvm::Expected<Trial> trial(size_t id, const Candidate& candidate, const Binary& binary,
                                      const TrialOptions& options) = 0;
  virtual bool holds(size_t id) const = 0;
  virtual void drop(size_t id) = 0;
  // One replay of a held candidate's graph: seconds of a run.
  virtual llvm::Expected<double> replay(size_t id) = 0;
  // Replays it for at least so long: how many runs that were.
  virtual llvm::Expected<int64_t> spin(size_t id, double seconds) = 0;
  // After a failure the next call finds a fresh device, with nothing held.
  virtual bool renews() const = 0;
};

class LocalBench : public Bench {
 public:
  // Says when the device is waited for (seconds that are expected), and with -1 when it answered.
  using Watch = std::function<void(double expected_s)>;
  explicit LocalBench(const Device* device, Watch watch = {});
  ~LocalBench() override;
  llvm::Error begin(const Problem& problem, const WorkbenchOptions& options) override;
  llvm::Expected<Trial> trial(size_t id, const Candidate& candidate, const Binary& binary,
                              const TrialOptions& options) override;
  bool holds(size_t id) const override { return held_.count(id) > 0; }
  void drop(size_t id) override { held_.erase(id); }
  llvm::Expected<double> replay(size_t id) override;
  llvm::Expected<int64_t> spin(size_t id, double seconds) override;
  bool renews() const override { return false; }

 protected:
  struct Held {
    std::shared_ptr<const Plan> plan;
    std::unique_ptr<TimedGraph> graph;  // null: checked alone
    double expected_s = 0;
  };
  virtual llvm::Error time(size_t id, Held& held, Trial& out);  // another clock in tests

 private:
  llvm::Error check(const Plan& plan, double expected_s, Trial& out);
  template <class Work>
  auto waiting(double expected_s, const Work& work);

  const Device* device_;
  Watch watch_;
  Problem problem_;
  WorkbenchOptions options_;
  std::unique_ptr<Workbench> bench_;
  std::unique_ptr<Reference> reference_;
  std::map<size_t, Held> held_;
};

}  // namespace trigen
