// trigen version, help and completion: what the program says of itself.
#include <cstdio>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/terminal.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

const CommandText* find(const CommandText& from, llvm::ArrayRef<std::string> path) {
  if (path.empty()) return &from;
  for (const CommandText& sub : from.commands)
    if (sub.name == path.front()) return find(sub, path.drop_front());
  return nullptr;
}

int help(const CommandText& program, const std::vector<std::string>& path) {
  const int width = prose_columns(stdout);
  if (path.size() == 1) {
    for (const Topic& topic : topics()) {
      if (path.front() != topic.name) continue;
      std::fputs(topic_text(topic, width).c_str(), stdout);
      return kDone;
    }
  }
  if (const CommandText* command = find(program, path)) {
    std::fputs(help_text(*command, width).c_str(), stdout);
    return kDone;
  }
  llvm::SmallVector<llvm::StringRef, 32> known;
  for (const CommandText& command : program.commands) known.push_back(command.name);
  for (const Topic& topic : topics()) known.push_back(topic.name);
  std::string text;
  for (const std::string& word : path) text += (text.empty() ? "" : " ") + word;
  return report(make_error(ErrorKind::kBadRequest, "no help on " + trigen::quoted(text) + "; allowed are " +
                                                       all_of(known) + did_you_mean(path.front(), known)));
}

}  // namespace

void add_version(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("version", "print the version")->group(kHelpGroup);
  commands.push_back({sub, [] {
                        std::printf("trigen %s\n", TRIGEN_VERSION_TEXT);
                        return kDone;
                      }});
}

void add_help(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("help", "explain a command, or: problem, tables, exit-codes")->group(kHelpGroup);
  auto path = std::make_shared<std::vector<std::string>>();
  auto form = std::make_shared<std::string>();
  sub->add_option("command", *path, "a command (cache ls), or problem, tables or exit-codes");
  sub->add_option("--format", *form, "the whole reference as a man page or as Markdown")
      ->check(one_word_of({"man", "markdown"}));
  commands.push_back({sub, [&app, path, form] {
                        const CommandText program = describe(app);
                        if (form->empty()) return help(program, *path);
                        std::fputs((*form == "man" ? manual(program) : markdown(program)).c_str(), stdout);
                        return kDone;
                      }});
}

void add_completion(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("completion", "print the completions of a shell")->group(kHelpGroup);
  auto shell = std::make_shared<std::string>();
  sub->add_option("shell", *shell, "bash, zsh or fish; to use it: source <(trigen completion bash)")
      ->required()
      ->check(one_word_of({"bash", "zsh", "fish"}));
  commands.push_back({sub, [&app, shell] {
                        std::fputs(completion(describe(app), *shell).c_str(), stdout);
                        return kDone;
                      }});
}

}  // namespace trigen::cli
