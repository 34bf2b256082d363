#include "doctor/diagnose.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "doctor/gather.h"
#include "runtime_testing.h"
#include "tests/files.h"

namespace trigen::doctor {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trigen::testing::Folder;
using trigen::testing::Variable;

const std::string kRecorded = TRIGEN_SOURCE "/tests/data/environments";

Environment parsed(const std::string& text) {
  auto environment = from_json(text);
  if (!environment) {
    ADD_FAILURE() << llvm::toString(environment.takeError());
    return {};
  }
  return *environment;
}

std::vector<std::string> recorded() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kRecorded))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Recorded : public ::testing::TestWithParam<std::string> {};

// Every finding of a machine, in order, none left out: what is listed twice or no more is seen, too.
TEST_P(Recorded, IsDiagnosedAsExpected) {
  const std::string text = slurp(kRecorded + "/" + GetParam() + ".json");
  const json file = json::parse(text);
  Question question;
  for (const json& arch : file.value("arch", json::array())) {
    auto target = find_target(arch.get<std::string>());
    ASSERT_TRUE(static_cast<bool>(target)) << llvm::toString(target.takeError());
    question.targets.push_back(*target);
  }
  question.here = file.value("check", false) && question.targets.empty();
  const Diagnosis diagnosis = diagnose(parsed(text), question);
  std::string got, wanted;
  for (const Finding& f : diagnosis.findings) {
    got += std::string(name_of(f.severity)) + " " + f.id + "\n";
    EXPECT_FALSE(f.what.empty()) << f.id;
    // A fault's text says what to do about it; the caches' own texts end with it.
    EXPECT_TRUE(!f.type.empty() || f.severity == Severity::kNote || f.id == "cache.problem") << f.id;
  }
  for (const json& f : file["expect"])
    wanted += f["severity"].get<std::string>() + " " + f["id"].get<std::string>() + "\n";
  ASSERT_EQ(got, wanted);
  for (size_t i = 0; i < diagnosis.findings.size(); ++i) {
    EXPECT_THAT(diagnosis.findings[i].what, HasSubstr(file["expect"][i].value("what", "")));
    EXPECT_THAT(diagnosis.findings[i].type, HasSubstr(file["expect"][i].value("type", "")));
  }
  const json chosen_for = file.value("targets", json::object());
  for (const auto& [name, chosen] : chosen_for.items())
    EXPECT_THAT(diagnosis.targets,
                Contains(AllOf(Field(&TargetAnswer::chosen, chosen.get<std::string>()),
                               ::testing::Truly([&, &name = name](const TargetAnswer& answer) {
                                 return answer.target->name == name;
                               }))));
  const int codes[] = {0, 1, 3};
  EXPECT_EQ(codes[static_cast<int>(outcome(diagnosis))], file["exit"].get<int>());
}

INSTANTIATE_TEST_SUITE_P(Machines, Recorded, ::testing::ValuesIn(recorded()),
                         [](const auto& info) { return info.param; });

TEST(Environments, AreWrittenAsTheyAreRead) {
  for (const std::string& name : recorded()) {
    const std::string once = to_json(parsed(slurp(kRecorded + "/" + name + ".json")));
    EXPECT_EQ(to_json(parsed(once)), once) << name;
    EXPECT_EQ(to_json(parsed("{\"environment\": " + once + ", \"findings\": []}")), once) << name;
  }
}

TEST(Environments, RefusalsNameTheKey) {
  const std::pair<const char*, const char*> table[] = {
      {"{", "no JSON"},
      {"{\"devices\": [{\"sms\": \"x\"}]}", "'devices.0.sms' must be a whole number"},
      {"{\"devices\": {}}", "'devices' must be a list"},
      {"{\"driver\": {\"state\": \"asleep\"}}", "'driver.state' must be one of ready, no library"},
      {"{\"drivers\": {}}", "unknown key 'drivers'"},
      {"{\"nvrtc\": [{\"version\": \"new\"}]}", "nvrtc version 'new'"}};
  for (const auto& [text, says] : table) {
    auto environment = from_json(text);
    ASSERT_FALSE(static_cast<bool>(environment)) << text;
    EXPECT_THAT(llvm::toString(environment.takeError()), HasSubstr(says));
  }
}

TEST(Files, PyTorchsArchitecturesAreReadFromItsLibrary) {
  Folder root;
  root.write("a/torch/version.py",
             "from typing import Optional\n__version__ = '2.8.0+cu128'\n"
             "cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n");
  root.write("a/torch/lib/libtorch_python.so",
             std::string(
                 "\0sm_90\0sm_70 sm_75 sm_80x\0sm_70 sm_75 sm_80 compute_120\0sm_1 sm_2 sm_3 sm_4 sm_5", 81));
  root.write("b/torch/version.py", "__version__ = '2.8.0+cpu'\ncuda: Optional[str] = None\n");
  root.link("c/torch", root / "a/torch");
  const std::vector<TorchFacts> found = find_torch({root / "a", root / "none", root / "b", root / "c"});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].version, "2.8.0+cu128");
  EXPECT_EQ(found[0].cuda, "12.8");
  EXPECT_THAT(found[0].archs, ElementsAre("sm_70", "sm_75", "sm_80", "compute_120"));
  EXPECT_EQ(found[1].cuda, "");
  EXPECT_THAT(found[1].archs, IsEmpty());
}

TEST(Files, ARootsDevicesKernelModuleAndToolkits) {
  Folder root;
  root.write("dev/nvidia0");
  root.write("dev/nvidiactl");
  root.write("dev/nvidia-modeset");
  root.write("proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu\n");
  root.write("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  root.write("run/.containerenv");
  root.write("usr/local/cuda-12.4/bin/nvcc");
  root.write("usr/local/cuda-11.8/lib64/libcudart.so");
  Environment environment;
  read_files(environment, root.path());
  EXPECT_TRUE(environment.machine.wsl);
  EXPECT_TRUE(environment.machine.container);
  EXPECT_EQ(environment.machine.kernel_driver, "550.54.14");
  EXPECT_THAT(environment.machine.nodes, ElementsAre(Field(&DeviceNode::path, "/dev/nvidia0"),
                                                     Field(&DeviceNode::path, "/dev/nvidiactl")));
  EXPECT_THAT(environment.toolkits, ElementsAre("/usr/local/cuda-12.4"));
}

TEST(Nvml, IsAskedForWhatCudaDoesNotTell) {
  const NvmlFacts facts = ask_nvml(NVML_LIBRARY);
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.driver, "550.54.14");
  EXPECT_EQ(facts.cuda_version, 12040);
  ASSERT_EQ(facts.devices.size(), 2u);
  const NvmlDevice &v100 = facts.devices[0], &a100 = facts.devices[1];
  EXPECT_EQ(v100.name, "Tesla V100-SXM2-32GB");
  EXPECT_EQ(v100.pci, "0000:1a:00.0") << "as cuDeviceGetPCIBusId writes it";
  EXPECT_FALSE(v100.mig);
  EXPECT_EQ(v100.celsius, 87);
  EXPECT_EQ(v100.processes, 2);
  EXPECT_THAT(v100.slowdown, ElementsAre("power cap", "heat (hardware)"));
  EXPECT_TRUE(a100.mig);
  EXPECT_EQ(a100.mig_slices, 3);
  EXPECT_EQ(a100.processes, -1) << "not told";
  EXPECT_THAT(a100.slowdown, IsEmpty()) << "idle is none";
}

TEST(Nvml, MayBeMissingOrAnotherLibrary) {
  EXPECT_THAT(ask_nvml("/nowhere/libnvidia-ml.so.1").problem, HasSubstr("no libnvidia-ml.so.1"));
  EXPECT_EQ(ask_nvml("libm.so.6").problem, "lacks entries");
}

std::unique_ptr<Store> open_store(std::vector<std::string> layers) {
  Store::Options options;
  options.layers = std::move(layers);
  options.log = [](const std::string&) {};
  return Store::open(options);
}

auto finding(Severity severity, const char* id, const std::string& what) {
  return Contains(AllOf(Field(&Finding::severity, severity), Field(&Finding::id, id),
                        Field(&Finding::what, HasSubstr(what))));
}

TEST(Gather, ThisMachineWithoutACompilerAndWithAMissingDriver) {
  Folder folder;
  const Variable nvrtc("TRIGEN_NVRTC", folder / "nothing"), no_jit("TRIGEN_NO_JIT", "1");
  auto store = open_store({folder / "user.db", folder.write("layer.db", std::string(4096, 'x'))});
  const Environment environment = gather(*store, "/nowhere/libcuda.so.1");
  EXPECT_EQ(environment.driver.state, DriverState::kNoLibrary);
  EXPECT_EQ(environment.variable("TRIGEN_NO_JIT"), "1");
  EXPECT_TRUE(environment.no_jit);
  EXPECT_THAT(environment.glibc_needed, HasSubstr("2."));
  const std::vector<Finding> findings = diagnose(environment, {}).findings;
  EXPECT_THAT(findings, finding(Severity::kWarning, "driver.none", "/nowhere/libcuda.so.1"));
  EXPECT_THAT(findings, finding(Severity::kNote, "nvrtc.none", "no compiler was found"));
  EXPECT_THAT(findings, finding(Severity::kError, "cache.empty", "no cache holds a kernel"));
  EXPECT_THAT(findings, finding(Severity::kWarning, "cache.problem", "not a trigen cache"));
  // Its own JSON can be read again.
  EXPECT_EQ(to_json(parsed(to_json(environment))), to_json(environment));
}

TEST(Gather, TheCompilersChosenAreThoseThatACompileTakes) {
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  const auto both = trigen::testing::with_second_compiler();
  auto store = open_store({folder / "cache.db"});
  Question question;
  for (const Target& target : targets()) question.targets.push_back(&target);
  const Environment environment = gather(*store);
  const int cuda = environment.driver.emulated ? 0 : environment.driver.cuda_version;
  for (const TargetAnswer& answer : diagnose(environment, question).targets) {
    auto chosen = Nvrtc::choose(*answer.target, cuda);
    EXPECT_EQ(answer.chosen, chosen ? (*chosen)->name() : "") << answer.target->name.str();
    if (!chosen) llvm::consumeError(chosen.takeError());
  }
}

TEST(Gather, ProblemsAreLookedUpWithTheirCode) {
  Folder folder;
  Store::Options options;
  options.layers = {folder / "cache.db"};
  auto store = Store::open(options);
  auto target = find_target("sm_70");
  auto problem = parse_problem("forward,dtype=f16,B=2,T=64,D=64");
  ASSERT_TRUE(static_cast<bool>(target) && static_cast<bool>(problem));
  auto candidates = list_candidates(*problem, **target);
  ASSERT_TRUE(static_cast<bool>(candidates) && !candidates->empty());
  const auto asked = [&] { return look_up({}, *problem, *target, *store).front(); };
  EXPECT_EQ(asked().match, "none");
  Record record;
  record.problem = to_string(*problem);
  record.arch = "sm_70";
  record.candidate = describe(candidates->front());
  record.binary.source_hash = render(candidates->front()).hash;
  record.binary.arch = "sm_70";
  ASSERT_FALSE(static_cast<bool>(store->put_record(record)));
  EXPECT_EQ(asked().match, "predicted");
  EXPECT_EQ(asked().provenance, "predicted");
  EXPECT_FALSE(asked().binary);
  Binary binary;
  binary.key = record.binary;
  binary.cubin = "code";
  ASSERT_FALSE(static_cast<bool>(store->put_binary(binary)));
  EXPECT_TRUE(asked().binary);
}

// The environment variables: doctor's list, the page and the sources say the same.
TEST(Variables, StandOnOnePage) {
  std::set<std::string> read, page, listed(known_variables().begin(), known_variables().end());
  const std::string text = slurp(TRIGEN_SOURCE "/docs/environment.md");
  const auto names_after = [](const std::string& in, const std::string& mark, std::set<std::string>& out) {
    for (size_t at = 0; (at = in.find(mark, at)) != std::string::npos;) {
      at += mark.size();
      const size_t end = in.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789", at);
      out.insert("TRIGEN_" + in.substr(at, end - at));
    }
  };
  names_after(text, "\n| `TRIGEN_", page);
  for (const char* folder : {"cache", "lab", "generator", "numerics", "runtime", "check", "tuner", "peers",
                             "cli", "emulator", "python/trigen"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(TRIGEN_SOURCE "/") + folder)) {
      const std::string kind = entry.path().extension();
      if (kind != ".cpp" && kind != ".h" && kind != ".py") continue;
      const std::string source = slurp(entry.path());
      for (const char* call :
           {"environment(\"TRIGEN_", "environment_off(\"TRIGEN_", "environment_flag(\"TRIGEN_",
            "environ.get(\"TRIGEN_", "environ[\"TRIGEN_", "variable(\"TRIGEN_", "[] = \"TRIGEN_"})
        names_after(source, call, read);
    }
  // The emulated device makes its names of its options' keys.
  const std::string options = slurp(TRIGEN_SOURCE "/emulator/options.cpp");
  const size_t keys = options.find("for (const char* key :");
  ASSERT_NE(keys, std::string::npos);
  std::istringstream list(options.substr(keys, options.find('}', keys) - keys));
  for (std::string key; std::getline(list, key, '"') && std::getline(list, key, '"');) {
    std::transform(key.begin(), key.end(), key.begin(), [](char c) { return std::toupper(c); });
    read.insert("TRIGEN_EMULATED_" + key);
  }
  EXPECT_EQ(listed, read) << "doctor/variables.cpp and the sources";
  EXPECT_EQ(page, listed) << "docs/environment.md and doctor/variables.cpp";
}

}  // namespace
}  // namespace trigen::doctor
