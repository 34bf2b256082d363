// The program's face to a newcomer: help, width, colour, progress, completions, man page, exit codes.
#include <pty.h>

#include <algorithm>
#include <regex>

#include "tests/thorough.h"
#include "tests/unit/cli_testing.h"

namespace trigen {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

size_t widest(const std::string& text) {
  size_t width = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

TEST_F(Program, BareAndHelpPrintTheSameOnStandardOutput) {
  const Finished bare = run({});
  EXPECT_EQ(bare.code, 0);
  EXPECT_EQ(bare.err, "");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"help"}, {"--help"}, {"-h"}})
    EXPECT_EQ(run(words).out, bare.out);
  EXPECT_EQ(run({"help", "cache", "ls"}).out, run({"cache", "ls", "--help"}).out);
}

TEST_F(Program, HelpIsAsWideAsItsTerminal) {
  for (const char* columns : {"80", "100"}) {
    const size_t limit = std::stoul(columns);
    const std::string environment = std::string("COLUMNS=") + columns;
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"--help"},
                                               {"tune", "--help"},
                                               {"verify", "--help"},
                                               {"bench", "--help"},
                                               {"emit", "--help"},
                                               {"cache", "--help"},
                                               {"cache", "show", "--help"},
                                               {"report", "--help"},
                                               {"help", "problem"},
                                               {"help", "tables"},
                                               {"help", "exit-codes"}}) {
      const Finished help = run(words, {environment});
      EXPECT_EQ(help.code, 0) << help.err;
      EXPECT_LE(widest(help.out), limit) << help.out;
      EXPECT_GT(widest(help.out), limit / 2);
    }
  }
}

// Help, man page, Markdown and completions come from one parser: none of them lacks a command or an option.
TEST_F(Program, EveryFormOfTheReferenceHasEveryOption) {
  const std::string man = run({"help", "--format", "man"}).out,
                    markdown = run({"help", "--format", "markdown"}).out;
  const std::string bash = run({"completion", "bash"}).out, zsh = run({"completion", "zsh"}).out,
                    fish = run({"completion", "fish"}).out;
  for (const char* command : {"tune", "verify", "bench", "profile", "emit", "doctor"}) {
    const std::string help = run({command, "--help"}).out;
    const std::regex option("\\-\\-[a-z][a-z-]+");
    for (std::sregex_iterator at(help.begin(), help.end(), option), end; at != end; ++at) {
      const std::string name = at->str();
      EXPECT_THAT(markdown, HasSubstr(name));
      EXPECT_THAT(bash, HasSubstr(name));
      EXPECT_THAT(zsh, HasSubstr(name));
      EXPECT_THAT(fish, HasSubstr("-l " + name.substr(2)));
    }
    EXPECT_THAT(man, HasSubstr(std::string(".SS trigen ") + command));
  }
  EXPECT_THAT(man, AllOf(StartsWith(".TH TRIGEN 1"), HasSubstr(".SH PROBLEMS"), HasSubstr(".SH TABLES"),
                         HasSubstr(".SH EXIT STATUS"), HasSubstr("\\-\\-budget")));
  EXPECT_THAT(markdown, AllOf(HasSubstr("\n## Tables\n"),
                              HasSubstr("tune: the search\n\n| | |\n|---|---|\n| `space` |"),
                              HasSubstr("| <code>--format man\\|markdown</code> |"), Not(HasSubstr("\\<"))));
}

TEST_F(Program, BashCompletesCommandsOptionsAndValues) {
  std::ofstream(folder_ + "/completion") << run({"completion", "bash"}).out;
  const auto complete = [&](const std::string& words, int at) {
    const std::string command = "cd '" + folder_ + "' && bash -c 'source ./completion; COMP_WORDS=(" + words +
                                "); COMP_CWORD=" + std::to_string(at) +
                                "; _trigen; echo ${COMPREPLY[@]}' >list";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return slurp(folder_ + "/list");
  };
  EXPECT_EQ(complete("trigen tu", 1), "tune\n");
  EXPECT_EQ(complete("trigen cache sh", 2), "show\n");
  EXPECT_EQ(complete("trigen tune --arch sm_9", 3), "sm_90 sm_90a\n");
  EXPECT_EQ(complete("trigen tune --bud", 2), "--budget\n");
  EXPECT_EQ(complete("trigen verify --dtype b", 3), "bf16\n");
  EXPECT_EQ(complete("trigen help exi", 2), "exit-codes\n");
  EXPECT_EQ(complete("trigen completion z", 2), "zsh\n");
  EXPECT_EQ(complete("trigen tune --gpu L4", 3), "L40S L4\n");
  EXPECT_EQ(complete("trigen emit --gpu GeForce-RTX-3", 3), "GeForce-RTX-3090\n");
}

TEST_F(Program, FishCompletesTheSame) {
  if (std::system("command -v fish >/dev/null") != 0) GTEST_SKIP() << "[SKIP] no fish here";
  std::ofstream(folder_ + "/completion") << run({"completion", "fish"}).out;
  const auto complete = [&](const std::string& line) {
    const std::string command = "cd '" + folder_ +
                                "' && HOME=. fish -c 'source ./completion; complete -C \"" + line +
                                "\"' 2>&1 | cut -f1 | tr '\\n' ' ' >list";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return slurp(folder_ + "/list");
  };
  EXPECT_EQ(complete("trigen cache sh"), "show ");
  EXPECT_EQ(complete("trigen tune --arch sm_9"), "sm_90 sm_90a ");
  EXPECT_EQ(complete("trigen completion z"), "zsh ");
}

// Other shells and man, where installed, take the files made for them.
TEST_F(Program, OtherShellsAndManReadTheirFiles) {
  const struct {
    const char *tool, *check;
    std::vector<std::string> command;
  } files[] = {{"zsh", "zsh -n", {"completion", "zsh"}},
               {"fish", "fish --no-execute", {"completion", "fish"}},
               {"groff", "groff -man -ww -Tutf8 -z", {"help", "--format", "man"}}};
  int read = 0;
  for (const auto& file : files) {
    if (std::system((std::string("command -v ") + file.tool + " >/dev/null").c_str()) != 0) continue;
    ++read;
    const std::string path = folder_ + "/" + file.tool;
    std::ofstream(path) << run(file.command).out;
    EXPECT_EQ(std::system((std::string(file.check) + " '" + path + "' 2>'" + path + ".err'").c_str()), 0)
        << file.tool;
    EXPECT_EQ(slurp(path + ".err"), "") << file.tool;
  }
  if (read == 0) GTEST_SKIP() << "[SKIP] neither zsh nor fish nor groff is here";
}

TEST_F(Program, ColourIsForTerminalsAndWhoAsks) {
  const std::vector<std::string> bad = {"tune", "--arch", "sm_71", kProblem};
  EXPECT_THAT(run(bad).err, Not(HasSubstr("\033")));
  std::vector<std::string> always = bad;
  always.insert(always.end(), {"--color", "always"});
  EXPECT_THAT(run(always).err, StartsWith("trigen: \033[31merror:\033[0m unknown arch"));
}

// The program's answer on a terminal of 80 columns.
std::string on_terminal(const std::string& cache, const std::vector<std::string>& arguments,
                        const char* environment) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 80;
  int master = -1;
  const pid_t child = ::forkpty(&master, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TRIGEN_CACHE", cache.c_str(), 1);
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("COLUMNS");
    ::unsetenv("NO_COLOR");
    if (environment != nullptr) ::putenv(const_cast<char*>(environment));
    std::vector<char*> argv{const_cast<char*>(TRIGEN_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(TRIGEN_PROGRAM, argv.data());
    ::_exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(master, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(master);
  int status = 0;
  ::waitpid(child, &status, 0);
  text.erase(std::remove(text.begin(), text.end(), '\r'), text.end());
  return text;
}

// On a terminal of 80 columns: colour, no line wider than it; NO_COLOR and --color never take the colour away.
TEST_F(Program, ATerminalOf80ColumnsIsEnough) {
  const auto without_colour = [](const std::string& text) {
    return std::regex_replace(text, std::regex("\033\\[[0-9;]*m"), "");
  };
  const std::vector<std::string> explain = {"emit", "--arch", "sm_80", "--explain", "--rows", "6", kProblem};
  const std::string shown = on_terminal(cache_, explain, nullptr);
  EXPECT_THAT(shown, HasSubstr("\033[1m"));
  EXPECT_LE(widest(without_colour(shown)), 80u) << shown;
  EXPECT_THAT(shown, AllOf(HasSubstr("all rows: "), HasSubstr("left out: "), HasSubstr("--wide")));
  EXPECT_THAT(on_terminal(cache_, explain, "NO_COLOR=1"), Not(HasSubstr("\033")));
  std::vector<std::string> wide = explain;
  wide.insert(wide.end(), {"--wide", "--color", "never"});
  const std::string whole = on_terminal(cache_, wide, nullptr);
  EXPECT_THAT(whole, Not(HasSubstr("\033")));
  EXPECT_GT(widest(whole), 100u);
  const std::string machine = on_terminal(
      cache_,
      {"doctor", "--environment", TRIGEN_SOURCE "/tests/data/environments/h200_container_no_gpus.json"},
      "NO_COLOR=1");
  EXPECT_LE(widest(machine), 80u) << machine;
  EXPECT_THAT(machine, HasSubstr("start the\n        container with --gpus all"));
}

TEST_F(Program, ErrorsOnATerminalBreakAtWords) {
  const std::string text = on_terminal(
      cache_, {"tune", "--device", "emulated:sm_80,emulated:sm_80", "--arch", "sm_71", kProblem}, nullptr);
  EXPECT_THAT(text, StartsWith("trigen: \033[31merror:\033[0m unknown arch 'sm_71'; allowed are sm_70, "));
  std::istringstream lines(std::regex_replace(text, std::regex("\033\\[[0-9;]*m"), ""));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    all += (all.empty() ? "" : " ") + line;
  }
  EXPECT_EQ(all + "\n", run({"tune", "--arch", "sm_71", kProblem}).err) << "joined it is what a file gets";
}

// One record, many columns: a card, as wide as the terminal, with everything in it.
TEST_F(Program, OneRecordIsACard) {
  NEEDS_COMPILER("sm_70");
  const std::string text = on_terminal(
      cache_, {"tune", "--no-device", "--candidates", "1", "--arch", "sm_70", kProblem}, "NO_COLOR=1");
  EXPECT_LE(widest(text.substr(text.find("\nforward"))), 80u) << text;
  EXPECT_THAT(text,
              AllOf(HasSubstr("\nforward,dtype=f16,B=2,T=64,D=64\n  target"), HasSubstr("\n  choice      "),
                    HasSubstr("\n  provenance  predicted\n"), HasSubstr("\n  dense       ")));
}

TEST_F(Program, ProblemsComeFromStandardInputToo) {
  std::ofstream(folder_ + "/problems")
      << "# two\nforward,dtype=f16,B=2,T=64,D=64\n\ngrad_input,dtype=f16,B=2,T=64,D=64\n";
  const Finished done = run({"verify", "--device", "emulated:sm_80", "--limit", "1", "--problems", "-"}, {},
                            [&] { (void)!std::freopen((folder_ + "/problems").c_str(), "r", stdin); });
  if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
  EXPECT_THAT(done.out, HasSubstr("0 passed, 0 failed, 2 skipped"));
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.err, HasSubstr("nothing was verified: all 2 problems were skipped"));
}

TEST_F(Program, QuietLeavesResultsAndErrorsAlone) {
  NEEDS_COMPILER("sm_70");
  const Finished quiet = run({"tune", "-q", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem});
  EXPECT_EQ(quiet.code, 0);
  EXPECT_EQ(quiet.err, "");
  EXPECT_THAT(quiet.out, HasSubstr("predicted"));
  EXPECT_THAT(run({"tune", "-q", "--arch", "sm_71", kProblem}).err, HasSubstr("error: unknown arch"));
}

TEST_F(Program, ALogHasOneLineForEachProblem) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished done = run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem,
                             "forward,dtype=f16,B=2,T=72,D=64"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("\ntrigen: note:"), HasSubstr("[1/2] forward,dtype=f16,B=2,T=64,D=64  "),
                    HasSubstr("[2/2] forward,dtype=f16,B=2,T=72,D=64  "), Not(HasSubstr("compiling"))));
}

}  // namespace
}  // namespace trigen
