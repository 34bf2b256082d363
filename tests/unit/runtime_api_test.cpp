// libtrigen.so through its C interface, as far as it goes without a device.
#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <link.h>
#include <trigen/trigen.h>
#include <trigen/newton_schulz.hpp>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "../thorough.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;

trigen_problem empty_problem() {
  trigen_problem problem;
  std::memset(&problem, 0x5a, sizeof problem);  // what a caller's stack may hold
  problem.struct_size = sizeof problem;
  return problem;
}

trigen_problem parsed(const char* text) {
  trigen_problem problem = empty_problem();
  EXPECT_EQ(trigen_problem_parse(text, &problem), TRIGEN_OK) << trigen_last_error();
  return problem;
}

std::string text_of(const trigen_problem& problem) {
  char text[512] = {};
  EXPECT_EQ(trigen_problem_format(&problem, text, sizeof text, nullptr), TRIGEN_OK) << trigen_last_error();
  return text;
}

// The dynamic symbol table of the library, read from its file.
std::set<std::string> exported_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::set<std::string> names;
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(bytes.data());
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(bytes.data() + sections[i].sh_offset);
    const char* strings = bytes.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s)
      if (symbols[s].st_shndx != SHN_UNDEF && symbols[s].st_name != 0)
        names.insert(strings + symbols[s].st_name);
  }
  return names;
}

std::string library_path() {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(&trigen_version), &info), 0);
  return info.dli_fname;
}

TEST(Library, ExportsItsOwnNamesAlone) {
  LONG_WITH_SANITIZERS();
  const std::set<std::string> names = exported_symbols(library_path());
  const std::set<std::string> expected = {"trigen_counters",
                                          "trigen_set_log",
                                          "trigen_last_error",
                                          "trigen_plan_create",
                                          "trigen_plan_describe",
                                          "trigen_plan_destroy",
                                          "trigen_plan_run",
                                          "trigen_plan_workspace_size",
                                          "trigen_problem_fields",
                                          "trigen_problem_format",
                                          "trigen_problem_init",
                                          "trigen_problem_parse",
                                          "trigen_runtime_create",
                                          "trigen_runtime_destroy",
                                          "trigen_status_name",
                                          "trigen_version",
                                          "trigen_version_string",
                                          "trigen_cache_export",
                                          "trigen_cache_import",
                                          "trigen_cache_merge",
                                          "trigen_memory_allocate",
                                          "trigen_memory_free",
                                          "trigen_memory_read",
                                          "trigen_memory_write",
                                          "trigen_tune",
                                          "trigen_xla_call",
                                          "trigen_xla_configure",
                                          "trigen_xla_workspace_size"};
  EXPECT_EQ(names, expected);
}

// Libraries that the loader must find: the C library's own files, and nothing that a GPU machine may lack.
TEST(Library, NeedsTheCLibraryAlone) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "[SKIP] sanitizers bring libraries of their own";
#endif
  std::ifstream file(library_path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(bytes.data());
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes.data() + header->e_shoff);
  int needed = 0;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNAMIC) continue;
    const char* strings = bytes.data() + sections[sections[i].sh_link].sh_offset;
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(bytes.data() + sections[i].sh_offset);
         entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != DT_NEEDED) continue;
      ++needed;
      EXPECT_THAT(strings + entry->d_un.d_val,
                  ::testing::MatchesRegex("(libc|libm|libdl|libpthread|librt|ld-linux[-a-z0-9_]*)\\.so.*"));
    }
  }
  EXPECT_GE(needed, 1);
}

TEST(Version, LibraryAndHeaderAgree) {
  EXPECT_EQ(trigen_version(), TRIGEN_VERSION);
  EXPECT_EQ(std::string(trigen_version_string()), std::to_string(TRIGEN_VERSION_MAJOR) + "." +
                                                      std::to_string(TRIGEN_VERSION_MINOR) + "." +
                                                      std::to_string(TRIGEN_VERSION_PATCH));
}

TEST(Errors, AreTextsOfTheThread) {
  trigen_problem problem = empty_problem();
  ASSERT_EQ(trigen_problem_parse("backward,dtype=bf16", &problem), TRIGEN_BAD_REQUEST);
  const std::string here = trigen_last_error();
  EXPECT_THAT(here, HasSubstr("backward"));
  std::string there = "unset";
  std::thread([&] { there = trigen_last_error(); }).join();
  EXPECT_EQ(there, "");
  EXPECT_EQ(trigen_last_error(), here);
}

TEST(Errors, EveryStatusHasAName) {
  EXPECT_THAT(trigen_status_name(TRIGEN_OK), StrEq("ok"));
  EXPECT_THAT(trigen_status_name(TRIGEN_CACHE_ERROR), StrEq("cache error"));
  EXPECT_THAT(trigen_status_name(TRIGEN_NO_COMPILER), StrEq("no compiler"));
  EXPECT_THAT(trigen_status_name(static_cast<trigen_status>(99)), StrEq("unknown status"));
}

TEST(Problem, TextAndStructureAgree) {
  for (const char* text :
       {"forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0",
        "grad_weight,dtype=f32,B=8,H=1,T=2048,D=1024,K=1,pad=0,math=tf32,epilogue=bias+accumulate",
        "forward,dtype=f16,B=16,H=4,T=257,D=256,K=4,pad=1,layout=bdt,fill=upper,diag=2,wdtype=f32,epilogue="
        "bias+gelu"})
    EXPECT_EQ(text_of(parsed(text)), text);
  trigen_problem made = empty_problem();
  ASSERT_EQ(trigen_problem_init(&made, TRIGEN_FORWARD, TRIGEN_F32, 2, 48, 40), TRIGEN_OK)
      << trigen_last_error();
  EXPECT_EQ(text_of(made), text_of(parsed("forward,dtype=f32,B=2,T=48,D=40")));
}

// A default that depends on another field follows when that one is changed later, as in the text.
TEST(Problem, PaddingFollowsTheTapsUntilItIsGiven) {
  trigen_problem problem = empty_problem();
  ASSERT_EQ(trigen_problem_init(&problem, TRIGEN_FORWARD, TRIGEN_BF16, 2, 48, 40), TRIGEN_OK);
  EXPECT_EQ(problem.pad, TRIGEN_PAD_SAME);
  problem.K = 4;
  EXPECT_EQ(text_of(problem), text_of(parsed("forward,dtype=bf16,B=2,T=48,D=40,K=4")));
  EXPECT_THAT(text_of(problem), HasSubstr("K=4,pad=1"));
  problem.pad = 0;
  EXPECT_THAT(text_of(problem), HasSubstr("K=4,pad=0"));
  EXPECT_EQ(parsed("forward,dtype=bf16,B=2,T=48,D=40,K=4").pad, 1) << "parsed: the value itself";
}

// A caller of an older header has a shorter structure: nothing is written to it.
TEST(Problem, AStructureOfAnotherVersionIsRefusedUntouched) {
  for (const size_t size : {size_t{0}, sizeof(trigen_problem) - 8, sizeof(trigen_problem) + 8}) {
    alignas(trigen_problem) unsigned char bytes[sizeof(trigen_problem) + 8], before[sizeof bytes];
    std::memset(bytes, 0x5a, sizeof bytes);
    std::memcpy(bytes, &size, sizeof size);
    std::memcpy(before, bytes, sizeof bytes);
    auto* problem = reinterpret_cast<trigen_problem*>(bytes);
    EXPECT_EQ(trigen_problem_parse("forward,dtype=bf16,B=2,T=48,D=40", problem), TRIGEN_BAD_REQUEST);
    EXPECT_THAT(trigen_last_error(), AllOf(HasSubstr("struct_size " + std::to_string(size)),
                                           HasSubstr("set it to sizeof(trigen_problem)")));
    EXPECT_EQ(trigen_problem_init(problem, TRIGEN_FORWARD, TRIGEN_BF16, 2, 48, 40), TRIGEN_BAD_REQUEST);
    EXPECT_THAT(trigen_last_error(), HasSubstr("struct_size " + std::to_string(size)));
    EXPECT_EQ(std::memcmp(before, bytes, sizeof bytes), 0);
  }
}

TEST(Problem, ItsFieldsAreDescribedForOtherLanguages) {
  const std::string text = trigen_problem_fields();
  EXPECT_THAT(text, testing::StartsWith("{\"struct_size\":" + std::to_string(sizeof(trigen_problem))));
  EXPECT_THAT(
      text,
      AllOf(
          HasSubstr(R"({"name":"dtype","bytes":4,"offset":12,"place":"key","values":["f16","bf16","f32"]})"),
          HasSubstr(R"({"name":"pad","bytes":8,"offset":)" + std::to_string(offsetof(trigen_problem, pad)) +
                    R"(,"place":"key","values":[]})"),
          HasSubstr(R"("name":"zero_outside","bytes":4)")));
}

TEST(Problem, FormatSaysHowMuchItNeedsAndNeverWritesBeyond) {
  const trigen_problem problem = parsed("forward,dtype=bf16,B=32,T=512,D=1024");
  size_t needed = 0;
  ASSERT_EQ(trigen_problem_format(&problem, nullptr, 0, &needed), TRIGEN_OK);
  EXPECT_EQ(needed, text_of(problem).size() + 1);
  char small[9] = "xxxxxxxx";
  ASSERT_EQ(trigen_problem_format(&problem, small, 8, nullptr), TRIGEN_OK);
  EXPECT_STREQ(small, "forward");
  EXPECT_EQ(trigen_problem_format(&problem, nullptr, 8, nullptr), TRIGEN_BAD_REQUEST);
}

TEST(Problem, WrongFieldsAreRefusedByName) {
  trigen_problem problem = parsed("forward,dtype=bf16,B=32,T=512,D=1024");
  const auto refused = [&](trigen_problem changed, const char* text) {
    char buffer[64];
    EXPECT_EQ(trigen_problem_format(&changed, buffer, sizeof buffer, nullptr), TRIGEN_BAD_REQUEST) << text;
    EXPECT_THAT(trigen_last_error(), HasSubstr(text));
  };
  trigen_problem changed = problem;
  changed.T = 0;
  refused(changed, "T=0");
  changed = problem;
  changed.B = -1;
  refused(changed, "B=-1");
  changed = problem;
  changed.B = INT64_MAX;
  refused(changed, "B=");
  changed = problem;
  changed.dtype = 7;
  refused(changed, "trigen_problem.dtype is 7; allowed are TRIGEN_F16, TRIGEN_BF16 and TRIGEN_F32");
  changed = problem;
  changed.op = -1;
  refused(changed, "trigen_problem.op is -1");
  changed = problem;
  changed.align = 3;
  refused(changed, "align=3");
  changed = problem;
  changed.struct_size = 12;
  refused(changed, "struct_size 12");
  EXPECT_EQ(trigen_problem_format(nullptr, nullptr, 0, nullptr), TRIGEN_BAD_REQUEST);
  EXPECT_EQ(trigen_problem_parse(nullptr, &problem), TRIGEN_BAD_REQUEST);
  EXPECT_EQ(trigen_problem_parse("forward", nullptr), TRIGEN_BAD_REQUEST);
}

TEST(Runtime, WrongOptionsAreRefusedByName) {
  trigen_runtime* runtime = nullptr;
  trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
  options.miss = 9;
  EXPECT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(), HasSubstr("miss is 9"));
  EXPECT_EQ(runtime, nullptr);
  options = TRIGEN_RUNTIME_OPTIONS_INIT;
  options.target = "sm_71";
  EXPECT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(), AllOf(HasSubstr("sm_71"), HasSubstr("sm_70")));
  options = TRIGEN_RUNTIME_OPTIONS_INIT;
  options.struct_size = 1;
  EXPECT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_BAD_REQUEST);
  options = TRIGEN_RUNTIME_OPTIONS_INIT;
  const char* layers[] = {nullptr};
  options.layers = layers;
  options.layer_count = 1;
  EXPECT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(), HasSubstr("layers[0] is null"));
  EXPECT_EQ(trigen_runtime_create(nullptr, nullptr), TRIGEN_BAD_REQUEST);
  trigen_runtime_destroy(nullptr);
}

TEST(Plan, WithoutADriverTheReasonIsSaid) {
  trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
  options.driver = "/nowhere/libcuda.so.1";
  trigen_runtime* runtime = nullptr;
  ASSERT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_OK);
  const trigen_problem problem = parsed("forward,dtype=bf16,B=32,T=512,D=1024");
  trigen_plan* plan = nullptr;
  EXPECT_EQ(trigen_plan_create(runtime, &problem, 0, &plan), TRIGEN_DEVICE_ERROR);
  EXPECT_EQ(plan, nullptr);
  EXPECT_THAT(trigen_last_error(), HasSubstr("/nowhere/libcuda.so.1"));
  trigen_problem wrong = problem;
  wrong.T = 0;
  EXPECT_EQ(trigen_plan_create(runtime, &wrong, 0, &plan), TRIGEN_BAD_REQUEST)
      << "the problem is looked at first";
  EXPECT_EQ(trigen_plan_create(nullptr, &problem, 0, &plan), TRIGEN_BAD_REQUEST);
  EXPECT_EQ(trigen_plan_run(nullptr, nullptr, nullptr), TRIGEN_BAD_REQUEST);
  EXPECT_EQ(trigen_plan_workspace_size(nullptr), 0u);
  EXPECT_EQ(trigen_plan_describe(nullptr, nullptr), TRIGEN_BAD_REQUEST);
  trigen_plan_destroy(nullptr);
  trigen_runtime_destroy(runtime);
}

TEST(NewtonSchulz, RefusesInWords) {
  trigen::Options options;
  options.layers = {"none"}, options.driver = "/nowhere/libcuda.so.1";
  const trigen::Runtime runtime(options);
  const auto refusal = [&](int64_t count, int64_t rows,
                           std::vector<trigen::NewtonSchulzStep> steps) -> std::string {
    trigen::NewtonSchulzOptions given;
    given.count = count, given.rows = rows, given.columns = 64, given.steps = std::move(steps);
    try {
      const trigen::NewtonSchulz made(runtime, given);
    } catch (const trigen::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(2, 0, {trigen::kJordan}),
            "count, rows, columns and the number of steps are 2, 0, 64 and 1; allowed: 1 or more of each");
  EXPECT_THAT(refusal(1, 8, {}), HasSubstr("64 and 0; allowed: 1 or more of each"));
  EXPECT_EQ(refusal(1, 8, {{1.5f, -0.5f, 0}}),
            "c of a step is 0; allowed: any other number, such as kJordan's");
  EXPECT_THAT(refusal(1, 8, {trigen::kJordan}), HasSubstr("/nowhere/libcuda.so.1"));  // the plans' own
}

}  // namespace
