#include "runtime/image.h"

#include <gmock/gmock.h>

#include <random>

#include "runtime/compile.h"
#include "runtime_testing.h"
#include "templates/params.h"

namespace trigen {
namespace {

using ::testing::ElementsAre;
using trigen::testing::real_nvrtc;

// NVRTC's machine code and PTX of a candidate say the same of every launch.
TEST(Image, SaysWhatEveryLaunchOfTheOldestAndOfHopperTakes) {
  const std::pair<const char*, const char*> cases[] = {
      {"sm_70", "forward,dtype=f16,B=2,T=64,D=64"},
      {"sm_90a", "grad_weight,dtype=bf16,B=9,T=72,D=40,epilogue=bias"}};
  for (const auto& [arch, text] : cases) {
    const Target& target = *llvm::cantFail(find_target(arch));
    const Nvrtc* nvrtc = real_nvrtc(arch);
    if (nvrtc == nullptr) GTEST_SKIP() << "[SKIP] no NVRTC that makes " << arch << "; set TRIGEN_NVRTC";
    const Problem problem = llvm::cantFail(parse_problem(text));
    const Candidate candidate = llvm::cantFail(list_candidates(problem, target)).front();
    const Binary binary = llvm::cantFail(compile(candidate, *nvrtc));
    for (const Launch& launch : launch_plan_on(candidate, 132).launches) {
      SCOPED_TRACE(describe(candidate) + " " + launch.entry);
      std::vector<uint32_t> expected(1 + launch.maps.size(), 128);
      expected[0] = sizeof(Params);
      EXPECT_EQ(cubin_parameters(binary.cubin, launch.entry), expected);
      EXPECT_EQ(ptx_parameters(binary.ptx, launch.entry), expected);
      EXPECT_EQ(cubin_parameters(binary.cubin, launch.entry + "_"), std::nullopt);
      EXPECT_EQ(ptx_parameters(binary.ptx, launch.entry.substr(1)), std::nullopt);
      EXPECT_EQ(cubin_parameters(binary.ptx, launch.entry), std::nullopt);
    }
  }
}

TEST(Image, PtxOfOtherMakersIsRead) {
  const auto of = [](const char* text) {
    return ptx_parameters(text, "k").value_or(std::vector<uint32_t>{~0u});
  };
  EXPECT_THAT(of(".visible .entry kk(.param .u32 a) {}\n.entry k ( ) {}"), ElementsAre());
  EXPECT_THAT(of(".entry k(\n\t.param .u64 .ptr .global .align 16 a,\n\t.param .f32 b[3]\n)\n{"),
              ElementsAre(8, 12));
  EXPECT_THAT(of(".entry k(.param .align 64 .b8 a[128], .param .pred b){"), ElementsAre(~0u));
  EXPECT_THAT(of(".entry k(.param .b8 a[x]){"), ElementsAre(~0u));
  EXPECT_THAT(of(".entry k(.param .u64 a"), ElementsAre(~0u));
  EXPECT_THAT(of(".entry k(.param .u64 a,){"), ElementsAre(~0u));
}

// The smallest ELF with parameters of 240 and 128 bytes; then cut short everywhere, and with every byte changed.
TEST(Image, DamagedCubinsAreReadWithinTheirBounds) {
  std::string cubin(64, '\0');
  const auto put = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) cubin += static_cast<char>(i < 8 ? value >> 8 * i & 0xff : 0);
  };
  cubin.replace(0, 6, std::string("\177ELF\2\1", 6));
  const auto parameter = [&](unsigned ordinal, unsigned offset, uint32_t bytes) {
    put(0x000c1704, 4), put(0, 4), put(ordinal, 2), put(offset, 2), put(bytes << 18 | 0x1f000, 4);
  };
  parameter(1, 240, 128), parameter(0, 0, 240), put(0x1903 | 368u << 16, 4), put(0x00ff1b03, 4);
  const std::string names("\0.nv.info.k\0", 13);
  const size_t info = cubin.size() - 64;
  cubin += names;
  const size_t table = cubin.size();
  const auto section = [&](uint64_t name, uint64_t offset, uint64_t size) {
    put(name, 4), put(1, 4), put(0, 16), put(offset, 8), put(size, 8), put(0, 24);
  };
  section(0, 0, 0), section(1, 64, info), section(0, 64 + info, names.size());
  const std::string tail = cubin.substr(64);
  cubin.resize(40);
  put(table, 8), put(0, 10), put(64, 2), put(3, 2), put(2, 2);
  cubin += tail;
  ASSERT_THAT(cubin_parameters(cubin, "k").value_or(std::vector<uint32_t>{}), ElementsAre(240, 128));
  for (size_t bytes = 0; bytes < cubin.size() - 24; ++bytes) {  // what follows is of no matter here
    const std::vector<char> cut(cubin.begin(), cubin.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(cubin_parameters({cut.data(), cut.size()}, "k"), std::nullopt) << bytes;
  }
  std::mt19937 random(1);
  for (size_t at = 0; at < cubin.size(); ++at)
    for (const int value : {0, 0x7f, 0xff, static_cast<int>(random() & 0xff)}) {
      std::vector<char> changed(cubin.begin(), cubin.end());
      changed[at] = static_cast<char>(value);
      const auto sizes = cubin_parameters({changed.data(), changed.size()}, "k");
      EXPECT_TRUE(!sizes || sizes->size() <= 2);
    }
}

}  // namespace
}  // namespace trigen
