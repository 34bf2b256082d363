#include "runtime/image.h"

#include <algorithm>

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen {

namespace {

using Parameters = std::optional<std::vector<uint32_t>>;

// Little-endian numbers of a file; 0 outside it.
struct Reader {
  llvm::StringRef bytes;
  uint64_t number(uint64_t at, unsigned size) const {
    if (at > bytes.size() || bytes.size() - at < size) return 0;
    uint64_t value = 0;
    for (unsigned i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  }
};

// ELF64: offsets in the header and in a section's header.
constexpr unsigned kSections = 40, kSectionBytes = 58, kSectionCount = 60, kNamesIndex = 62;
constexpr unsigned kSectionOffset = 24, kSectionSize = 32;
// EIFMT_HVAL: two bytes of value; EIFMT_SVAL: two bytes of size, then as many. Formats below have four bytes, too.
constexpr unsigned kHalfValue = 3, kSizedValue = 4;
constexpr unsigned kParameter = 0x17, kParameterBytes = 0x19;  // EIATTR_KPARAM_INFO, EIATTR_CBANK_PARAM_SIZE

llvm::StringRef find_section(const Reader& file, const std::string& wanted) {
  const uint64_t table = file.number(kSections, 8), each = file.number(kSectionBytes, 2);
  const auto section = [&](uint64_t index) {
    const uint64_t at = table + index * each;
    return file.bytes.substr(file.number(at + kSectionOffset, 8), file.number(at + kSectionSize, 8));
  };
  if (table > file.bytes.size()) return {};
  const llvm::StringRef names = section(file.number(kNamesIndex, 2));
  for (uint64_t i = 0; i < file.number(kSectionCount, 2); ++i) {
    const llvm::StringRef name = names.substr(file.number(table + i * each, 4));
    if (name.size() > wanted.size() && name[wanted.size()] == '\0' && name.startswith(wanted))
      return section(i);
  }
  return {};
}

}  // namespace

Parameters cubin_parameters(llvm::StringRef image, llvm::StringRef entry) {
  if (!image.startswith(llvm::StringRef("\177ELF\2\1", 6))) return {};
  const Reader info{find_section({image}, ".nv.info." + entry.str())};
  std::vector<uint32_t> sizes;
  uint64_t total = 0, end = 0;
  for (uint64_t at = 0; at < info.bytes.size();) {
    const uint64_t format = info.number(at, 1), attribute = info.number(at + 1, 1),
                   value = info.number(at + 2, 2);
    at += 4;
    if (format == kHalfValue && attribute == kParameterBytes) total = value;
    if (format == kSizedValue && attribute == kParameter) {
      const uint64_t ordinal = info.number(at + 4, 2), offset = info.number(at + 6, 2);
      const uint64_t bytes = info.number(at + 8, 4) >> 18;
      if (sizes.size() <= ordinal) sizes.resize(ordinal + 1);
      if (sizes[ordinal] != 0) return {};
      sizes[ordinal] = static_cast<uint32_t>(bytes);
      end = std::max(end, offset + bytes);
    }
    if (format == 0 || format > kSizedValue) return {};
    if (format == kSizedValue) at += value;
  }
  if (info.bytes.empty() || end != total || llvm::is_contained(sizes, 0)) return {};
  return sizes;
}

Parameters ptx_parameters(llvm::StringRef image, llvm::StringRef entry) {
  const llvm::StringRef word = ".entry";
  for (size_t at = image.find(word); at != llvm::StringRef::npos; at = image.find(word, at + 1)) {
    llvm::StringRef rest = image.substr(at + word.size()).ltrim();
    if (!rest.consume_front(entry) || !(rest = rest.ltrim()).consume_front("(")) continue;
    llvm::SmallVector<llvm::StringRef, 8> list;
    const auto [inside, behind] = rest.split(')');
    if (behind.empty()) return {};
    inside.split(list, ',');
    std::vector<uint32_t> sizes;
    for (const llvm::StringRef each : list) {  // .param .align 8 .b8 name[240]
      llvm::SmallVector<llvm::StringRef, 8> words;
      llvm::SplitString(each, words, " \t\r\n[]");
      if (words.empty() && list.size() == 1) break;
      const auto* type = llvm::find_if(words, [](llvm::StringRef text) {
        return text.size() > 2 && text[0] == '.' && llvm::isDigit(text[2]);
      });
      uint32_t bits = 0, count = 1;
      if (words.empty() || words[0] != ".param" || type == words.end() ||
          type->drop_front(2).getAsInteger(10, bits) ||
          (each.contains('[') && words.back().getAsInteger(10, count)))
        return {};
      sizes.push_back(bits / 8 * count);
    }
    return sizes;
  }
  return {};
}

}  // namespace trigen
