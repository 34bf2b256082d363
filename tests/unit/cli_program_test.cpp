// The built program, as a user runs it: help, exit codes, and the text of every kind of bad input.
#include <gmock/gmock.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "generator/problem.h"
#include "tests/thorough.h"
#include "tests/unit/cli_testing.h"

namespace trigen {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Program, HelpListsTheCommands) {
  const Finished help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"tune", "verify", "bench", "profile", "emit", "cache", "doctor", "version"})
    EXPECT_THAT(help.out, HasSubstr(command));
  for (const char* command : {"tune", "verify", "bench", "profile", "emit"}) {
    const Finished one = run({command, "--help"});
    EXPECT_EQ(one.code, 0);
    EXPECT_THAT(one.out, AllOf(HasSubstr("--problems"), HasSubstr("--epilogue"), HasSubstr("-T,--tokens")))
        << command;
  }
  EXPECT_THAT(run({"version"}).out, HasSubstr("trigen 0."));
  EXPECT_EQ(run({"--version"}).out, run({"version"}).out);
}

// A GPU that is not here: its SMs and rates rank the candidates, not those of its architecture's model device.
TEST_F(Program, RanksForAGpuByName) {
  LONG_WITH_SANITIZERS();
  const auto ranked = [&](const char* option, const char* value) {
    const Finished out = run({"emit", option, value, "--explain", "--json", "--rows", "1",
                              "forward,dtype=f16,B=16,T=1024,D=1024"});
    EXPECT_EQ(out.code, 0) << out.err;
    return nlohmann::json::parse(out.out);
  };
  const nlohmann::json own = ranked("--arch", "sm_89"), other = ranked("--gpu", "l40s");
  EXPECT_EQ(own["model_device"], "GeForce RTX 4090");
  EXPECT_EQ(other["model_device"], "L40S");
  EXPECT_EQ(other["target"], "sm_89");
  EXPECT_LT(other["dense_us"], 0.6 * own["dense_us"].get<double>()) << "twice the rate with f32 sums";
  EXPECT_NE(other["candidates"][0]["candidate"], own["candidates"][0]["candidate"]);
  const Finished tuned = run({"tune", "--gpu", "L40S", "--candidates", "1", "--json", kProblem});
  EXPECT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("\"sm_89\""), HasSubstr("predicted")));
}

struct Bad {
  std::vector<std::string> arguments;
  std::string text;
  int code = 2;
};

TEST_F(Program, BadRequestsSayWhatIsAllowed) {
  LONG_WITH_SANITIZERS();
  const std::vector<Bad> table = {
      {{"tun"}, "unknown command 'tun'; allowed are tune"},
      {{"tun"}, "did you mean 'tune'?"},
      {{"hlep"}, "did you mean 'help'?"},
      {{"emit", "--gpu", "L41S", kProblem}, "did you mean 'L40S'?"},
      {{"verify", "--arch", "sm_70", "forward", "dtype=f16", "B=1", "T=8", "D=8"},
       "did you mean one word with commas, forward,dtype=f16,B=1,T=8,D=8?"},
      {{"verify", "--arch", "sm_70", "forward,", "dtype=f16,", "B=1,", "T=8,", "D=8"},
       "did you mean one word with commas, forward,dtype=f16,B=1,T=8,D=8?"},
      {{"tune", "--arch", "sm_70", "core"}, "did you mean --problems core?"},
      {{"emit", "--arch", "sm_70", "--ptx", "--json", kProblem}, "--json requires --explain"},
      {{"cache", "show", "--cache", "/no/such.trigen", kProblem}, "warning: /no/such.trigen is not there", 1},
      {{"cache"}, "trigen cache needs a command; allowed are ls"},
      {{"cache", "sho"}, "unknown command 'sho' of trigen cache; allowed are ls"},
      {{"cache", "sho"}, "did you mean 'show'?"},
      {{"tune", "--bugdet", "3s"}, "unknown option '--bugdet'; `trigen tune --help` lists what is allowed"},
      {{"tune", "--bugdet", "3s"}, "did you mean '--budget'?"},
      {{"model", "check"}, "it is now trigen-lab model"},
      {{"tune", "--replay", "x.txt"}, "unknown option '--replay'; it is now trigen-lab replay FILE"},
      {{"tune", "--exhaustive", kProblem}, "unknown option '--exhaustive'; it is now --candidates 0"},
      {{"tune", "--top", "3", kProblem}, "unknown option '--top'; it is now --candidates N"},
      {{"tune", "--no-resume", kProblem}, "unknown option '--no-resume'; it is now --force"},
      {{"tune", "--no-dense", kProblem},
       "unknown option '--no-dense'; it is gone, leave it out: cuBLAS is timed where it is\n"},
      {{"tune", "--no-counts", kProblem},
       "unknown option '--no-counts'; it is gone, leave it out: choices rest on the model's estimates "
       "alone\n"},
      {{"bench", "--tables", "bench/hopper.txt"}, "it is now trigen-lab tables FILE"},
      {{"bench", "--limit", "1m", "--tables=bench/hopper.txt"},
       "unknown option '--tables'; it is now trigen-lab tables FILE"},
      {{"tune", "--gpu", "H100", kProblem}, "gpu 'H100' may be H100 SXM or H100 PCIe; name one of them"},
      {{"tune", "--gpu", "L40S", "--device", "0", kProblem},
       "--gpu names a GPU that is not here; leave --device 0 out"},
      {{"emit", "--gpu", "L40S", "--arch", "sm_80", kProblem},
       "--gpu L40S is sm_89, --arch sm_80 is not; leave --arch out"},
      {{"cache", "verify", "--bogus"}, "`trigen cache verify --help`"},
      {{"version", "3"}, "unexpected argument '3'"},
      {{"help", "tun"}, "no help on 'tun'; allowed are tune"},
      {{"completion", "powershell"}, "shell: 'powershell' is unknown; allowed are bash, zsh or fish\n"},
      {{"tune", "--objective", "times", kProblem}, "allowed are time, energy or edp; did you mean 'time'?"},
      {{"completion"}, "trigen completion needs SHELL, bash, zsh or fish: trigen completion bash\n"},
      {{"cache", "export"},
       "trigen cache export needs OUT, the bundle to write: trigen cache export NAME.trigen\n"},
      {{"cache", "merge"},
       "trigen cache merge needs FILES, bundles, cache files and folders of bundles, in any order: trigen "
       "cache "
       "merge FILES... -o NAME.trigen\n"},
      {{"cache", "merge", "a.trigen"}, "needs -o NAME.trigen, the bundle to write: "},
      {{"cache", "diff", "a.trigen"}, "needs RIGHT, a cache file or bundle: trigen cache diff LEFT RIGHT\n"},
      {{"report"}, "trigen report needs BASE, a bundle or cache file: trigen report BASE\n"},
      {{"cache", "verify", "--keys", "K"}, "--keys needs FILES, the signed files"},
      {{"-V"}, "unknown option '-V'; `trigen --help` lists what is allowed; did you mean '--version'?"},
      {{"--verbose"}, "did you mean '--version'?"},
      {{"cache", "list"}, "did you mean 'ls'?"},
      {{"cache", "dir"}, "did you mean 'path'?"},
      {{"cache", "prune"}, "did you mean 'gc'?"},
      {{"cache", "clean"}, "did you mean 'rm --all'?"},
      {{"cache", "clear"}, "did you mean 'rm --all'?"},
      {{"emit", "--sass", kProblem}, "did you mean '--cubin -o FILE; nvdisasm FILE'?"},
      {{"emit", "--arch", "sm_70", "forward,dtype=f16,B=2,T=64,D=64,epilogue=relu"},
       ", joined by '+' (column "},
      {{"tune", "--arch", "sm_60", kProblem},
       "; it is older than trigen serves: Volta (sm_70) is the oldest\n"},
      {{"tune", "--arch", "sm_70,sm_71", kProblem}, "unknown arch 'sm_71'"},
      {{"emit", "--arch", "sm_70,sm_80", kProblem}, "this command takes one target; name one"},
      {{"tune", "--arch", "V100", kProblem}, "did you mean 'sm_70'?"},
      {{"tune", "--arch", "70", kProblem}, "did you mean 'sm_70'?"},
      {{"tune", "--arch", "h200", kProblem}, "did you mean 'sm_90a'?"},
      {{"tune", "--arch", "sm_70", "forward,dtype=float16,B=2,T=64,D=64"}, "did you mean 'f16'?"},
      {{"tune", "--arch", "sm_70", "--problems", "-"}, "standard input holds no problem"},
      {{"tune", "--bogus"}, "--bogus"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=2,T=0,D=64"}, "T=0; allowed are 1 to"},
      {{"tune", "--arch", "sm_70", "--op", "forward", "--dtype", "f16", "-B", "2", "-T", "0", "-D", "64"},
       "T=0; allowed are 1 to"},
      {{"tune", "--arch", "sm_70", "--op", "forward", "--dtype", "f16", "-B", "-3", "-T", "4", "-D", "64"},
       "B=-3; allowed are 1 to"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=2,T=64,D=-1"}, "D=-1; allowed are 1 to"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=99999999999999999999,T=64,D=4"}, "B"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=2000000,T=64,D=2000000"}, "B*D is larger than"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=1,T=100000,D=1,K=100000"}, "T*K is larger than"},
      {{"tune", "--arch", "sm_71", kProblem}, "unknown arch 'sm_71'; allowed are sm_70"},
      {{"emit", "--arch", "volta", kProblem}, "unknown arch 'volta'"},
      {{"tune", "--arch", "sm_70", "forward,dtype=fp16,B=2,T=64,D=64"},
       "dtype='fp16' is unknown; allowed are f16, bf16 or f32"},
      {{"tune", "--arch", "sm_70", "--op", "forward", "--dtype", "f64", "-B", "1", "-T", "4", "-D", "4"},
       "dtype='f64' is unknown"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f32,wdtype=f16,B=2,T=64,D=64"},
       "wdtype=f16 with dtype=f32"},
      {{"tune", "--arch", "sm_70", "forwards,dtype=f16,B=2,T=64,D=64"}, "forwards"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=2,T=64,D=64,Q=1"}, "unknown key 'Q'"},
      {{"tune", "--arch", "sm_70", "forward,dtype=f16,B=,T=64,D=64"}, "B"},
      {{"tune", "--arch", "sm_70", ",,,"}, "trigen: error:"},
      {{"tune", "--arch", "sm_70", "--family", "cutlass", kProblem}, "unknown family 'cutlass'; allowed are"},
      {{"tune", "--arch", "sm_70", "--config", "tile=64x64x8", kProblem}, "--config without --family"},
      {{"tune", "--arch", "sm_70", "--budget", "soon", kProblem}, "budget 'soon'; allowed are"},
      {{"tune", "--arch", "sm_70", "--device", "gpu7", kProblem}, "gpu7"},
      {{"emit", "--arch", "sm_70"}, "no problem is named"},
      {{"emit", "--arch", "sm_70", kProblem, kProblem}, "takes one problem, found 2"},
      {{"bench", "--against", "cutlass", kProblem}, "allowed are cublas, none and auto"},
      {{"profile", "--arch", "sm_70", kProblem, kProblem}, "takes one problem, found 2"},
      {{"tune", "--arch", "sm_70", "--candidates", "-1", kProblem},
       "'-1' is none of the whole numbers from 0"},
      {{"tune", "--arch", "sm_70", "--candidates", "18446744073709551616", kProblem},
       "none of the whole numbers"},
      {{"tune", "--arch", "sm_70", "-j", "-5", kProblem}, "'-5' is none of the whole numbers"},
      {{"tune", "--arch", "sm_70", "--budget", "", kProblem}, "--budget: it is empty"},
      {{"verify", "--limit", "nan", kProblem}, "--limit: 'nan' is no decimal number of 0 or more"},
      {{"verify", "--limit", "-1", kProblem}, "'-1' is no decimal number"},
      {{"verify", "--limit", "", kProblem}, "'' is no decimal number"},
      {{"verify", "--limit", "0x10", kProblem}, "'0x10' is no decimal number"},
      {{"verify", "--device", "emulated:sm_70 devices=64", kProblem}, "after emulated: comes one target"},
      {{"tune", "--arch", "sm_70", "--problems", "/"}, "cannot read the problem list /: is a directory"},
      {{"tune", "--arch", "sm_70", "--problems", "/dev/zero"},
       "cannot read the problem list /dev/zero: it has more than 64 MiB, the most that is read; name a "
       "readable"},
      {{"report", "--dense", "/dev/zero", "b.trigen"},
       "cannot read the dense products /dev/zero: it has more than 64 MiB, the most that is read; name what"},
      {{"doctor", "--environment", "/dev/zero"},
       "cannot read the environment /dev/zero: it has more than 64 MiB, the most that is read; write one "
       "with"},
  };
  for (const Bad& bad : table) {
    const Finished done = run(bad.arguments);
    std::string line;
    for (const std::string& argument : bad.arguments) line += argument + " ";
    EXPECT_EQ(done.code, bad.code) << line << done.err;
    EXPECT_THAT(done.err, HasSubstr(bad.text)) << line;
    EXPECT_EQ(done.out, "") << line;
  }
}

TEST_F(Program, EmitPrintsTheSourceThatItsCommandRemakes) {
  const Finished first = run({"emit", "--arch", "sm_80", kProblem});
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_THAT(first.out, AllOf(HasSubstr("// trigen emit --arch sm_80 --candidate "),
                               HasSubstr("constexpr trigen::Kernel"), HasSubstr("extern \"C\"")));
  std::istringstream line(first.out.substr(3, first.out.find('\n') - 3));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  words.erase(words.begin());
  EXPECT_EQ(run(words).out, first.out);
}

TEST_F(Program, ExplainShowsPredictionsAndRefusals) {
  const Finished done = run({"emit", "--arch", "sm_70", "--explain", "--rows", "3", kProblem});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("predicted"), HasSubstr(":tile="),
                              HasSubstr("candidates; times are the model's"),
                              HasSubstr("does not run on sm_70           wgmma_sm90, wgmma_tf32_sm90, ")));
  const Finished json = run({"emit", "--arch", "sm_70", "--explain", "--json", "--rows", "3", kProblem});
  const auto read = nlohmann::json::parse(json.out);
  ASSERT_EQ(read["candidates"].size(), 3u) << json.err;
  EXPECT_THAT(done.out, HasSubstr(read["candidates"][0]["candidate"].get<std::string>()));
  EXPECT_THAT(done.out, HasSubstr("a dense product on the masked weight: "));
  EXPECT_GT(read["least_read_bytes"].get<double>(), read["least_written_bytes"].get<double>());
  EXPECT_GT(read["dense_us"].get<double>(), 2);
  EXPECT_LT(read["dense_us"].get<double>(), 7);
  EXPECT_GT(read["candidates"][0]["predicted_us"].get<double>(), 0);
  EXPECT_EQ(read["refused"][0]["family"], "wgmma_sm90");
  EXPECT_GT(read["space"].get<size_t>(), 3u);
  EXPECT_GT(read["candidates"][0]["shared_bytes"].get<int64_t>(), 0);
  const Finished slow =
      run({"emit", "--arch", "sm_70", "--explain", "--json", "forward,dtype=bf16,B=4,T=256,D=64"});
  const std::string notes = nlohmann::json::parse(slow.out)["notes"].dump();
  EXPECT_THAT(notes, AllOf(HasSubstr("is faster: "), HasSubstr("without tensor cores")));
}

TEST_F(Program, ArchThatNoCompilerMakes) {
  NvrtcSearch search;
  search.use_environment = false;
  if (const char* folder = std::getenv("TRIGEN_TEST_NVRTC13")) search.sites.push_back(folder);
  std::string newer;
  for (const NvrtcFinding& found : list_nvrtc(search)) {
    if (!found.archs.empty() && found.archs.front() > 70) newer = found.file.path;
  }
  if (newer.empty())
    GTEST_SKIP() << "[SKIP] no NVRTC 13 or newer here; every one found makes sm_70 (TRIGEN_TEST_NVRTC13 "
                    "names a folder)";
  const Finished done = run({"tune", "--arch", "sm_70", kProblem}, {"TRIGEN_NVRTC=" + newer});
  EXPECT_EQ(done.code, 3);
  EXPECT_THAT(done.err, AllOf(HasSubstr("no compiler here makes sm_70"), HasSubstr("12.9")));
  const Finished built =
      run({"verify", "--build-only", "--arch", "sm_70", kProblem}, {"TRIGEN_NVRTC=" + newer});
  EXPECT_EQ(built.code, 3) << built.out;
  const Finished doctor = run({"doctor"}, {"TRIGEN_NVRTC=" + newer});
  EXPECT_THAT(doctor.out, HasSubstr("no compiler here"));
}

TEST_F(Program, DoctorsExitCodes) {
  const std::string recorded = TRIGEN_SOURCE "/tests/data/environments/";
  const auto judged = [&](const char* name, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"doctor", "--environment", recorded + name});
    return run(more);
  };
  EXPECT_EQ(judged("wsl2.json").code, 0);
  EXPECT_EQ(judged("v100_driver_550.json").code, 1);
  EXPECT_EQ(judged("v100_nvrtc13_only.json").code, 3);
  EXPECT_EQ(judged("no_such_file.json").code, 2);
  EXPECT_EQ(run({"doctor", "--arch", "sm_71"}).code, 2);
  // A login node is no fault; a job's prologue there is, and an image's build asks for no device.
  EXPECT_EQ(judged("h200_container_no_gpus.json").code, 0);
  EXPECT_EQ(judged("h200_container_no_gpus.json", {"--check"}).code, 1);
  EXPECT_EQ(judged("h200_container_no_gpus.json", {"--check", "--arch", "sm_70"}).code, 0);
  EXPECT_THAT(run({"doctor", "--help"}).out,
              HasSubstr("Exit codes: 0 nothing stands in the way; 1 an error"));
  const Finished check = judged("v100_driver_535.json", {"--check"});
  EXPECT_EQ(check.code, 0);
  EXPECT_THAT(check.out,
              AllOf(HasSubstr("warning: pytorch"), Not(HasSubstr("note:")), Not(HasSubstr("glibc"))));
  // The JSON that it prints of a machine can be read again.
  const Finished json = run({"doctor", "--json", "--arch", "sm_70"});
  const std::string copy = cache_ + ".json";
  std::ofstream(copy) << json.out;
  EXPECT_EQ(run({"doctor", "--json", "--arch", "sm_70", "--environment", copy}).out, json.out);
  const Finished lookup = run({"doctor", "--arch", "sm_70", kProblem});
  EXPECT_EQ(lookup.code, 1);
  EXPECT_THAT(lookup.out,
              AllOf(HasSubstr("0 of 1 problems are served"), HasSubstr("trigen tune --arch sm_70")));
}

TEST_F(Program, TheEmulatedDeviceChecksAndNeverTimes) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const Finished done = run({"tune", "--device", "emulated:sm_70", "--candidates", "1", kProblem});
  if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("predicted"), Not(HasSubstr("measured"))));
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("no time to measure"), HasSubstr("checked on the emulated device: error")));
  const Finished several = run({"tune", "--device", "emulated:sm_70", "--candidates", "1", kProblem,
                                "forward,dtype=f32,B=1,T=16,D=8", "forward,dtype=f32,B=64,T=512,D=64"});
  ASSERT_EQ(several.code, 0) << several.err;
  EXPECT_THAT(several.err, HasSubstr("note: checked on the emulated device: 2 of 3, worst error "));
  EXPECT_THAT(several.err, Not(HasSubstr("device: error")));
  const Finished verify = run({"verify", "--device", "emulated:sm_70", "--generic", kProblem});
  EXPECT_EQ(verify.code, 0) << verify.err;
  EXPECT_THAT(verify.out, AllOf(HasSubstr("2 passed, 0 failed"), HasSubstr("all outputs")));
  const Finished bench = run({"bench", "--device", "emulated:sm_70", kProblem});
  EXPECT_EQ(bench.code, 1);
  EXPECT_THAT(bench.err, HasSubstr("no time to measure"));
  const Finished big = run({"verify", "--device", "emulated:sm_70", "forward,dtype=f16,B=32,T=512,D=1024"});
  EXPECT_EQ(big.code, 1);  // nothing was verified
  EXPECT_THAT(big.out,
              AllOf(HasSubstr("SKIP"), HasSubstr("--limit 9e+09 takes these"), HasSubstr("--samples")));
  const std::string large = "forward,dtype=f16,B=4096,H=1,T=64,D=64,K=1,pad=0";
  const Finished part = run({"verify", "--device", "emulated:sm_70", "--samples", "2", large});
  EXPECT_EQ(part.code, 0) << part.err;
  EXPECT_THAT(part.out, AllOf(HasSubstr(large), HasSubstr("all outputs  on 2 of 4096 samples")));
  EXPECT_THAT(big.err, HasSubstr("error: nothing was verified: the one problem was skipped"));
}

// A Hopper with fewer SMs than an H200: grids of another size, with sums that are shared otherwise.
TEST_F(Program, KernelsAreRightOnDevicesOfOtherSizes) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_90a");
  for (const char* sms : {"114", "16"}) {
    const Finished done = run({"verify", "--device", "emulated:sm_90a", "forward,dtype=bf16,B=12,T=64,D=512",
                               "grad_weight,dtype=bf16,B=4,T=192,D=128,epilogue=bias+zero_outside"},
                              {std::string("TRIGEN_EMULATED_SMS=") + sms});
    if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("2 passed, 0 failed"));
  }
}

// Few multiply-adds, but 140 000 planes of 64 x 64 elements in the workspace.
TEST_F(Program, TheEmulatedDeviceTakesNoMoreMemoryThanItMay) {
  const Finished done = run({"verify", "--device", "emulated:sm_90a", "--memory", "1",
                             "forward,dtype=f32,B=1,H=70000,T=2,D=8,math=f16x3"});
  if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
  EXPECT_EQ(done.code, 1) << done.err;  // nothing was verified
  EXPECT_THAT(done.out, AllOf(HasSubstr("SKIP"), HasSubstr("GB of memory"), HasSubstr("--memory")));
}

TEST_F(Program, ATerminationEndsAVerificationAtOnce) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const pid_t child = start(
      {"verify", "--device", "emulated:sm_70", "--limit", "1e12", "forward,dtype=f32,B=16,T=1024,D=512"});
  std::this_thread::sleep_for(std::chrono::seconds(5));
  ::kill(child, SIGTERM);
  const auto sent = std::chrono::steady_clock::now();
  const Finished done = finish(child);
  if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
  EXPECT_EQ(done.code, 128 + SIGTERM) << done.err;
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(10));
}

// Counts that follow from the problem and the tiling, whichever compiler made the kernel: a change that makes
// the main loop's ldmatrix collide on shared memory's banks, or load or multiply more, fails here.
TEST_F(Program, ProfileCountsExactlyAndFindsNoBankConflicts) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_80");
  const std::vector<std::string> request = {
      "profile",     "forward,dtype=f16,B=2,T=128,D=64,epilogue=bias",
      "--arch",      "sm_80",
      "--candidate", "mma_sm80:tile=64x64x64,warps=2x2,stages=4,splitk=1,vec=8x8x8,blocks=4"};
  const Finished table = run(request);
  if (table.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << table.err;
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("trigen_forward"), HasSubstr("sectors per request"),
                               HasSubstr("counts are exact"), HasSubstr("time is not modelled")));

  std::vector<std::string> as_json = request;
  as_json.push_back("--json");
  const Finished first = run(as_json, {"TRIGEN_EMULATED_THREADS=1"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(run(as_json, {"TRIGEN_EMULATED_THREADS=3"}).out, first.out);

  const nlohmann::json out = nlohmann::json::parse(first.out);
  ASSERT_EQ(out["kernels"].size(), 1u);
  const nlohmann::json& counters = out["kernels"][0];
  EXPECT_EQ(counters["grid"], nlohmann::json({4, 1, 1}));
  // two row tiles of 64 tokens have one and two tiles of the triangle, for each of two column tiles
  const int products = (1 + 2) * 2, tile = 64 * 64;
  EXPECT_EQ(counters["matrix_flops"], 2 * products * tile * 64);
  EXPECT_EQ(counters["async_copy_bytes"], products * 2 * tile * 2);
  // a warp's 32 x 32 x 64 product loads eight x4 matrices of each side; an x4 is four wavefronts at least
  EXPECT_EQ(counters["instructions"]["matrix_move"], products * 4 * 16);
  EXPECT_EQ(counters["shared_load_requests"], products * 4 * 16);
  EXPECT_EQ(counters["shared_load_wavefronts"], products * 4 * 16 * 4);
  EXPECT_EQ(counters["shared_load_conflicts"], 0);
  EXPECT_EQ(counters["shared_store_conflicts"], 0);
  EXPECT_EQ(counters["local_bytes"], 0);
}

TEST_F(Program, ProfileFindsNoBankConflictsInTransposedTf32) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_90a");
  for (const char* op : {"forward", "grad_input"}) {
    const bool forward = std::string(op) == "forward";
    const Finished done =
        run({"profile", std::string(op) + ",dtype=f32,math=tf32,B=1,T=256,D=128", "--json", "--arch",
             "sm_90a", "--candidate",
             std::string("wgmma_tf32_sm90:tile=256x128x32,warps=1x8,stages=4,splitk=1,vec=") +
                 (forward ? "4" : "1") + "x4x4,cluster=1,blocks=1"});
    if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
    ASSERT_EQ(done.code, 0) << done.err;
    const nlohmann::json out = nlohmann::json::parse(done.out);
    ASSERT_EQ(out["kernels"].size(), forward ? 1u : 2u);  // W is transposed first
    const nlohmann::json& counters = out["kernels"].back();
    // panels of 64 tokens take part in 2, 4, 6 and 8 steps of 32
    EXPECT_EQ(counters["matrix_flops"], 2 * (2 + 4 + 6 + 8) * 64 * 32 * 128);
    EXPECT_EQ(counters["async_copy_bytes"], ((2 + 4 + 6 + 8) * 64 + 8 * 128) * 32 * 4);
    EXPECT_EQ(counters["shared_load_requests"], 8 * 8 * 8);  // steps, warps, words of 8 bytes
    EXPECT_EQ(counters["shared_load_conflicts"], 0);
    EXPECT_EQ(counters["shared_store_conflicts"], 0);
    EXPECT_EQ(counters["local_bytes"], 0);
  }
}

TEST_F(Program, InterruptKeepsWhatIsDone) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  std::ofstream list(folder_ + "/problems");
  for (int tokens = 64; tokens < 264; ++tokens) list << "forward,dtype=f16,B=2,T=" << tokens << ",D=64\n";
  list.close();
  for (const int signal : {SIGINT, SIGTERM}) {
    std::remove(cache_.c_str());
    const pid_t child = start(
        {"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", "--problems", folder_ + "/problems"});
    // wait for the first record, then interrupt
    bool stored = false;
    for (int i = 0; i < 600 && !stored; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      sqlite3* db = nullptr;
      if (sqlite3_open_v2(cache_.c_str(), &db, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK) {
        sqlite3_stmt* statement = nullptr;
        if (sqlite3_prepare_v2(db, "SELECT count(*) FROM records", -1, &statement, nullptr) == SQLITE_OK &&
            sqlite3_step(statement) == SQLITE_ROW) {
          stored = sqlite3_column_int(statement, 0) > 0;
        }
        sqlite3_finalize(statement);
      }
      sqlite3_close(db);
    }
    ::kill(child, signal);
    const auto sent = std::chrono::steady_clock::now();
    const Finished done = finish(child);
    ASSERT_TRUE(stored) << done.err;
    EXPECT_EQ(done.code, 128 + signal) << done.err;
    EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(30));
    EXPECT_THAT(done.err, HasSubstr("interrupted: "));
    const Finished kept = run({"cache", "ls"});
    EXPECT_EQ(kept.code, 0);
    EXPECT_THAT(kept.out, HasSubstr("predicted"));
  }
}

TEST_F(Program, FullStandardOutputIsAFailure) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"version"}, {"--help"}, {"cache", "ls", "--json"}, {"emit", kProblem, "--arch", "sm_70"}}) {
    const Finished full = run(arguments, {}, [] { (void)!std::freopen("/dev/full", "w", stdout); });
    EXPECT_EQ(full.code, 1) << arguments[0];
    EXPECT_THAT(full.err, HasSubstr("standard output could not be written (No space left on device)"));
  }
}

TEST_F(Program, SignsAndVerifiesFiles) {
  const std::string key = folder_ + "/team.key", file = folder_ + "/core.trigen";
  std::ofstream(file) << "a bundle's bytes";
  const Finished made = run({"cache", "keygen", "--key", key});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("export TRIGEN_TRUSTED_KEYS=RW"));
  EXPECT_THAT(run({"cache", "keygen", "--key", key}).err, HasSubstr("name another file"));
  const Finished signing = run({"cache", "sign", "--key", key, file}, {"SOURCE_DATE_EPOCH=1700000000"});
  EXPECT_EQ(signing.code, 0) << signing.err;
  EXPECT_EQ(signing.out, file + ".minisig\n");
  const Finished good = run({"cache", "verify", "--keys", key + ".pub", file});
  EXPECT_EQ(good.code, 0) << good.out;
  EXPECT_THAT(good.out, AllOf(HasSubstr("signed with key "), HasSubstr("timestamp:1700000000 file:"),
                              HasSubstr("file:core.trigen")));
  EXPECT_THAT(run({"cache", "verify", "--keys", key + ".pub@1700000001", file}).out,
              HasSubstr("only signatures from 1700000001 on are trusted"));
  EXPECT_EQ(run({"cache", "verify", "--keys", "", file}).code, 2) << "$(cat missing) is not 'no keys'";
  for (const char* bad : {"abc", "-5", "1700000000000000"}) {
    const Finished refused =
        run({"cache", "sign", "--key", key, file}, {std::string("SOURCE_DATE_EPOCH=") + bad});
    EXPECT_NE(refused.code, 0) << bad;
    EXPECT_THAT(refused.err,
                HasSubstr("SOURCE_DATE_EPOCH is '" + std::string(bad) + "'; allowed: seconds since 1970"));
  }
  std::ofstream(file, std::ios::app) << "!";
  const Finished changed = run({"cache", "verify", "--keys", key + ".pub", file});
  EXPECT_EQ(changed.code, 1);
  EXPECT_THAT(changed.out, HasSubstr("is not what key "));
  const Finished rows = run({"cache", "verify", file});
  EXPECT_EQ(rows.code, 1) << "without keys: its rows";
  EXPECT_THAT(rows.out, HasSubstr("'" + file + "' is not a trigen cache"));
  EXPECT_THAT(run({"cache", "verify", "--keys", "nonsense", file}).err,
              HasSubstr("'nonsense' in --keys is neither a "));
  ASSERT_EQ(::chmod(key.c_str(), 0640), 0);
  EXPECT_THAT(run({"cache", "sign", "--key", key, file}).err, HasSubstr("is open to others"));
  EXPECT_EQ(run({"cache", "quarantine"}).out, "no kernel is in quarantine\n");
}

}  // namespace
}  // namespace trigen
