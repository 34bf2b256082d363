#include "emulator/counters.h"

namespace trigen::emulator {
namespace {

struct Field {
  const char* name;
  uint64_t Counters::*value;
};
constexpr Field kFields[] = {{"thread_instructions", &Counters::thread_instructions},
                             {"global_load_requests", &Counters::global_load_requests},
                             {"global_load_sectors", &Counters::global_load_sectors},
                             {"global_load_bytes", &Counters::global_load_bytes},
                             {"global_store_requests", &Counters::global_store_requests},
                             {"global_store_sectors", &Counters::global_store_sectors},
                             {"global_store_bytes", &Counters::global_store_bytes},
                             {"shared_load_requests", &Counters::shared_load_requests},
                             {"shared_load_wavefronts", &Counters::shared_load_wavefronts},
                             {"shared_load_conflicts", &Counters::shared_load_conflicts},
                             {"shared_load_bytes", &Counters::shared_load_bytes},
                             {"shared_store_requests", &Counters::shared_store_requests},
                             {"shared_store_wavefronts", &Counters::shared_store_wavefronts},
                             {"shared_store_conflicts", &Counters::shared_store_conflicts},
                             {"shared_store_bytes", &Counters::shared_store_bytes},
                             {"async_copy_bytes", &Counters::async_copy_bytes},
                             {"bulk_bytes", &Counters::bulk_bytes},
                             {"local_bytes", &Counters::local_bytes},
                             {"atomic_requests", &Counters::atomic_requests},
                             {"matrix_operations", &Counters::matrix_operations},
                             {"matrix_flops", &Counters::matrix_flops},
                             {"barrier_waits", &Counters::barrier_waits},
                             {"mbarrier_waits", &Counters::mbarrier_waits},
                             {"divergent_branches", &Counters::divergent_branches}};

}  // namespace

void Counters::add(const Counters& other) {
  for (int i = 0; i < static_cast<int>(InstClass::kCount); ++i)
    warp_instructions[i] += other.warp_instructions[i];
  for (const Field& field : kFields) this->*field.value += other.*field.value;
}

uint64_t Counters::further_steps() const {
  constexpr uint64_t kAccess = 256, kMeeting = 16, kDivergence = 8, kFlopsOfAStep = 32;
  uint64_t accesses = 0;
  for (const InstClass cls : {InstClass::kLoad, InstClass::kStore, InstClass::kAtomic, InstClass::kMatrixMove,
                              InstClass::kAsyncCopy})
    accesses += warp_instructions[static_cast<int>(cls)];
  const uint64_t meetings = warp_instructions[static_cast<int>(InstClass::kBarrier)] +
                            warp_instructions[static_cast<int>(InstClass::kWarp)];
  return accesses * (kAccess - 1) + meetings * (kMeeting - 1) + divergent_branches * kDivergence +
         matrix_flops / kFlopsOfAStep + bulk_bytes;
}

const char* class_name(InstClass cls) {
  static const char* const names[] = {"integer",     "float",   "half",       "double",  "convert", "move",
                                      "compare",     "control", "load",       "store",   "atomic",  "warp",
                                      "matrix_move", "matrix",  "async_copy", "barrier", "other"};
  return names[static_cast<int>(cls)];
}

std::string to_json(const Counters& counters) {
  std::string text = "{\"instructions\":{";
  uint64_t total = 0;
  for (int i = 0; i < static_cast<int>(InstClass::kCount); ++i) {
    text += std::string("\"") + class_name(static_cast<InstClass>(i)) +
            "\":" + std::to_string(counters.warp_instructions[i]) + ",";
    total += counters.warp_instructions[i];
  }
  text += "\"total\":" + std::to_string(total) + "}";
  text += ",\"steps\":" + std::to_string(total + counters.further_steps());
  for (const Field& field : kFields)
    text += std::string(",\"") + field.name + "\":" + std::to_string(counters.*field.value);
  return text + "}";
}

}  // namespace trigen::emulator
