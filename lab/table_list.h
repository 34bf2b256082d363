// The list that a benchmark run works through: tables of rows, each a problem (or several in sequence), the
// peer it is measured against, and the figure that is asked of it.
//
//   # comment
//   [shapes] Dense products                      <- a table: name, then its title
//   forward,dtype=bf16,B=32,T=512,D=1024 | ask=1.4 stretch=1.6
//   forward,... + grad_input,... | at_most=0.62  <- one after the other, as one measurement
//
// After '|': ask=R, the peer's time over trigen's is at least R (stretch=R: better still); or at_most=R,
// trigen's time over the peer's is at most R; over=P names the peer:
//
//   cublas  the fastest cuBLAS or cuBLASLt product, on weights that were masked beforehand, without the epilogue
//           (default)
//   plain   trigen's own kernel for the problem without its epilogue
//   pass    the fastest of cuBLASLt's own epilogues and a product with one elementwise pass for the epilogue
//   copy    a device copy of the bytes that the problem must move (decode: of the tokens that the rows read)
//   torch   arms that live in Python: bench/torch_tables.py runs these rows
//
// first_row=N: the first row of decode (the longest rows when it is not named).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

enum class PeerKind { kCublas, kPlain, kPass, kCopy, kTorch };
const char* to_string(PeerKind kind);

struct TableRow {
  std::vector<std::string> problems;  // texts, unparsed: a row of an op that this version lacks stays a row
  PeerKind over = PeerKind::kCublas;
  double asked = 0;                       // 0: nothing is asked
  double stretch = 0;                     // 0: none
  bool at_most = false;                   // asked is an upper limit of trigen's time over the peer's
  std::optional<int64_t> first_row = {};  // of decode
  std::string text() const;               // the problems, joined by " + ", and " at row N"
};

struct TableGroup {
  std::string name, title;
  std::vector<TableRow> rows;
};

// Errors: bad request, with the line's number.
llvm::Expected<std::vector<TableGroup>> parse_table_list(llvm::StringRef text);

// Is this text such a list (its first line, comments aside, names a table)?
bool is_table_list(llvm::StringRef text);

// Every problem of the tables (`only`: of those named, by commas; "" = all), each once, with the ones that
// over=plain compares with; what `trigen tune` tunes. Texts that this version does not parse are left out.
llvm::Expected<std::vector<Problem>> problems_of(const std::vector<TableGroup>& groups,
                                                 llvm::StringRef only = "");

// The named tables in the order of the names; all of them for "". Error: the known names.
llvm::Expected<std::vector<TableGroup>> choose_tables(std::vector<TableGroup> groups, llvm::StringRef only);

}  // namespace trigen
