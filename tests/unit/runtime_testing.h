// Helpers of the runtime's tests: a folder of their own, environment variables for a scope, the compiler of
// this machine.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "runtime/nvrtc.h"

namespace trigen::testing {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trigen-runtime-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder " << pattern;
    path_ = std::filesystem::canonical(pattern);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ / name; }
  std::string path() const { return path_; }
  // A file with its folders; returns its path.
  std::string write(const std::string& name, const std::string& text = "") const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  std::string link(const std::string& name, const std::string& to) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::filesystem::create_symlink(to, path_ / name);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Sets (or with nullptr, unsets) a variable until the scope ends.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = ::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  Variable(const char* name, const std::string& value) : Variable(name, value.c_str()) {}
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// For a scope TRIGEN_NVRTC is this machine's compiler and that of the site-packages folder that TRIGEN_TEST_NVRTC13
// names. Without that variable the environment stays as it is.
inline std::optional<Variable> with_second_compiler() {
  const char* folder = ::getenv("TRIGEN_TEST_NVRTC13");
  const auto found = find_nvrtc();
  if (folder == nullptr || found.empty()) return std::nullopt;
  return std::optional<Variable>(std::in_place, "TRIGEN_NVRTC", found.front().path + ":" + folder);
}

// A real NVRTC of this machine that makes the target; null when there is none.
inline const Nvrtc* real_nvrtc(const char* arch = "sm_70") {
  auto target = find_target(arch);
  if (!target) {
    ADD_FAILURE() << llvm::toString(target.takeError());
    return nullptr;
  }
  auto nvrtc = Nvrtc::choose(**target);
  if (nvrtc) return *nvrtc;
  llvm::consumeError(nvrtc.takeError());
  return nullptr;
}

template <typename T>
std::string error_of(llvm::Expected<T> result) {
  if (result) return "";
  return llvm::toString(result.takeError());
}
inline std::string error_of(llvm::Error error) { return error ? llvm::toString(std::move(error)) : ""; }

#define TRIGEN_NEEDS_NVRTC()                    \
  if (trigen::testing::real_nvrtc() == nullptr) \
  GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_70; set TRIGEN_NVRTC"

}  // namespace trigen::testing
