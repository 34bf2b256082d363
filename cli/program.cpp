#include "cli/program.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "check/text.h"
#include "cli/help.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "llvm/ADT/StringExtras.h"
#include "tuner/worker/serve.h"

namespace trigen::cli {
namespace {

std::vector<llvm::StringRef> names_of_commands(const CLI::App& app) {
  std::vector<llvm::StringRef> names;
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
    if (!sub->get_name().empty()) names.push_back(sub->get_name());
  return names;
}

// The present place of an option or a command of earlier versions.
struct Moved {
  llvm::StringRef command, option;  // "": the command itself
  const char* now;
};
constexpr Moved kMoved[] = {
    {"model", "", "trigen-lab model"},
    {"profile", "--timeline", "trigen-lab timeline PROBLEM"},
    {"profile", "--svg", "trigen-lab timeline PROBLEM --svg FILE"},
    {"tune", "--record", "trigen-lab record --folder FOLDER"},
    {"tune", "--role", "trigen-lab record --folder FOLDER --role ROLE"},
    {"tune", "--sample", "trigen-lab record --folder FOLDER --sample N"},
    {"tune", "--share", "--candidates N, or trigen-lab record --folder FOLDER --share S"},
    {"tune", "--seed", "trigen-lab record --folder FOLDER --seed N"},
    {"tune", "--replay", "trigen-lab replay FILE"},
    {"tune", "--exhaustive", "--candidates 0"},
    {"tune", "--top", "--candidates N"},
    {"tune", "--no-resume", "--force"},
    {"verify", "--families", "trigen-lab verify --families all"},
    {"verify", "--gap", "trigen-lab verify --gap N"},
    {"verify", "--ptx", "trigen-lab verify --ptx"},
    {"verify", "--random", "trigen-lab verify --random N"},
    {"bench", "--render", "trigen-lab render FILE"},
    {"bench", "--sweep", "trigen-lab sweep N"},
    {"bench", "--tables", "trigen-lab tables FILE"},
};

// Options that nothing has taken the place of: the words behind "leave it out: ".
constexpr std::pair<llvm::StringLiteral, const char*> kGone[] = {
    {"--no-counts", "choices rest on the model's estimates alone"},
    {"--no-dense", "cuBLAS is timed where it is"},
};

std::string moved_to(llvm::StringRef program, llvm::StringRef command, llvm::StringRef option) {
  for (const Moved& moved : kMoved)
    if (program == "trigen" && moved.command == command && moved.option == option)
      return std::string("; it is now ") + moved.now;
  for (const auto& [gone, why] : kGone)
    if (option == gone) return std::string("; it is gone, leave it out: ") + why;
  return "";
}

int bad_request(const std::string& text) {
  remark("error: " + text, /*lines=*/true);
  return kBadRequest;
}

// The words that name a command, checked before anything is parsed: "cache sho" is said to lack sho, not
// to lack a subcommand. kDone when they do.
int check_command(const CLI::App& program, int argc, char** argv) {
  const CLI::App* at = &program;
  std::string path = program.get_name();
  for (int i = 1; i <= argc; ++i) {
    const auto known = names_of_commands(*at);
    if (known.empty()) return kDone;
    const llvm::StringRef word = i < argc ? argv[i] : "";
    if (word.startswith("-")) return kDone;
    if (word.empty())
      return bad_request(trigen::format("%s needs a command; allowed are %s; `%s --help` explains them",
                                        path.c_str(), trigen::all_of(known).c_str(), path.c_str()));
    if (!llvm::is_contained(known, word))
      return bad_request("unknown command " + trigen::quoted(word) +
                         (at == &program ? std::string() : " of " + path) + "; allowed are " +
                         trigen::all_of(known) + trigen::did_you_mean(word, known) +
                         (at == &program ? moved_to(path, word, "") : ""));
    for (const CLI::App* sub :
         at->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; }))
      at = sub;
    path += " " + word.str();
  }
  return kDone;
}

// The command whose options were being parsed.
const CLI::App& deepest(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() || parsed.front()->get_name().empty() ? app : deepest(*parsed.front());
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

int refuse(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& app = deepest(program);
  const std::string see = "; `" + path_of(app) + " --help` lists what is allowed";
  const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  std::vector<std::string> extra;
  if (lacks || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    extra = program.remaining(/*recurse=*/true);
  const llvm::StringRef word = extra.empty() ? "" : llvm::StringRef(extra.front()).split('=').first;
  // the one that has moved first: of --limit 1m --tables FILE the second
  for (const llvm::StringRef each : extra) {
    const llvm::StringRef option = each.split('=').first;
    const std::string now =
        option.startswith("-") ? moved_to(program.get_name(), app.get_name(), option) : "";
    if (!now.empty()) return bad_request("unknown option " + trigen::quoted(option) + now);
  }
  if (word.startswith("-")) {
    const CommandText text = cli::describe(app);
    llvm::SmallVector<llvm::StringRef, 64> names;
    for (const OptionText& option : text.options)
      if (!option.argument) names.append(option.names.begin(), option.names.end());
    return bad_request("unknown option " + trigen::quoted(word) + see + trigen::did_you_mean(word, names));
  }
  if (const std::string lacking = lacks ? lacking_of(app, path_of(app)) : ""; !lacking.empty())
    return bad_request(lacking);
  if (!word.empty()) return bad_request("unexpected argument " + trigen::quoted(word) + see);
  const std::string text = trigen::printable(error.what(), /*lines=*/true);
  return bad_request(text + (text.find("; allowed are ") == std::string::npos ? see : ""));
}

void add_output_options_to_all(CLI::App& app) {
  for (CLI::App* sub : app.get_subcommands([](CLI::App* sub) { return !sub->get_name().empty(); })) {
    const bool leaf = names_of_commands(*sub).empty();
    if (leaf) add_output_options(*sub);
    if (!leaf) add_output_options_to_all(*sub);
  }
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    CommandText text = cli::describe(*app);
    text.path = path_of(*app);
    return help_text(text, prose_columns(stdout));
  }
};

int run(const Program& program, int argc, char** argv) {
  // not a command of the users'
  if (argc == 3 && argv[1] == llvm::StringRef(trigen::worker::kCommand))
    return trigen::worker::serve(std::atoi(argv[2]));
  remember_command_line(program.name, argc, argv);
  CLI::App app{program.text};
  app.name(program.name);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "this text");
  app.set_version_flag("--version", program.name + std::string(" ") + program.version, "print the version");
  app.footer(program.footer);
  Commands commands;
  program.add_commands(app, commands);
  add_output_options_to_all(app);
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return kDone;
  }
  if (const int code = check_command(app, argc, argv); code != kDone) return code;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kDone;
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  try {
    const int code = run(program, argc, argv);
    // A full disk or a closed pipe: what was asked for is not there, whatever the command thinks.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "trigen: error: standard output could not be written (%s); its text is cut\n",
                 std::strerror(errno));
    return code == kDone ? kFailure : code;
  } catch (const std::exception& error) {  // out of memory, or a defect
    std::fprintf(stderr, "trigen: error: %s\n", error.what());
  } catch (...) {
    std::fputs("trigen: error: unknown exception\n", stderr);
  }
  return kFailure;
}

}  // namespace trigen::cli
