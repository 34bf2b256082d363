// How the emulated device behaves. Set from the environment when the library initialises, or by
// trigen_emulator_configure.
#pragma once

#include <cstdint>
#include <string>

namespace trigen::emulator {

// kShuffled: like kLate, but of bulk copies under way any one may land first. Nothing orders them.
enum class AsyncOrder : uint8_t { kLate, kEarly, kRandom, kShuffled };

struct Options {
  std::string target = "sm_80";
  int devices = 1;
  int sms = 0;      // multiprocessors that a device says it has; 0: its model's
  int threads = 0;  // host threads for a launch; 0: all cores
  AsyncOrder async = AsyncOrder::kLate;
  uint64_t seed = 1;  // of kRandom, kShuffled and random_lanes
  bool random_lanes =
      false;  // of lanes that went different ways: any may run next, not those furthest behind
  // Of one cluster before the launch is given up (Counters::further_steps), some seconds. 0: no limit.
  uint64_t steps = 400'000'000;
  bool check_uninitialised = true;
  bool check_races = true;
  bool abort_on_report = true;  // a launch with any report ends in an error
  bool print_reports = true;    // to stderr
};

/// TRIGEN_EMULATED_TARGET, _DEVICES, _SMS, _THREADS, _ASYNC (late, early, random:SEED, shuffled:SEED), _LANES
/// (order, random:SEED), _CHECKS (all, none, or a list of uninitialised, races; a leading '-' takes one away),
/// _REPORTS (fail, print, quiet), _STEPS.
Options options_from_environment();
/// Changes `options` by "key=value" pairs separated by spaces: target, devices, sms, threads, async,
/// lanes, checks, reports, steps. Returns an error text, empty when all is well.
std::string apply_options(const std::string& text, Options* options);

}  // namespace trigen::emulator
