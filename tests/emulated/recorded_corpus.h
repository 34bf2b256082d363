// The recorded corpus: kernels as PTX, what they run on, and the bits that a GPU's run of them gave.
//
// One file, zstd over CBOR, so that a check needs neither compiler nor GPU:
//   {device, driver, date,
//    kernels: [{target, candidate, problem, entry, source_hash, compiler, ptx (packed),
//               runs: {data: bytes}}],
//    probes: {name: bytes}}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/tensors.h"
#include "generator/candidate.h"
#include "generator/error.h"
#include "runtime/device.h"

namespace trigen::recorded {

/// Reads the file, or tells what is wrong with it.
llvm::Expected<nlohmann::json> load_corpus(const std::string& path);
llvm::Error save_corpus(const std::string& path, const nlohmann::json& corpus);

/// A kernel as sources.txt names it: target, candidate, problem.
std::string name_of(const nlohmann::json& kernel);
/// The candidate that was recorded. Errors: no such problem, target or config today.
llvm::Expected<Candidate> recorded_candidate(const nlohmann::json& kernel);
/// The hash of the source that today's templates make of it. Errors: they make none (a config that is refused).
llvm::Expected<std::string> todays_hash(const nlohmann::json& kernel);

/// A line of recorded/sources.txt: how a recorded kernel stands to today's templates. "current": its PTX is
/// what they make, "stale": it was, "missing": a line of problems.txt that nobody recorded.
struct SourceLine {
  std::string status, hash, kernel;
  bool is_current() const { return status == "current"; }
};
llvm::Expected<std::vector<SourceLine>> load_sources(const std::string& path);
/// The lines of problems.txt, in order.
llvm::Expected<std::vector<std::string>> load_lines(const std::string& path);
/// Those of which the corpus holds no kernel.
llvm::Expected<std::vector<std::string>> missing_lines(const std::vector<std::string>& lines,
                                                       const nlohmann::json& corpus);

/// PTX with every register's number written as the distance from the last one of its kind ("%r+1"), which
/// compresses twice as well, and back.
std::string pack_ptx(const std::string& ptx);
std::string unpack_ptx(const std::string& packed);

/// The inputs of a run. Both come from make_inputs with one fixed seed; kInteger rounds three times the
/// value, so that every product and sum is exact in every format and no order of summation can show.
enum class Data { kRandom, kInteger };
inline constexpr Data kAllData[] = {Data::kRandom, Data::kInteger};
const char* to_string(Data data);

/// One kernel of the corpus on one device: all written tensors, gaps and guards included, in the order of
/// tensors_of. Errors: the device's, and a candidate that this version refuses (record anew then).
struct KernelRun {
  Problem problem;
  TensorList list;
  HostBuffers inputs, outputs;  // outputs of tensors that are not written are empty
  std::string family;
};
llvm::Expected<KernelRun> run_kernel(const Device& device, const nlohmann::json& kernel, Data data);
std::vector<uint8_t> join(const HostBuffers& buffers);

/// How far two right devices may be apart, for every element of the written tensors; 0 where all bits must be
/// equal (gaps and guards, too).
std::vector<std::vector<double>> allowed_difference(const KernelRun& run, Data data);

}  // namespace trigen::recorded
