#include "runtime/compile.h"

#include <chrono>
#include <mutex>

#include "cache/host.h"
#include "runtime/device.h"
#include "runtime/log.h"

namespace trigen {
namespace {

constexpr int kCancelled = 16;         // NVRTC_ERROR_CANCELLED
constexpr unsigned kNewestMajor = 13;  // the newest CUDA with a known release

int cancel_callback(void* payload, void*) {
  return static_cast<const std::atomic<bool>*>(payload)->load(std::memory_order_relaxed) ? 1 : 0;
}

llvm::Error cancelled(const Candidate& candidate) {
  return make_error(ErrorKind::kBuild, "compile of " + describe(candidate) + " was cancelled");
}

std::string named(const Candidate& candidate) {
  return to_string(candidate.problem) + "; " + describe(candidate) + " for " + candidate.target->name.str();
}

// A log of a thousand lines hides its first error.
std::string shortened(llvm::StringRef log) {
  constexpr size_t kLimit = 8000;
  log = log.rtrim(llvm::StringRef(" \n\t\0", 4));
  if (log.size() <= kLimit) return log.str();
  return log.take_front(kLimit).str() + "\n... (" + std::to_string(log.size() - kLimit) + " more bytes)";
}

// The compiler says how long it took, and nothing else of a binary depends on when it was made.
void drop_compile_times(std::string& log) {
  constexpr llvm::StringLiteral kLine = "ptxas info    : Compile time";
  for (size_t at = 0; (at = log.find(kLine.data(), at)) != std::string::npos;) {
    const size_t end = log.find('\n', at);
    log.erase(at, end == std::string::npos ? end : end + 1 - at);
  }
}

// "sm_90a", or "compute_90a" for PTX alone.
std::string architecture(const Target& target, Code code) {
  return code == Code::kPtx ? "compute" + target.name.drop_front(2).str() : target.name.str();
}

llvm::Expected<Binary> compile_source(const Candidate& candidate, const Source& source, const Nvrtc& nvrtc,
                                      const std::atomic<bool>* cancel, Code code) {
  if (cancel != nullptr && cancel->load()) return cancelled(candidate);
  const Target& target = *candidate.target;
  if (!nvrtc.makes(target))
    return make_error(ErrorKind::kBuild, nvrtc.name() + " (" + nvrtc.file().path + ") does not make " +
                                             target.name.str() +
                                             "; name another in TRIGEN_NVRTC, or let trigen choose");
  const Nvrtc::Api& api = nvrtc.api();
  std::vector<const char*> header_texts, header_names;
  for (const TemplateFile& file : template_files()) {
    header_texts.push_back(file.text.data());
    header_names.push_back(file.name.data());
  }
  const std::string name = source.entry + ".cu", option_text = compile_options(target, code);
  llvm::SmallVector<llvm::StringRef, 8> words;
  llvm::StringRef(option_text).split(words, ' ', -1, false);
  std::vector<std::string> options;
  std::vector<const char*> option_pointers;
  options.reserve(words.size() + 1);
  option_pointers.reserve(words.size() + 1);
  for (llvm::StringRef word : words) options.push_back(word.str());
  // NVRTC's own cache, in the user's ~/.nv/ComputeCache: it opens the driver in this process, and a tune's candidates
  // would push out what other programs keep there.
  if (std::pair(nvrtc.major(), nvrtc.minor()) >= std::pair(12, 9)) options.push_back("--no-cache");
  for (const std::string& option : options) option_pointers.push_back(option.c_str());

  void* program = nullptr;
  int result =
      api.nvrtcCreateProgram(&program, source.text.c_str(), name.c_str(),
                             static_cast<int>(header_texts.size()), header_texts.data(), header_names.data());
  if (result != 0)
    return make_error(ErrorKind::kBuild, "compile failed: " + named(candidate) +
                                             ": nvrtcCreateProgram: " + api.nvrtcGetErrorString(result));
  if (cancel != nullptr && api.nvrtcSetFlowCallback != nullptr)
    api.nvrtcSetFlowCallback(program, cancel_callback, const_cast<std::atomic<bool>*>(cancel));
  const auto began = std::chrono::steady_clock::now();
  result = api.nvrtcCompileProgram(program, static_cast<int>(option_pointers.size()), option_pointers.data());
  const auto took = std::chrono::steady_clock::now() - began;
  counters().compile_ns += std::chrono::nanoseconds(took).count();
  counters().compiles += result == 0 ? 1 : 0;
  if (log_wants(LogLevel::kDebug))
    log_line(LogLevel::kDebug, "compile kernel=" + describe(candidate) + " target=" + target.name.str() +
                                   " compiler=\"" + nvrtc.name() + "\" ms=" + milliseconds(took));

  const auto text_of = [&](auto size_entry, auto text_entry) {
    size_t size = 0;
    std::string text;
    if (size_entry(program, &size) == 0 && size > 0) {
      text.resize(size);
      if (text_entry(program, text.data()) != 0) text.clear();
    }
    return text;
  };
  Binary binary;
  binary.log = text_of(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog);
  while (!binary.log.empty() && binary.log.back() == '\0') binary.log.pop_back();
  drop_compile_times(binary.log);
  if (result == 0) {
    if (code == Code::kCubinAndPtx) binary.cubin = text_of(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN);
    binary.ptx = text_of(api.nvrtcGetPTXSize, api.nvrtcGetPTX);
    while (!binary.ptx.empty() && binary.ptx.back() == '\0') binary.ptx.pop_back();
  }
  api.nvrtcDestroyProgram(&program);
  if (result == kCancelled) return cancelled(candidate);
  if (result != 0 || binary.ptx.empty() || (code == Code::kCubinAndPtx && binary.cubin.empty()))
    return make_error(ErrorKind::kBuild,
                      "compile failed: " + named(candidate) + " with " + nvrtc.name() + " (" +
                          nvrtc.file().path + "), options " + option_text + ": " +
                          (result != 0 ? api.nvrtcGetErrorString(result) : "no code came out") + "\n" +
                          shortened(binary.log) + "\nprint the source with: " + emit_command(candidate));

  binary.key = binary_key(source, target, nvrtc, code);
  binary.candidate = describe(candidate);
  binary.problem = to_string(candidate.problem);
  binary.source = source.text;
  const LaunchPlan plan = candidate.family->launch_plan(candidate.problem, target, candidate.config);
  for (const Launch& launch : plan.launches)
    if (binary.entry.find(launch.entry) == std::string::npos)
      binary.entry += (binary.entry.empty() ? "" : " ") + launch.entry;
  const Resources resources = parse_resources(binary.log);
  binary.registers = resources.registers;
  binary.spill_bytes = resources.spill_bytes;
  binary.stack_bytes = resources.stack_bytes;
  binary.static_shared = resources.static_shared;
  return binary;
}

llvm::Error forbidden(const Candidate& candidate, Store& store) {
  std::string layers;
  for (const LayerInfo& layer : store.layers()) layers += (layers.empty() ? "" : ", ") + layer.path;
  return make_error(ErrorKind::kCache, "the cache has no kernel for " + named(candidate) +
                                           ", and compiling is forbidden (TRIGEN_NO_JIT); looked in " +
                                           (layers.empty() ? std::string("no cache file") : layers) +
                                           "; where compiling is allowed run: trigen tune --arch " +
                                           candidate.target->name.str() + " \"" +
                                           to_string(candidate.problem) +
                                           "\", and name its cache file in TRIGEN_CACHE");
}

// The machine's own build goes before a binary of another machine: where the options ask for own builds, and where
// the binary's compiler is unknown.
bool is_second(const Binary& binary, const BuildOptions& options) {
  return binary.shipped && !options.no_jit && (options.own || is_unknown_compiler(binary.key.compiler));
}

// Past the look-up for any compiler.
llvm::Expected<BuiltBinary> build_here(const Candidate& candidate, const Source& source, Store& store,
                                       const BuildOptions& options) {
  BuiltBinary built;
  const Nvrtc* nvrtc = options.nvrtc;
  if (nvrtc == nullptr) {
    auto chosen = Nvrtc::choose(*candidate.target, options.newest_cuda);
    if (!chosen) return with_prefix(chosen.takeError(), to_string(candidate.problem));
    nvrtc = *chosen;
  }
  const BinaryKey key = binary_key(source, *candidate.target, *nvrtc, options.code);
  const auto look_up = [&] {
    auto found = store.find_binary(key);
    if (!found || (found->shipped && options.own)) return false;
    built.binary = std::move(*found);
    return true;
  };
  if (look_up()) return built;
  if (options.no_jit) return forbidden(candidate, store);

  std::unique_ptr<Store::Lease> lease;
  if (store.lease(key, options.lease_wait_ms, lease) == Store::LeaseState::kDone && look_up()) {
    built.origin = BinaryOrigin::kCompiledElsewhere;
    return built;
  }
  // The owner compiles; so does whoever waited in vain: a second compile costs less than no kernel.
  auto binary = options.compiler ? options.compiler(candidate, *nvrtc, options.cancel, options.code)
                                 : compile_source(candidate, source, *nvrtc, options.cancel, options.code);
  if (!binary) return binary.takeError();
  built.binary = std::move(*binary);
  built.origin = BinaryOrigin::kCompiled;
  if (llvm::Error error = store.put_binary(built.binary))
    built.cache_problem = take_error(std::move(error)).message;
  return built;
}

}  // namespace

bool is_unknown_compiler(llvm::StringRef name) {
  unsigned major = 0;
  return !name.consume_front("nvrtc ") || name.consumeInteger(10, major) || major > kNewestMajor;
}

Code code_for(const Device& device) { return device.info().emulated ? Code::kPtx : Code::kCubinAndPtx; }

std::string compile_options(const Target& target, Code code) {
  const char* report = code == Code::kPtx ? "" : " --ptxas-options=-v";
  return "--gpu-architecture=" + architecture(target, code) + " --std=c++20" + report;
}

BinaryKey binary_key(const Source& source, const Target& target, const Nvrtc& nvrtc, Code code) {
  BinaryKey key;
  key.source_hash = source.hash;
  key.arch = architecture(target, code);
  key.compiler = nvrtc.name();
  key.options = compile_options(target, code);
  return key;
}

bool is_compiled_for(const BinaryKey& key, const Target& target) {
  for (const Code code : {Code::kCubinAndPtx, Code::kPtx})
    if (key.arch == architecture(target, code) && key.options == compile_options(target, code)) return true;
  return false;
}

BinaryKey binary_key(const Candidate& candidate, const Nvrtc& nvrtc, Code code) {
  return binary_key(render(candidate), *candidate.target, nvrtc, code);
}

llvm::Expected<Binary> compile(const Candidate& candidate, const Nvrtc& nvrtc,
                               const std::atomic<bool>* cancel, Code code) {
  return compile_source(candidate, render(candidate), nvrtc, cancel, code);
}

llvm::Expected<BuiltBinary> build(const Candidate& candidate, Store& store, const BuildOptions& options) {
  const Source source = render(candidate);
  std::optional<Binary> second;
  if (options.any_compiler) {
    auto found = store.find_binary_any_compiler(source.hash, candidate.target->name);
    if (!found && options.code == Code::kPtx)
      found = store.find_binary_any_compiler(source.hash, architecture(*candidate.target, options.code));
    if (found && !is_second(*found, options)) {
      BuiltBinary built;
      built.binary = std::move(*found);
      return built;
    }
    if (options.no_jit) return forbidden(candidate, store);
    second = std::move(found);
  }
  auto built = build_here(candidate, source, store, options);
  if (built || !second) return built;
  ErrorText why = take_error(built.takeError());
  if (why.kind != ErrorKind::kNoCompiler) return make_error(why.kind, why.message);
  BuiltBinary others;
  others.binary = std::move(*second);
  return others;
}

void build_all(llvm::ArrayRef<Candidate> candidates, Store& store, const BuildAllOptions& options,
               const BuildCallback& callback) {
  if (candidates.empty()) return;
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex callback_mutex;
  const auto work = [&] {
    while (!stop) {
      const size_t index = next++;
      if (index >= candidates.size()) return;
      const bool skip = options.cancel != nullptr && options.cancel->load();
      llvm::Expected<BuiltBinary> result = skip ? llvm::Expected<BuiltBinary>(cancelled(candidates[index]))
                                                : build(candidates[index], store, options);
      const std::lock_guard<std::mutex> lock(callback_mutex);
      if (stop) {
        if (!result) llvm::consumeError(result.takeError());
        return;
      }
      if (!callback(index, std::move(result))) stop = true;
    }
  };
  const size_t wanted = options.threads > 0 ? options.threads : usable_cpus();
  on_threads(std::min(wanted, candidates.size()), work);
}

}  // namespace trigen
