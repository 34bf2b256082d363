// The estimate of the dense product against what H200s and H100s timed: bench/results.
#include "lab/dense_check.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "generator/error.h"

namespace trigen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> recorded() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(TRIGEN_SOURCE "/bench/results"))
    if (entry.path().filename().string()[0] == 'h' && entry.path().extension() == ".jsonl")
      out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

const std::vector<DenseRow>& rows() {
  static const std::vector<DenseRow> kRows = llvm::cantFail(read_dense_rows(recorded()));
  return kRows;
}

TEST(DenseCheck, TheRatesAreWhatTheirRowsGive) {
  const RatesFile& file =
      *llvm::find_if(rates_files(), [](const RatesFile& f) { return f.name == "h200.txt"; });
  const DenseFit fit = llvm::cantFail(fit_dense(file.text.str(), rows()));
  EXPECT_LT(fit.before - fit.after, 0.002) << "trigen-lab model dense FILES -o generator/rates/h200.txt";
}

// Shares of wrong answers as docs/gpus.md has them, with room for a row or two.
TEST(DenseCheck, SaysWhoIsFasterOfRowsThatItWasNotFittedTo) {
  std::vector<std::string> gpus;
  for (const DenseFigures& f : dense_figures(rows())) {
    SCOPED_TRACE(f.gpu);
    if (!f.held) continue;
    gpus.push_back(f.gpu);
    EXPECT_GE(f.rows, 60U);
    EXPECT_LE(f.error, 0.08);
    EXPECT_GE(f.within, 0.8);
    EXPECT_GE(f.timed.rows, 60U);
    EXPECT_GE(f.predicted.rows, 20U);
    for (const DenseFigures::Verdicts& v : {f.timed, f.predicted}) {
      EXPECT_LE(v.wrong_triangle, v.rows * 43 / 1000) << "4.3 % said to be faster than dense, and slower";
      EXPECT_LE(v.wrong_dense, v.rows / 20);
      EXPECT_LE(v.close, v.rows * 2 / 3) << "an answer that is always too close is none";
    }
  }
  EXPECT_THAT(gpus, ElementsAre("H100 SXM", "H200"));
}

class DenseLines : public ::testing::Test {
 protected:
  void SetUp() override { path_ = ::testing::TempDir() + "dense" + std::to_string(getpid()) + ".jsonl"; }
  void TearDown() override { std::filesystem::remove(path_); }
  llvm::Expected<std::vector<DenseRow>> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_dense_rows({path_});
  }
  static std::string line(const std::string& problem, const std::string& more) {
    return R"({"table":"tuned","over":"cublas","got":1.2,"us":8,"device":"NVIDIA H100 80GB HBM3","problem":")" +
           problem + "\"," + more + "}\n";
  }
  std::string path_;
};

TEST_F(DenseLines, TheFastestDenseArmCounts) {
  const std::vector<DenseRow> read = llvm::cantFail(this->read(
      line("forward,dtype=f32,B=1,T=64,D=64",
           R"("arms":[{"name":"tuned","us":8},{"name":"cublas strmm","us":4},{"name":"cublas flat","us":9},)"
           R"({"name":"cublaslt flat","us":7},{"name":"copy","us":2}])") +
      line("forward,dtype=bf16,B=2,T=64,D=64", R"("peer":"cublaslt flat","peer_us":6)") +
      line("decode,dtype=bf16,B=2,T=64,D=64", R"("peer":"cublas flat","peer_us":6)") + "{\"broken"));
  ASSERT_THAT(read, SizeIs(2));
  EXPECT_EQ(read[0].peer, "cublaslt flat");
  EXPECT_EQ(read[0].dense_us, 7);
  EXPECT_EQ(read[0].tuned_us, 8);
  EXPECT_EQ(read[0].gpu->model_device, "H100 SXM");
  EXPECT_EQ(read[1].dense_us, 6);
}

TEST_F(DenseLines, TapsCountBesideIm2col) {
  const std::string problem = "forward,dtype=bf16,B=2,T=64,D=64,K=3";
  EXPECT_THAT(take_error(read(line(problem, R"("peer":"cublas batched","peer_us":60)")).takeError()).message,
              HasSubstr("no row there"));
  EXPECT_THAT(llvm::cantFail(read(line(problem, R"("peer":"cublas im2col","peer_us":60)"))), SizeIs(1));
}

TEST_F(DenseLines, ErrorsSayWhatToName) {
  EXPECT_THAT(take_error(read("{}").takeError()).message, HasSubstr("trigen-lab sweep"));
  EXPECT_THAT(take_error(read_dense_rows({"/none.jsonl"}).takeError()).message,
              HasSubstr("cannot read /none.jsonl"));
}

}  // namespace
}  // namespace trigen
