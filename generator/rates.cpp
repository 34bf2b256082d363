#include "generator/rates.h"

#include <cmath>
#include <optional>

#include "generator/error.h"
#include "generator/names.h"
#include "llvm/Support/ErrorHandling.h"

namespace trigen {
namespace {

enum class Dimension : int { kTime, kBytesPerTime, kBytesPerCycle, kPerCycle, kCycles, kCount, kBytes };

struct UnitName {
  llvm::StringLiteral name;
  Dimension dimension;
  double scale;
};
constexpr UnitName kUnits[] = {
    {"us", Dimension::kTime, 1e-6},
    {"GB/s", Dimension::kBytesPerTime, 1e9},
    {"TB/s", Dimension::kBytesPerTime, 1e12},
    {"B/cycle", Dimension::kBytesPerCycle, 1},
    {"/cycle", Dimension::kPerCycle, 1},
    {"cycles", Dimension::kCycles, 1},
    {"x", Dimension::kCount, 1},
    {"B", Dimension::kBytes, 1},
};

template <class Section>
struct Key {
  llvm::StringLiteral name;
  double Section::*field;
  Dimension dimension;
};

constexpr Key<DeviceRates> kDeviceKeys[] = {
    {"launch", &DeviceRates::launch, Dimension::kTime},
    {"feed", &DeviceRates::feed, Dimension::kBytesPerCycle},
    {"feed_alone", &DeviceRates::feed_alone, Dimension::kBytesPerCycle},
    {"shared_bytes", &DeviceRates::shared_bytes, Dimension::kBytesPerCycle},
    {"local_bytes", &DeviceRates::local_bytes, Dimension::kBytesPerCycle},
    {"issues", &DeviceRates::issues, Dimension::kPerCycle},
    {"access_lanes", &DeviceRates::access_lanes, Dimension::kPerCycle},
    {"lanes", &DeviceRates::lanes, Dimension::kPerCycle},
    {"sector_writes", &DeviceRates::sector_writes, Dimension::kPerCycle},
    {"tensor_cap", &DeviceRates::tensor_cap, Dimension::kPerCycle},
};
constexpr Key<LoopRates> kLoopKeys[] = {
    {"tensor_share", &LoopRates::tensor_share, Dimension::kCount},
    {"tensor_most", &LoopRates::tensor_most, Dimension::kCount},
    {"tf32_share", &LoopRates::tf32_share, Dimension::kCount},
    {"tf32_most", &LoopRates::tf32_most, Dimension::kCount},
    {"f32_products", &LoopRates::f32_products, Dimension::kCount},
    {"f32_feed", &LoopRates::f32_feed, Dimension::kCount},
    {"split_lines", &LoopRates::split_lines, Dimension::kCount},
    {"shift", &LoopRates::shift, Dimension::kCount},
    {"alone", &LoopRates::alone, Dimension::kCount},
    {"reads", &LoopRates::reads, Dimension::kCount},
    {"spills", &LoopRates::spills, Dimension::kCount},
    {"spilled_bytes", &LoopRates::spilled_bytes, Dimension::kBytes},
    {"latency", &LoopRates::latency, Dimension::kTime},
    {"step", &LoopRates::step, Dimension::kTime},
    {"transpose", &LoopRates::transpose, Dimension::kTime},
    {"tile", &LoopRates::tile, Dimension::kTime},
    {"block_start", &LoopRates::block_start, Dimension::kTime},
    {"gelu", &LoopRates::gelu, Dimension::kCount},
    {"silu", &LoopRates::silu, Dimension::kCount},
    {"exchange", &LoopRates::exchange, Dimension::kCount},
    {"waits", &LoopRates::waits, Dimension::kCount},
    {"sent", &LoopRates::sent, Dimension::kCount},
    {"mirrored", &LoopRates::mirrored, Dimension::kCount},
    {"exchange_wait", &LoopRates::exchange_wait, Dimension::kTime},
    {"chained", &LoopRates::chained, Dimension::kTime},
    {"start", &LoopRates::start, Dimension::kTime},
    {"doubt", &LoopRates::doubt, Dimension::kCount},
    {"cluster", &LoopRates::cluster, Dimension::kTime},
    {"memory_share", &LoopRates::memory_share, Dimension::kCount},
    {"usable_l2", &LoopRates::usable_l2, Dimension::kCount},
    {"l2_floor", &LoopRates::l2_floor, Dimension::kCount},
    {"l2_hit", &LoopRates::l2_hit, Dimension::kCount},
    {"drift", &LoopRates::drift, Dimension::kCount},
    {"enough_sms", &LoopRates::enough_sms, Dimension::kCount},
    {"idle_tail", &LoopRates::idle_tail, Dimension::kCount},
    {"instruction", &LoopRates::instruction, Dimension::kCount},
    {"copy_latency", &LoopRates::copy_latency, Dimension::kCycles},
    {"staged_latency", &LoopRates::staged_latency, Dimension::kCycles},
    {"two_stages", &LoopRates::two_stages, Dimension::kCount},
    {"singles", &LoopRates::singles, Dimension::kCycles},
    {"singles_at_once", &LoopRates::singles_at_once, Dimension::kCount},
    {"sync", &LoopRates::sync, Dimension::kCycles},
    {"block", &LoopRates::block, Dimension::kCycles},
    {"overlap", &LoopRates::overlap, Dimension::kCount},
    {"spill", &LoopRates::spill, Dimension::kCount},
    {"access", &LoopRates::access, Dimension::kCount},
    {"narrow", &LoopRates::narrow, Dimension::kCount},
    {"cut", &LoopRates::cut, Dimension::kCount},
    {"conversion", &LoopRates::conversion, Dimension::kCount},
    {"spread", &LoopRates::spread, Dimension::kCount},
    {"activation", &LoopRates::activation, Dimension::kCount},
    {"exchange_access", &LoopRates::exchange_access, Dimension::kCycles},
};
constexpr Key<PassRates> kPassKeys[] = {
    {"start", &PassRates::start, Dimension::kTime},
    {"part", &PassRates::part, Dimension::kTime},
    {"bytes_per_s", &PassRates::bytes_per_s, Dimension::kBytesPerTime},
    {"l2_share", &PassRates::l2_share, Dimension::kCount},
    {"fits", &PassRates::fits, Dimension::kCount},
    {"memory_share", &PassRates::memory_share, Dimension::kCount},
};

constexpr Key<DenseRates> kDenseKeys[] = {
    {"start", &DenseRates::start, Dimension::kTime},
    {"tensor_share", &DenseRates::tensor_share, Dimension::kCount},
    {"tf32_share", &DenseRates::tf32_share, Dimension::kCount},
    {"fp32_share", &DenseRates::fp32_share, Dimension::kCount},
    {"datasheet", &DenseRates::datasheet, Dimension::kCount},
    {"unaligned", &DenseRates::unaligned, Dimension::kCount},
    {"tile", &DenseRates::tile, Dimension::kTime},
    {"wave", &DenseRates::wave, Dimension::kCount},
    {"parts_start", &DenseRates::parts_start, Dimension::kTime},
    {"parts_bytes_per_s", &DenseRates::parts_bytes_per_s, Dimension::kBytesPerTime},
    {"memory_share", &DenseRates::memory_share, Dimension::kCount},
    {"pass_start", &DenseRates::pass_start, Dimension::kTime},
};

std::optional<Rate::Kind> kind_of(llvm::StringRef text) {
  if (text == "datasheet") return Rate::Kind::kDatasheet;
  if (text == "fitted") return Rate::Kind::kFitted;
  if (text == "assumed") return Rate::Kind::kAssumed;
  return std::nullopt;
}

llvm::Error wrong(size_t line, const llvm::Twine& what) {
  return make_error(ErrorKind::kBadRequest, "rates, line " + llvm::Twine(line) + ": " + what);
}

// Sets the field of that name; errors for one that the section lacks and for a unit of another dimension.
template <class Section, size_t N>
llvm::Error set(Section& section, const Key<Section> (&keys)[N], const Rate& rate, size_t line) {
  llvm::SmallVector<llvm::StringRef, 48> names;
  for (const Key<Section>& key : keys) {
    names.push_back(key.name);
    if (key.name != rate.name) continue;
    llvm::SmallVector<llvm::StringRef, 4> units;
    for (const UnitName& unit : kUnits) {
      if (unit.dimension != key.dimension) continue;
      units.push_back(unit.name);
      if (unit.name != rate.unit) continue;
      section.*key.field = rate.value * unit.scale;
      return llvm::Error::success();
    }
    return wrong(line, rate.name + " has unit " + quoted(rate.unit) + "; allowed are " + one_of(units));
  }
  return wrong(line, "[" + rate.section + "] has no " + quoted(rate.name) + did_you_mean(rate.name, names));
}

llvm::Expected<Rate> parse_rate(llvm::StringRef line, llvm::StringRef section, size_t number) {
  Rate rate{.section = section.str(), .name = take_word(line).str()};
  const auto [first, last] = take_word(line).split('>');
  const llvm::StringRef value = last.empty() ? first : last;
  rate.unit = take_word(line).str();
  const llvm::StringRef kind = take_word(line);
  rate.source = line.rtrim().str();
  if (value.getAsDouble(rate.value) || !(rate.value >= 0) || !std::isfinite(rate.value) ||
      first.getAsDouble(rate.first) || !(rate.first >= 0) || !std::isfinite(rate.first))
    return wrong(number, rate.name + " is " + quoted(value) + ", not a number of 0 or more");
  const auto known = kind_of(kind);
  if (!known) return wrong(number, "kind " + quoted(kind) + "; allowed are datasheet, fitted, assumed");
  if (rate.source.empty()) return wrong(number, rate.name + " has no source; name a recording or document");
  rate.kind = *known;
  return rate;
}

}  // namespace

llvm::Expected<Rates> Rates::parse(llvm::StringRef text) {
  Rates out;
  std::string section;
  LoopRates* loop = nullptr;
  PassRates* pass = nullptr;
  size_t number = 0;
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    ++number;
    line = line.split('#').first.trim();
    if (line.empty()) continue;
    if (line.consume_front("[")) {
      if (!line.consume_back("]")) return wrong(number, "a section ends with ]");
      auto [name, other] = line.split(':');
      name = name.trim(), other = other.trim();
      section = name.str();
      loop = nullptr, pass = nullptr;
      if (name == "device" || name == "dense") continue;
      if (name.consume_front("loop ") && !name.empty()) {
        if (!other.empty() && !out.has_loop(other))
          return wrong(number, "[" + section + "] begins as " + quoted(other) + ", which no line before has");
        loop = &(out.loops_[name.str()] = other.empty() ? LoopRates{} : LoopRates(out.loop(other)));
        continue;
      }
      if (name.consume_front("pass ") && !name.empty() && other.empty()) {
        pass = &(out.passes_[name.str()] = PassRates{});
        continue;
      }
      return wrong(number,
                   quoted(section) + " is no section; allowed are device, dense, loop NAME and pass NAME");
    }
    if (section.empty()) return wrong(number, "comes before any section; begin with [device]");
    auto rate = parse_rate(line, section, number);
    if (!rate) return rate.takeError();
    if (llvm::Error error = loop                 ? set(*loop, kLoopKeys, *rate, number)
                            : pass               ? set(*pass, kPassKeys, *rate, number)
                            : section == "dense" ? set(out.dense_, kDenseKeys, *rate, number)
                                                 : set(out.device_, kDeviceKeys, *rate, number))
      return error;
    out.all_.push_back(std::move(*rate));
  }
  return out;
}

const LoopRates& Rates::loop(llvm::StringRef name) const {
  static const LoopRates kNone;
  const auto found = loops_.find(name);
  return found == loops_.end() ? kNone : found->second;
}

const PassRates& Rates::pass(llvm::StringRef name) const {
  static const PassRates kNone;
  const auto found = passes_.find(name);
  return found == passes_.end() ? kNone : found->second;
}

const Rates& rates_of(const Target& target) {
  static const auto* const kTables = [] {
    auto* tables = new std::map<std::string, Rates, std::less<>>;
    for (const RatesFile& file : rates_files()) {
      auto rates = Rates::parse(file.text);
      // An embedded table that does not parse is a broken build: unit.Rates reads every one.
      if (!rates)
        llvm::report_fatal_error(llvm::Twine(file.name) + ": " + take_error(rates.takeError()).message);
      tables->emplace(llvm::StringRef(file.name).drop_back(4).str(), std::move(*rates));
    }
    return tables;
  }();
  const auto own = kTables->find(target.model_device.lower());
  return own != kTables->end() ? own->second : kTables->find("h200")->second;
}

}  // namespace trigen
