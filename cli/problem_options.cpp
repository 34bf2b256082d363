#include "cli/problem_options.h"

#include <unistd.h>

#include "cache/host.h"
#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/problem_fields.h"
#include "generator/problem_lists.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

llvm::Expected<std::vector<Problem>> shipped(llvm::StringRef name) {
  auto text = shipped_problem_list(name);
  if (!text) return text.takeError();
  return parse_problem_list(*text);
}

// --problems core: no file, and the name of a shipped list.
bool names_shipped(const std::string& path) {
  if (path.find('.') != std::string::npos || ::access(path.c_str(), F_OK) == 0) return false;
  auto text = shipped_problem_list(path);
  if (text) return true;
  llvm::consumeError(text.takeError());
  return false;
}

bool is_made(const Problem& problem, const Target& target) {
  auto made = generic_candidate(problem, target);
  if (made) return true;
  llvm::consumeError(made.takeError());
  return false;
}

llvm::Expected<std::vector<Problem>> read_file(const std::string& path) {
  if (names_shipped(path)) return shipped(path);
  const std::string name = path == "-" ? "standard input" : path;
  auto all = cache::read_input(path, "the problem list ",
                               "name a readable file with one problem per line, or core or mixers");
  if (!all) return all.takeError();
  auto list = parse_problem_list(*all);
  if (!list) return with_prefix(list.takeError(), name);
  if (list->empty())
    return make_error(ErrorKind::kBadRequest, name + " holds no problem; write one per line");
  return list;
}

// The error of `word`, and what it may have meant: a list of problems, or for "forward, dtype=f16 B=1" the problem that the words would be
// with commas alone.
llvm::Error guessed(const std::vector<std::string>& words, const std::string& word, llvm::Error error) {
  const auto asked = [&](const std::string& question) {
    ErrorText text = take_error(std::move(error));
    return make_error(text.kind, text.message + "; did you mean " + question + "?");
  };
  if (names_shipped(word) || ::access(word.c_str(), F_OK) == 0) return asked("--problems " + word);
  std::vector<llvm::StringRef> fields;
  for (const std::string& one : words) fields.push_back(llvm::StringRef(one).rtrim(','));
  const std::string one = llvm::join(fields, ",");
  auto problem = parse_problem(one);
  if (words.size() > 1 && problem) return asked("one word with commas, " + one);
  if (!problem) llvm::consumeError(problem.takeError());
  return error;
}

}  // namespace

void ProblemOptions::add_to(CLI::App& app, bool positional) {
  const char* group = "Problems";
  app.add_option(positional ? "problem" : "--problem", texts_,
                 "problems in text form: \"forward,dtype=bf16,B=32,T=512,D=1024\"")
      ->group(group);
  app.add_option(
         "--problems", files_,
         "file with one problem per line, '#' for comments, - for standard input (core, mixers: the shipped "
         "lists)")
      ->group(group)
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--list", lists_, "shipped list: core, mixers")
      ->group(group)
      ->type_name("NAME")
      ->allow_extra_args(false);
  group = kProblemFlags;
  const auto fields = problem_fields();
  flags_.reserve(fields.size() + 1);
  const auto add = [&](llvm::StringRef key, const std::string& flags, const std::string& help) {
    flags_.push_back({key.str(), "", nullptr});
    flags_.back().option = app.add_option(flags, flags_.back().value, help)->group(group);
  };
  std::string parts;  // of the epilogue: "bias, gelu|silu, pre ..."
  for (const ProblemField& field : fields) {
    if (field.place == ProblemField::kFirst) app.add_option(field.flags, op_, field.help)->group(group);
    if (field.place == ProblemField::kKey) add(field.key, field.flags, field.help);
    if (field.place != ProblemField::kPart) continue;
    parts += parts.empty() ? "" : ", ";
    if (field.kind == ProblemField::kFlag) {
      parts += field.key;
    } else {
      const auto names = names_of(*field.names);
      parts += llvm::join(names.begin() + 1, names.end(), "|");
    }
  }
  add("epilogue", "--epilogue", "sum of " + parts);
}

bool ProblemOptions::any() const {
  const auto given = [](const Flag& flag) { return flag.option != nullptr && flag.option->count() > 0; };
  return !texts_.empty() || !files_.empty() || !lists_.empty() || !op_.empty() ||
         std::any_of(flags_.begin(), flags_.end(), given);
}

llvm::Expected<std::vector<Problem>> ProblemOptions::problems(llvm::StringRef fallback) const {
  std::vector<Problem> out;
  auto append = [&](llvm::Expected<std::vector<Problem>> list) -> llvm::Error {
    if (!list) return list.takeError();
    out.insert(out.end(), list->begin(), list->end());
    return llvm::Error::success();
  };
  for (const std::string& text : texts_) {
    auto problem = parse_problem(text);
    if (!problem) return guessed(texts_, text, problem.takeError());
    out.push_back(*problem);
  }
  for (const std::string& file : files_) {
    if (auto error = append(read_file(file))) return error;
  }
  for (const std::string& name : lists_) {
    if (auto error = append(shipped(name))) return error;
  }
  std::string text = op_;
  bool any = !op_.empty();
  for (const Flag& flag : flags_) {
    if (flag.option == nullptr || flag.option->count() == 0) continue;
    any = true;
    text += "," + flag.key + "=" + flag.value;
  }
  if (any) {
    if (op_.empty()) {
      return make_error(ErrorKind::kBadRequest, "flags name a problem without its op; allowed are " +
                                                    all_of(names_of(kOps)) + "; add --op");
    }
    auto problem = parse_problem(text);
    if (!problem) return problem.takeError();
    out.push_back(*problem);
  }
  if (out.empty() && !fallback.empty()) {
    if (auto error = append(shipped(fallback))) return error;
  }
  if (out.empty()) {
    return make_error(ErrorKind::kBadRequest,
                      "no problem is named; give one as text (\"forward,dtype=bf16,B=32,T=512,D=1024\"), as "
                      "flags (--op forward "
                      "--dtype bf16 -B 32 -T 512 -D 1024), with --problems FILE, or --list core");
  }
  return out;
}

size_t ProblemOptions::drop_unsupported(std::vector<Problem>& list, const Target& target,
                                        llvm::StringRef fallback) const {
  std::vector<Problem> of_lists;
  const auto add = [&](llvm::StringRef name) {
    if (auto problems = shipped(name)) {
      of_lists.insert(of_lists.end(), problems->begin(), problems->end());
    } else {
      llvm::consumeError(problems.takeError());  // problems() has reported it
    }
  };
  for (const std::string& name : lists_) add(name);
  if (!any()) add(fallback);
  return std::erase_if(list, [&](const Problem& problem) {
    return llvm::is_contained(of_lists, problem) && !is_made(problem, target);
  });
}

std::string ProblemOptions::list_instead(const Problem& problem, const Target& target) const {
  for (const std::string& file : files_)
    if (names_shipped(file) && llvm::is_contained(llvm::cantFail(shipped(file)), problem))
      return is_made(problem, target) ? "" : "--list " + file + " in place of --problems " + file;
  return "";
}

llvm::Expected<std::vector<std::string>> ProblemOptions::texts() const {
  std::vector<std::string> texts;
  if (!any()) return texts;
  auto list = problems();
  if (!list) return list.takeError();
  for (const Problem& problem : *list) texts.push_back(to_string(problem));
  return texts;
}

llvm::Expected<Problem> ProblemOptions::problem() const {
  auto list = problems();
  if (!list) return list.takeError();
  if (list->size() != 1) {
    return make_error(ErrorKind::kBadRequest,
                      "this command takes one problem, found " + llvm::Twine(list->size()) + "; name one");
  }
  return list->front();
}

std::string short_problem(const std::string& text) {
  auto problem = parse_problem(text);
  if (problem) return short_text(*problem);
  llvm::consumeError(problem.takeError());
  return text;
}

}  // namespace trigen::cli
