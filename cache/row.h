// Rows of the three tables: what they hold, how they are digested, packed and checked (docs/cache-format.md).
#pragma once

#include <optional>
#include <string>

#include "cache/database.h"
#include "cache/store.h"

namespace trigen::cache {

constexpr uint32_t kApplicationId = 0x54726747;  // "TrgG" at offset 68 of the file
constexpr uint32_t kSchemaVersion = 1;           // user_version
// The statements that make an empty file a layer, and what sqlite_schema says afterwards, in one text.
extern const char* const kCreateSchema;
std::string expected_schema();
std::string found_schema(Database& database, SqlStatus& status);

// zstd, level 3, with the size in the frame. unpack: nullopt when it is no frame or would exceed
// kMaxFieldBytes.
std::string pack(llvm::StringRef bytes);
std::optional<std::string> unpack(llvm::StringRef packed);

enum class RowState { kNone, kGood, kDamaged };

// The columns of a SELECT, in the order in which put_* binds them.
extern const char* const kBinaryColumns;
extern const char* const kRecordColumns;

// Reads the row that the statement stands on. kDamaged: the digest or a field does not fit; `name` says which
// row.
RowState read_binary(Statement& row, Binary& binary, std::string& name);
RowState read_record(Statement& row, bool sample, Record& record, std::string& name);

// A text saying what cannot be stored, empty when all can.
std::string refuse_binary(const Binary& binary);
std::string refuse_record(const Record& record);

SqlStatus put_binary_row(Database& database, const Binary& binary);
SqlStatus put_record_row(Database& database, const Record& record);
SqlStatus put_sample_row(Database& database, const Record& sample);

}  // namespace trigen::cache
