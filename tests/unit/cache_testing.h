// Helpers of the cache's tests: a folder of their own, sample rows, a log that can be looked at.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cache/store.h"

namespace trigen::testing {

class CacheFolder {
 public:
  CacheFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trigen-cache-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder " << pattern;
    path_ = pattern;
  }
  ~CacheFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct OpenStore {
  std::shared_ptr<std::vector<std::string>> lines = std::make_shared<std::vector<std::string>>();
  std::unique_ptr<Store> store;
  Store* operator->() const { return store.get(); }
  std::string log() const {
    std::string text;
    for (const std::string& line : *lines) text += line + "\n";
    return text;
  }
};

inline OpenStore open_store(std::vector<std::string> layers, int busy_ms = 5000, bool read_only = false) {
  OpenStore opened;
  Store::Options options;
  options.layers = std::move(layers);
  options.busy_ms = busy_ms;
  options.read_only = read_only;
  options.log = [lines = opened.lines](const std::string& line) { lines->push_back(line); };
  opened.store = Store::open(std::move(options));
  return opened;
}

// As another program would, behind trigen's back.
inline void run_sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error << ": " << sql;
  sqlite3_free(error);
  sqlite3_close(db);
}

// Bytes that do not compress, the same for the same seed.
inline std::string noise(size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

inline Binary sample_binary(unsigned n, size_t cubin_bytes = 20000) {
  Binary b;
  b.key = {"source" + std::to_string(n), "sm_80", "nvrtc 12.9.86", "--gpu-architecture=sm_80"};
  b.candidate = "mma_sm80:tile=128x128x32,stages=3";
  b.problem = "forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0";
  b.entry = "trigen_main trigen_reduce";
  b.source = "// kernel " + std::to_string(n) + "\n" + std::string(3000, 'x');
  b.cubin = noise(cubin_bytes, n);
  b.ptx = std::string(".version 8.0\n\0.target sm_80\n", 27) + std::string(5000, 'p');
  b.log = "ptxas info: 128 registers";
  b.registers = 128;
  b.spill_bytes = 4;
  b.stack_bytes = 16;
  b.static_shared = 49152;
  return b;
}

inline Record sample_record(Provenance provenance, const std::string& device, int sms,
                            const std::string& driver,
                            const std::string& candidate = "mma_sm80:tile=128x128x32") {
  Record r;
  r.problem = "forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0";
  r.arch = "sm_80";
  r.device = device;
  r.sms = sms;
  r.driver = driver;
  r.candidate = candidate;
  r.binary = sample_binary(1).key;
  r.provenance = provenance;
  r.median_us = 31.25;
  r.error = 0.001953125;
  r.evidence = R"({"samples":[31.2,31.25,31.3],"date":"2026-01-02"})";
  return r;
}

inline std::string message(llvm::Error error) {
  if (!error) return "";
  return llvm::toString(std::move(error));
}

// A FIFO with room for a whole output, so that its writer needs no reader meanwhile.
class Fifo {
 public:
  explicit Fifo(const std::string& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(::fcntl(descriptor_, F_SETPIPE_SZ, 1 << 20), 1 << 20);
  }
  ~Fifo() { ::close(descriptor_); }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;
  std::string read() const {
    std::string all(1 << 20, '\0');
    const ssize_t got = ::read(descriptor_, all.data(), all.size());
    all.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return all;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace trigen::testing
