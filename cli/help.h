// The subcommands and options as text: everything that explains the program comes from its parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trigen::cli {

struct OptionText {
  std::string group;
  std::vector<std::string> names;  // "-j", "--jobs"; the bare name of an argument
  std::string value;               // "FILE"; "" for flags
  std::string text;
  std::vector<std::string> values;  // all that are allowed, or worth completing; empty when free
  bool argument = false, required = false, many = false;
};

struct CommandText {
  std::string path;   // "trigen cache ls"
  std::string name;   // "ls"
  std::string group;  // of the list of commands
  std::string text, footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};
CommandText describe(const CLI::App& app, const std::string& path = "");

// "trigen cache import needs FILES, bundles or cache files: trigen cache import FILES...": the first required option or
// argument that was not given; "" when none is. `path` is the command's.
std::string lacking_of(const CLI::App& app, const std::string& path);

// "-j, --jobs N"
std::string option_head(const OptionText& option);

// The text that --help prints.
std::string help_text(const CommandText& command, int columns);

// A page of prose beside the commands' own: `trigen help NAME`.
struct Topic {
  const char *name, *title, *heading;  // of the whole reference
  std::string (*text)();  // paragraphs separated by empty lines; lines that start with a space are kept
};
const std::vector<Topic>& topics();
std::string topic_text(const Topic& topic, int columns);

// The whole program as a man page, man(7), and as a page of Markdown.
std::string manual(const CommandText& program);
std::string markdown(const CommandText& program);
// Completions for "bash", "zsh" or "fish"; "" for another shell.
std::string completion(CommandText program, const std::string& shell);

}  // namespace trigen::cli
