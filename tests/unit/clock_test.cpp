// The clock: machine code as nvdisasm prints it, the main loop, and schedules worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/target.h"
#include "lab/clock/clock.h"
#include "lab/clock/disassembler.h"
#include "lab/clock/schedule.h"
#include "lab/clock/timeline.h"

namespace trigen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// From an sm_70 kernel, nvdisasm 12.8: the head of a loop, its products and its branch back.
constexpr const char* kVolta = R"(
	.section	.text.trigen_forward,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=200"
.text.trigen_forward:
.L_x_3:
        /*2200*/                   LDS.U.64 R70, [R90+0x8] ;                  /* 0x000008005a467984 */
                                                                              /* 0x0002260000001a00 */
        /*2270*/               @P4 BRA `(.L_x_1) ;                            /* 0x000007d000004947 */
                                                                              /* 0x000fea0003800000 */
        /*2a40*/              @!P1 LDG.E.128.CONSTANT.SYS R132, [R92] ;       /* 0x000000005c849381 */
                                                                              /* 0x00036400001eed00 */
.L_x_1:
        /*2a50*/                   HMMA.884.F32.F32.STEP0 R4, R68.reuse.ROW, R2.reuse.ROW, R4 ;  /* 0x0000000244047236 */
                                                                              /* 0x0c0fe40000005804 */
        /*5490*/              @!P0 BRA `(.L_x_3) ;                            /* 0xffffccd000008947 */
                                                                              /* 0x000fca000383ffff */
)";
// The same of an sm_120 kernel, where nvdisasm prints the control word too.
constexpr const char* kBlackwell = R"(
	.section	.text.trigen_forward,"ax",@progbits
.L_x_3:
        /*1d40*/                   HMMA.16816.F32 R4, R8, R12, R4             &req={0} ?trans11;  /* 0x0000000c0804723c */
                                                                              /* 0x001ff60000001804 */
        /*1d50*/               @P1 BRA `(.L_x_3)                              ?trans6;            /* 0x00000000002c1947 */
                                                                              /* 0x000fec0003800000 */
)";

std::vector<MachineFunction> parsed(llvm::StringRef text) {
  auto functions = parse_machine_code(text);
  EXPECT_TRUE(static_cast<bool>(functions)) << take_error(functions.takeError()).message;
  return functions ? *functions : std::vector<MachineFunction>{};
}

// A GPU's own first choice may be refused, with a next step, but is never followed wrongly.
TEST(Clock, RefusesBlocksThatHaveWarpsToLoad) {
  const Problem problem = llvm::cantFail(parse_problem("forward,dtype=f16,B=8,T=2048,D=1024"));
  const Target& target = *llvm::cantFail(find_gpu("RTX 5090"));
  const auto candidates = llvm::cantFail(list_candidates(problem, target));
  const auto fed =
      llvm::find_if(candidates, [](const Candidate& c) { return c.family->name() == "mma_tma_sm90"; });
  ASSERT_NE(fed, candidates.end());
  auto clocked = clock_candidate(*fed, parsed(kBlackwell), model_of(target), std::nullopt);
  ASSERT_FALSE(static_cast<bool>(clocked));
  EXPECT_EQ(take_error(clocked.takeError()).message,
            "the clock follows blocks whose warps all load and multiply, those of mma_tma_sm90 have warps "
            "that load; name another family with --family");
}

TEST(MachineCode, ReadsTheControlWords) {
  const auto functions = parsed(kVolta);
  ASSERT_EQ(functions.size(), 1);
  EXPECT_EQ(functions[0].name, "trigen_forward");
  ASSERT_EQ(functions[0].instructions.size(), 5);
  const Instruction& load = functions[0].instructions[0];
  EXPECT_EQ(load.address, 0x2200);
  EXPECT_EQ(load.opcode, "LDS.U.64");
  EXPECT_EQ(load.operands, "R70, [R90+0x8]");
  EXPECT_EQ(load.control.stall, 3);
  EXPECT_EQ(load.control.write_barrier, 0);
  EXPECT_EQ(load.control.read_barrier, 1);
  EXPECT_EQ(load.control.wait, 0);
  EXPECT_FALSE(load.control.yield);
  const Instruction& product = functions[0].instructions[3];
  EXPECT_EQ(product.control.stall, 2);
  EXPECT_EQ(product.control.reuse, 3);  // both operands
  EXPECT_EQ(product.control.write_barrier, Control::kNoBarrier);
  EXPECT_THAT(product.sources(), ElementsAre(68, 2, 4));
  EXPECT_EQ(functions[0].instructions[1].target, 3);
  EXPECT_EQ(functions[0].instructions[4].target, 0);
  EXPECT_EQ(functions[0].instructions[4].guard, "@!P0");
}

TEST(MachineCode, ReadsTextWithPrintedControlWords) {
  const auto functions = parsed(kBlackwell);
  ASSERT_EQ(functions.size(), 1);
  ASSERT_EQ(functions[0].instructions.size(), 2);
  EXPECT_EQ(functions[0].instructions[0].operands, "R4, R8, R12, R4");
  EXPECT_EQ(functions[0].instructions[0].control.stall, 11);
  EXPECT_EQ(functions[0].instructions[0].control.wait, 1);
  EXPECT_EQ(functions[0].instructions[1].target, 0);
}

TEST(MachineCode, SaysWhatIsNoMachineCode) {
  EXPECT_THAT(take_error(parse_machine_code("nothing").takeError()).message,
              HasSubstr("has no .text section; print it with nvdisasm -c -hex"));
  const llvm::StringRef text = kVolta;
  EXPECT_THAT(
      take_error(parse_machine_code(text.take_front(text.find("/* 0x0002260000001a00"))).takeError()).message,
      HasSubstr("ends in the middle of an instruction"));
  EXPECT_THAT(
      take_error(parse_machine_code((text.take_front(text.find("/* 0x0002260000001a00")) + "MOV\n").str())
                     .takeError())
          .message,
      HasSubstr("second word is missing in 'MOV'"));
}

TEST(Disassembler, SaysWhereOneIsToBeHad) {
  ::setenv("TRIGEN_NVDISASM", "/nowhere/nvdisasm", 1);
  EXPECT_FALSE(have_nvdisasm());
  EXPECT_THAT(take_error(disassemble("no cubin").takeError()).message,
              HasSubstr("no program '/nowhere/nvdisasm' runs here"));
  ::unsetenv("TRIGEN_NVDISASM");
}

TEST(MainLoop, IsTheInnermostThatMultiplies) {
  auto loop = main_loop(parsed(kVolta));
  ASSERT_TRUE(static_cast<bool>(loop));
  EXPECT_EQ(loop->products, 1);
  EXPECT_TRUE(loop->tensor);
  EXPECT_EQ(loop->body.size(), 5);  // the guarded branch forward is not taken
  EXPECT_EQ(loop->end, 0x5490);
  EXPECT_THAT(take_error(main_loop({}).takeError()).message,
              HasSubstr("no loop of the machine code multiplies"));
}

Instruction instruction(const char* opcode, int stall, const char* operands = "") {
  Instruction out;
  out.opcode = opcode;
  out.operands = operands;
  out.control.stall = stall;
  return out;
}

TEST(Schedule, KnowsWhatInstructionsKeepBusy) {
  SmRates volta;
  volta.tensor_products = 128;
  EXPECT_EQ(tensor_cycles(instruction("HMMA.884.F32.F32.STEP2", 1), volta), 2);
  EXPECT_EQ(tensor_cycles(instruction("HMMA.884.F16.F16.STEP1", 1), volta), 4);
  EXPECT_EQ(tensor_cycles(instruction("HMMA.1688.F32", 1), volta), 8);
  SmRates ampere;
  ampere.tensor_products = 256;
  EXPECT_EQ(tensor_cycles(instruction("HMMA.16816.F32", 1), ampere), 8);
  EXPECT_EQ(tensor_cycles(instruction("HMMA.1688.F32.TF32", 1), ampere), 8);
  EXPECT_EQ(access_of(instruction("LDS.U.128", 1)).wavefronts(), 4);
  EXPECT_EQ(access_of(instruction("LDSM.16.MT88.4", 1)).wavefronts(), 4);
  EXPECT_EQ(access_of(instruction("LDSM.16.M88.2", 1)).wavefronts(), 2);
  EXPECT_EQ(access_of(instruction("LDGSTS.E.BYPASS.LTC128B.128", 1)).bytes, 512);
  EXPECT_EQ(pipe_of(instruction("IMAD.IADD", 1)), Pipe::kImad);
  EXPECT_EQ(pipe_of(instruction("ISETP.GE.AND", 1)), Pipe::kAlu);
  EXPECT_EQ(pipe_of(instruction("UIADD3", 1)), Pipe::kUniform);
  EXPECT_EQ(pipe_of(instruction("LDGDEPBAR", 1)), Pipe::kNone);
}

SmRates plain_rates() {
  SmRates rates;
  rates.tensor_products = 256;
  rates.taken = 8;
  rates.shared_latency = 20;
  rates.barrier = 10;
  return rates;
}

LoopTiming timing_of(std::vector<Instruction> body, int warps, int blocks = 1) {
  MainLoop loop;
  loop.body = std::move(body);
  loop.tensor = true;
  return clock_loop({.loop = loop, .rates = plain_rates(), .warps = warps, .blocks = blocks});
}

TEST(Schedule, OneWarpByHand) {
  // Products at 0, 8, 16, 24; the branch at 25, and the next turn 5 + 8 later.
  const std::vector<Instruction> body = {instruction("HMMA.16816.F32", 1), instruction("HMMA.16816.F32", 1),
                                         instruction("HMMA.16816.F32", 1), instruction("HMMA.16816.F32", 1),
                                         instruction("BRA", 5)};
  const LoopTiming one = timing_of(body, 1);
  EXPECT_NEAR(one.cycles, 38, 0.01);
  EXPECT_NEAR(one.tensor_share(), 32 / 38.0 / 4, 0.001);  // one of four sub-cores works
  // Two warps of each sub-core hide each other's branch: the pipe alone counts.
  const LoopTiming eight = timing_of(body, 8);
  EXPECT_NEAR(eight.cycles, 64, 1);
  EXPECT_NEAR(eight.tensor_share(), 1, 0.02);
  EXPECT_STREQ(eight.bound().name, "tensor pipe");
}

TEST(Schedule, WaitsForSharedMemory) {
  // A load of two wavefronts has its data 20 + 1 after it went; the product waits for barrier 0.
  std::vector<Instruction> body = {instruction("LDS.U.64", 1, "R4, [R2]"), instruction("HMMA.16816.F32", 1),
                                   instruction("BRA", 5)};
  body[0].control.write_barrier = 0;
  body[1].control.wait = 1;
  const LoopTiming timing = timing_of(body, 1);
  EXPECT_NEAR(timing.cycles, 21 + 1 + 5 + 8, 0.01);
  EXPECT_GT(timing.idle[static_cast<int>(Idle::kShared)], 0);
}

TEST(Schedule, SharedMemoryIsTheWholeSms) {
  // 16 loads of 4 wavefronts a turn of four warps: 64 cycles of the one pipe, however many sub-cores ask.
  std::vector<Instruction> body(4, instruction("LDS.U.128", 1, "R4, [R2]"));
  body.push_back(instruction("BRA", 5));
  const LoopTiming timing = timing_of(body, 4);
  EXPECT_NEAR(timing.cycles, 64, 2);
  EXPECT_STREQ(timing.bound().name, "shared memory");
}

TEST(Schedule, BarriersHoldABlockTogether) {
  std::vector<Instruction> body = {instruction("HMMA.16816.F32", 1),
                                   instruction("BAR.SYNC.DEFER_BLOCKING", 1), instruction("BRA", 5)};
  // 0: product; 1: barrier, which opens 10 later; 11: branch; 24: next turn.
  EXPECT_NEAR(timing_of(body, 4).cycles, 24, 0.01);
}

TEST(Schedule, WhatIsIssuedBesideProductsTakesOfTheirPipe) {
  // Two warps of each sub-core keep it full: 8 products of 8 cycles, and two other instructions to each.
  std::vector<Instruction> body;
  for (int i = 0; i < 4; ++i) {
    body.push_back(instruction("HMMA.16816.F32", 1));
    body.push_back(instruction("LOP3.LUT", 1, "R1, R2, R3, R4"));
    body.push_back(instruction("LOP3.LUT", 1, "R1, R2, R3, R4"));
  }
  body.push_back(instruction("BRA", 5));
  MainLoop loop;
  loop.body = body;
  SmRates rates = plain_rates();
  const double without = clock_loop({.loop = loop, .rates = rates, .warps = 8}).cycles;
  rates.beside = 0.5;
  const double with = clock_loop({.loop = loop, .rates = rates, .warps = 8}).cycles;
  EXPECT_NEAR(without, 64, 1);
  EXPECT_NEAR(with - without, 2 * 9 * 0.5, 2);
}

TEST(Schedule, CopiesHoldTheMemoryPipeForTheirAddresses) {
  std::vector<Instruction> body(4, instruction("LDGSTS.E.BYPASS.128", 1, "[R1], [R2.64]"));
  body.push_back(instruction("BRA", 5));
  MainLoop loop;
  loop.body = body;
  SmRates rates = plain_rates();
  const auto cycles = [&](double copy) {
    rates.copy = copy;
    return clock_loop({.loop = loop, .rates = rates, .warps = 8, .l2_bytes = 1e9}).cycles;
  };
  // 32 copies of 4 wavefronts each, that pass when their data have come, behind their addresses.
  EXPECT_NEAR(cycles(32) - cycles(16), 32 * 16, 40);
}

TEST(Schedule, SkippingWarpsLeaveTheirProductsOut) {
  std::vector<Instruction> body(8, instruction("HMMA.16816.F32", 1));
  body.push_back(instruction("BAR.SYNC.DEFER_BLOCKING", 1));
  body.push_back(instruction("BRA", 5));
  MainLoop loop;
  loop.body = body;
  const auto cycles = [&](int warps, int skipping) {
    return clock_loop({.loop = loop, .rates = plain_rates(), .warps = warps, .skipping = skipping}).cycles;
  };
  EXPECT_NEAR(cycles(8, 0), 128 + 24, 8);
  EXPECT_NEAR(cycles(8, 4) / cycles(4, 0), 1, 0.1)
      << "each sub-core has a warp that skips and one that does not";
  EXPECT_NEAR(cycles(4, 2) / cycles(4, 0), 1, 0.1)
      << "two sub-cores are free, the others have all their work";
}

TEST(Schedule, SplitBarriersHoldABlockTogether) {
  // One warp of the four loads; the others arrive at once, and wait for it in every turn.
  std::vector<Instruction> body = {
      instruction("LDS.U.64", 1, "R4, [R2]"), instruction("SYNCS.ARRIVE.TRANS64.A1T0", 1, "RZ, [UR4], RZ"),
      instruction("HMMA.16816.F32", 1), instruction("SYNCS.PHASECHK.TRANS64", 1, "P0, [UR4], R0"),
      instruction("BRA", 5)};
  body[0].control.write_barrier = 0;
  body[1].control.wait = 1;
  EXPECT_NEAR(timing_of(body, 4).cycles, 21 + 1 + 1 + 1 + 5 + 8, 12);
  // A barrier that something else fills (TMA) is not waited for.
  std::vector<Instruction> filled = {instruction("SYNCS.PHASECHK.TRANS64", 1, "P0, [UR4], R0"),
                                     instruction("HMMA.16816.F32", 1), instruction("BRA", 5)};
  EXPECT_GT(timing_of(filled, 4).cycles, 0);
}

TEST(Schedule, BlocksShareWhatBindsThem) {
  // Four products of 8 cycles of each of two blocks' warps: 64 cycles of a sub-core's pipe a turn of both, also
  // where one runs ahead.
  std::vector<Instruction> body(4, instruction("HMMA.16816.F32", 1));
  body.push_back(instruction("BAR.SYNC.DEFER_BLOCKING", 1));
  body.push_back(instruction("BRA", 5));
  const LoopTiming timing = timing_of(body, 4, 2);
  EXPECT_NEAR(timing.cycles, 64, 3);
  EXPECT_LE(timing.tensor_share(), 1.02);
}

TEST(Schedule, BlocksOutOfStepCountWholeTurns) {
  // Four blocks whose products fill the pipe end their turns at different times, and none may count for more.
  std::vector<Instruction> body(12, instruction("HMMA.16816.F32", 4));
  body.insert(body.begin(), 6, instruction("LDS.U.128", 2, "R4, [R2]"));
  body[5].control.write_barrier = 0;
  body[6].control.wait = 1;
  body.push_back(instruction("BAR.SYNC.DEFER_BLOCKING", 5));
  body.push_back(instruction("BRA", 5));
  MainLoop loop;
  loop.body = body;
  loop.tensor = true;
  const SmRates rates = plain_rates();
  for (const int blocks : {2, 3, 4}) {
    const auto cycles = [&](int turns) {
      return clock_loop({.loop = loop, .rates = rates, .warps = 8, .blocks = blocks, .turns = turns}).cycles;
    };
    EXPECT_NEAR(cycles(12) / cycles(200), 1, 0.01) << blocks;
  }
}

TEST(Schedule, CopiesInFlightAreWaitedForByGroups) {
  std::vector<Instruction> body = {instruction("LDGSTS.E.128", 1, "[R2], [R4]"), instruction("LDGDEPBAR", 1),
                                   instruction("DEPBAR.LE", 1, "SB0, 0x0"), instruction("BRA", 5)};
  body[1].control.write_barrier = 0;
  const double all = timing_of(body, 1).cycles;
  body[2].operands = "SB0, 0x1";
  const double one_less = timing_of(body, 1).cycles;
  EXPECT_GT(all, 193);  // the L2's latency
  EXPECT_LT(one_less, 0.6 * all);
}

TEST(Schedule, CopiesHoldSharedMemoryWhenTheirDataCome) {
  // Four copies of each of four warps pass in 2 cycles each; their data take 4 each, but after the L2's latency.
  std::vector<Instruction> body(4, instruction("LDGSTS.E.128", 1, "[R2], [R4]"));
  body.push_back(instruction("LDS", 1, "R4, [R2]"));
  body.push_back(instruction("HMMA.16816.F32", 1));
  body.push_back(instruction("BRA", 5));
  body[4].control.write_barrier = 0;
  body[5].control.wait = 1;
  MainLoop loop;
  loop.body = body;
  loop.tensor = true;
  SmRates rates = plain_rates();
  rates.shared_latency = 1;
  rates.l2_latency = 1e6;  // no data come while this runs
  const LoopTiming timing = clock_loop({.loop = loop, .rates = rates, .warps = 4, .l2_bytes = 1e9});
  EXPECT_NEAR(timing.busy[2].cycles, 4, 0.1) << timing.busy[2].name;  // the loads' alone
  EXPECT_LT(timing.cycles, 16 * 4);
}

TEST(Timeline, NamesWhatBounds) {
  const std::vector<Instruction> body = {instruction("HMMA.16816.F32", 8), instruction("IADD3", 1),
                                         instruction("BRA", 5)};
  MainLoop loop;
  loop.function = "kernel";
  loop.tensor = true;
  loop.products = 1;
  loop.body = body;
  const SmRates rates = plain_rates();
  const LoopTiming timing = clock_loop({.loop = loop, .rates = rates, .warps = 16});
  const std::string text = timeline_text(loop, timing, "title");
  EXPECT_THAT(text, HasSubstr("the busiest is: tensor pipe"));
  EXPECT_THAT(text, HasSubstr("(predicted)"));
  EXPECT_THAT(text, HasSubstr("warp 15"));
  const std::string svg = timeline_svg(loop, timing, "a < b");
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("tensor pipe 3"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

TEST(SmRates, EveryTargetHasPublishedOnes) {
  for (const Target& target : targets()) {
    if (target.name.startswith("sm_100")) continue;  // nobody has published its pipes
    const SmRates* const rates = sm_rates_of(target);
    ASSERT_NE(rates, nullptr) << target.name.str();
    EXPECT_GT(rates->tensor_products, 0);
  }
}

TEST(SmRates, TheL2IsSharedByThoseThatAsk) {
  SmRates rates;
  rates.l2_bytes = 3900;
  EXPECT_NEAR(l2_bytes_of(rates, 132), 29.5, 0.1);
  EXPECT_NEAR(l2_bytes_of(rates, 20), 64, 0);  // what one SM takes
  EXPECT_NEAR(l2_bytes_of(rates, 0), 64, 0);
}

TEST(SmRates, SayHowFarTheirSourcesWereCompared) {
  auto table = SmRatesTable::parse(sm_rates_files().front().text);
  ASSERT_TRUE(static_cast<bool>(table));
  for (const SmRate& rate : table->all)
    if (rate.kind == "published") {
      EXPECT_TRUE(llvm::any_of(std::initializer_list<const char*>{"(o)", "(q)", "(n)"},
                               [&](const char* mark) { return llvm::StringRef(rate.source).contains(mark); }))
          << rate.arch << " " << rate.name << ": " << rate.source;
    }
}

TEST(SmRates, AgreeWithTheDataSheets) {
  for (const Target& target : gpus()) {
    const SmRates* const rates = sm_rates_of(target);
    if (rates == nullptr || target.compute_capability == 90) continue;  // mma.sync reaches less there
    const double sheet = target.mma16_flops / 2 / target.sms / target.clock_hz / 4;
    EXPECT_NEAR(rates->tensor_products / sheet, 1, 0.02) << target.model_device.str();
  }
}

TEST(SmRates, SaysWhichLineIsWrong) {
  const auto message = [](llvm::StringRef text) {
    return take_error(SmRatesTable::parse(text).takeError()).message;
  };
  EXPECT_THAT(message("alu 2 cycles assumed x"), HasSubstr("line 1: comes before any section"));
  EXPECT_THAT(message("[sm_70]\nalu 2 x assumed x"),
              HasSubstr("line 2: alu has unit 'x'; allowed is cycles"));
  EXPECT_THAT(message("[sm_70]\nalu 2 cycles assumed"), HasSubstr("has no source"));
  EXPECT_THAT(message("[sm_70 : sm_60]"), HasSubstr("begins as 'sm_60', which no line before has"));
  EXPECT_THAT(message("[sm_70]\nalus 2 cycles assumed x"), HasSubstr("did you mean 'alu'"));
}

}  // namespace
}  // namespace trigen
