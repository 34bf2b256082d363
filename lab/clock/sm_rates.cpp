#include "lab/clock/sm_rates.h"

#include <cmath>

#include "generator/error.h"
#include "generator/names.h"
#include "llvm/Support/ErrorHandling.h"

namespace trigen {
namespace {

struct SmKey {
  llvm::StringLiteral name;
  double SmRates::*field;
  llvm::StringLiteral unit;
};
constexpr SmKey kSmKeys[] = {
    {"tensor_products", &SmRates::tensor_products, "/cycle"},
    {"tensor_latency", &SmRates::tensor_latency, "cycles"},
    {"fma", &SmRates::fma, "cycles"},
    {"imad", &SmRates::imad, "cycles"},
    {"alu", &SmRates::alu, "cycles"},
    {"half", &SmRates::half, "cycles"},
    {"uniform", &SmRates::uniform, "cycles"},
    {"special", &SmRates::special, "cycles"},
    {"branch", &SmRates::branch, "cycles"},
    {"memory", &SmRates::memory, "cycles"},
    {"memory_of_sm", &SmRates::memory_of_sm, "cycles"},
    {"memory_queue", &SmRates::memory_queue, "x"},
    {"shared_latency", &SmRates::shared_latency, "cycles"},
    {"l2_latency", &SmRates::l2_latency, "cycles"},
    {"beside", &SmRates::beside, "cycles"},
    {"copy", &SmRates::copy, "cycles"},
    {"l2_bytes", &SmRates::l2_bytes, "B/cycle"},
    {"loaded", &SmRates::loaded, "x"},
    {"read_latency", &SmRates::read_latency, "cycles"},
    {"special_latency", &SmRates::special_latency, "cycles"},
    {"barrier", &SmRates::barrier, "cycles"},
    {"taken", &SmRates::taken, "cycles"},
};

llvm::Error set_rate(SmRates& rates, const SmRate& rate) {
  llvm::SmallVector<llvm::StringRef, 24> names;
  for (const SmKey& key : kSmKeys) {
    names.push_back(key.name);
    if (key.name != rate.name) continue;
    if (key.unit != rate.unit)
      return bad_request(rate.name + " has unit " + quoted(rate.unit) + "; allowed is " + key.unit);
    rates.*key.field = rate.value;
    return llvm::Error::success();
  }
  return bad_request("no rate is " + quoted(rate.name) + did_you_mean(rate.name, names) + "; allowed are " +
                     one_of(names));
}

llvm::Expected<SmRate> rate_of(llvm::StringRef line) {
  SmRate rate;
  rate.name = take_word(line).str();
  const llvm::StringRef value = take_word(line);
  rate.unit = take_word(line).str();
  rate.kind = take_word(line).str();
  rate.source = line.rtrim().str();
  if (value.getAsDouble(rate.value) || !(rate.value >= 0) || !std::isfinite(rate.value))
    return bad_request(rate.name + " is " + quoted(value) + ", not a number of 0 or more");
  if (rate.kind != "published" && rate.kind != "datasheet" && rate.kind != "fitted" && rate.kind != "assumed")
    return bad_request("kind " + quoted(rate.kind) + "; allowed are published, datasheet, fitted, assumed");
  if (rate.source.empty()) return bad_request(rate.name + " has no source; name a document");
  return rate;
}

}  // namespace

llvm::Expected<SmRatesTable> SmRatesTable::parse(llvm::StringRef text) {
  SmRatesTable out;
  const auto find = [&](llvm::StringRef name) -> const SmRates* {
    for (const auto& [arch, rates] : out.archs)
      if (arch == name) return &rates;
    return nullptr;
  };
  for (size_t number = 1; !text.empty(); ++number) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    line = line.split('#').first.trim();
    const std::string where = "SM rates, line " + std::to_string(number);
    if (line.empty()) continue;
    if (line.consume_front("[")) {
      if (!line.consume_back("]")) return bad_request(where + ": a section ends with ]");
      auto [name, other] = line.split(':');
      other = other.trim();
      const SmRates* const base = find(other);
      if (!other.empty() && base == nullptr)
        return bad_request(where + ": begins as " + quoted(other) + ", which no line before has");
      const SmRates first = base != nullptr ? *base : SmRates{};
      out.archs.emplace_back(name.trim().str(), first);
      continue;
    }
    if (out.archs.empty()) return bad_request(where + ": comes before any section; begin with [sm_70]");
    auto rate = rate_of(line);
    if (!rate) return with_prefix(rate.takeError(), where);
    if (llvm::Error error = set_rate(out.archs.back().second, *rate))
      return with_prefix(std::move(error), where);
    rate->arch = out.archs.back().first;
    out.all.push_back(std::move(*rate));
  }
  return out;
}

const SmRates* sm_rates_of(const Target& target) {
  static const auto* const kTable = [] {
    auto table = SmRatesTable::parse(sm_rates_files().front().text);
    // An embedded table that does not parse is a broken build: unit.SmRates reads it.
    if (!table) llvm::report_fatal_error(llvm::Twine(take_error(table.takeError()).message));
    return new SmRatesTable(std::move(*table));
  }();
  llvm::StringRef name = target.name;
  name.consume_back("a");
  const SmRates* found = nullptr;
  for (const auto& [section, rates] : kTable->archs) {
    if (section == target.model_device) return &rates;
    if (section == name) found = &rates;
  }
  return found;
}

}  // namespace trigen
