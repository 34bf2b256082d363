// Properties that hold for any bytes that a parser of the generator gets. Shared by the seeded test and the
// libFuzzer program.
#pragma once

#include <optional>
#include <string>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/family.h"
#include "generator/problem.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::fuzz {

// The fault of an error's text; nullopt when it follows the house rules.
inline std::optional<std::string> check_message(const ErrorText& error) {
  if (error.kind != ErrorKind::kBadRequest) return "a malformed text is not a bad request";
  if (error.message.empty()) return "empty message";
  if (error.message.back() == '.') return "final stop: " + error.message;
  if (error.message.size() > 1000) return "message of " + std::to_string(error.message.size()) + " bytes";
  for (char c : error.message)
    if (!llvm::isPrint(c)) return "unprintable byte in the message";
  return std::nullopt;
}

// Each returns what is wrong with the parser's answer, nullopt when all is well.
inline std::optional<std::string> check_problem(llvm::StringRef text) {
  auto problem = parse_problem(text);
  if (!problem) return check_message(take_error(problem.takeError()));
  if (llvm::Error error = validate(*problem))
    return "parsed but invalid: " + take_error(std::move(error)).message;
  const std::string canonical = to_string(*problem);
  auto again = parse_problem(canonical);
  if (!again) return canonical + " does not parse again: " + take_error(again.takeError()).message;
  if (!(*again == *problem)) return canonical + " parses to another problem";
  if (to_string(*again) != canonical) return canonical + " is not canonical";
  const Totals work = count_work(*problem);
  if (!(work.triangle_flop > 0 && work.triangle_flop <= work.dense_flop && work.min_bytes > 0))
    return canonical + " has impossible work counts";
  return std::nullopt;
}

inline std::optional<std::string> check_config(llvm::StringRef text) {
  auto config = parse_config(text);
  if (!config) return check_message(take_error(config.takeError()));
  const std::string canonical = to_string(*config);
  if (canonical.empty()) return std::nullopt;  // every field is zero
  auto again = parse_config(canonical);
  if (!again) return canonical + " does not parse again: " + take_error(again.takeError()).message;
  if (!(*again == *config)) return canonical + " parses to another config";
  return std::nullopt;
}

// One problem, every target in turn: the text may be legal on one and not on another.
inline std::optional<std::string> check_candidate(llvm::StringRef text) {
  static const Problem problem =
      llvm::cantFail(parse_problem("grad_weight,dtype=f16,B=16,T=512,D=256,epilogue=bias"));
  const Target& target = targets()[text.size() % targets().size()];
  auto candidate = parse_candidate(problem, target, text);
  if (!candidate) {
    const ErrorText error = take_error(candidate.takeError());
    if (error.kind == ErrorKind::kUnsupported)
      return std::nullopt;  // well formed, not legal here: the family's words
    return check_message(error);
  }
  const std::string canonical = describe(*candidate);
  auto again = parse_candidate(problem, target, canonical);
  if (!again) return canonical + " does not parse again: " + take_error(again.takeError()).message;
  if (describe(*again) != canonical) return canonical + " is not canonical";
  if (render(*candidate).text != render(*again).text) return canonical + " renders in two ways";
  return std::nullopt;
}

inline std::optional<std::string> check_list(llvm::StringRef text) {
  auto list = parse_problem_list(text);
  if (!list) {
    const ErrorText error = take_error(list.takeError());
    if (!llvm::StringRef(error.message).startswith("line ")) return "no line number: " + error.message;
    return check_message(error);
  }
  std::string printed;
  for (const Problem& problem : *list) printed += to_string(problem) + "\n";
  auto again = parse_problem_list(printed);
  if (!again) return "the printed list does not parse: " + take_error(again.takeError()).message;
  if (*again != *list) return "the printed list parses to another list";
  return std::nullopt;
}

}  // namespace trigen::fuzz
