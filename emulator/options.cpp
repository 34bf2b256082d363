#include "emulator/options.h"

#include <cstdlib>
#include <sstream>

#include "emulator/device_table.h"

namespace trigen::emulator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "word" or "word:SEED", where the word draws from a seed.
struct Drawn {
  std::string word;
  uint64_t seed = 0;
  bool seeded = false, valid = true;
  Drawn(const std::string& value, uint64_t usual) : word(value.substr(0, value.find(':'))), seed(usual) {
    seeded = word.size() < value.size();
    if (!seeded) return;
    char* end = nullptr;
    seed = std::strtoull(value.c_str() + word.size() + 1, &end, 10);
    valid = is_digit(value[word.size() + 1]) && *end == 0;
  }
};

std::string apply_async(const std::string& value, Options* options) {
  const auto [order, seed, seeded, valid] = Drawn(value, options->seed);
  const bool draws = order == "random" || order == "shuffled";
  if (!(draws || order == "late" || order == "early") || !valid || (seeded && !draws))
    return "async=" + value + " is none of late, early, random, random:SEED, shuffled, shuffled:SEED";
  options->async = order == "late"     ? AsyncOrder::kLate
                   : order == "early"  ? AsyncOrder::kEarly
                   : order == "random" ? AsyncOrder::kRandom
                                       : AsyncOrder::kShuffled;
  options->seed = seed;
  return "";
}

std::string apply_lanes(const std::string& value, Options* options) {
  const auto [order, seed, seeded, valid] = Drawn(value, options->seed);
  if (!(order == "random" || (order == "order" && !seeded)) || !valid)
    return "lanes=" + value + " is none of order, random, random:SEED";
  options->random_lanes = order == "random";
  options->seed = seed;
  return "";
}

std::string apply_checks(const std::string& value, Options* options) {
  std::stringstream list(value);
  std::string item;
  while (std::getline(list, item, ',')) {
    bool on = true;
    if (!item.empty() && item[0] == '-') {
      on = false;
      item.erase(0, 1);
    }
    if (item == "all" || item == "none")
      options->check_uninitialised = options->check_races = (item == "all") == on;
    else if (item == "uninitialised")
      options->check_uninitialised = on;
    else if (item == "races")
      options->check_races = on;
    else
      return "unknown check '" + item + "', known: all, none, uninitialised, races";
  }
  return "";
}

std::string apply_one(const std::string& key, const std::string& value, Options* options) {
  if (key == "target") {
    if (find_device_model(value) == nullptr)
      return "unknown target '" + value + "', known: " + known_targets();
    options->target = value;
  } else if (key == "devices" || key == "threads") {
    char* end = nullptr;
    long count = std::strtol(value.c_str(), &end, 10);
    if (end == value.c_str() || *end != 0 || count < (key == "devices" ? 1 : 0) || count > 64)
      return key + "=" + value + " is not a count from " + (key == "devices" ? "1" : "0") + " to 64";
    (key == "devices" ? options->devices : options->threads) = static_cast<int>(count);
  } else if (key == "sms") {
    char* end = nullptr;
    const long count = std::strtol(value.c_str(), &end, 10);
    if (!is_digit(value[0]) || *end != 0 || count > 1024)
      return "sms=" + value + " is not a count from 0 to 1024";
    options->sms = static_cast<int>(count);
  } else if (key == "async") {
    return apply_async(value, options);
  } else if (key == "lanes") {
    return apply_lanes(value, options);
  } else if (key == "steps") {
    char* end = nullptr;
    const unsigned long long steps = std::strtoull(value.c_str(), &end, 10);
    if (!is_digit(value[0]) || *end != 0) return "steps=" + value + " is not a count, 0 for no limit";
    options->steps = steps;
  } else if (key == "checks") {
    return apply_checks(value, options);
  } else if (key == "reports") {
    if (value != "fail" && value != "print" && value != "quiet")
      return "reports=" + value + " is none of fail, print, quiet";
    options->abort_on_report = value == "fail";
    options->print_reports = value != "quiet";
  } else {
    return "unknown option '" + key +
           "', known: target, devices, sms, threads, async, lanes, checks, reports, steps";
  }
  return "";
}

}  // namespace

std::string apply_options(const std::string& text, Options* options) {
  std::stringstream items(text);
  std::string item;
  Options changed = *options;
  while (items >> item) {
    size_t equals = item.find('=');
    if (equals == std::string::npos) return "'" + item + "' is not of the form key=value";
    std::string error = apply_one(item.substr(0, equals), item.substr(equals + 1), &changed);
    if (!error.empty()) return error;
  }
  *options = changed;
  return "";
}

Options options_from_environment() {
  Options options;
  for (const char* key :
       {"target", "devices", "sms", "threads", "async", "lanes", "checks", "reports", "steps"}) {
    std::string name = "TRIGEN_EMULATED_";
    for (const char* c = key; *c != 0; ++c)
      name += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
    const char* value = ::secure_getenv(name.c_str());
    if (value == nullptr || *value == 0) continue;
    std::string error = apply_one(key, value, &options);
    if (!error.empty())
      std::fprintf(stderr, "trigen emulator: %s: %s; ignored\n", name.c_str(), error.c_str());
  }
  return options;
}

}  // namespace trigen::emulator
