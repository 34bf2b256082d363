#include "lab/clock/disassembler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cache/host.h"
#include "generator/error.h"

extern char** environ;

namespace trigen {
namespace {

// A file of TMPDIR that goes when this does.
class CubinFile {
 public:
  CubinFile() = default;
  CubinFile(const CubinFile&) = delete;
  CubinFile& operator=(const CubinFile&) = delete;
  ~CubinFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  llvm::Error write(llvm::StringRef content) {
    const char* const folder = std::getenv("TMPDIR");
    std::string name = std::string(folder != nullptr && *folder != 0 ? folder : "/tmp") + "/trigen-XXXXXX";
    const int file = ::mkstemp(name.data());
    if (file < 0) return failed(name);
    path_ = name;
    while (!content.empty()) {
      const ssize_t count = ::write(file, content.data(), content.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      content = content.drop_front(static_cast<size_t>(count));
    }
    const bool whole = content.empty();
    if (::close(file) != 0 || !whole) return failed(name);
    return llvm::Error::success();
  }
  const std::string& path() const { return path_; }

 private:
  static llvm::Error failed(const std::string& name) {
    return bad_request("cannot write " + name + " (" + std::strerror(errno) +
                       "); name a folder with room in TMPDIR");
  }
  std::string path_;
};

struct Output {
  std::string text;  // standard output and error
  bool good = false;
};

Output run_program(const std::vector<std::string>& command) {
  Output out;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {std::strerror(errno), false};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  const int code = ::posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (code == 0) {
    char bytes[1 << 16];
    for (ssize_t count; (count = ::read(ends[0], bytes, sizeof bytes)) > 0 || (count < 0 && errno == EINTR);)
      if (count > 0) out.text.append(bytes, static_cast<size_t>(count));
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    out.good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  } else {
    out.text = std::strerror(code);
  }
  ::close(ends[0]);
  return out;
}

std::string nvdisasm() {
  const std::string named = environment("TRIGEN_NVDISASM");
  return named.empty() ? "nvdisasm" : named;
}

}  // namespace

bool have_nvdisasm() { return run_program({nvdisasm(), "--version"}).good; }

llvm::Expected<std::vector<MachineFunction>> disassemble(llvm::StringRef cubin) {
  const std::string program = nvdisasm();
  CubinFile file;
  if (llvm::Error error = file.write(cubin)) return error;
  const Output out = run_program({program, "-c", "-hex", file.path()});
  if (out.good) return parse_machine_code(out.text);
  if (!have_nvdisasm())
    return make_error(ErrorKind::kUnsupported,
                      "no program '" + program +
                          "' runs here, which reads machine code; run scripts/setup_nvdisasm.sh, or name "
                          "that of a CUDA toolkit in TRIGEN_NVDISASM");
  return bad_request(program + " does not read the cubin: " + llvm::StringRef(out.text).trim() +
                     "; use that of CUDA 12.8 or newer");
}

}  // namespace trigen
