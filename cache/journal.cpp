#include "cache/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "cache/filesystem.h"
#include "cache/guard.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Endian.h"

namespace trigen::cache {
namespace {

// Two of these are held in memory at once; a cache of 1000 binaries has 40 MB.
constexpr off_t kMostJournalBytes = off_t{256} << 20;

// The whole file, through the guard; `facts` of the opened one.
std::string read_whole(Guard& guard, const std::string& path, std::string& bytes, struct stat& facts) {
  const int descriptor = guard.open(path.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (descriptor < 0)
    return guard.refusal().empty() ? "'" + path + "': " + errno_text(errno) : guard.refusal();
  std::string reason;
  if (::fstat(descriptor, &facts) != 0 || facts.st_size > kMostJournalBytes) {
    reason = "'" + path + "' has " + std::to_string(facts.st_size) + " B, at most " +
             std::to_string(kMostJournalBytes) + " B are looked through";
  } else {
    bytes.resize(static_cast<size_t>(facts.st_size));
    size_t got = 0;
    for (ssize_t n = 1; n > 0 && got < bytes.size(); got += static_cast<size_t>(n > 0 ? n : 0))
      n = ::pread(descriptor, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
    bytes.resize(got);
  }
  ::close(descriptor);
  return reason;
}

bool is_size(uint32_t value, uint32_t least) {
  return value >= least && value <= 65536 && (value & (value - 1)) == 0;
}

// SQLite's pager_playback() (file format, section 3): segments of a header and the pages as they were, each
// with a sum of every 200th byte; the first thing that does not fit ends it.
bool play_back(llvm::StringRef journal, std::string& image) {
  constexpr size_t kHeader = 28;
  constexpr char kMagic[] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  const auto number = [&](size_t at) { return llvm::support::endian::read32be(journal.data() + at); };
  uint32_t sector = 0, page = 0, pages = 0;
  for (size_t at = 0;;) {
    if (at > 0) at = (at + sector - 1) / sector * sector;
    if (at + kHeader > journal.size() || journal.substr(at, 8) != llvm::StringRef(kMagic, 8))
      return page != 0;
    uint32_t records = number(at + 8);
    const uint32_t seed = number(at + 12);
    if (at == 0) {
      pages = number(16), sector = number(20), page = number(24);
      if (!is_size(page, 512) || !is_size(sector, 32) ||
          static_cast<uint64_t>(pages) * page > static_cast<uint64_t>(kMostJournalBytes))
        return false;
      image.resize(static_cast<size_t>(pages) * page, '\0');
    }
    at += sector;
    const size_t record = page + 8, room = journal.size() > at ? (journal.size() - at) / record : 0;
    if (records == 0xffffffffu) records = static_cast<uint32_t>(room);
    for (uint32_t i = 0; i < records; ++i, at += record) {
      if (i >= room) return true;
      const uint32_t which = number(at);
      uint32_t sum = seed;
      for (size_t byte = page - 200; byte > 0 && byte < page; byte -= 200)
        sum += static_cast<unsigned char>(journal[at + 4 + byte]);
      if (which == 0 || which == (1u << 30) / page + 1 || sum != number(at + 4 + page)) return true;
      if (which <= pages)
        std::memcpy(image.data() + static_cast<size_t>(which - 1) * page, journal.data() + at + 4, page);
    }
  }
}

}  // namespace

std::string read_behind_journal(const std::string& layer, FilePart part, std::string& image) {
  const std::string path = layer + "-journal";
  Guard guard;
  guard.enter(layer, part);
  std::string journal;
  struct stat database_facts = {}, before = {}, after = {};
  std::string reason = read_whole(guard, path, journal, before);
  if (reason.empty()) reason = read_whole(guard, layer, image, database_facts);
  if (!reason.empty()) return reason;
  // Where the lock file could not be locked, a writer may have come meanwhile.
  if (::lstat(path.c_str(), &after) != 0 || after.st_ino != before.st_ino ||
      after.st_size != before.st_size || after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
      after.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
    return "it is being repaired at this moment";
  return play_back(journal, image) ? "" : "'" + path + "' has no header that fits";
}

}  // namespace trigen::cache
