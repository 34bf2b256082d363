#include "cli/help.h"

#include <algorithm>

#include "cli/problem_options.h"
#include "cli/terminal.h"
#include "generator/family.h"
#include "generator/problem_fields.h"
#include "generator/target.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cli {
namespace {

// "TEXT:{fit,check}" -> fit, check
std::vector<std::string> allowed_by_checks(llvm::StringRef type) {
  std::vector<std::string> out;
  const size_t open = type.find('{'), close = type.find('}');
  if (open == llvm::StringRef::npos || close == llvm::StringRef::npos) return out;
  llvm::SmallVector<llvm::StringRef, 16> names;
  type.slice(open + 1, close).split(names, ',');
  for (llvm::StringRef name : names) out.push_back(name.trim().str());
  return out;
}

std::vector<std::string> allowed_values(const std::string& name, llvm::StringRef type) {
  std::vector<std::string> out;
  if (name == "--arch")
    for (const Target& target : targets()) out.push_back(target.name.str());
  if (name == "--gpu")  // find_gpu() takes names without their spaces, which shells would split
    for (const Target& gpu : gpus()) {
      out.push_back(gpu.model_device.str());
      std::replace(out.back().begin(), out.back().end(), ' ', '-');
    }
  if (name == "--family")
    for (const Family* family : families()) out.push_back(family->name().str());
  if (name == "--list") return {"core", "mixers"};
  for (const ProblemField& field : problem_fields()) {
    if (field.flags == nullptr || field.kind != ProblemField::kName || field.flags != name) continue;
    for (llvm::StringRef value : names_of(*field.names)) out.push_back(value.str());
  }
  return out.empty() ? allowed_by_checks(type) : out;
}

std::string value_name(const CLI::Option& option, const std::vector<std::string>& values) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string plain = type.substr(0, type.find_first_of(":{ "));
  if (!values.empty() && (plain.empty() || plain == "TEXT") && values.size() <= 4)
    return llvm::join(values, "|");
  if (plain == "TEXT" || plain.empty()) return "VALUE";
  return plain == "UINT" || plain == "INT" || plain == "FLOAT" ? "N" : plain;
}

OptionText describe(const CLI::Option& option) {
  OptionText out;
  out.group = option.get_group();
  out.text = option.get_description();
  out.required = option.get_required();
  out.many = option.get_items_expected_max() > 1;
  out.argument = !option.nonpositional();
  if (out.required && !out.argument) out.text += " (required)";
  if (out.argument) {
    out.names = {option.get_name(true)};
    out.values = allowed_by_checks(option.get_type_name());
    const std::string type = option.get_type_name();
    out.value = type.substr(0, type.find_first_of(":{ "));
    if (out.value == "TEXT") out.value.clear();
    if (!out.value.empty()) out.text += ", " + out.value;
    return out;
  }
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.values =
      allowed_values(out.names.back() == "--target" ? "--arch" : out.names.back(), option.get_type_name());
  out.value = value_name(option, out.values);
  return out;
}

// `app`'s own options and those of its nameless groups.
void add_options(const CLI::App& app, CommandText& out) {
  for (const CLI::Option* option : app.get_options([&](const CLI::Option*) { return true; })) {
    if (option->get_group().empty()) continue;
    OptionText text = describe(*option);
    const auto known = llvm::any_of(out.options, [&](const OptionText& o) { return o.names == text.names; });
    if (!known) out.options.push_back(std::move(text));
  }
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    const size_t first = out.options.size();
    add_options(*group, out);
    for (size_t i = first; i < out.options.size(); ++i) out.options[i].group = "Options";
  }
}

constexpr size_t kIndent = 2, kColumn = 26;  // where the explanations begin

// "  -j,--jobs N             compiling threads ..."
void add_entry(std::string& out, const std::string& head, const std::string& text, size_t columns) {
  const std::string left = std::string(kIndent, ' ') + head;
  const size_t room = columns > kColumn + 20 ? columns - kColumn : 20;
  auto lines = wrap(text, room);
  const bool own_line = width_of(left) + 2 > kColumn;
  out += left;
  if (own_line) out += "\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t pad = i == 0 && !own_line ? kColumn - width_of(left) : kColumn;
    if (!lines[i].empty()) out += std::string(pad, ' ') + lines[i];
    out += "\n";
  }
}

void add_paragraph(std::string& out, const std::string& text, size_t columns, size_t indent = 0) {
  for (const std::string& line : wrap(text, columns - indent)) out += std::string(indent, ' ') + line + "\n";
}

std::string heading(const std::string& text) {
  return "\n" + styled(stdout, Style::kHeading, text + ":") + "\n";
}

std::string usage(const CommandText& command) {
  std::string text = command.path;
  if (!command.commands.empty()) return text + " COMMAND [OPTION...]";
  if (llvm::any_of(command.options, [](const OptionText& o) { return !o.argument; })) text += " [OPTION...]";
  for (const OptionText& option : command.options) {
    if (!option.argument) continue;
    std::string name = llvm::StringRef(option.names.front()).upper();
    if (option.many) name += "...";
    text += option.required ? " " + name : " [" + name + "]";
  }
  return text;
}

}  // namespace

CommandText describe(const CLI::App& app, const std::string& path) {
  CommandText out;
  out.name = app.get_name();
  out.path = path.empty() ? out.name : path + " " + out.name;
  out.group = app.get_group();
  out.text = app.get_description();
  const CLI::App* const parent = app.get_parent();  // CLI11 hands a footer on
  if (parent == nullptr || parent->get_footer() != app.get_footer()) out.footer = app.get_footer();
  add_options(app, out);
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); }))
    if (!sub->get_group().empty()) out.commands.push_back(describe(*sub, out.path));
  return out;
}

std::string lacking_of(const CLI::App& app, const std::string& path) {
  std::string lacking, example = path;
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_required(); })) {
    const OptionText text = describe(*option);
    const std::string name = text.argument ? llvm::StringRef(text.names.front()).upper() : text.names.front();
    const std::string value = text.values.empty() ? text.value : text.values.front();
    if (lacking.empty() && option->count() == 0)
      lacking = name + (text.argument ? "" : " " + text.value) + ", " +
                llvm::StringRef(option->get_description()).split(';').first.str();
    example += " " + (!text.argument ? name + " " + value
                                     : (value.empty() ? name : value) + (text.many ? "..." : ""));
  }
  return lacking.empty() ? "" : path + " needs " + lacking + ": " + example;
}

std::string option_head(const OptionText& option) {
  if (option.argument) return llvm::StringRef(option.names.front()).upper();
  return llvm::join(option.names, ", ") + (option.value.empty() ? "" : " " + option.value);
}

std::vector<std::string> groups_of(const CommandText& command) {
  std::vector<std::string> groups;
  for (const OptionText& option : command.options)
    if (!llvm::is_contained(groups, option.group)) groups.push_back(option.group);
  // a command's own options first, what others have too after them
  std::stable_sort(groups.begin(), groups.end(), [](const std::string& a, const std::string& b) {
    const auto place = [](const std::string& group) {
      return group == "Problems"      ? 0
             : group == "Options"     ? 1
             : group == "Target"      ? 3
             : group == kProblemFlags ? 4
             : group == "Output"      ? 5
                                      : 2;
    };
    return place(a) < place(b);
  });
  return groups;
}

std::string help_text(const CommandText& command, int columns) {
  const auto width = static_cast<size_t>(columns);
  std::string out;
  add_paragraph(out, command.text, width);
  out += heading("Usage");
  add_paragraph(out, usage(command), width, kIndent);
  std::vector<std::string> groups;
  for (const CommandText& sub : command.commands)
    if (!llvm::is_contained(groups, sub.group)) groups.push_back(sub.group);
  for (const std::string& group : groups) {
    out += heading(group == "Subcommands" ? "Commands" : group);
    for (const CommandText& sub : command.commands)
      if (sub.group == group) add_entry(out, sub.name, sub.text, width);
  }
  for (const std::string& group : groups_of(command)) {
    out += heading(group);
    if (group == kProblemFlags) {
      std::string flags;
      for (const OptionText& option : command.options)
        if (option.group == group) flags += (flags.empty() ? "" : "  ") + llvm::join(option.names, ",");
      add_paragraph(out, flags, width, kIndent);
      add_paragraph(out, "each is a key of the problem's text: `trigen help problem`", width, kIndent);
      continue;
    }
    for (const OptionText& option : command.options)
      if (option.group == group) add_entry(out, option_head(option), option.text, width);
  }
  if (!command.footer.empty()) {
    out += "\n";
    llvm::SmallVector<llvm::StringRef, 8> paragraphs;
    llvm::StringRef(command.footer).split(paragraphs, '\n');
    for (llvm::StringRef paragraph : paragraphs) add_paragraph(out, paragraph.str(), width);
  }
  return out;
}

std::string topic_text(const Topic& topic, int columns) {
  std::string out;
  const std::string text = topic.text();
  llvm::SmallVector<llvm::StringRef, 64> lines;
  llvm::StringRef(text).split(lines, '\n');
  for (llvm::StringRef line : lines) {
    const llvm::StringRef rest = line.ltrim(' ');
    const size_t tab = rest.find('\t');
    if (tab != llvm::StringRef::npos)
      add_entry(out, rest.take_front(tab).str(), rest.drop_front(tab + 1).str(),
                static_cast<size_t>(columns));
    else if (rest.size() < line.size() || line.empty())
      out += line.str() + "\n";
    else
      add_paragraph(out, line.str(), static_cast<size_t>(columns));
  }
  return out;
}

}  // namespace trigen::cli
