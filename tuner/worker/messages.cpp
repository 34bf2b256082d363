#include "tuner/worker/messages.h"

namespace trigen::worker {

using nlohmann::json;

namespace {

json bytes_of(const std::string& text) { return json::binary({text.begin(), text.end()}); }
std::string text_from(const json& value) {
  const auto& bytes = value.get_binary();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

json to_json(const DeviceInfo& i) {
  return {{"ordinal", i.ordinal},
          {"name", i.name},
          {"major", i.major},
          {"minor", i.minor},
          {"sms", i.sms},
          {"clock_hz", i.clock_hz},
          {"memory_clock_hz", i.memory_clock_hz},
          {"bus_bits", i.bus_bits},
          {"l2_bytes", i.l2_bytes},
          {"memory_bytes", i.memory_bytes},
          {"max_shared_per_block", i.max_shared_per_block},
          {"driver", i.driver},
          {"pci", i.pci},
          {"emulated", i.emulated}};
}

DeviceInfo device_info_from(const json& v) {
  DeviceInfo i;
  v.at("ordinal").get_to(i.ordinal);
  v.at("name").get_to(i.name);
  v.at("major").get_to(i.major);
  v.at("minor").get_to(i.minor);
  v.at("sms").get_to(i.sms);
  v.at("clock_hz").get_to(i.clock_hz);
  v.at("memory_clock_hz").get_to(i.memory_clock_hz);
  v.at("bus_bits").get_to(i.bus_bits);
  v.at("l2_bytes").get_to(i.l2_bytes);
  v.at("memory_bytes").get_to(i.memory_bytes);
  v.at("max_shared_per_block").get_to(i.max_shared_per_block);
  v.at("driver").get_to(i.driver);
  v.at("pci").get_to(i.pci);
  v.at("emulated").get_to(i.emulated);
  return i;
}

json to_json(const Binary& b) {
  return {{"source_hash", b.key.source_hash},
          {"arch", b.key.arch},
          {"compiler", b.key.compiler},
          {"options", b.key.options},
          {"candidate", b.candidate},
          {"problem", b.problem},
          {"entry", b.entry},
          {"cubin", bytes_of(b.cubin)},
          {"ptx", bytes_of(b.ptx)},
          {"log", b.log},
          {"registers", b.registers},
          {"spill_bytes", b.spill_bytes},
          {"stack_bytes", b.stack_bytes},
          {"static_shared", b.static_shared}};
}

Binary binary_from(const json& v) {
  Binary b;
  v.at("source_hash").get_to(b.key.source_hash);
  v.at("arch").get_to(b.key.arch);
  v.at("compiler").get_to(b.key.compiler);
  v.at("options").get_to(b.key.options);
  v.at("candidate").get_to(b.candidate);
  v.at("problem").get_to(b.problem);
  v.at("entry").get_to(b.entry);
  b.cubin = text_from(v.at("cubin"));
  b.ptx = text_from(v.at("ptx"));
  v.at("log").get_to(b.log);
  v.at("registers").get_to(b.registers);
  v.at("spill_bytes").get_to(b.spill_bytes);
  v.at("stack_bytes").get_to(b.stack_bytes);
  v.at("static_shared").get_to(b.static_shared);
  return b;
}

json to_json(const Trial& t) {
  return {{"end", static_cast<int>(t.end)}, {"poisoned", t.poisoned},
          {"note", bytes_of(t.note)},       {"wrong_by", t.error},
          {"tolerance", t.tolerance},       {"samples", t.samples}};
}

Trial trial_from(const json& v) {
  Trial t;
  t.end = static_cast<Trial::End>(v.at("end").get<int>());
  v.at("poisoned").get_to(t.poisoned);
  t.note = text_from(v.at("note"));
  v.at("wrong_by").get_to(t.error);
  v.at("tolerance").get_to(t.tolerance);
  v.at("samples").get_to(t.samples);
  return t;
}

json to_json(llvm::Error error) {
  if (!error) return json::object();
  const ErrorText text = take_error(std::move(error));
  return {{"error", bytes_of(text.message)}, {"kind", static_cast<int>(text.kind)}};
}

llvm::Error error_from(const json& v) {
  if (!v.contains("error")) return llvm::Error::success();
  return make_error(static_cast<ErrorKind>(v.at("kind").get<int>()), text_from(v.at("error")));
}

}  // namespace trigen::worker
