#include "cache/bundle.h"

#include <fstream>

#include "cache/filesystem.h"
#include "cache/layer.h"
#include "generator/error.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"

namespace trigen::cache {
namespace {

SqlStatus fill(Database& database, const Contents& contents, const std::map<std::string, std::string>& meta) {
  // secure_delete: what b-tree pages leave free is zeroed, not what memory held.
  const std::string create = std::string("PRAGMA page_size=4096;PRAGMA secure_delete=ON;BEGIN;") +
                             kCreateSchema + kCreateBundleSchema +
                             "PRAGMA application_id=" + std::to_string(kBundleId) +
                             ";PRAGMA user_version=" + std::to_string(kSchemaVersion);
  SqlStatus status = database.run(create.c_str());
  for (const auto& [key, row] : contents.binaries)
    if (status.ok()) status = insert_binary_row(database, row);
  for (const auto& [key, row] : contents.records)
    if (status.ok()) status = insert_record_row(database, "records", row);
  for (const auto& [arch, problem] : contents.asked) {
    if (!status.ok()) break;
    Statement insert(database, "INSERT INTO coverage(arch,problem,answer) VALUES (?,?,?)");
    insert.bind_text(arch).bind_text(problem).bind_text(contents.answer(arch, problem));
    insert.step();
    status = insert.status();
  }
  for (const auto& [key, value] : meta) {
    if (!status.ok()) break;
    Statement insert(database, "INSERT INTO meta(key,value) VALUES (?,?)");
    insert.bind_text(key).bind_text(value);
    insert.step();
    status = insert.status();
  }
  return status.ok() ? database.run("COMMIT") : status;
}

// Fields of the header that say how the file came about (SQLite file format, section 1.3): the change counter
// and the counter at which the size is valid must be equal, the version of the writing library is information.
constexpr size_t kHeaderBytes = 100;
void normalise_header(char* header) {
  constexpr size_t kChangeCounter = 24, kValidFor = 92, kLibrary = 96;
  constexpr uint32_t kOldestLibrary = 3037000;  // the first with STRICT tables
  llvm::support::endian::write32be(header + kChangeCounter, 1);
  llvm::support::endian::write32be(header + kValidFor, 1);
  llvm::support::endian::write32be(header + kLibrary, kOldestLibrary);
}

bool normalise_file(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  char header[kHeaderBytes];
  if (!file.read(header, sizeof header)) return false;
  normalise_header(header);
  return bool(file.seekp(0)) && bool(file.write(header, sizeof header)) && bool(file.flush());
}

llvm::Error cannot_make(const SqlStatus& status) {
  return make_error(ErrorKind::kCache,
                    "the bundle cannot be made (" + status.text + "); export fewer problems or archs");
}

}  // namespace

llvm::Expected<std::string> bundle_image(const Contents& contents,
                                         const std::map<std::string, std::string>& meta) {
  Database database;
  std::string image;
  SqlStatus status = database.open_memory();
  if (status.ok()) status = fill(database, contents, meta);
  if (status.ok()) status = database.image(image);
  if (!status.ok() || image.size() < kHeaderBytes) return cannot_make(status);
  normalise_header(image.data());
  return image;
}

llvm::Error write_bundle(const std::string& path, const Contents& contents,
                         const std::map<std::string, std::string>& meta) {
  if (!is_bundle(path))
    return make_error(ErrorKind::kBadRequest,
                      "'" + path + "' is no name for a bundle; end it in .trigen, by which layers are known");
  SqlStatus status;
  std::string file;
  int error = output_file(path, file);
  if (error == 0 && file.empty()) {
    auto image = bundle_image(contents, meta);
    if (!image) return image.takeError();
    error = write_output(path, *image);
  } else if (error == 0) {
    // Straight into the file, for a base of a large fleet is larger than what memory has room for twice.
    error = write_whole_file(file, 0644, [&](const std::string& part) {
      Database database;
      llvm::SmallString<256> real;  // SQLite asks for the file by this name, and its guard knows no other
      if (llvm::sys::fs::real_path(part, real)) real = part;
      status = database.open(real.str().str(), OpenMode::kFill, 0);
      if (status.ok()) status = fill(database, contents, meta);
      database.close();
      return status.ok() && normalise_file(part);
    });
  }
  if (!status.ok()) return cannot_make(status);
  if (error != 0)
    return make_error(ErrorKind::kCache, "the bundle '" + path + "' cannot be written (" + errno_text(error) +
                                             "); nothing was left there; name a writable folder with room");
  return llvm::Error::success();
}

}  // namespace trigen::cache
