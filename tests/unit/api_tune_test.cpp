// The C functions beside trigen.h: what they refuse, and in which words. examples/ship.c and examples/forward.c
// show that they work (unit.package).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <trigen/trigen_memory.h>
#include <trigen/trigen_tune.h>
#include <trigen/trigen_xla.h>

#include "cache/store.h"

namespace {

using ::testing::HasSubstr;

struct ApiTune : ::testing::Test {
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string layer = std::string(folder) + "/cache.db";
    const char* layers[] = {layer.c_str()};
    trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
    options.layers = layers;
    options.layer_count = 1;
    options.driver = "/no/driver/here.so";
    ASSERT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_OK);
  }
  void TearDown() override {
    trigen_runtime_destroy(runtime);
    std::filesystem::remove_all(folder);
  }
  void refused(trigen_status found, trigen_status wanted, const std::string& text) {
    EXPECT_EQ(found, wanted) << text;
    EXPECT_THAT(trigen_last_error(), HasSubstr(text));
  }

  char folder[32] = "/tmp/trigen-api-XXXXXX";
  trigen_runtime* runtime = nullptr;
};

TEST_F(ApiTune, TuneNamesWhatIsWrong) {
  const char* good[] = {"forward,dtype=f32,B=1,T=8,D=8"};
  const char* bad[] = {"forward,dtype=f61,B=1,T=8,D=8"};
  const char* null[] = {nullptr};
  trigen_tune_options options = TRIGEN_TUNE_OPTIONS_INIT;
  const auto tune = [&](const char* const* problems, size_t count) {
    return trigen_tune(runtime, problems, count, &options, nullptr, nullptr);
  };
  options.predict = 1;
  refused(trigen_tune(nullptr, good, 1, &options, nullptr, nullptr), TRIGEN_BAD_REQUEST, "runtime is null");
  refused(tune(good, 1), TRIGEN_BAD_REQUEST, "has predict and no target; name one");
  options.target = "sm_71";
  refused(tune(good, 1), TRIGEN_BAD_REQUEST, "sm_71");
  options.target = "sm_70";
  refused(tune(nullptr, 1), TRIGEN_BAD_REQUEST, "problems are none; allowed: at least one");
  refused(tune(null, 1), TRIGEN_BAD_REQUEST, "problems[0] is null");
  refused(tune(bad, 1), TRIGEN_BAD_REQUEST, "f61");
  options.predict = 0;
  refused(tune(good, 1), TRIGEN_DEVICE_ERROR, "/no/driver/here.so");
  options.struct_size = 8;
  refused(tune(good, 1), TRIGEN_BAD_REQUEST, "TRIGEN_TUNE_OPTIONS_INIT");
}

TEST_F(ApiTune, NothingIsWrittenWhereSomethingLacks) {
  const std::string bundle = std::string(folder) + "/out.trigen", missing = std::string(folder) + "/none.db";
  const char* problems[] = {"forward,dtype=f32,B=1,T=8,D=8"};
  const char* targets[] = {"sm_70"};
  const char* files[] = {missing.c_str()};
  refused(trigen_cache_export(runtime, bundle.c_str(), nullptr, 0, nullptr, 0), TRIGEN_CACHE_ERROR,
          "no record to export, and wrote nothing");
  refused(trigen_cache_export(runtime, bundle.c_str(), targets, 1, problems, 1), TRIGEN_CACHE_ERROR,
          "no record of forward,dtype=f32,B=1,H=1,T=8,D=8,K=1,pad=0 for sm_70, and wrote nothing");
  refused(trigen_cache_import(runtime, files, 1), TRIGEN_CACHE_ERROR, missing);
  refused(trigen_cache_merge(bundle.c_str(), files, 1), TRIGEN_CACHE_ERROR, missing);
  EXPECT_FALSE(std::filesystem::exists(bundle));
}

TEST_F(ApiTune, ImportTakesWhatTheCommandTakes) {
  const std::string file = std::string(folder) + "/evil.db", layer = std::string(folder) + "/cache.db";
  {
    trigen::Store::Options options;
    options.layers = {file};
    trigen::Record record;
    record.problem = "forward,dtype=f32,B=1,H=1,T=8,D=8,K=1,pad=0";
    record.arch = "sm_70";
    record.candidate = "simt:tile=1";
    ASSERT_FALSE(trigen::Store::open(options)->put_record(record));
  }
  const char* files[] = {file.c_str()};
  const std::string bundle = std::string(folder) + "/out.trigen";
  setenv("TRIGEN_TRUSTED_KEYS", "RWSei/qHLhK/MtUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/TWyWHvBC", 1);
  refused(trigen_cache_import(runtime, files, 1), TRIGEN_CACHE_ERROR,
          "TRIGEN_TRUSTED_KEYS or trusted_keys asks for signatures");
  refused(trigen_cache_merge(bundle.c_str(), files, 1), TRIGEN_CACHE_ERROR,
          "TRIGEN_TRUSTED_KEYS or trusted_keys asks for signatures");
  unsetenv("TRIGEN_TRUSTED_KEYS");
  EXPECT_FALSE(std::filesystem::exists(layer));

  trigen_runtime* reader = nullptr;
  const char* layers[] = {layer.c_str()};
  trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
  options.layers = layers;
  options.layer_count = 1;
  options.read_only = 1;
  ASSERT_EQ(trigen_runtime_create(&options, &reader), TRIGEN_OK);
  refused(trigen_cache_import(reader, files, 1), TRIGEN_BAD_REQUEST, "the runtime was made with read_only");
  trigen_runtime_destroy(reader);
  EXPECT_FALSE(std::filesystem::exists(layer));
  // The keys as an option come before the variable, an empty list too.
  for (const char* keys : {"RWSei/qHLhK/MtUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/TWyWHvBC", ""}) {
    options.read_only = 0;
    options.trusted_keys = keys;
    ASSERT_EQ(trigen_runtime_create(&options, &reader), TRIGEN_OK);
    refused(trigen_cache_import(reader, files, 1), TRIGEN_CACHE_ERROR, *keys ? "signatures" : "names no key");
    trigen_runtime_destroy(reader);
  }
  EXPECT_FALSE(std::filesystem::exists(layer));
  EXPECT_EQ(trigen_cache_import(runtime, files, 1), TRIGEN_OK) << trigen_last_error();
  EXPECT_TRUE(std::filesystem::exists(layer));
}

TEST_F(ApiTune, MemoryWithoutADeviceSaysWhy) {
  void* pointer = this;
  EXPECT_EQ(trigen_memory_allocate(runtime, 0, 0, &pointer), TRIGEN_OK);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(trigen_memory_free(runtime, 0, nullptr), TRIGEN_OK);
  refused(trigen_memory_allocate(runtime, 0, 16, nullptr), TRIGEN_BAD_REQUEST, "pointer is null");
  refused(trigen_memory_allocate(runtime, 0, 16, &pointer), TRIGEN_DEVICE_ERROR, "/no/driver/here.so");
  refused(trigen_memory_write(runtime, 0, nullptr, folder, 1), TRIGEN_BAD_REQUEST, "to or from is null");
  refused(trigen_memory_read(nullptr, 0, folder, folder, 1), TRIGEN_BAD_REQUEST, "runtime is null");
}

TEST(ApiXla, AWorkspaceIsAskedForByProblem) {
  size_t bytes = 0;
  EXPECT_EQ(trigen_xla_workspace_size(nullptr, 0, &bytes), TRIGEN_BAD_REQUEST);
  EXPECT_EQ(trigen_xla_workspace_size("decode,dtype=f16,B=1,T=8,D=8", 0, &bytes), TRIGEN_UNSUPPORTED);
  EXPECT_EQ(trigen_xla_workspace_size("grad_epilogue,dtype=f16,B=1,T=8,D=8,epilogue=gelu", 0, &bytes),
            TRIGEN_UNSUPPORTED);
  EXPECT_THAT(trigen_last_error(), HasSubstr("allowed: forward, grad_input and grad_weight"));
  EXPECT_EQ(trigen_xla_workspace_size("forward,dtype=f61", 0, &bytes), TRIGEN_BAD_REQUEST);
}

}  // namespace
