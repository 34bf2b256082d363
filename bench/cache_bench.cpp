// Host time of look-ups in the cache: making a plan takes one look-up of a warm record and one of a warm
// binary.
//
// The file system is that of the temporary folder (TMPDIR). Sizes are those of an sm_90 kernel of this
// project: 117 KB of cubin, 90 KB of PTX, 40 KB of source, which pack to about a quarter.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "cache/store.h"

namespace trigen {
namespace {

// Words of a small vocabulary, so that it packs as machine code does.
std::string code_like(size_t size, unsigned seed) {
  std::string bytes;
  uint64_t state = seed + 1;
  auto next = [&state] { return (state = state * 6364136223846793005ull + 1442695040888963407ull) >> 33; };
  std::string vocabulary;
  for (int i = 0; i < 16 * 96; ++i) vocabulary += static_cast<char>(next());
  while (bytes.size() < size) {
    bytes += vocabulary.substr(16 * (next() % 96), 12);
    for (int i = 0; i < 2; ++i) bytes += static_cast<char>(next());
  }
  bytes.resize(size);
  return bytes;
}

BinaryKey make_key(unsigned n) {
  return {"source" + std::to_string(n), "sm_90a", "nvrtc 12.9.86", "--gpu-architecture=sm_90a"};
}

Binary make_binary(unsigned n) {
  Binary b;
  b.key = make_key(n);
  b.candidate = "wgmma_sm90:tile=128x256x64,stages=4";
  b.problem = "forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0";
  b.entry = "trigen_main";
  b.cubin = code_like(117000, n);
  b.ptx = code_like(90000, n + 1000);
  b.source = code_like(40000, n + 2000);
  return b;
}

Record make_record(unsigned n) {
  Record r;
  r.problem = "forward,dtype=bf16,B=" + std::to_string(n) + ",H=1,T=512,D=1024,K=1,pad=0";
  r.arch = "sm_90a";
  r.device = "NVIDIA H200";
  r.sms = 132;
  r.driver = "580.159";
  r.candidate = "wgmma_sm90:tile=128x256x64,stages=4";
  r.binary = make_key(n);
  r.provenance = Provenance::kMeasured;
  r.median_us = 20;
  r.evidence = std::string(4000, '7');
  return r;
}

constexpr unsigned kRows = 100;

// A user layer with a hundred binaries and records, and the same as a shipped layer (no lock file beside it).
struct Files {
  Files() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trigen-bench-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    auto store = open({folder + "/user.db"});
    for (unsigned n = 0; n < kRows; ++n) {
      llvm::cantFail(store->put_binary(make_binary(n)));
      llvm::cantFail(store->put_record(make_record(n)));
    }
    std::filesystem::copy_file(folder + "/user.db", folder + "/shipped.db");
  }
  ~Files() { std::filesystem::remove_all(folder); }
  static std::unique_ptr<Store> open(std::vector<std::string> layers) {
    Store::Options options;
    options.layers = std::move(layers);
    return Store::open(std::move(options));
  }
  std::string folder;
};

Files& files() {
  static Files made;
  return made;
}

std::unique_ptr<Store> user() { return Files::open({files().folder + "/user.db"}); }
// The container's case: no user layer yet, one shipped layer.
std::unique_ptr<Store> shipped() {
  return Files::open({files().folder + "/none.db", files().folder + "/shipped.db"});
}

void find_record(benchmark::State& state, std::unique_ptr<Store> store) {
  std::vector<std::string> problems;
  for (unsigned n = 0; n < kRows; ++n) problems.push_back(make_record(n).problem);
  unsigned n = 0;
  for (auto _ : state)
    if (!store->find_record(problems[n++ % kRows], {"sm_90a"}, {"NVIDIA H200", 132, "580.159"}))
      state.SkipWithError("missed");
}

void find_binary(benchmark::State& state, std::unique_ptr<Store> store) {
  unsigned n = 0;
  for (auto _ : state)
    if (!store->find_binary(make_key(n++ % kRows))) state.SkipWithError("missed");
}

// The part of a binary that a plan reads.
void find_cubin(benchmark::State& state, std::unique_ptr<Store> store) {
  unsigned n = 0;
  for (auto _ : state)
    if (!store->find_binary(make_key(n++ % kRows), BinaryParts::kCubin)) state.SkipWithError("missed");
}

void find_missing_binary(benchmark::State& state, std::unique_ptr<Store> store) {
  const BinaryKey key = make_key(kRows);  // not there
  for (auto _ : state) benchmark::DoNotOptimize(store->find_binary(key));
}

void lease_and_drop(benchmark::State& state, std::unique_ptr<Store> store) {
  const BinaryKey key = make_key(kRows);  // not there
  std::unique_ptr<Store::Lease> lease;
  for (auto _ : state) {
    if (store->lease(key, 0, lease) != Store::LeaseState::kOwner) state.SkipWithError("no lease");
    lease.reset();
  }
}

void put_binary(benchmark::State& state, std::unique_ptr<Store> store) {
  const Binary binary = make_binary(0);
  for (auto _ : state) llvm::cantFail(store->put_binary(binary));
}

BENCHMARK_CAPTURE(find_record, user_layer, user())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_record, shipped_layer, shipped())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_binary, user_layer, user())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_binary, shipped_layer, shipped())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_cubin, user_layer, user())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_cubin, shipped_layer, shipped())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_missing_binary, user_layer, user())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_missing_binary, no_layer, Files::open({files().folder + "/none.db"}))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(lease_and_drop, user_layer, user())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(put_binary, user_layer, user())->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trigen

BENCHMARK_MAIN();
