// Facts that stand in files: what is installed, read without running any of it.
#include <elf.h>
#include <link.h>

#include <set>

#include "doctor/gather.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "runtime/paths.h"

namespace trigen::doctor {
namespace {

// "__version__ = '2.8.0+cu128'" -> "2.8.0+cu128"; "cuda: Optional[str] = None" -> "".
std::string assigned(llvm::StringRef text, llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 16> lines;
  text.split(lines, '\n');
  for (llvm::StringRef line : lines) {
    if (!line.startswith(name)) continue;
    const auto [left, right] = line.split('=');
    const llvm::StringRef value = right.trim();
    if (value.size() >= 2 && (value.front() == '\'' || value.front() == '"'))
      return value.drop_front().drop_back().str();
  }
  return "";
}

bool is_arch(llvm::StringRef word) {
  if (!word.consume_front("sm_") && !word.consume_front("compute_")) return false;
  word.consume_back("a");
  word.consume_back("f");
  return word.size() >= 2 && word.size() <= 3 && llvm::all_of(word, llvm::isDigit);
}

// torch.cuda.get_arch_list() is one text in libtorch_python.so: "sm_70 sm_75 ... compute_120". The longest
// such text; one name alone may stand there for other reasons.
std::vector<std::string> archs_in(llvm::StringRef bytes) {
  std::vector<std::string> best;
  for (size_t at = 0; (at = bytes.find("sm_", at)) != llvm::StringRef::npos;) {
    const size_t end = bytes.find('\0', at);
    llvm::SmallVector<llvm::StringRef, 16> words;
    const llvm::StringRef text = bytes.slice(at, end);
    if (text.size() < 400) text.split(words, ' ');
    if (words.size() > best.size() && llvm::all_of(words, is_arch)) {
      best.clear();
      for (llvm::StringRef word : words) best.push_back(word.str());
    }
    if (end == llvm::StringRef::npos) break;
    at = end;
  }
  if (best.size() < 2) best.clear();
  return best;
}

int visit_program(struct dl_phdr_info* info, size_t, void* data) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as integers
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  const char *strings = nullptr, *needs = nullptr;
  // The loader makes addresses of some entries and leaves others as they are in the file.
  const auto address = [&](const ElfW(Dyn) & entry) {
    const ElfW(Addr) at =
        entry.d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr + entry.d_un.d_ptr : entry.d_un.d_ptr;
    return reinterpret_cast<const char*>(at);  // NOLINT(performance-no-int-to-ptr)
  };
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_STRTAB) strings = address(*dynamic);
    if (dynamic->d_tag == DT_VERNEED) needs = address(*dynamic);
  }
  std::pair<int, int> newest{0, 0};
  while (strings != nullptr && needs != nullptr) {
    const auto* need = reinterpret_cast<const ElfW(Verneed)*>(needs);
    const char* entry = needs + need->vn_aux;
    for (int i = 0; i < need->vn_cnt; ++i) {
      const auto* one = reinterpret_cast<const ElfW(Vernaux)*>(entry);
      llvm::StringRef name = strings + one->vna_name;
      std::pair<int, int> version;
      if (name.consume_front("GLIBC_")) {
        const auto [major, minor] = name.split('.');
        if (!major.getAsInteger(10, version.first) &&
            !minor.split('.').first.getAsInteger(10, version.second))
          newest = std::max(newest, version);
      }
      entry += one->vna_next;
    }
    if (need->vn_next == 0) break;
    needs += need->vn_next;
  }
  if (newest.first > 0)
    *static_cast<std::string*>(data) = std::to_string(newest.first) + "." + std::to_string(newest.second);
  return 1;  // the first object is the program
}

}  // namespace

std::string glibc_of_program() {
  std::string needed;
  ::dl_iterate_phdr(visit_program, &needed);
  return needed;
}

std::vector<TorchFacts> find_torch(const std::vector<std::string>& sites) {
  std::vector<TorchFacts> found;
  std::set<std::string> seen;
  for (const std::string& site : sites) {
    const std::string folder = real_path(site + "/torch");
    if (folder.empty() || !seen.insert(folder).second) continue;
    auto version = llvm::MemoryBuffer::getFile(folder + "/version.py");
    if (!version) continue;
    TorchFacts torch;
    torch.path = folder;
    torch.version = assigned((*version)->getBuffer(), "__version__");
    torch.cuda = assigned((*version)->getBuffer(), "cuda");
    auto library = llvm::MemoryBuffer::getFile(folder + "/lib/libtorch_python.so", /*IsText=*/false,
                                               /*RequiresNullTerminator=*/false);
    if (!torch.cuda.empty() && library) torch.archs = archs_in((*library)->getBuffer());
    found.push_back(std::move(torch));
  }
  return found;
}

void read_files(Environment& environment, const std::string& root) {
  const std::string base = llvm::StringRef(root).rtrim('/').str();
  environment.machine = read_machine(root);
  std::set<std::string> seen;  // /usr/local/cuda is a link to one of them
  for (const char* folder : {"/usr/local", "/opt"})
    for (const std::string& name : list_directory(base + folder)) {
      const std::string path = std::string(folder) + "/" + name;
      if (llvm::StringRef(name).startswith("cuda") && path_exists(base + path + "/bin/nvcc") &&
          seen.insert(real_path(base + path)).second)
        environment.toolkits.push_back(path);
    }
}

}  // namespace trigen::doctor
