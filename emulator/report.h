// Faults that the emulated device finds. Each names the kernel, the PTX line, the block and the thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace trigen::emulator {

enum class Fault : uint8_t {
  kOutOfBounds,
  kMisaligned,
  kUseAfterFree,
  kReadOnlyWrite,
  kUninitialised,
  kSharedRace,
  kMissingLanes,
  kDeadlock,
  kBadInstruction,
  kTrap,
  kAsyncHazard,
  kGlobalRace,
  kStepLimit,
  kBarrierRace,
  kCount
};

const char* fault_name(Fault fault);

struct Report {
  Fault fault;
  std::string kernel;
  int line = 0;  // of the PTX text
  std::string instruction;
  uint32_t block[3] = {0, 0, 0};
  uint32_t thread[3] = {0, 0, 0};
  std::string detail;
  uint64_t count = 1;  // how often this fault was seen at this line in this launch
};

/// "out of bounds access: kernel k, ptx line 12 'ld...', block (0,0,0), thread (1,0,0): detail"
std::string to_string(const Report& report);

/// The reports of one device. Thread-safe.
class ReportLog {
 public:
  static constexpr size_t kLimit = 100;
  void add(Report report);
  std::vector<Report> all() const;
  size_t size() const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::vector<Report> reports_;
};

std::string to_json(const std::vector<Report>& reports);

/// Ends a launch: thrown by a handler after its report is in the log.
struct LaunchAbort {
  Fault fault;
};

}  // namespace trigen::emulator
