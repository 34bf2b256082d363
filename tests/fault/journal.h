// SQLite's rollback journals as a stranger would write them (SQLite file format, section 3).
#pragma once

#include <cstdint>
#include <string>

#include "tests/files.h"

namespace trigen::testing {

inline std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

inline constexpr char kJournalMagic[] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";

// A hot journal that turns whatever it lies beside into `database`, and has SQLite delete `super` if that is
// not "".
inline std::string journal_to(const std::string& database, const std::string& super = "") {
  constexpr uint32_t kPage = 4096, kSector = 512;
  const auto pages = static_cast<uint32_t>(database.size() / kPage);
  std::string journal = std::string(kJournalMagic, 8) + big_endian(pages) + big_endian(0) +
                        big_endian(pages) + big_endian(kSector) + big_endian(kPage);
  journal.resize(kSector, '\0');
  for (uint32_t page = 0; page < pages; ++page) {
    const std::string data = database.substr(page * kPage, kPage);
    uint32_t sum = 0;
    for (uint32_t at = kPage - 200; at > 0; at = at > 200 ? at - 200 : 0)
      sum += static_cast<unsigned char>(data[at]);
    journal += big_endian(page + 1) + data + big_endian(sum);
  }
  if (super.empty()) return journal;
  uint32_t sum = 0;
  for (char c : super) sum += static_cast<unsigned char>(c);
  // 2^30 / page size + 1: the page that holds the lock bytes, which no journal saves
  return journal + big_endian((1u << 30) / kPage + 1) + super +
         big_endian(static_cast<uint32_t>(super.size())) + big_endian(sum) + std::string(kJournalMagic, 8);
}

}  // namespace trigen::testing
