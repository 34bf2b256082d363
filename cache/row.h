// Rows of the three tables: what they hold, how they are digested, packed and checked (docs/cache-format.md).
#pragma once

#include <optional>
#include <string>

#include "cache/database.h"
#include "cache/record.h"

namespace trigen::cache {

constexpr uint32_t kApplicationId = 0x54726747;  // "TrgG" at offset 68 of the file
constexpr uint32_t kBundleId = 0x54726742;       // "TrgB": a bundle, which is never written to again
constexpr uint32_t kSchemaVersion = 1;           // user_version
// The statements that make an empty file a layer, and those that a bundle has besides.
extern const char* const kCreateSchema;
extern const char* const kCreateBundleSchema;
// Findings, which a user layer has from the first one on.
extern const char* const kCreateFindings;
// A file's schema beside those statements. Other tools add indexes and sqlite_stat tables, drop
// indexes and change the order (VACUUM), which harms nothing.
enum class SchemaFit {
  kOurs,
  kLacks,
  kHolds
};  // kLacks, kHolds: `what` names a table or object of a stranger
SchemaFit fit_schema(Database& database, bool bundle, SqlStatus& status, std::string& what);

// The most that code (cubin, PTX) and texts (source, log, evidence) may have unpacked: a frame of 2 KB can
// stand for 64 MiB.
constexpr int64_t kMostCodeBytes = int64_t{32} << 20, kMostTextBytes = int64_t{1} << 20;
// zstd, level 3, with the size in the frame. unpack: nullopt when it is no frame or would exceed `most`.
std::string pack(llvm::StringRef bytes);
std::optional<std::string> unpack(llvm::StringRef packed, int64_t most);
// A record's evidence: "" where it is none, or more than 256 times as long as packed. What a tune writes is up to 10
// times, with one error's text for every candidate 100 times; so no small file makes its readers parse for long.
std::string unpack_evidence(llvm::StringRef packed);

enum class RowState { kNone, kGood, kDamaged };

struct PackedBinary {
  std::string source, cubin, ptx, log;
};
// Rows as they lie in a file: blobs packed, digests checked. `binary` and `record` have no contents.
struct BinaryRow {
  Binary binary;
  PackedBinary packed;
  std::string digest;
};
struct RecordRow {
  Record record;
  std::string evidence, digest;
};

// The columns of a SELECT, in the order in which put_* binds them.
extern const char* const kBinaryColumns;
extern const char* const kRecordColumns;
extern const char* const kRecordHead;  // without the evidence, which a look-up ranks without

enum class Unpack { kNothing, kCubin, kAll };
// Reads the row that the statement stands on. kDamaged: the digest or a field does not fit; `name` says which
// row. A source, log or evidence that does not unpack is "": the row is good for what it is looked up for.
// Without unpacking, `cubin_bytes` has the size that the cubin's frame names.
RowState read_binary(Statement& row, Unpack what, Binary& binary, std::string& name, int64_t& cubin_bytes);
RowState read_record(Statement& row, Unpack what, bool sample, Record& record, std::string& name);
// The columns of kRecordHead, unchecked. False: one holds what no field takes.
bool read_record_head(Statement& row, Record& record, std::string& digest);
// The same rows as they lie there.
RowState read_binary_row(Statement& row, BinaryRow& binary, std::string& name);
RowState read_record_row(Statement& row, bool sample, RecordRow& record, std::string& name);
// "" for a row of an opened file that a put would take now, with contents that unpack and a date that the clock
// (cache/host.h) allows; else words that follow its name.
std::string refuse_row(const BinaryRow& row);
std::string refuse_row(const RecordRow& row);
// Another date, and the digest that goes with it.
void set_stored_at(BinaryRow& row, int64_t seconds);
void set_stored_at(RecordRow& row, int64_t seconds);
// Put back byte for byte, in place of a row with the same key.
SqlStatus insert_binary_row(Database& database, const BinaryRow& row);
SqlStatus insert_record_row(Database& database, const char* table, const RecordRow& row);

// A text saying what cannot be stored, empty when all can.
std::string refuse_binary(const Binary& binary);
std::string refuse_record(const Record& record);

SqlStatus put_binary_row(Database& database, const Binary& binary);
SqlStatus put_record_row(Database& database, const Record& record);
SqlStatus put_sample_row(Database& database, const Record& sample);
std::string finding_digest(const Finding& finding);
// SHA-256 in hex, for the lease of what is no binary.
std::string name_digest(llvm::StringRef name);

}  // namespace trigen::cache
