#include "lab/table_list.h"

#include "generator/error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

llvm::Error read_options(llvm::StringRef text, TableRow& row) {
  llvm::SmallVector<llvm::StringRef, 4> words;
  text.split(words, ' ', -1, false);
  for (const llvm::StringRef word : words) {
    const auto [key, value] = word.split('=');
    if (key == "over") {
      bool known = false;
      for (const PeerKind kind :
           {PeerKind::kCublas, PeerKind::kPlain, PeerKind::kPass, PeerKind::kCopy, PeerKind::kTorch}) {
        if (value == to_string(kind)) row.over = kind, known = true;
      }
      if (known) continue;
      return make_error(ErrorKind::kBadRequest,
                        "'" + word + "'; allowed are over=cublas, plain, pass, copy and torch");
    }
    if (key == "first_row") {
      int64_t first = 0;
      if (value.getAsInteger(10, first) || first < 0)
        return make_error(ErrorKind::kBadRequest, "'" + word + "'; first_row is a row of decode, from 0");
      row.first_row = first;
      continue;
    }
    double number = 0;
    if ((key != "ask" && key != "stretch" && key != "at_most") || value.getAsDouble(number) ||
        !(number > 0)) {
      return make_error(
          ErrorKind::kBadRequest,
          "'" + word +
              "' after '|'; allowed are ask=R, stretch=R, at_most=R with R above 0, over=P, and "
              "first_row=N");
    }
    if (key == "stretch") {
      row.stretch = number;
    } else {
      if (row.asked > 0) return make_error(ErrorKind::kBadRequest, "two figures are asked; give one");
      row.asked = number;
      row.at_most = key == "at_most";
    }
  }
  return llvm::Error::success();
}

}  // namespace

const char* to_string(PeerKind kind) {
  switch (kind) {
    case PeerKind::kCublas:
      return "cublas";
    case PeerKind::kPlain:
      return "plain";
    case PeerKind::kPass:
      return "pass";
    case PeerKind::kCopy:
      return "copy";
    case PeerKind::kTorch:
      return "torch";
  }
  return "?";
}

std::string TableRow::text() const {
  std::string out;
  for (const std::string& problem : problems) out += (out.empty() ? "" : " + ") + problem;
  if (first_row) out += " at row " + std::to_string(*first_row);
  return out;
}

llvm::Expected<std::vector<TableGroup>> parse_table_list(llvm::StringRef text) {
  std::vector<TableGroup> groups;
  int number = 0;
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    ++number;
    line = line.take_until([](char c) { return c == '#'; }).trim();
    if (line.empty()) continue;
    const auto bad = [&](const std::string& what) {
      return make_error(ErrorKind::kBadRequest, "line " + std::to_string(number) + ": " + what);
    };
    if (line.consume_front("[")) {
      const auto [name, title] = line.split(']');
      if (name.empty() || name.size() == line.size()) return bad("a table is [name] title");
      for (const TableGroup& group : groups)
        if (group.name == name) return bad("table " + name.str() + " is there twice");
      groups.push_back({name.trim().str(), title.trim().str(), {}});
      continue;
    }
    if (groups.empty()) return bad("a row before the first [table]; name its table first");
    TableRow row;
    const auto [problems, options] = line.split('|');
    if (auto error = read_options(options, row))
      return with_prefix(std::move(error), "line " + std::to_string(number));
    llvm::SmallVector<llvm::StringRef, 4> parts;
    problems.split(parts, " + ", -1, false);
    for (const llvm::StringRef part : parts)
      if (!part.trim().empty()) row.problems.push_back(part.trim().str());
    if (row.problems.empty()) return bad("no problem before '|'");
    groups.back().rows.push_back(std::move(row));
  }
  if (groups.empty()) return make_error(ErrorKind::kBadRequest, "no table; write [name] title, then rows");
  return groups;
}

bool is_table_list(llvm::StringRef text) {
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    line = line.take_until([](char c) { return c == '#'; }).trim();
    if (!line.empty()) return line.front() == '[';
  }
  return false;
}

llvm::Expected<std::vector<TableGroup>> choose_tables(std::vector<TableGroup> groups, llvm::StringRef only) {
  if (only.empty()) return groups;
  std::vector<TableGroup> out;
  llvm::SmallVector<llvm::StringRef, 8> names;
  only.split(names, ',', -1, false);
  for (const llvm::StringRef name : names) {
    const auto found =
        llvm::find_if(groups, [&](const TableGroup& group) { return group.name == name.trim(); });
    if (found == groups.end()) {
      std::string known;
      for (const TableGroup& group : groups) known += (known.empty() ? "" : ", ") + group.name;
      return make_error(ErrorKind::kBadRequest, "no table " + name + "; the list has " + known);
    }
    out.push_back(*found);
  }
  return out;
}

llvm::Expected<std::vector<Problem>> problems_of(const std::vector<TableGroup>& groups,
                                                 llvm::StringRef only) {
  auto chosen = choose_tables(groups, only);
  if (!chosen) return chosen.takeError();
  std::vector<Problem> out;
  const auto add = [&](const Problem& problem) {
    if (llvm::find(out, problem) == out.end()) out.push_back(problem);
  };
  for (const TableGroup& group : *chosen) {
    for (const TableRow& row : group.rows) {
      for (const std::string& text : row.problems) {
        auto problem = parse_problem(text);
        if (!problem) {
          llvm::consumeError(problem.takeError());
          continue;
        }
        add(*problem);
        if (row.over != PeerKind::kPlain) continue;
        problem->epilogue = {};
        add(*problem);
      }
    }
  }
  return out;
}

}  // namespace trigen
