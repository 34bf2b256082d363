// How much a canary sees: of the faults that give wrong results somewhere, planted one at a time, nearly all.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>

#include "../thorough.h"
#include "mutations.h"

namespace trigen::mutations {
namespace {

// Mutants of a quick run, of all subjects together.
constexpr size_t kQuick = 60;

Subject subject(const char* name, const char* choice, const char* problem) {
  Subject out;
  out.name = name;
  out.target = "sm_70";
  out.choice = choice;
  out.problem = problem;
  out.runs.push_back({0, problem});
  out.values = 1;
  return out;
}

const Subject kSubjects[] = {
    subject("forward", "mma_sm70", "forward,dtype=f16,B=1,T=160,D=64"),
    subject("grad_input", "mma_sm70", "grad_input,dtype=f16,B=3,T=100,D=40"),
    subject("grad_weight", "mma_sm70", "grad_weight,dtype=f16,B=3,T=100,D=40"),
};

// A GPU says nothing of races and of memory that nobody wrote: values alone count, of one order of the blocks.
void configure(const Device& device, const char* options) {
  void* handle = ::dlopen(device.driver().path().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  reinterpret_cast<int (*)(const char*)>(::dlsym(handle, "trigen_emulator_configure"))(options);
  ::dlclose(handle);
}

// A read astray that no result follows from: a GPU says nothing of it either.
bool is_read_astray(const Listing& listing, const Verdict& verdict) {
  static const std::regex fault("^(out of bounds access|use after free) at line (\\d+).*");
  std::smatch match;
  return std::regex_match(verdict.found, match, fault) &&
         listing.lines[std::stoul(match[2]) - 1].text.find("ld.") != std::string::npos;
}

TEST(CanaryMutation, NearlyAllFaultsAreSeen) {
  auto device = Device::open("emulated:sm_70");
  ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
  configure(**device, "checks=none threads=1");
  int wrong = 0, caught = 0;
  for (const Subject& subject : kSubjects) {
    auto patient = Patient::create(subject, **device);
    if (!patient) {
      const ErrorText error = take_error(patient.takeError());
      if (error.kind == ErrorKind::kNoCompiler) GTEST_SKIP() << error.message;
      FAIL() << error.message;
    }
    std::vector<Mutant> mutants;
    for (Mutant& mutant : find_mutants((*patient)->listing()))
      if (mutant.kind != "sync")
        mutants.push_back(std::move(mutant));  // what these do is up to the order of threads
    const size_t every = thorough() ? 1 : std::max<size_t>(1, mutants.size() * std::size(kSubjects) / kQuick);
    int right = 0, astray = 0;
    for (size_t i = 0; i < mutants.size(); i += every) {
      const Verdict verdict = (*patient)->judge(mutants[i]);
      if (verdict.kind == Verdict::kRefused) continue;
      auto report = (*patient)->canary(mutants[i]);
      ASSERT_TRUE(static_cast<bool>(report)) << llvm::toString(report.takeError());
      const bool seen = report->result == CanaryResult::kWrong;
      if (is_read_astray((*patient)->listing(), verdict)) {
        ++astray;
        continue;
      }
      if (verdict.kind != Verdict::kKilled) {
        ++right;
        EXPECT_FALSE(seen) << mutants[i].name() << " gives right results: " << report->text;
        continue;
      }
      ++wrong;
      caught += seen ? 1 : 0;
      if (!seen)
        std::printf("%s: not seen: %s line %zu: %s\n", subject.name.c_str(), mutants[i].name().c_str(),
                    mutants[i].edits[0].line + 1, verdict.found.substr(0, 160).c_str());
    }
    std::printf("%s: %zu mutants, %d right, %d read astray\n", subject.name.c_str(), mutants.size(), right,
                astray);
  }
  std::printf("%d of %d wrong mutants are seen\n", caught, wrong);
  EXPECT_GE(wrong, 20);
  EXPECT_GE(caught, 0.99 * wrong);
}

}  // namespace
}  // namespace trigen::mutations
