// Shards of a fleet, merged: how long that takes and how much it makes. Prints a JSON line for each number of
// workers. Every worker leaves one shard of 60 records with 60 kernels that no other shard has, so that
// nothing is left out: the most that as many shards can be.
//
//   build/bench/fleet_bench FOLDER 1 10 100 1000        some 2 GB of FOLDER and 6 GB of memory for 1000
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "cache/bundle.h"
#include "cache/fleet.h"
#include "cache/upkeep.h"
#include "generator/error.h"

namespace trigen::cache {
namespace {

namespace fs = std::filesystem;
constexpr int kRecords = 60, kKinds = 5;
// Sizes of a tuned H200 record: 24 candidates with their samples; cubin, PTX, source and log, packed.
constexpr int kTried = 24, kFinalists = 8, kRounds = 31;
constexpr size_t kCubinBytes = 12000, kTextBytes = 14000;

uint64_t next(uint64_t& state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return state >> 33;
}

std::string noise(size_t size, uint64_t& state) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(next(state));
  return bytes;
}

std::string evidence_of(uint64_t& state) {
  std::string text = "{\"candidates\":[";
  for (int i = 0; i < kTried; ++i) {
    text += std::string(i > 0 ? "," : "") +
            "{\"candidate\":\"wgmma_sm90:tile=128x256x64,stages=" + std::to_string(i) +
            "\",\"outcome\":\"timed\",\"quick_us\":[";
    for (int s = 0; s < 5; ++s) text += (s > 0 ? "," : "") + std::to_string(20 + 1e-6 * double(next(state)));
    text += "],\"finals_us\":[";
    for (int s = 0; i < kFinalists && s < kRounds; ++s)
      text += (s > 0 ? "," : "") + std::to_string(20 + 1e-6 * double(next(state)));
    text += "]}";
  }
  return text + "],\"complete\":true,\"elapsed_s\":61.5,\"model\":3}";
}

Contents shard(int worker) {
  Contents contents;
  for (int i = 0; i < kRecords; ++i) {
    uint64_t state = static_cast<uint64_t>(worker) * kRecords + static_cast<uint64_t>(i) + 1;
    BinaryRow binary;
    binary.binary.key = {"source" + std::to_string(state), "sm_90a", "nvrtc 12.9.86",
                         "--gpu-architecture=sm_90a"};
    RecordRow record;
    Record& r = record.record;
    r.problem = "forward,dtype=bf16,B=32,H=1,T=" + std::to_string(64 + state / kKinds) + ",D=1024,K=1,pad=0";
    r.arch = "sm_90a";
    r.device = "GPU of kind " + std::to_string(state % kKinds);
    r.sms = 132;
    r.driver = "580.159";
    r.candidate = binary.binary.candidate = "wgmma_sm90:tile=128x256x64,stages=4";
    r.binary = binary.binary.key;
    r.provenance = Provenance::kMeasured;
    r.median_us = 20;
    binary.binary.problem = r.problem;
    binary.binary.entry = "trigen_main";
    contents.asked.emplace(r.arch, r.problem);
    record.evidence = pack(evidence_of(state));
    binary.packed = {pack(noise(2000, state)), pack(noise(kCubinBytes, state)),
                     pack(noise(kTextBytes - 2000, state)), pack("ptxas info")};
    set_stored_at(record, 1700000000 + worker);
    set_stored_at(binary, 1700000000 + worker);
    contents.add(std::move(binary));
    contents.add(std::move(record));
  }
  return contents;
}

int run(const std::string& folder, int workers) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const std::string shards = folder + "/" + std::to_string(workers), base = folder + "/base.trigen";
  auto fleet = Fleet::make(shards);
  if (!fleet) return std::fprintf(stderr, "%s\n", take_error(fleet.takeError()).message.c_str()), 1;
  uintmax_t shard_bytes = 0;
  for (int worker = 0; worker < workers; ++worker) {
    auto path = fleet->publish(shard(worker), {{"made_by", "fleet_bench"}});
    if (!path) return std::fprintf(stderr, "%s\n", take_error(path.takeError()).message.c_str()), 1;
    shard_bytes += fs::file_size(*path);
  }
  ::sync();  // shards of a fleet have long been on the disk
  Clock::time_point since = Clock::now();
  fleet->refresh();
  const double look_s = seconds(since);
  since = Clock::now();
  auto files = bundles_in(shards);
  auto all = read_merged(*files, ReadFor::kImport);
  if (!all) return std::fprintf(stderr, "%s\n", take_error(all.takeError()).message.c_str()), 1;
  const double read_s = seconds(since);
  if (auto error = write_bundle(base, *all, {{"made_by", "fleet_bench"}}))
    return std::fprintf(stderr, "%s\n", take_error(std::move(error)).message.c_str()), 1;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf(
      "{\"workers\": %d, \"shards\": %zu, \"records\": %zu, \"shard_bytes\": %ju, \"base_bytes\": %ju, "
      "\"status_s\": %.2f, \"read_s\": %.2f, \"merge_s\": %.2f, \"most_memory_bytes\": %ld}\n",
      workers, files->size(), all->records.size(), shard_bytes, fs::file_size(base), look_s, read_s,
      seconds(since), used.ru_maxrss * 1024);
  std::fflush(stdout);
  fs::remove_all(shards);
  fs::remove(base);
  return 0;
}

}  // namespace
}  // namespace trigen::cache

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: fleet_bench FOLDER WORKERS...\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i)
    if (const int code = trigen::cache::run(argv[1], std::atoi(argv[i]))) return code;
  return 0;
}
