#include "cache/host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <system_error>
#include <vector>

#include "generator/error.h"
#include "generator/names.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace trigen::cache {
namespace {

struct NamedMagic {
  unsigned long magic;
  const char* name;
};
// f_type of statfs(2): the manual page's and linux/magic.h's list; Lustre's and GPFS's as their own headers
// give them.
constexpr NamedMagic kNetwork[] = {
    {0x6969, "nfs"},        {0x517B, "smb"},        {0xFF534D42, "cifs"}, {0xFE534D42, "smb2"},
    {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},   {0x01021997, "9p"},   {0x65735546, "fuse"},
    {0x00C36400, "ceph"},   {0x19830326, "beegfs"}, {0x5346414F, "afs"},  {0x6A656A63, "virtiofs"},
};

}  // namespace

std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string existing_folder(const std::string& folder) {
  std::string at = folder;
  struct stat status = {};
  while (at.size() > 1 && (::stat(at.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))) at = folder_of(at);
  return at;
}

const std::string& code_folder() {
  static const std::string* const folder = [] {
    Dl_info info{};
    char real[PATH_MAX];
    // dladdr names the program as it was called, which need not be a path.
    const bool found = ::dladdr(reinterpret_cast<void*>(&code_folder), &info) != 0 &&
                       info.dli_fname != nullptr && ::realpath(info.dli_fname, real) != nullptr;
    if (!found && ::realpath("/proc/self/exe", real) == nullptr) return new std::string();
    return new std::string(folder_of(real));
  }();
  return *folder;
}

namespace {

// Writes all bytes; errno or 0.
int write_all(int descriptor, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = ::write(descriptor, bytes.data() + at, bytes.size() - at);
    if (wrote >= 0)
      at += static_cast<size_t>(wrote);
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

// The open file `part` gets its mode, reaches the disk and takes its place, or is removed.
int put_in_place(int descriptor, int error, const std::string& part, const std::string& path, int mode) {
  if (error == 0 && (::fchmod(descriptor, static_cast<mode_t>(mode)) != 0 || ::fsync(descriptor) != 0))
    error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;  // where a quota is met as late as this
  if (error == 0 && ::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0)
    ::unlink(part.c_str());
  else
    sync_folder(folder_of(path));
  return error;
}

}  // namespace

int write_whole_file(const std::string& path, const std::string& bytes, int mode) {
  std::string part = folder_of(path) + "/.trigen-XXXXXX";
  const int descriptor = ::mkostemp(part.data(), O_CLOEXEC);
  if (descriptor < 0) return errno;
  return put_in_place(descriptor, write_all(descriptor, bytes), part, path, mode);
}

int write_whole_file(const std::string& path, int mode, llvm::function_ref<bool(const std::string&)> fill) {
  std::string part = folder_of(path) + "/.trigen-XXXXXX";
  const int descriptor = ::mkostemp(part.data(), O_CLOEXEC);
  if (descriptor < 0) return errno;
  return put_in_place(descriptor, fill(part) ? 0 : ECANCELED, part, path, mode);
}

int output_file(const std::string& path, std::string& file) {
  struct stat facts = {};
  file.clear();
  if (::stat(path.c_str(), &facts) != 0 && errno != ENOENT) return errno;
  if (facts.st_mode != 0 && !S_ISREG(facts.st_mode)) return 0;
  file = path;  // a link may name what is not there yet, which realpath(3) refuses
  char target[PATH_MAX];
  constexpr int kMostLinks = 40;  // the kernel's
  ssize_t size = 0;
  for (int i = 0; i < kMostLinks && (size = ::readlink(file.c_str(), target, sizeof target)) > 0; ++i)
    file = (target[0] == '/' ? "" : folder_of(file) + "/") + std::string(target, static_cast<size_t>(size));
  return 0;
}

int write_output(const std::string& path, const std::string& bytes) {
  std::string file;
  if (const int error = output_file(path, file)) return error;
  if (!file.empty()) return write_whole_file(file, bytes, 0644);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return errno;
  const int error = write_all(descriptor, bytes);
  return ::close(descriptor) != 0 && error == 0 ? errno : error;
}

namespace {

constexpr size_t kMostInputBytes = 64 << 20;  // ten times the largest list of problems

std::string read_to_end(int descriptor, std::string& text) {
  char buffer[64 << 10];
  for (ssize_t n = 1; n != 0;) {
    n = ::read(descriptor, buffer, sizeof buffer);
    if (n < 0) return errno_text(errno);
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostInputBytes) return "it has more than 64 MiB, the most that is read";
  }
  return {};
}

std::string unpack_text(std::string& text) {
  const unsigned long long size = ZSTD_getFrameContentSize(text.data(), text.size());
  if (size > kMostInputBytes) return "it is no zstd file of at most 64 MiB of text";
  std::string unpacked(size, '\0');
  if (ZSTD_decompress(unpacked.data(), size, text.data(), text.size()) != size)
    return "its zstd frame is damaged";
  text = std::move(unpacked);
  return {};
}

}  // namespace

llvm::Expected<std::string> read_input(const std::string& path, const char* what, const char* next) {
  const int descriptor = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string text, reason = descriptor < 0 ? errno_text(errno) : read_to_end(descriptor, text);
  if (descriptor >= 0) ::close(descriptor);
  if (reason.empty() && llvm::StringRef(text).startswith("\x28\xb5\x2f\xfd")) reason = unpack_text(text);
  if (reason.empty()) return text;
  return make_error(ErrorKind::kBadRequest,
                    std::string("cannot read ") + what + printable(path) + ": " + reason + "; " + next);
}

int make_folders(const std::string& folder) {
  struct stat status = {};
  if (::stat(folder.c_str(), &status) == 0) return S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
  if (errno != ENOENT) return errno;
  if (folder.size() > 1)
    if (int error = make_folders(folder_of(folder)); error != 0) return error;
  if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  return errno;
}

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

std::string home_of(const std::string& path) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) return {};
  std::string machine;  // of systemd and D-Bus, machine-id(5); containers may have none
  std::ifstream("/etc/machine-id") >> machine;
  return machine.substr(0, 64) + ":" + std::to_string(file.st_ino);
}

std::string network_filesystem(const std::string& folder) {
  struct statfs facts = {};
  if (::statfs(folder.c_str(), &facts) != 0) return {};
  for (const NamedMagic& known : kNetwork)
    if ((static_cast<unsigned long>(facts.f_type) & 0xFFFFFFFFul) == known.magic) return known.name;
  return {};
}

std::string read_file(const std::string& path, int64_t most, std::string& bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return errno_text(errno);
  std::string reason = read_descriptor(descriptor, most, bytes);
  ::close(descriptor);
  return reason;
}

std::string read_descriptor(int descriptor, int64_t most, std::string& bytes) {
  struct stat facts = {};
  if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) return "not a regular file";
  if (facts.st_size > most)
    return std::to_string(facts.st_size) + " B, at most " + std::to_string(most) + " B are read";
  bytes.resize(static_cast<size_t>(facts.st_size));
  size_t got = 0;
  for (ssize_t n = 1; n > 0 && got < bytes.size(); got += static_cast<size_t>(std::max<ssize_t>(n, 0)))
    n = ::pread(descriptor, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
  bytes.resize(got);
  return {};
}

std::string sha256_of(llvm::StringRef bytes) {
  const auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(bytes));
  return llvm::toHex(llvm::ArrayRef<uint8_t>(digest), /*LowerCase=*/true);
}

}  // namespace trigen::cache

namespace trigen {

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

void on_threads(size_t count, const std::function<void()>& work) {
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto caught = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(count);
  while (others.size() + 1 < count) {
    others.push_back(start_thread(caught));
    if (!others.back().joinable()) break;
  }
  caught();
  for (std::thread& other : others)
    if (other.joinable()) other.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace trigen
