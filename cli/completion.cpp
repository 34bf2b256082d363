// Completions of bash, zsh and fish, made from the parser.
#include "check/text.h"
#include "cli/help.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

void each(const CommandText& command, const std::function<void(const CommandText&)>& visit) {
  visit(command);
  for (const CommandText& sub : command.commands) each(sub, visit);
}

// "trigen cache ls" -> "cache ls"
std::string inner(const CommandText& command) {
  return llvm::StringRef(command.path).split(' ').second.str();
}

std::vector<std::string> words_of(const CommandText& command) {
  std::vector<std::string> words;
  for (const CommandText& sub : command.commands) words.push_back(sub.name);
  for (const OptionText& option : command.options)
    llvm::append_range(words, option.argument ? option.values : option.names);
  return words;
}

// For single quotes of every shell.
std::string quiet_text(llvm::StringRef text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? "\u2019" : c == '\\' ? "/" : std::string(1, c);
  return out;
}

std::string bash(const CommandText& program) {
  std::string paths, values, words;
  each(program, [&](const CommandText& command) {
    const std::string path = inner(command);
    if (!path.empty()) paths += (paths.empty() ? "'" : "|'") + path + "'";
    words += "    '" + path + "') words='" + llvm::join(words_of(command), " ") + "' ;;\n";
    for (const OptionText& option : command.options) {
      if (option.value.empty()) continue;
      for (const std::string& name : option.names)
        values += format("    '%s,%s') words='%s'; value=1 ;;\n", path.c_str(), name.c_str(),
                         llvm::join(option.values, " ").c_str());
    }
  });
  return "# bash completion of trigen; `trigen completion bash` prints it\n"
         "_trigen() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local path= word next words= value=\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    next=${path:+$path }$word\n"
         "    case $next in\n    " +
         paths +
         ") path=$next ;;\n    esac\n"
         "  done\n"
         "  case $path,$prev in\n" +
         values +
         "  esac\n"
         "  [[ -n $value ]] || case $path in\n" +
         words +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "}\n"
         "complete -o default -F _trigen trigen\n";
}

std::string zsh(const CommandText& program) {
  // ':' ends a word and ']' an explanation in _arguments' specifications
  const auto explained = [](const std::string& text) {
    std::string out;
    for (const char c : quiet_text(text))
      out += c == '[' || c == ']' || c == ':' ? std::string("\\") + c : std::string(1, c);
    return out;
  };
  std::string cases;
  std::string paths;
  each(program, [&](const CommandText& command) {
    const std::string path = inner(command);
    if (!path.empty()) paths += (paths.empty() ? "'" : "|'") + path + "'";
    cases += "    '" + path + "')\n";
    if (!command.commands.empty()) {
      cases += "      words=(";
      for (const CommandText& sub : command.commands)
        cases += " '" + sub.name + ":" + explained(sub.text) + "'";
      cases += ")\n      _describe command words\n      ;;\n";
      return;
    }
    cases += "      _arguments";
    for (const OptionText& option : command.options) {
      const std::string action =
          option.values.empty() ? "_files" : "(" + llvm::join(option.values, " ") + ")";
      if (option.argument) {
        cases += " '*:" + option.names.front() + ":" + action + "'";
        continue;
      }
      for (const std::string& name : option.names)
        cases += " '*" + name + "[" + explained(option.text) + "]" +
                 (option.value.empty() ? "" : ":value:" + action) + "'";
    }
    cases += "\n      ;;\n";
  });
  return "#compdef trigen\n"
         "# zsh completion of trigen; `trigen completion zsh` prints it\n"
         "_trigen() {\n"
         "  local chain= word next\n"
         "  local -a words_before; words_before=(\"${(@)words[2,CURRENT-1]}\")\n"
         "  local -i depth=0\n"
         "  for word in \"${words_before[@]}\"; do\n"
         "    next=${chain:+$chain }$word\n"
         "    case $next in\n      " +
         paths +
         ") chain=$next; (( ++depth )) ;;\n    esac\n"
         "  done\n"
         "  (( depth )) && { shift depth words; (( CURRENT -= depth )) }\n"
         "  case $chain in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _trigen ]]; then _trigen \"$@\"; else compdef _trigen trigen; fi\n";
}

std::string fish(const CommandText& program) {
  std::string out =
      "# fish completion of trigen; `trigen completion fish` prints it\n"
      "function __trigen_path\n"
      "  set -l path\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    set -l next (string join -- ' ' $path $word)\n"
      "    contains -- \"$next\"";
  each(program, [&](const CommandText& command) {
    if (!inner(command).empty()) out += " '" + inner(command) + "'";
  });
  out +=
      "; and set path $next\n"
      "  end\n"
      "  test \"$path\" = \"$argv\"\n"
      "end\n";
  each(program, [&](const CommandText& command) {
    const std::string when = "complete -c trigen -n \"__trigen_path '" + inner(command) + "'\"";
    for (const CommandText& sub : command.commands)
      out += when + " -f -a " + sub.name + " -d '" + quiet_text(sub.text) + "'\n";
    for (const OptionText& option : command.options) {
      std::string line = when;
      if (option.argument) {
        if (!option.values.empty()) out += line + " -f -a '" + llvm::join(option.values, " ") + "'\n";
        continue;
      }
      for (llvm::StringRef name : option.names)
        line += name.startswith("--") ? " -l " + name.drop_front(2).str() : " -s " + name.drop_front(1).str();
      if (!option.value.empty())
        line += option.values.empty() ? " -r" : " -xa '" + llvm::join(option.values, " ") + "'";
      out += line + " -d '" + quiet_text(option.text) + "'\n";
    }
  });
  return out;
}

}  // namespace

std::string completion(CommandText program, const std::string& shell) {
  std::vector<std::string> explained;  // what `trigen help` takes
  for (const CommandText& command : program.commands) explained.push_back(command.name);
  for (const Topic& topic : topics()) explained.emplace_back(topic.name);
  for (CommandText& command : program.commands)
    for (OptionText& option : command.options)
      if (command.name == "help" && option.argument) option.values = explained;
  if (shell == "bash") return bash(program);
  if (shell == "zsh") return zsh(program);
  if (shell == "fish") return fish(program);
  return "";
}

}  // namespace trigen::cli
