// Every file of preambles/ is what its first line, an emit command, renders.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "generator/candidate.h"
#include "generator/error.h"
#include "tests/files.h"

namespace trigen {
namespace {

std::vector<std::string> preamble_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TRIGEN_PREAMBLES))
    if (entry.path().extension() == ".cu") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of(const std::string& name) { return std::string(TRIGEN_PREAMBLES) + "/" + name + ".cu"; }

// "// trigen emit --arch A --candidate C P"
llvm::Expected<Candidate> candidate_of(llvm::StringRef command) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  command.split(words, ' ');
  if (words.size() != 8 || !command.startswith("// trigen emit --arch ") || words[5] != "--candidate")
    return make_error(ErrorKind::kBadRequest, "the first line is no emit command: " + command);
  auto target = find_target(words[4]);
  if (!target) return target.takeError();
  auto problem = parse_problem(words[7]);
  if (!problem) return problem.takeError();
  return parse_candidate(*problem, **target, words[6]);
}

TEST(Preambles, AreWhatTheirCommandsPrint) {
  ASSERT_FALSE(preamble_files().empty());
  for (const std::string& name : preamble_files()) {
    SCOPED_TRACE(name);
    const std::string path = path_of(name), expected = slurp(path);
    auto candidate = candidate_of(llvm::StringRef(expected).split('\n').first);
    if (!candidate) {
      ADD_FAILURE() << take_error(candidate.takeError()).message;
      continue;
    }
    const std::string rendered = render(*candidate).text;
    if (std::getenv("TRIGEN_UPDATE_GOLDEN"))
      spill(path, rendered);
    else
      EXPECT_EQ(rendered, expected) << "TRIGEN_UPDATE_GOLDEN=1 writes what is rendered now";
  }
}

TEST(Preambles, CoverEveryFamily) {
  std::set<std::string> covered;
  for (const std::string& name : preamble_files()) {
    auto candidate = candidate_of(llvm::StringRef(slurp(path_of(name))).split('\n').first);
    ASSERT_TRUE(static_cast<bool>(candidate)) << name << ": " << take_error(candidate.takeError()).message;
    covered.insert(candidate->family->name().str());
  }
  for (const Family* family : families())
    EXPECT_TRUE(covered.count(family->name().str()))
        << "no file of tests/golden/preambles shows " << family->name().str() << "; see the README there";
}

}  // namespace
}  // namespace trigen
