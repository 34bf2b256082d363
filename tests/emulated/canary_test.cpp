// The canary on the emulated device: right kernels of another machine pass it once, wrong ones never run for a
// user, however their rows' digests fit.
#include "runtime/canary.h"

#include <gmock/gmock.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "../thorough.h"
#include "bench/driver_calls.h"
#include "generator/random_problem.h"
#include "measured_record.h"
#include "runtime/compile.h"
#include "test_driver.h"
#include "tests/unit/runtime_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using testing::CacheFolder;
using ::testing::HasSubstr;
using testing::message;
using testing::Variable;

const Device* find_device() {
  const Driver* driver = testing::load_test_driver("sm_70");
  if (driver == nullptr) return nullptr;
  DriverCalls::watch(*driver);
  return llvm::cantFail(Device::open(*driver, 0));
}

class CanaryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = find_device();
    if (device_ == nullptr) GTEST_SKIP() << "[SKIP] no such device";
    if (testing::real_nvrtc() == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_70; set TRIGEN_NVRTC";
  }

  // Compiled once for all tests of the program.
  static Binary compiled(const Candidate& candidate, Code code = Code::kCubinAndPtx) {
    static CacheFolder* const folder = new CacheFolder;  // the process's
    static auto store = testing::open_store({*folder / "compiled.db"});
    BuildOptions options;
    options.code = code;  // by default as plans make them
    Binary binary = llvm::cantFail(build(candidate, *store.store, options)).binary;
    binary.digest.clear();
    return binary;
  }
  Candidate first(const std::string& text) const {
    const Problem problem = llvm::cantFail(parse_problem(text));
    return llvm::cantFail(list_candidates(problem, device_->target())).front();
  }

  // Another problem's kernel with the candidate's config.
  Candidate like(const Candidate& candidate, const char* text) const {
    return llvm::cantFail(make_candidate(llvm::cantFail(parse_problem(text)), *candidate.target,
                                         *candidate.family, candidate.config));
  }

  // A layer of another machine with this kernel for the candidate, and a record that chooses it.
  void ship(const Candidate& candidate, Binary binary, const Binary& code) const {
    binary.ptx = code.ptx;
    binary.cubin = code.cubin;
    testing::ship(shipped_, candidate, binary, *device_);
  }
  void ship(const Candidate& candidate, const Binary& code) const {
    ship(candidate, compiled(candidate), code);
  }

  struct Made {
    std::shared_ptr<const Plan> plan;
    std::string error, said;
    CanaryCounts counts;  // of this plan alone
  };
  Made make(const Candidate& candidate, Store& store, const PlanOptions& options = {}) const {
    const CanaryCounts before = canary_counts();
    ::testing::internal::CaptureStderr();
    auto plan = Plan::create(candidate.problem, *device_, store, options);
    Made made;
    made.said = ::testing::internal::GetCapturedStderr();
    const CanaryCounts after = canary_counts();
    made.counts = {after.right - before.right, after.wrong - before.wrong, after.skipped - before.skipped};
    if (plan)
      made.plan = std::move(*plan);
    else
      made.error = take_error(plan.takeError()).message;
    return made;
  }
  Made make(const Candidate& candidate, const PlanOptions& options = {}) const {
    auto store = testing::open_store({user_, shipped_});
    return make(candidate, *store.store, options);
  }

  // The same kernel whose threads do something else first.
  static Binary beginning(Binary binary, const std::string& with) {
    for (size_t at = 0; (at = binary.ptx.find(".entry", at)) != std::string::npos; ++at) {
      const size_t body = binary.ptx.find("{", binary.ptx.find(")", at));
      binary.ptx.insert(body + 1, "\n" + with + "\n");
    }
    return binary;
  }
  // Whose threads leave at once.
  static Binary empty(Binary binary) { return beginning(std::move(binary), "ret;"); }

  const Device* device_ = nullptr;
  CacheFolder folder_;
  std::string user_ = folder_ / "user.db", shipped_ = folder_ / "shipped.db";
};

constexpr const char* kForward = "forward,dtype=f32,B=5,T=40,D=24";

TEST_F(CanaryTest, ARightKernelRunsOnceForADevice) {
  const Candidate candidate = first(kForward);
  ship(candidate, compiled(candidate));
  auto store = testing::open_store({user_, shipped_});
  Made made = make(candidate, *store.store);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.counts.right, 1);
  EXPECT_EQ(made.said, "");
  EXPECT_EQ(made.plan->resolution().match, Match::kExact);
  EXPECT_EQ(make(candidate, *store.store).counts.right, 0) << "known to the store";
  EXPECT_EQ(make(candidate).counts.right, 0) << "and to the next one: the user layer has it";
  // Another driver is another matter; so is a store that cannot keep it.
  auto read_only = testing::open_store({folder_ / "nowhere.db", shipped_}, 5000, /*read_only=*/true);
  EXPECT_EQ(make(candidate, *read_only.store).counts.right, 1);
  EXPECT_EQ(make(candidate, *read_only.store).counts.right, 0);
  // The maker's own layer is this machine's: what it compiled is not from elsewhere.
  auto own = testing::open_store({shipped_});
  EXPECT_EQ(make(candidate, *own.store).counts.right, 0);
}

// Each copy to the host's memory and each allocation waits for the device.
TEST_F(CanaryTest, TheDriverIsAskedForLittle) {
  const Candidate candidate = first(kForward);
  ship(candidate, compiled(candidate));
  llvm::cantFail(device_->context());
  DriverCalls::clear();
  EXPECT_EQ(make(candidate).counts.right, 1);
  // Two runs, of 2 and of 5 batches.
  EXPECT_EQ(DriverCalls::calls("cuMemcpyHtoDAsync"), 2) << "all tensors together";
  EXPECT_EQ(DriverCalls::calls("cuMemcpyDtoHAsync"), 2) << "and back";
  EXPECT_EQ(DriverCalls::calls("cuMemcpyDtoH") + DriverCalls::calls("cuMemcpyHtoD"), 0);
  EXPECT_EQ(DriverCalls::calls("cuMemcpyDtoDAsync") + DriverCalls::calls("cuMemsetD8Async"), 0);
  EXPECT_EQ(DriverCalls::calls("cuMemAlloc"), 1);
  EXPECT_EQ(DriverCalls::calls("cuStreamCreate"), 1);
  EXPECT_LE(DriverCalls::calls("cuStreamSynchronize"), 5);
  DriverCalls::clear();
  ASSERT_NE(make(candidate).plan, nullptr);  // a plan whose canary ran before
  EXPECT_EQ(DriverCalls::calls("cuMemAlloc") + DriverCalls::calls("cuStreamCreate"), 0);
  EXPECT_EQ(DriverCalls::calls("cuDeviceGetAttribute") + DriverCalls::calls("cuStreamSynchronize"), 0);
}

TEST_F(CanaryTest, OnlyTheModelAsksForTheClocks) {
  // The device is opened once in a process: what another test asked of it does not count.
  DriverCalls::clear();
  EXPECT_GT(device_->info_with_clocks().clock_hz, 0);
  const int64_t first = DriverCalls::calls("cuDeviceGetAttribute");
  EXPECT_TRUE(first == 2 || first == 0) << first;
  EXPECT_GT(device_->info_with_clocks().memory_clock_hz, 0);
  EXPECT_EQ(DriverCalls::calls("cuDeviceGetAttribute"), first) << "once";
  EXPECT_EQ(device_->info().clock_hz, 0);
}

TEST_F(CanaryTest, ACopiedCacheIsFromAnotherMachine) {
  const Candidate candidate = first(kForward);
  ship(candidate, compiled(candidate));
  std::filesystem::copy_file(shipped_, user_);
  EXPECT_EQ(make(candidate, *testing::open_store({user_}).store).counts.right, 1);
  EXPECT_EQ(make(candidate, *testing::open_store({user_}).store).counts.right, 0) << "it is at home now";
}

TEST_F(CanaryTest, AWrongKernelIsQuarantinedAndMadeAnew) {
  const Candidate candidate = first(kForward),
                  other = like(candidate, "forward,dtype=f32,B=5,T=40,D=24,fill=upper");
  ship(candidate, compiled(other));
  Made made = make(candidate);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.counts.wrong, 1);
  EXPECT_EQ(made.counts.right, 0);
  EXPECT_EQ(made.plan->resolution().origin, BinaryOrigin::kCompiled);
  EXPECT_THAT(made.said, AllOf(HasSubstr("wrong: kernel " + describe(candidate)),
                               HasSubstr("of cache '" + shipped_ + "' fails its canary on "),
                               HasSubstr(" of 1920 outputs are wrong with B=2: y["),
                               HasSubstr("trigen cache quarantine")));
  EXPECT_EQ(std::count(made.said.begin(), made.said.end(), '\n'), 1);
  // The kernel that was compiled here runs now; nothing is said or run again.
  made = make(candidate);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.counts.wrong + made.counts.right, 0);
  EXPECT_EQ(made.said, "");
  EXPECT_EQ(made.plan->resolution().origin, BinaryOrigin::kCache);
  EXPECT_EQ(run_canary(*made.plan).result, CanaryResult::kRight);
  auto store = testing::open_store({user_, shipped_});
  const auto findings = store->list_findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].value, 0);
  EXPECT_THAT(findings[0].text, AllOf(HasSubstr(to_string(candidate.problem)), HasSubstr(shipped_)));
}

// A label that no compiler here can refute.
TEST_F(CanaryTest, AKernelOfAnUnknownCompilerGoesBehindOnesOwn) {
  const Candidate candidate = first(kForward);
  for (const char* label : {"nvrtc 99.9.99", "clang 17"}) {
    Binary binary = compiled(candidate);
    binary.key.compiler = label;
    ship(candidate, binary, compiled(candidate));
    Made made = make(candidate);
    ASSERT_NE(made.plan, nullptr) << made.error;
    EXPECT_EQ(made.plan->resolution().origin, BinaryOrigin::kCompiled) << label;
    EXPECT_EQ(made.plan->resolution().binary.key.compiler, compiled(candidate).key.compiler);
    EXPECT_THAT(made.plan->resolution().difference, HasSubstr(label));
    Executable::forget(made.plan->resolution().binary.key);
    std::filesystem::remove(user_);
    // Without a compiler it serves, after its canary.
    PlanOptions options;
    options.no_jit = true;
    made = make(candidate, options);
    ASSERT_NE(made.plan, nullptr) << made.error;
    EXPECT_EQ(made.plan->resolution().binary.key.compiler, label);
    EXPECT_EQ(made.counts.right, 1);
    std::filesystem::remove(user_);
    std::filesystem::remove(shipped_);
  }
}

TEST_F(CanaryTest, WithoutACompilerTheNextChoiceIsTaken) {
  const Candidate candidate = first(kForward);
  const Candidate generic = llvm::cantFail(generic_candidate(candidate.problem, device_->target()));
  ship(candidate, empty(compiled(candidate)));
  PlanOptions options;
  options.no_jit = true;
  auto store = testing::open_store({folder_ / "nowhere.db", shipped_}, 5000, /*read_only=*/true);
  Made made = make(candidate, *store.store, options);
  EXPECT_EQ(made.plan, nullptr);
  EXPECT_EQ(made.counts.wrong, 1);
  EXPECT_THAT(made.error, HasSubstr("compiling is forbidden"));
  EXPECT_THAT(made.said, HasSubstr(" is nan or was never written, expected "));
  EXPECT_THAT(made.said, HasSubstr("in quarantine for this process"));
  // A generic kernel in the same layer serves, after a canary of its own.
  {
    auto maker = testing::open_store({shipped_});
    ASSERT_EQ(message(maker->put_binary(compiled(generic))), "");
  }
  made = make(candidate, options);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_TRUE(made.plan->resolution().candidate.generic);
  EXPECT_EQ(made.counts.wrong, 1);
  EXPECT_EQ(made.counts.right, 1);
}

// A kernel of this machine that no tune has checked.
TEST_F(CanaryTest, WhatWasCompiledHereRunsOnceToo) {
  const Candidate candidate = first(kForward);
  EXPECT_EQ(make(candidate).counts.right, 0) << "not on an emulated device, unless asked for";
  PlanOptions options;
  options.canary_emulated = true;
  Made made;
  {
    auto store = testing::open_store({user_});
    made = make(candidate, *store.store, options);
    ASSERT_NE(made.plan, nullptr) << made.error;
    EXPECT_EQ(made.counts.right, 1);
    EXPECT_EQ(make(candidate, *store.store, options).counts.right, 0) << "known to the store";
  }
  made = make(candidate, *testing::open_store({user_}).store, options);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.plan->resolution().origin, BinaryOrigin::kCache);
  EXPECT_EQ(made.counts.right, 0) << "and to the next one";
  // Without a cache each process runs its own.
  EXPECT_EQ(make(candidate, *testing::open_store({"none"}).store, options).counts.right, 1);
  {
    const Variable on("TRIGEN_CANARY", "1");
    EXPECT_TRUE(plan_options_from_environment().canary_emulated);
  }
}

TEST_F(CanaryTest, WhatATuneCheckedHereDoesNot) {
  const Candidate candidate = first(kForward);
  testing::ship(user_, candidate, compiled(candidate), *device_);
  PlanOptions options;
  options.canary_emulated = true;
  const Made made = make(candidate, *testing::open_store({user_}).store, options);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.plan->resolution().match, Match::kExact);
  EXPECT_EQ(made.counts.right + made.counts.wrong + made.counts.skipped, 0);
}

// The compiler makes the same wrong kernel again: another family's takes its place, at last a kernel for all sizes.
TEST_F(CanaryTest, AFamilyThatIsWrongHereIsPassedOver) {
  const Candidate candidate = first("forward,dtype=f16,B=3,T=48,D=16");
  PlanOptions options;
  options.canary_emulated = true;
  auto store = testing::open_store({user_});
  Binary wrong = empty(compiled(candidate));
  wrong.key = compiled(candidate).key;
  ASSERT_EQ(message(store.store->put_binary(wrong)), "");
  Made made = make(candidate, *store.store, options);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.counts.wrong, 1);
  EXPECT_EQ(made.counts.right, 1);
  const Candidate second = made.plan->resolution().candidate;
  EXPECT_NE(second.family, candidate.family);
  EXPECT_THAT(made.said, AllOf(HasSubstr("wrong: kernel " + describe(candidate)),
                               HasSubstr("compiled on this machine, fails"), HasSubstr("please report it")));
  EXPECT_EQ(std::count(made.said.begin(), made.said.end(), '\n'), 1);
  const auto condemn = [&](const Candidate& bad) {
    cache::Finding finding;
    finding.kind = cache::FindingKind::kCanary;
    finding.name = compiled(bad).key.digest();
    finding.device = device_->info().name;
    finding.driver = device_->info().driver;
    ASSERT_EQ(message(store.store->put_finding(finding)), "");
  };
  condemn(second);
  made = make(candidate, *store.store, options);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_TRUE(made.plan->resolution().candidate.generic) << describe(made.plan->resolution().candidate);
  for (const Candidate& generic : llvm::cantFail(list_generic(candidate.problem, device_->target())))
    condemn(generic);
  made = make(candidate, *store.store, options);
  EXPECT_EQ(made.plan, nullptr);
  EXPECT_THAT(made.error, AllOf(HasSubstr(describe(candidate)), HasSubstr("failed its canary"),
                                HasSubstr("trigen cache quarantine")));
}

TEST_F(CanaryTest, EveryOpSeesAnEmptyKernelAndAnotherOnes) {
  struct Case {
    const char *text, *other;  // `other`: a problem whose kernel is wrong here
  };
  for (const Case& each :
       {Case{"forward,dtype=f16,B=3,H=2,T=48,D=16,K=3,epilogue=bias+gelu+pre+gate+residual",
             "forward,dtype=f16,B=3,H=2,T=48,D=16,K=3,diag=1,epilogue=bias+gelu+pre+gate+residual"},
        Case{"forward,dtype=f16,B=3,T=48,D=16,layout=bdt,fill=upper",
             "forward,dtype=f16,B=3,T=48,D=16,layout=bdt"},
        Case{"grad_input,dtype=f16,B=3,T=48,D=16,epilogue=residual",
             "grad_input,dtype=f16,B=3,T=48,D=16,diag=-1,epilogue=residual"},
        Case{"grad_weight,dtype=f16,B=3,T=48,D=16,epilogue=bias+accumulate",
             "grad_weight,dtype=f16,B=3,T=48,D=16,fill=upper,epilogue=bias+accumulate"},
        // Rows of dW without an element in the triangle have a bias.
        Case{"grad_weight,dtype=f16,B=3,H=2,T=48,D=16,diag=-7,epilogue=bias+zero_outside",
             "grad_weight,dtype=f16,B=3,H=2,T=48,D=16,diag=-6,epilogue=bias+zero_outside"},
        Case{"grad_weight,dtype=bf16,B=3,T=48,D=16,fill=upper,diag=3,epilogue=bias+accumulate",
             "grad_weight,dtype=bf16,B=3,T=48,D=16,fill=upper,diag=2,epilogue=bias+accumulate"},
        Case{"grad_input,dtype=f16,B=3,T=48,D=16,w=band,width=20",
             "grad_input,dtype=f16,B=3,T=48,D=16,w=band,width=21"},
        Case{"grad_weight,dtype=f16,B=3,T=48,D=16,w=band,width=20,epilogue=zero_outside",
             "grad_weight,dtype=f16,B=3,T=48,D=16,w=band,width=20"},
        Case{"grad_weight,dtype=f16,B=3,T=48,D=16,w=toeplitz,epilogue=accumulate",
             "grad_weight,dtype=f16,B=3,T=48,D=16,w=toeplitz"},
        Case{"decode,dtype=f16,B=3,T=48,D=16,rows=2,epilogue=bias",
             "decode,dtype=f16,B=3,T=48,D=16,rows=2,diag=-1,epilogue=bias"},
        Case{"gram,dtype=f16,B=1,H=3,T=48,D=16,epilogue=residual", "gram,dtype=f16,B=1,H=3,T=48,D=16"},
        // The mirrored triangle is compared too.
        Case{"gram,dtype=f16,B=1,H=3,T=48,D=16,fill=upper,epilogue=residual+mirror",
             "gram,dtype=f16,B=1,H=3,T=48,D=16,fill=upper,epilogue=residual"},
        Case{"scan,dtype=f16,B=3,T=48,D=16,epilogue=bias", "scan,dtype=f16,B=3,T=48,D=16"},
        Case{"scan_grad_weight,dtype=f16,B=3,T=48,D=16,epilogue=bias+grad_input",
             "scan_grad_weight,dtype=f16,B=3,T=48,D=16,epilogue=bias"},
        Case{"grad_epilogue,dtype=f16,B=3,T=48,D=16,epilogue=gelu+gate",
             "grad_epilogue,dtype=f16,B=3,T=48,D=16,epilogue=silu+gate"}}) {
    SCOPED_TRACE(each.text);
    const Candidate candidate = first(each.text), other = like(candidate, each.other);
    const Code code = code_for(*device_);
    const auto verdict = [&](const Binary& binary) {
      auto plan = Plan::of(candidate, binary, *device_);
      EXPECT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;
      const CanaryReport report = run_canary(**plan);
      Executable::forget(binary.key);
      return report;
    };
    const CanaryReport right = verdict(compiled(candidate, code));
    EXPECT_EQ(right.result, CanaryResult::kRight) << right.text;
    EXPECT_EQ(verdict(empty(compiled(candidate, code))).result, CanaryResult::kWrong);
    Binary planted = compiled(candidate, code);
    planted.ptx = compiled(other, code).ptx;
    const CanaryReport wrong = verdict(planted);
    EXPECT_EQ(wrong.result, CanaryResult::kWrong) << describe(other);
  }
}

TEST_F(CanaryTest, RightKernelsOfRandomProblemsPass) {
  RandomProblem draw(7);
  for (int i = 0; i < (thorough() ? 200 : 12); ++i) {
    const Problem problem = draw.next_small(/*tf32=*/false);
    SCOPED_TRACE(to_string(problem));
    const Candidate candidate = first(to_string(problem));
    const Binary code = compiled(candidate, code_for(*device_));
    auto plan = Plan::of(candidate, code, *device_);
    ASSERT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;
    const CanaryReport report = run_canary(**plan);
    EXPECT_EQ(report.result, CanaryResult::kRight) << report.text;
    Executable::forget(code.key);
  }
}

// Another process of this program, which makes plans and says how it went: CanaryChild, below.
class Child {
 public:
  Child(const std::string& user, const std::string& shipped, const std::vector<std::string>& more = {}) {
    char program[PATH_MAX] = {};
    if (::readlink("/proc/self/exe", program, sizeof program - 1) < 0) ADD_FAILURE() << "no program";
    std::vector<std::string> environment = more;
    environment.push_back("TRIGEN_TEST_CHILD=" + user + "," + shipped);
    for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
    std::vector<char*> values;
    for (std::string& one : environment) values.push_back(one.data());
    values.push_back(nullptr);
    int ends[2];
    if (::pipe(ends) != 0) ADD_FAILURE() << "no pipe";
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    ::posix_spawn_file_actions_addclose(&actions, ends[0]);
    char filter[] = "--gtest_filter=CanaryChild.*", all[] = "--gtest_also_run_disabled_tests";
    char* arguments[] = {program, filter, all, nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program, &actions, nullptr, arguments, values.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) kill();
    ::close(from_);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  // All that it says, once it has ended.
  std::string said() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(from_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    int status = -1;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    EXPECT_EQ(status, 0) << text;
    return text;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
};

// The answers that a wait for a kernel that never ends gets.
cuda::CUresult never_ready(cuda::CUstream) { return cuda::CUDA_ERROR_NOT_READY; }

TEST(CanaryChild, DISABLED_MakesPlans) {
  const char* const given = std::getenv("TRIGEN_TEST_CHILD");
  ASSERT_NE(given, nullptr);
  const Device* const device = find_device();
  ASSERT_NE(device, nullptr);
  const auto [user, shipped] = llvm::StringRef(given).split(',');
  const auto store = Store::open({.layers = {user.str(), shipped.str()}});
  if (std::getenv("TRIGEN_TEST_BUSY") != nullptr) {
    llvm::cantFail(device->context());
    const_cast<DriverApi&>(device->api()).cuStreamQuery = never_ready;
    DriverCalls::clear();
  }
  for (const char* const problem : {kForward, "forward,dtype=f32,B=2,T=24,D=8"}) {
    auto plan = Plan::create(llvm::cantFail(parse_problem(problem)), *device, *store);
    if (plan)
      std::printf("plan: %s\n",
                  (*plan)->resolution().origin == BinaryOrigin::kCompiled ? "compiled" : "cache");
    else
      std::printf("error: %s\n", take_error(plan.takeError()).message.c_str());
  }
  if (std::getenv("TRIGEN_TEST_BUSY") == nullptr) return;
  for (const char* const call : {"cuMemFree", "cuStreamDestroy", "cuModuleUnload", "cuStreamSynchronize"})
    std::printf("%s: %lld\n", call, static_cast<long long>(DriverCalls::calls(call)));
}

// A context that a kernel ended is the driver's, and lost: what is left to do is to say so, and to meet that kernel
// no other time.
TEST_F(CanaryTest, AFaultEndsOneProcessAndNoOther) {
  const Candidate candidate = first(kForward);
  for (const char* const fault :
       {"trap;", "{ .reg .b64 %stray; mov.b64 %stray, 8; st.global.u32 [%stray], 1; }"}) {
    SCOPED_TRACE(fault);
    std::filesystem::remove(user_);
    std::filesystem::remove(shipped_);
    ship(candidate, beginning(compiled(candidate), fault));
    EXPECT_THAT(
        Child(user_, shipped_).said(),
        AllOf(HasSubstr("error: kernel " + describe(candidate)), HasSubstr("of cache '" + shipped_),
              HasSubstr("its run failed: "), HasSubstr("all CUDA contexts of this process"),
              HasSubstr("in quarantine: start the process again, which takes another kernel"),
              HasSubstr("error: no plan can be made on this device in this process any more: kernel ")));
    EXPECT_THAT(Child(user_, shipped_).said(),
                AllOf(HasSubstr("plan: compiled\nplan: compiled"), Not(HasSubstr("error"))));
    const auto findings = testing::open_store({user_})->list_findings();
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_THAT(findings[0].text, HasSubstr("its run failed"));
  }
}

// A fault that cannot be kept meets the next process as well: the text says what helps.
TEST_F(CanaryTest, AFaultThatCannotBeKeptIsSaid) {
  const Candidate candidate = first(kForward);
  ship(candidate, beginning(compiled(candidate), "trap;"));
  EXPECT_THAT(
      Child(shipped_ + "/none.db", shipped_).said(),
      AllOf(HasSubstr("it cannot be put in quarantine ("), HasSubstr("let TRIGEN_CACHE name a file")));
}

TEST_F(CanaryTest, AKernelThatNeverEndsIsNotWaitedFor) {
  const Candidate candidate = first(kForward);
  ship(candidate, compiled(candidate));
  EXPECT_THAT(
      Child(user_, shipped_, {"TRIGEN_TEST_BUSY=1"}).said(),
      AllOf(HasSubstr("error: kernel " + describe(candidate)), HasSubstr("it did not end within 10 s"),
            HasSubstr("what waits for the device in this process does not return"),
            HasSubstr("error: no plan can be made on this device"), HasSubstr("cuMemFree: 0"),
            HasSubstr("cuStreamDestroy: 0"), HasSubstr("cuModuleUnload: 0"),
            HasSubstr("cuStreamSynchronize: 1")));  // before the launch
  EXPECT_THAT(Child(user_, shipped_).said(), HasSubstr("plan: compiled\nplan: compiled"));
}

// A process that is killed in its canary, by whoever waits for it.
TEST_F(CanaryTest, ACanaryThatNeverEndedDoesNotBeginAgain) {
  const Candidate candidate = first(kForward);
  ship(candidate, beginning(compiled(candidate), "$loop: bra $loop;"));
  const auto marks = [&] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(user_).parent_path()))
      count += entry.path().string().find(".begun-") != std::string::npos ? 1 : 0;
    return count;
  };
  {
    Child child(user_, shipped_, {"TRIGEN_EMULATED_STEPS=0"});
    for (int i = 0; i < 3000 && marks() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(marks(), 1u);
    // While it lives it is at it: another process runs its own, here one that ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_THAT(Child(user_, shipped_, {"TRIGEN_EMULATED_STEPS=100000"}).said(), HasSubstr("its run failed"));
    EXPECT_EQ(marks(), 1u);
    EXPECT_EQ(message(testing::open_store({user_})->clear_findings(cache::FindingKind::kCanary)), "");
    child.kill();
  }
  EXPECT_EQ(marks(), 1u);
  const std::string said = Child(user_, shipped_, {"TRIGEN_EMULATED_STEPS=0"}).said();
  EXPECT_THAT(said,
              AllOf(HasSubstr("wrong: kernel " + describe(candidate)), HasSubstr("one began and never ended"),
                    HasSubstr("plan: compiled\nplan: compiled")));
  EXPECT_EQ(marks(), 0u);
  const auto findings = testing::open_store({user_})->list_findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].text, HasSubstr("never ended"));
}

TEST_F(CanaryTest, CanBeTurnedOff) {
  const Candidate candidate = first(kForward);
  ship(candidate, empty(compiled(candidate)));
  const Variable off("TRIGEN_CANARY", "0");
  const PlanOptions options = plan_options_from_environment();
  const Made made = make(candidate, options);
  ASSERT_NE(made.plan, nullptr) << made.error;
  EXPECT_EQ(made.counts.wrong + made.counts.right + made.counts.skipped, 0);
  Executable::forget(made.plan->resolution().binary.key);
}

// A plan that is made while a stream captures: the capture stays good, and holds nothing of the canary. None runs
// where the legacy stream would wait for the capturing one.
TEST_F(CanaryTest, LeavesStreamCapturesAlone) {
  const Candidate candidate = first(kForward);
  ship(candidate, compiled(candidate));
  const DriverApi& api = device_->api();
  const ContextScope scope(api, llvm::cantFail(device_->context()));
  for (const bool blocking : {false, true}) {
    cuda::CUstream stream = nullptr;
    ASSERT_EQ(api.cuStreamCreate(&stream, blocking ? 0U : unsigned{cuda::CU_STREAM_NON_BLOCKING}),
              cuda::CUDA_SUCCESS);
    ASSERT_EQ(api.cuStreamBeginCapture(stream, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL), cuda::CUDA_SUCCESS);
    auto store = testing::open_store({folder_ / "nowhere.db", shipped_}, 5000, /*read_only=*/true);
    const Made made = make(candidate, *store.store);
    EXPECT_NE(made.plan, nullptr) << made.error;
    EXPECT_EQ(made.counts.wrong, 0);
    EXPECT_EQ(made.counts.skipped, blocking ? 1 : 0);
    cuda::CUgraph graph = nullptr;
    EXPECT_EQ(api.cuStreamEndCapture(stream, &graph), cuda::CUDA_SUCCESS);
    cuda::size_type nodes = 1;
    EXPECT_EQ(api.cuGraphGetNodes(graph, nullptr, &nodes), cuda::CUDA_SUCCESS);
    EXPECT_EQ(nodes, 0u);
    api.cuGraphDestroy(graph);
    api.cuStreamDestroy(stream);
    EXPECT_EQ(make(candidate, *store.store).counts.right, blocking ? 1 : 0) << "the next plan's";
  }
}

}  // namespace
}  // namespace trigen
