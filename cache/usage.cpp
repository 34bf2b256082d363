#include "cache/usage.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <ctime>

#include "cache/trust.h"
#include "llvm/ADT/StringRef.h"

namespace trigen::cache {
namespace {

// 65536 slots of two bytes, little endian: days since 1970 until the year 2149. A sparse file.
constexpr unsigned long kOverlay = 0x794c7630;  // statfs(2): to open a file for writing there copies it up
constexpr off_t kBytes = off_t{65536} * 2;

off_t slot_of(const std::string& key) {
  unsigned slot = 0;
  return llvm::StringRef(key).take_front(4).getAsInteger(16, slot) ? 0 : static_cast<off_t>(slot) * 2;
}

// -1 where it is not there or not ours; never waits for a FIFO's other end.
int open_usage(const std::string& layer, int flags) {
  const int descriptor = ::open((layer + ".used").c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (descriptor < 0) return -1;
  if (distrust_of_file(descriptor, FilePart::kBeside).empty()) return descriptor;
  ::close(descriptor);
  return -1;
}

int read_slot(int descriptor, off_t at) {
  unsigned char bytes[2] = {};
  return ::pread(descriptor, bytes, sizeof bytes, at) == sizeof bytes ? bytes[0] | bytes[1] << 8 : 0;
}

}  // namespace

int today() { return static_cast<int>(std::time(nullptr) / 86400); }

void begin_usage(const std::string& layer) {
  if (::access((layer + ".used").c_str(), F_OK) == 0) return;
  const int descriptor = open_usage(layer, O_RDWR | O_CREAT);
  if (descriptor < 0) return;
  if (::ftruncate(descriptor, kBytes) != 0) ::unlink((layer + ".used").c_str());
  ::close(descriptor);
}

void note_use(const std::string& layer, const std::string& key) {
  const int day = today();
  int descriptor = open_usage(layer, O_RDONLY);
  if (descriptor < 0) return;
  struct statfs facts = {};
  const bool noted = day <= 0 || day >= 65536 || read_slot(descriptor, slot_of(key)) == day ||
                     ::fstatfs(descriptor, &facts) != 0 ||
                     facts.f_type == static_cast<decltype(facts.f_type)>(kOverlay);
  ::close(descriptor);
  if (noted || (descriptor = open_usage(layer, O_RDWR)) < 0) return;
  const unsigned char bytes[2] = {static_cast<unsigned char>(day), static_cast<unsigned char>(day >> 8)};
  (void)!::pwrite(descriptor, bytes, sizeof bytes, slot_of(key));
  ::close(descriptor);
}

int last_use(const std::string& layer, const std::string& key) {
  const int descriptor = open_usage(layer, O_RDONLY);
  if (descriptor < 0) return 0;
  const int day = read_slot(descriptor, slot_of(key));
  ::close(descriptor);
  return day;
}

}  // namespace trigen::cache
