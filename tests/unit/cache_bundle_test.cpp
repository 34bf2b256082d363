#include "cache/bundle.h"

#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "cache/layer.h"
#include "cache/upkeep.h"
#include "tests/thorough.h"
#include "tests/unit/cache_testing.h"

namespace trigen::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace trigen::testing;

const std::map<std::string, std::string> kMeta = {{"made_by", "test"}};

std::string image_of(const Contents& contents) {
  auto image = bundle_image(contents, kMeta);
  if (image) return *image;
  ADD_FAILURE() << message(image.takeError());
  return {};
}

Contents read(const std::string& path) {
  auto contents = read_contents(path, ReadFor::kLook);
  if (contents) return *contents;
  ADD_FAILURE() << message(contents.takeError());
  return {};
}

// A cache file with some of a few keys, of each some of a few versions, so that random ones meet.
Contents random_cache(std::mt19937& random, const std::string& path) {
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto store = open_store({path});
  for (int i = 0, n = 1 + draw(5); i < n; ++i) {
    const bool measured = draw(2) == 0;
    const char* const devices[] = {"A100", "A30", ""};
    Record r = sample_record(measured ? Provenance::kMeasured : Provenance::kPredicted,
                             devices[draw(measured ? 2 : 3)], 100 + draw(2), "580");
    r.problem = "problem " + std::to_string(draw(2));
    r.candidate = "c" + std::to_string(draw(3));
    r.binary = sample_binary(static_cast<unsigned>(draw(3))).key;
    r.binary.compiler = draw(2) == 0 ? "nvrtc 12.9.86" : "nvrtc 12.10.1";
    r.evidence = draw(4) == 0 ? "" : "{\"model\":" + std::to_string(1 + draw(2)) + "}";
    r.stored_at = 1000 + draw(2);
    EXPECT_EQ(message(store->put_record(r)), "");
  }
  for (int i = 0, n = draw(4); i < n; ++i) {
    Binary b = sample_binary(static_cast<unsigned>(draw(3)), 400);
    b.log = "log " + std::to_string(draw(2));
    b.stored_at = 1000 + draw(2);
    EXPECT_EQ(message(store->put_binary(b)), "");
  }
  return read(path);
}

Contents merged(const Contents& a, const Contents& b) {
  Contents c = a;
  c.add(b);
  return c;
}

TEST(CacheMerge, IsCommutativeAssociativeAndIdempotent) {
  std::mt19937 random(20261122);
  for (int round = 0, rounds = thorough() ? 200 : 12; round < rounds; ++round) {
    SCOPED_TRACE(round);
    CacheFolder folder;
    const Contents a = random_cache(random, folder / "a.db"), b = random_cache(random, folder / "b.db"),
                   c = random_cache(random, folder / "c.db");
    const std::string all = image_of(merged(merged(a, b), c));
    EXPECT_EQ(all, image_of(merged(a, merged(b, c))));
    EXPECT_EQ(image_of(merged(a, b)), image_of(merged(b, a)));
    // A bundle written straight into a file has the same bytes.
    const std::string file = folder / "all.trigen";
    EXPECT_EQ(message(write_bundle(file, merged(merged(a, b), c), kMeta)), "");
    std::ifstream stream(file, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), all);
    auto read_together =
        read_merged({folder / "c.db", folder / "a.db", folder / "b.db", folder / "a.db"}, ReadFor::kImport);
    ASSERT_TRUE(bool(read_together));
    EXPECT_EQ(image_of(*read_together), all);
    EXPECT_EQ(image_of(merged(a, a)), image_of(merged(Contents(), a)));
    EXPECT_EQ(all, image_of(merged(merged(c, a), merged(b, a))));
    // Through files: a bundle of some merges as its parts do.
    ASSERT_EQ(message(write_bundle(folder / "bc.trigen", merged(b, c), kMeta)), "");
    EXPECT_EQ(all, image_of(merged(read(folder / "bc.trigen"), a)));
    // Into a cache file, in any order: the same rows.
    for (const auto& order : {std::vector<const Contents*>{&a, &b, &c}, {&c, &b, &a, &b}}) {
      const std::string path = folder / (order.front() == &a ? "abc.db" : "cba.db");
      for (const Contents* one : order) {
        auto report = import_contents({{path}}, *one);
        ASSERT_TRUE(static_cast<bool>(report)) << message(report.takeError());
      }
    }
    EXPECT_EQ(image_of(read(folder / "abc.db")), image_of(read(folder / "cba.db")));
  }
}

Record stored(Record r, int64_t at, const std::string& evidence = R"({"model":1})") {
  r.stored_at = at;
  r.evidence = evidence;
  return r;
}

// Puts each record into a file of its own and says which candidate the merge of the two has.
std::string better_of(const Record& a, const Record& b) {
  CacheFolder folder;
  for (const auto& [name, record] : {std::pair("a.db", &a), std::pair("b.db", &b)}) {
    auto store = open_store({folder / name});
    EXPECT_EQ(message(store->put_record(*record)), "");
  }
  std::string candidates;
  for (const auto& [key, row] : merged(read(folder / "a.db"), read(folder / "b.db")).records)
    candidates += (candidates.empty() ? "" : " ") + row.record.candidate;
  return candidates;
}

TEST(CacheMerge, RulesInTheirOrder) {
  const auto measured = [](const char* device, const char* name) {
    return sample_record(Provenance::kMeasured, device, 108, "580", name);
  };
  const auto predicted = [](const char* device, const char* name) {
    return sample_record(Provenance::kPredicted, device, 108, "580", name);
  };
  EXPECT_EQ(better_of(stored(measured("A100", "m:a=1"), 1), stored(predicted("A100", "p:a=1"), 9)), "m:a=1");
  EXPECT_EQ(better_of(stored(measured("A100", "m:a=1"), 1), stored(predicted("", "p:a=1"), 9)), "m:a=1");
  EXPECT_EQ(better_of(stored(measured("A100", "m:a=1"), 1), stored(predicted("A30", "p:a=1"), 9)),
            "m:a=1 p:a=1")
      << "another device's prediction stays";
  EXPECT_EQ(better_of(stored(predicted("", "new:a=1"), 1, R"({"model":3})"),
                      stored(predicted("", "old:a=1"), 9, R"({"model":2})")),
            "new:a=1");
  Record newer_compiler = measured("A100", "new:a=1"), older_compiler = measured("A100", "old:a=1");
  newer_compiler.binary.compiler = "nvrtc 12.10.1";
  older_compiler.binary.compiler = "nvrtc 12.9.86";
  EXPECT_EQ(better_of(stored(newer_compiler, 1), stored(older_compiler, 9)), "new:a=1");
  EXPECT_EQ(better_of(stored(measured("A100", "new:a=1"), 9), stored(measured("A100", "old:a=1"), 8)),
            "new:a=1");
  EXPECT_EQ(better_of(stored(measured("A100", "whole:a=1"), 1), stored(measured("A100", "bare:a=1"), 9, "")),
            "whole:a=1");
}

// An import replaces what an import brought, never what was measured or compiled here, whatever it claims.
TEST(CacheImport, WhatTheUserMadeStays) {
  CacheFolder folder;
  const std::string mine = folder / "mine.db", theirs = folder / "theirs.db", third = folder / "third.db";
  const auto record = [](const char* name, const char* compiler) {
    Record r = stored(sample_record(Provenance::kMeasured, "A100", 108, "580", name), 1000);
    r.binary.compiler = compiler;
    return r;
  };
  const auto binary = [](const char* log, int64_t at) {
    Binary b = sample_binary(1, 400);
    b.log = log;
    b.stored_at = at;
    return b;
  };
  Record predicted = sample_record(Provenance::kPredicted, "A30", 50, "580", "guess:a=1");
  ASSERT_EQ(message(open_store({mine})->put_record(record("mine:a=1", "nvrtc 12.9.86"))), "");
  ASSERT_EQ(message(open_store({mine})->put_record(predicted)), "");
  ASSERT_EQ(message(open_store({mine})->put_binary(binary("mine", 1000))), "");
  ASSERT_EQ(message(open_store({theirs})->put_record(record("theirs:a=1", "nvrtc 99.0"))), "");
  predicted.provenance = Provenance::kMeasured;
  predicted.candidate = "theirs:a=2";
  ASSERT_EQ(message(open_store({theirs})->put_record(predicted)), "");
  ASSERT_EQ(message(open_store({theirs})->put_binary(binary("theirs", 2000))), "");
  const auto import = [&](const std::string& from) {
    auto contents = read_merged({from}, ReadFor::kImport);
    if (!contents) return message(contents.takeError());
    auto report = import_contents({{mine}}, *contents);
    return report ? std::string() : message(report.takeError());
  };
  const auto candidates = [&] {
    std::string text;
    for (const auto& [key, row] : read(mine).records) text += row.record.candidate + " ";
    return text + open_store({mine})->find_binary(sample_binary(1).key)->log;
  };
  ASSERT_EQ(import(theirs), "");
  EXPECT_EQ(candidates(), "mine:a=1 theirs:a=2 mine") << "a measurement before one's own prediction";
  EXPECT_FALSE(open_store({mine})->find_binary(sample_binary(1).key)->shipped);
  // An imported row gives way to a better one.
  predicted.candidate = "third:a=2";
  predicted.binary.compiler = "nvrtc 99.0";
  ASSERT_EQ(message(open_store({third})->put_record(predicted)), "");
  ASSERT_EQ(import(third), "");
  EXPECT_EQ(candidates(), "mine:a=1 third:a=2 mine");
  // A file that was copied here is nobody's own.
  std::filesystem::copy(mine, folder / "copy.db");
  auto contents = read_merged({theirs}, ReadFor::kImport);
  ASSERT_TRUE(static_cast<bool>(contents));
  ASSERT_TRUE(static_cast<bool>(import_contents({{folder / "copy.db"}}, *contents)));
  EXPECT_EQ(open_store({folder / "copy.db"})->find_binary(sample_binary(1).key)->log, "theirs");
}

TEST(CacheImport, ADateAheadIsDamage) {
  CacheFolder folder;
  Record r = sample_record(Provenance::kMeasured, "A100", 108, "580");
  Binary b = sample_binary(1);
  r.stored_at = b.stored_at = int64_t{1} << 62;
  ASSERT_EQ(message(open_store({folder / "ahead.db"})->put_record(r)), "");
  ASSERT_EQ(message(open_store({folder / "ahead.db"})->put_binary(b)), "");
  auto contents = read_merged({folder / "ahead.db"}, ReadFor::kImport);
  ASSERT_TRUE(static_cast<bool>(contents)) << message(contents.takeError());
  EXPECT_TRUE(contents->records.empty() && contents->binaries.empty());
  ASSERT_EQ(contents->damaged.size(), 2u);
  for (const std::string& line : contents->damaged)
    EXPECT_THAT(line, HasSubstr("is dated more than a day ahead of this machine's clock; correct the clock"));
  // One's own from before a clock was put right goes out with today's date.
  auto own = read_merged({folder / "ahead.db"}, ReadFor::kRun);
  ASSERT_TRUE(static_cast<bool>(own)) << message(own.takeError());
  EXPECT_EQ(own->records.size(), 1u);
}

// A row that no put would store is not taken in by way of a file, either.
TEST(CacheImport, RowsThatAPutRefusesAreDamage) {
  CacheFolder folder;
  const std::string path = folder / "bomb.db";
  {
    auto store = open_store({path});
    ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
    ASSERT_EQ(message(store->put_binary(sample_binary(2))), "");
    ASSERT_EQ(message(store->put_record(sample_record(Provenance::kMeasured, "A100", 108, "580"))), "");
  }
  Contents contents = read(path);
  BinaryRow& binary = contents.binaries.begin()->second;
  binary.packed.log = pack(std::string(static_cast<size_t>(kMostTextBytes) + 1, 'x'));  // 1 MiB in 100 bytes
  set_stored_at(binary, 1000);
  RecordRow& record = contents.records.begin()->second;
  record.evidence = pack(std::string(static_cast<size_t>(kMostTextBytes) + 1, 'x'));
  set_stored_at(record, 1000);
  ASSERT_EQ(message(write_bundle(folder / "bomb.trigen", contents, kMeta)), "");
  auto taken = read_merged({folder / "bomb.trigen"}, ReadFor::kImport);
  ASSERT_TRUE(static_cast<bool>(taken)) << message(taken.takeError());
  EXPECT_EQ(taken->binaries.size(), 1u);
  EXPECT_EQ(taken->records.size(), 0u);
  EXPECT_THAT(taken->damaged, ::testing::Each(HasSubstr("holds what does not unpack to what a cache takes")));
}

// SQLite follows a chain of overflow pages wherever it leads: rows whose chains are one page that names itself have
// the bytes that each of them claims.
TEST(CacheImport, PagesThatRowsShareAreDamage) {
  CacheFolder folder;
  constexpr size_t kPage = 4096, kCubin = 24'000;
  const std::string path = folder / "shared.trigen";
  {
    auto store = open_store({folder / "from.db"});
    for (unsigned n = 0; n < 6; ++n) ASSERT_EQ(message(store->put_binary(sample_binary(n))), "");
  }
  Contents contents = read(folder / "from.db");
  std::string bytes;
  // A size of which SQLite keeps little beside the row, so that all six rows are in page 2, the table's first.
  for (size_t size = kCubin; bytes.empty() || bytes[kPage] != 0x0d; size += 400) {
    ASSERT_LT(size, kCubin + 2 * kPage);
    for (auto& [key, row] : contents.binaries) {
      row.packed.cubin = std::string(size, 'c');
      set_stored_at(row, 1000);
    }
    bytes = image_of(contents);
  }
  const auto text = [](size_t page) {
    std::string four;
    for (int shift = 24; shift >= 0; shift -= 8) four += static_cast<char>(page >> shift);
    return four;
  };
  // The first page of a chain, which all six rows' cells lead to, and which leads to itself; what is behind it goes.
  const std::string filled(kPage - 4, 'c');
  size_t first = 2;
  while (bytes.compare((first - 1) * kPage + 4, kPage - 4, filled) != 0)
    ASSERT_LT(++first * kPage, bytes.size());
  int led = 0;
  for (size_t page = first; page <= bytes.size() / kPage; ++page)
    for (size_t at = kPage; at < (first - 1) * kPage; ++at)
      if (bytes.compare((page - 1) * kPage + 4, kPage - 4, filled) == 0 &&
          bytes.compare(at, 4, text(page)) == 0) {
        bytes.replace(at, 4, text(first));
        ++led;
      }
  ASSERT_GE(led, 6);
  bytes.resize(first * kPage);
  bytes.replace((first - 1) * kPage, 4, text(first));
  bytes.replace(28, 4, text(first));  // the header's count of pages
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  for (const auto use : {ReadFor::kImport, ReadFor::kLook}) {
    auto taken = read_contents(path, use);
    ASSERT_FALSE(taken) << "SQLite's own check finds it";
    EXPECT_THAT(message(taken.takeError()), HasSubstr("is damaged"));
  }
  auto taken = read_contents(path, ReadFor::kRun);
  ASSERT_FALSE(taken);
  EXPECT_THAT(message(taken.takeError()),
              HasSubstr("its rows have more bytes than it has, so they share pages"));
}

TEST(CacheBundle, SameInputSameBytesHoweverItWasPut) {
  CacheFolder folder;
  for (const bool forth : {true, false}) {
    auto store = open_store({folder / (forth ? "forth.db" : "back.db")});
    for (int i = 0; i < 8; ++i) {
      Binary b = sample_binary(static_cast<unsigned>(forth ? i : 7 - i), 30000);
      b.stored_at = 1000;
      ASSERT_EQ(message(store->put_binary(b)), "");
      Record r = sample_record(Provenance::kMeasured, "A100", forth ? i : 7 - i, "580");
      r.binary = b.key;
      r.stored_at = 1000;
      ASSERT_EQ(message(store->put_record(r)), "");
    }
  }
  const std::string image = image_of(read(folder / "forth.db"));
  EXPECT_EQ(image, image_of(read(folder / "back.db")));
  ASSERT_EQ(message(write_bundle(folder / "one.trigen", read(folder / "forth.db"), kMeta)), "");
  EXPECT_EQ(image, image_of(read(folder / "one.trigen")));
  EXPECT_EQ(image.size() % 4096, 0u);
}

TEST(CacheBundle, IsALayerThatIsOnlyRead) {
  CacheFolder folder;
  {
    auto store = open_store({folder / "from.db"});
    ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
    ASSERT_EQ(message(store->put_record(sample_record(Provenance::kMeasured, "A100", 108, "580"))), "");
  }
  ASSERT_EQ(message(write_bundle(folder / "core.trigen", read(folder / "from.db"), kMeta)), "");
  const std::vector<std::string> before = {folder / "core.trigen"};
  auto store = open_store({folder / "core.trigen", folder / "mine.db"});
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
  EXPECT_EQ(store->layers().at(0).problem, "");
  EXPECT_FALSE(store->layers().at(0).user_layer);
  EXPECT_TRUE(store->layers().at(1).user_layer) << "the first that is no bundle";
  ASSERT_EQ(message(store->put_binary(sample_binary(2))), "");
  EXPECT_TRUE(std::filesystem::exists(folder / "mine.db"));
  EXPECT_EQ(store.log(), "");
  for (const char* beside : {"core.trigen.lock", "core.trigen-journal", "core.trigen-wal"})
    EXPECT_FALSE(std::filesystem::exists(folder / beside)) << beside;

  auto alone = open_store({folder / "core.trigen"});
  EXPECT_THAT(message(alone->put_binary(sample_binary(3))), HasSubstr("no cache to store in"));
  EXPECT_TRUE(alone->verify().empty());

  std::filesystem::copy(folder / "core.trigen", folder / "renamed.db");
  EXPECT_THAT(open_store({folder / "x.db", folder / "renamed.db"})->layers().at(1).problem,
              HasSubstr("a bundle, whose name ends in .trigen"));
  std::filesystem::copy(folder / "from.db", folder / "renamed.trigen");
  EXPECT_THAT(open_store({folder / "renamed.trigen"})->layers().at(0).problem,
              HasSubstr("application id 0x54726747, not 0x54726742"));
}

TEST(CacheBundle, KeepsWhatRunsAndWasAskedFor) {
  CacheFolder folder;
  auto store = open_store({folder / "from.db"});
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  ASSERT_EQ(message(store->put_binary(sample_binary(9))), "") << "no record names it";
  ASSERT_EQ(message(store->put_record(sample_record(Provenance::kMeasured, "A100", 108, "580"))), "");
  Record without = sample_record(Provenance::kPredicted, "", 0, "");
  without.problem = "other";
  without.binary = sample_binary(5).key;
  ASSERT_EQ(message(store->put_record(without)), "");
  Contents contents = read(folder / "from.db");
  contents.select({"sm_80"}, {sample_record(Provenance::kMeasured, "", 0, "").problem, "other", "third"});
  std::vector<std::string> left_out;
  contents.keep_what_runs(left_out);
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("record of other on sm_80: its binary is not in the cache")));
  EXPECT_EQ(contents.binaries.size(), 1u);
  EXPECT_EQ(contents.asked.size(), 3u);
  EXPECT_STREQ(contents.answer("sm_80", sample_record(Provenance::kMeasured, "", 0, "").problem), "measured");
  EXPECT_STREQ(contents.answer("sm_80", "third"), "none");
  contents.select({"sm_90a"}, {});
  EXPECT_TRUE(contents.records.empty());
}

TEST(CacheBundle, ErrorsSayWhatIsAllowedAndLeaveNothing) {
  CacheFolder folder;
  EXPECT_THAT(message(write_bundle(folder / "x.db", {}, kMeta)), HasSubstr("end it in .trigen"));
  EXPECT_THAT(message(write_bundle(folder / "no/x.trigen", {}, kMeta)),
              HasSubstr("no such file or directory); nothing was left there; name a writable folder"));
  EXPECT_THAT(message(read_contents(folder / "none.trigen", ReadFor::kLook).takeError()),
              HasSubstr("does not exist; name"));
  EXPECT_THAT(message(import_contents({{folder / "a.trigen"}}, {}).takeError()),
              HasSubstr("bundles are never written to"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CachePaths, PrefixesAreAboveLibAndBin) {
  EXPECT_THAT(prefixes_of("/opt/venv/lib/python3.11/site-packages/trigen"), ElementsAre("/opt/venv"));
  EXPECT_THAT(prefixes_of("/usr/lib/x86_64-linux-gnu"), ElementsAre("/usr"));
  EXPECT_THAT(prefixes_of("/sw/trigen/lib64"), ElementsAre("/sw/trigen"));
  EXPECT_THAT(prefixes_of("/conda/envs/a/bin"), ElementsAre("/conda/envs/a"));
  EXPECT_THAT(prefixes_of("/lib"), ElementsAre(""));
  EXPECT_THAT(prefixes_of("/src/build"), ElementsAre());
  EXPECT_THAT(prefixes_of("/opt/lib/x/lib"), ElementsAre("/opt/lib/x", "/opt"));
}

}  // namespace
}  // namespace trigen::cache
