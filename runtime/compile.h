// Candidate -> binary: rendered, compiled by NVRTC to a cubin and PTX of its target; alone, through the
// cache, or many in parallel. No file is read or written: the templates are in the library.
#pragma once

#include <atomic>
#include <functional>

#include "cache/store.h"
#include "generator/candidate.h"
#include "generator/cost/cost.h"
#include "runtime/nvrtc.h"

namespace trigen {

class Device;

// The code to make of a source. PTX alone is all that an emulated device runs, and takes half the time; its keys
// name the virtual architecture (compute_70), so that no GPU is given such a binary from the cache.
enum class Code { kCubinAndPtx, kPtx };
Code code_for(const Device& device);

// True if newer than any release that this version knows, whose code has been compared with no other's, and for a
// label that is none of an NVRTC.
bool is_unknown_compiler(llvm::StringRef name);
// The compiler's options for a target in canonical form: "--gpu-architecture=sm_70 --std=c++20 ...". Part of
// the key.
std::string compile_options(const Target& target, Code code);
// Does the key name the target and this version's options for it?
bool is_compiled_for(const BinaryKey& key, const Target& target);
BinaryKey binary_key(const Candidate& candidate, const Nvrtc& nvrtc, Code code = Code::kCubinAndPtx);
BinaryKey binary_key(const Source& source, const Target& target, const Nvrtc& nvrtc,
                     Code code = Code::kCubinAndPtx);

// Always compiles. Build errors carry the problem, family, config, target, compiler, its log, and the command
// that prints the source. `cancel` (may be null) is looked at during the compile (NVRTC 12.8 and later), else
// before it.
llvm::Expected<Binary> compile(const Candidate& candidate, const Nvrtc& nvrtc,
                               const std::atomic<bool>* cancel = nullptr, Code code = Code::kCubinAndPtx);

// Makes a binary as compile() does, from any thread.
using Compiler = std::function<llvm::Expected<Binary>(const Candidate& candidate, const Nvrtc& nvrtc,
                                                      const std::atomic<bool>* cancel, Code code)>;

struct BuildOptions {
  Code code = Code::kCubinAndPtx;  // kPtx: a cached binary with a cubin does as well
  const Nvrtc* nvrtc =
      nullptr;          // null: Nvrtc::choose(target, newest_cuda), only when something must be compiled
  int newest_cuda = 0;  // the driver's CUDA version, where the binary is to run here
  // Take a cached binary of another compiler version too (right, since the source is the same; its speed may
  // differ).
  bool any_compiler = true;
  // Pass over binaries that others made, where a compiler is here: what a tune measures and its record names.
  bool own = false;
  bool no_jit = false;  // a miss is a cache error that names the problem and the commands that fill the cache
  int lease_wait_ms = 60'000;  // how long to wait for another process that compiles the same thing
  const std::atomic<bool>* cancel = nullptr;
  Compiler compiler = {};  // empty: compile()
};
enum class BinaryOrigin { kCache, kCompiled, kCompiledElsewhere };
struct BuiltBinary {
  Binary binary;
  BinaryOrigin origin = BinaryOrigin::kCache;
  std::string
      cache_problem;  // why the result could not be stored; empty when it was (or came from the cache)
};
// Through the cache: lookup, lease, compile once over all processes, store. A cache that cannot be written is
// no error.
llvm::Expected<BuiltBinary> build(const Candidate& candidate, Store& store, const BuildOptions& options = {});

struct BuildAllOptions : BuildOptions {
  int threads = 0;  // 0: the CPUs this process may use
};
// Called once per candidate, in the order of completion, one call at a time, from the worker threads (the
// caller's is one of them). After a cancel the rest get errors. Return false to stop: no further call.
using BuildCallback = std::function<bool(size_t index, llvm::Expected<BuiltBinary> result)>;
void build_all(llvm::ArrayRef<Candidate> candidates, Store& store, const BuildAllOptions& options,
               const BuildCallback& callback);

// The compiler's resource report (ptxas -v): the largest figure over the entries.
Resources parse_resources(llvm::StringRef log);
Resources resources_of(const Binary& binary);

// TRIGEN_NO_JIT=1 (also "true", "yes", "on").
bool no_jit_from_environment();
// CPUs that this process may use (affinity mask and control group quota), at least 1.
int usable_cpus();

}  // namespace trigen
