// The man page and the page of Markdown.
#include "cli/help.h"
#include "cli/problem_options.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

// Text in roff: backslashes, hyphens, and dots and quotes that begin a line.
std::string roff(llvm::StringRef text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else
      out += c;
  }
  if (!out.empty() && out[0] == '.') out.insert(0, "\\&");
  return out;
}

void add_entry(std::string& out, const std::string& head, const std::string& text) {
  out += ".TP\n.B " + roff(head) + "\n" + roff(text) + "\n";
}

void add_topic(std::string& out, const Topic& topic) {
  out += ".SH " + llvm::StringRef(topic.heading).upper() + "\n";
  const std::string text = topic.text();
  llvm::SmallVector<llvm::StringRef, 64> lines;
  llvm::StringRef(text).split(lines, '\n');
  for (llvm::StringRef line : lines) {
    const llvm::StringRef rest = line.ltrim(' ');
    const auto [head, explanation] = rest.split('\t');
    if (!explanation.empty())
      add_entry(out, head.str(), explanation.str());
    else if (rest.empty())
      out += ".PP\n";
    else if (rest.size() < line.size())
      out += ".RS\n.nf\n" + roff(rest) + "\n.fi\n.RE\n";
    else
      out += roff(line) + "\n";
  }
}

void each_command(const CommandText& command, const std::function<void(const CommandText&)>& visit) {
  for (const CommandText& sub : command.commands) {
    if (sub.commands.empty()) visit(sub);
    each_command(sub, visit);
  }
}

// Options that several commands share, each once, in the order of their groups; they are explained at the end.
std::vector<OptionText> shared_options(const CommandText& program) {
  std::vector<OptionText> all;
  for (const char* group : {"Problems", "Target", "Output"})
    each_command(program, [&](const CommandText& command) {
      for (const OptionText& option : command.options)
        if (option.group == group &&
            llvm::none_of(all, [&](const OptionText& o) { return o.names == option.names; }))
          all.push_back(option);
    });
  return all;
}

// Options that are explained at the command: neither shared ones nor a problem's keys.
std::vector<OptionText> own_options(const CommandText& command, const std::vector<OptionText>& shared) {
  std::vector<OptionText> own = command.options;
  llvm::erase_if(own, [&](const OptionText& option) {
    return option.group == kProblemFlags || llvm::any_of(shared, [&](const OptionText& o) {
             return o.names == option.names && o.text == option.text;
           });
  });
  return own;
}

// Text in a Markdown table or paragraph.
std::string plain(llvm::StringRef text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '[') out += '\\';
    if (c == '<')
      out += "&lt;";  // Markdown knows no \<
    else
      out += c;
  }
  return out;
}

std::string code(llvm::StringRef text) {
  if (text.contains('|')) return "<code>" + plain(text) + "</code>";  // in a table, what `a\|b` is differs
  return ("`" + text + "`").str();
}

void add_table(std::string& out, const std::vector<OptionText>& options) {
  if (options.empty()) return;
  out += "\n| option | what it does |\n|---|---|\n";
  for (const OptionText& option : options)
    out += "| " + code(option_head(option)) + " | " + plain(option.text) + " |\n";
}

}  // namespace

std::string manual(const CommandText& program) {
  const auto shared = shared_options(program);
  std::string out = ".TH TRIGEN 1 \"\" \"trigen\" \"User Commands\"\n.SH NAME\ntrigen \\- " +
                    roff(llvm::StringRef(program.text).drop_while([](char c) { return c != ' '; }).trim()) +
                    "\n.SH SYNOPSIS\n.B trigen\n.I COMMAND\n.RI [ OPTION ...]\n.SH COMMANDS\n";
  each_command(program, [&](const CommandText& command) {
    out += ".SS " + roff(command.path) + "\n" + roff(command.text) + "\n";
    for (const OptionText& option : own_options(command, shared))
      add_entry(out, option_head(option), option.text);
  });
  out += ".SH COMMON OPTIONS\n";
  for (const OptionText& option : shared) add_entry(out, option_head(option), option.text);
  for (const Topic& topic : topics()) add_topic(out, topic);
  return out;
}

std::string markdown(const CommandText& program) {
  const auto shared = shared_options(program);
  std::string out = "# The command line\n\n" + plain(program.text) + ".\n\n| command | |\n|---|---|\n";
  each_command(program, [&](const CommandText& command) {
    out += "| " + code(command.path) + " | " + plain(command.text) + " |\n";
  });
  each_command(program, [&](const CommandText& command) {
    out += "\n## " + command.path + "\n\n" + plain(command.text) + ".\n";
    const auto own = own_options(command, shared);
    add_table(out, own);
    std::vector<std::string> groups;
    for (const OptionText& option : command.options)
      if (llvm::none_of(own, [&](const OptionText& o) { return o.names == option.names; }) &&
          !llvm::is_contained(groups, option.group))
        groups.push_back(option.group);
    if (!groups.empty()) out += "\nTakes the common options of: " + llvm::join(groups, ", ") + ".\n";
  });
  out += "\n## Common options\n";
  add_table(out, shared);
  for (const Topic& topic : topics()) {
    out += std::string("\n## ") + topic.heading + "\n\n";
    const std::string text = topic.text();
    llvm::SmallVector<llvm::StringRef, 64> lines;
    llvm::StringRef(text).split(lines, '\n');
    bool table = false;
    for (llvm::StringRef line : lines) {
      const auto [head, explanation] = line.ltrim(' ').split('\t');
      if (!explanation.empty()) {
        if (!table) out += llvm::StringRef(out).endswith("\n\n") ? "" : "\n";
        if (!table) out += "| | |\n|---|---|\n";
        out += "| " + code(head) + " | " + plain(explanation) + " |\n";
      } else {
        out += line.startswith(" ") ? "    " + line.ltrim(' ').str() + "\n" : plain(line) + "\n";
      }
      table = !explanation.empty();
    }
  }
  return out;
}

}  // namespace trigen::cli
