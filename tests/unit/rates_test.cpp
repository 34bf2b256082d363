#include "generator/rates.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "generator/error.h"

namespace trigen {
namespace {

using testing::HasSubstr;

std::string error_of(llvm::StringRef text) {
  auto rates = Rates::parse(text);
  return rates ? "" : take_error(rates.takeError()).message;
}

Rates rates_in(llvm::StringRef text) {
  auto rates = Rates::parse(text);
  if (rates) return *rates;
  ADD_FAILURE() << take_error(rates.takeError()).message;
  return {};
}

TEST(Rates, ValuesHaveUnits) {
  const Rates rates = rates_in(
      "[device]\n"
      "launch 4>2.5 us assumed a guess  # and a comment\n"
      "feed 64 B/cycle datasheet a white paper, page 3\n"
      "[loop ring]\n"
      "block 1800 cycles assumed a guess\n"
      "[pass pack]\n"
      "bytes_per_s 6 TB/s assumed a guess\n");
  EXPECT_DOUBLE_EQ(rates.device().launch, 2.5e-6);
  EXPECT_DOUBLE_EQ(rates.device().feed, 64);
  EXPECT_DOUBLE_EQ(rates.loop("ring").block, 1800);
  EXPECT_DOUBLE_EQ(rates.pass("pack").bytes_per_s, 6e12);
  ASSERT_EQ(rates.all().size(), 4U);
  EXPECT_EQ(rates.all()[0].first, 4);
  EXPECT_EQ(rates.all()[1].first, 64);
  EXPECT_EQ(rates.all()[0].source, "a guess");
  EXPECT_EQ(rates.all()[1].source, "a white paper, page 3");
  EXPECT_EQ(rates.all()[1].kind, Rate::Kind::kDatasheet);
  EXPECT_EQ(rates.all()[2].section, "loop ring");
}

TEST(Rates, ALoopMayBeginAsAnother) {
  const Rates rates = rates_in(
      "[loop ring]\nlatency 1 us assumed x\ntile 2 us assumed x\n"
      "[loop taps : ring]\nlatency 3 us assumed x\n");
  EXPECT_DOUBLE_EQ(rates.loop("taps").latency, 3e-6);
  EXPECT_DOUBLE_EQ(rates.loop("taps").tile, 2e-6);
  EXPECT_DOUBLE_EQ(rates.loop("ring").latency, 1e-6);
  EXPECT_TRUE(rates.has_loop("taps"));
  EXPECT_FALSE(rates.has_loop("tap"));
}

TEST(Rates, ErrorsNameTheLineAndWhatIsAllowed) {
  EXPECT_THAT(error_of("latency 1 us assumed x"), HasSubstr("line 1: comes before any section"));
  EXPECT_THAT(error_of("[loop ring]\nlatncy 1 us assumed x"),
              AllOf(HasSubstr("line 2: [loop ring] has no 'latncy'"), HasSubstr("latency")));
  EXPECT_THAT(error_of("[loop ring]\nlatency 1 GB/s assumed x"),
              HasSubstr("latency has unit 'GB/s'; allowed are us"));
  EXPECT_THAT(error_of("[loop ring]\nlatency fast us assumed x"), HasSubstr("'fast', not a number"));
  EXPECT_THAT(error_of("[loop ring]\nlatency -1 us assumed x"), HasSubstr("'-1', not a number of 0 or more"));
  EXPECT_THAT(error_of("[loop ring]\nlatency 1 us guessed x"), HasSubstr("datasheet, fitted, assumed"));
  EXPECT_THAT(error_of("[loop ring]\nlatency 1 us fitted"), HasSubstr("latency has no source"));
  EXPECT_THAT(error_of("[loop taps : ring]"), HasSubstr("begins as 'ring', which no line before has"));
  EXPECT_THAT(error_of("[ring]"), HasSubstr("allowed are device, dense, loop NAME and pass NAME"));
}

// Fitted rates can be fitted again: their times are in the tree.
TEST(Rates, EveryFittedRateNamesItsTimes) {
  const std::filesystem::path source = TRIGEN_SOURCE;
  ASSERT_FALSE(rates_files().empty());
  for (const RatesFile& file : rates_files()) {
    const Rates rates = rates_in(file.text);
    for (const Rate& rate : rates.all()) {
      SCOPED_TRACE(file.name.str() + " [" + rate.section + "] " + rate.name);
      if (rate.kind != Rate::Kind::kFitted) continue;
      // "FOLDER/FILE, FILE, FOLDER: role fit"
      const auto [files, role] = llvm::StringRef(rate.source).split(": ");
      EXPECT_EQ(role, "role fit");
      llvm::SmallVector<llvm::StringRef, 8> names;
      files.split(names, ", ");
      std::filesystem::path folder;
      for (const llvm::StringRef name : names) {
        const std::filesystem::path path = name.contains('/') ? name.str() : (folder / name.str()).string();
        folder = path.parent_path();
        EXPECT_TRUE(path.string().rfind("tests/data/", 0) == 0 ||
                    path.string().rfind("bench/results", 0) == 0)
            << path;
        EXPECT_TRUE(std::filesystem::exists(source / path)) << path;
      }
    }
  }
}

TEST(Rates, EveryTargetHasATable) {
  for (const Target& target : targets()) {
    EXPECT_GT(rates_of(target).device().launch, 0) << target.name.str();
    EXPECT_GT(rates_of(target).device().feed, 0) << target.name.str();
  }
}

}  // namespace
}  // namespace trigen
