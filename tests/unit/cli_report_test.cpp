// trigen report: what the page says, and what a browser makes of it.
#include "tests/unit/cli_testing.h"  // first: it means gtest's namespace testing, not ours

#include <sys/sysmacros.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cache/store.h"
#include "check/text.h"
#include "cli/report_data.h"
#include "generator/cost/dense.h"
#include "generator/error.h"
#include "tests/thorough.h"
#include "tests/unit/cache_testing.h"
#include "tuner/ceiling.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Records as tunes leave them: two kinds of device and predictions of a third, with searches, energy, and holes.
void make_base(const std::string& path) {
  auto store = testing::open_store({path});
  Binary binary = testing::sample_binary(1);
  EXPECT_EQ(testing::message(store->put_binary(binary)), "");
  unsigned seed = 1;
  const auto put = [&](const char* arch, const char* device, int sms, const std::string& text,
                       bool measured) {
    const Problem problem = llvm::cantFail(parse_problem(text));
    const Target& target = **find_target(arch);
    seed = seed * 1103515245 + 12345;
    const double off = 1.15 + (seed >> 16 & 255) / 256.0;
    Record r;
    r.problem = to_string(problem);
    r.arch = arch;
    r.provenance = measured ? Provenance::kMeasured : Provenance::kPredicted;
    if (measured) r.device = device, r.sms = sms, r.driver = "580.159";
    r.candidate = "wgmma_sm90:tile=128x256x64,warps=8x1,stages=4,splitk=1,raster=33";
    r.binary = binary.key;
    r.median_us = 1e6 * (off * ceiling_of(problem, target, model_of(target)).seconds() + 2e-6);
    nlohmann::json evidence = {{"complete", true},
                               {"elapsed_s", 41.5},
                               {"search",
                                {{"space", 212},
                                 {"tried", 21},
                                 {"passed_over", {{"ranked lower by the model", 191}, {"spills", 2}}}}}};
    if (measured) {
      evidence["search"]["expected_loss"] = 0.008;
      evidence["search"]["best"] = {{2.1, r.median_us * 1.4}, {5.5, r.median_us * 1.08}, {17.2, r.median_us}};
      evidence["joules"] = 400 * r.median_us * 1e-6;
    }
    r.evidence = evidence.dump();
    EXPECT_EQ(testing::message(store->put_record(r)), "");
  };
  for (const int T : {128, 256, 512, 1000, 1024, 2048, 4096}) {
    for (const char* op : {"forward", "grad_input", "grad_weight"}) {
      const std::string text = std::string(op) + ",dtype=bf16,B=16,T=" + std::to_string(T) + ",D=1024";
      put("sm_90a", "NVIDIA H200", 132, text, true);
      if (T <= 1024 && T != 1000) put("sm_90a", "NVIDIA H100 PCIe", 114, text, true);
      if (T <= 512) put("sm_80", "", 0, text, false);
    }
    put("sm_90a", "NVIDIA H200", 132, "forward,dtype=f32,B=8,T=" + std::to_string(T) + ",D=512", true);
  }
}

class ReportPage : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    make_base(cache_);
  }
  std::string page(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"report", cache_, "-o", folder_ + "/report.html"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished done = run(arguments);
    EXPECT_EQ(done.code, 0) << done.err;
    return slurp(folder_ + "/report.html");
  }
};

TEST_F(ReportPage, IsOneFileThatSaysWhatIsThere) {
  const std::string html = page();
  for (const char* text : {"NVIDIA H200 (sm_90a, 132 SMs)", "NVIDIA H100 PCIe", "sm_80, no device",
                           "Roofline of", "TB/s", "21 of 212", "0.8 %", "191 ranked lower by the model", "mJ",
                           "Holes: 35", "holes: not measured on that device", "predicted choices",
                           "prefers-color-scheme:dark", "@media print"})
    EXPECT_THAT(html, HasSubstr(text));
  for (const char* text : {"<script", "src=", "href=", "@import", "url(", "nan", "inf\""})
    EXPECT_THAT(html, Not(HasSubstr(text))) << "nothing is fetched, and every number is one";
  EXPECT_LT(html.size(), 600000U);
}

TEST_F(ReportPage, SaysWhenWhereAndByWhatItWasMade) {
  ASSERT_EQ(
      run({"report", cache_, "-o", folder_ + "/it's a page.html"}, {"SOURCE_DATE_EPOCH=1700000000"}).code, 0);
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  EXPECT_THAT(slurp(folder_ + "/it's a page.html"),
              HasSubstr(std::string("made 2023-11-14 22:13 UTC on ") + host + " by <code>trigen report " +
                        cache_ + " -o '" + folder_ + "/it'\\''s a page.html'</code>"));
}

// Only regular files are replaced: root's `-o /dev/null` would leave a machine without one.
TEST_F(ReportPage, ReplacesFilesAlone) {
  namespace fs = std::filesystem;
  const auto kind = [&](const std::string& name) { return fs::symlink_status(folder_ + "/" + name).type(); };
  const auto report = [&](const std::string& name) {
    return run({"report", cache_, "-o", folder_ + "/" + name});
  };
  std::ofstream(folder_ + "/there.html") << "an older page";
  for (const char* name : {"there.html", "fresh.html"}) {
    const std::string link = std::string("to-") + name;
    fs::create_symlink(name, folder_ + "/" + link);
    EXPECT_EQ(report(link).code, 0);
    EXPECT_EQ(kind(link), fs::file_type::symlink);
    EXPECT_THAT(slurp(folder_ + "/" + name), HasSubstr("</html>"));
  }
  const testing::Fifo fifo(folder_ + "/fifo");
  EXPECT_EQ(report("fifo").code, 0);
  EXPECT_EQ(kind("fifo"), fs::file_type::fifo);
  EXPECT_THAT(fifo.read(), HasSubstr("</html>"));
  fs::create_directory(folder_ + "/folder");
  EXPECT_THAT(report("folder").err, HasSubstr("(is a directory)"));
  fs::create_symlink("loop", folder_ + "/loop");
  EXPECT_THAT(report("loop").err, HasSubstr("(too many levels of symbolic links)"));
  EXPECT_EQ(kind("loop"), fs::file_type::symlink);

  const std::string full = folder_ + "/full";  // as /dev/full, never that itself
  if (::mknod(full.c_str(), S_IFCHR | 0600, ::makedev(1, 7)) != 0 || !std::ofstream(full))
    GTEST_SKIP() << "[SKIP] no device of one's own here: " << std::strerror(errno);
  const Finished done = report("full");
  EXPECT_NE(done.code, 0);
  EXPECT_THAT(done.err, HasSubstr("(no space left on device)"));
  EXPECT_EQ(kind("full"), fs::file_type::character);
}

TEST_F(ReportPage, ComparesWithDenseProductsThatWereMeasured) {
  const std::string problem = "forward,dtype=bf16,B=16,T=512,D=1024";
  const Target& target = **find_target("sm_90a");
  const double dense = dense_seconds(llvm::cantFail(parse_problem(problem)), target, model_of(target));
  EXPECT_THAT(page(), AllOf(HasSubstr(" beside " + format_seconds(dense) + ": a dense product, estimated"),
                            Not(HasSubstr("full rate"))))
      << "the figure that tune prints";
  const std::string peers = folder_ + "/peers.jsonl";
  std::ofstream(peers)
      << R"({"over":"cublas","problem":"forward,dtype=bf16,B=16,T=512,D=1024","device":"NVIDIA H200","got":1.44,"peer":"fastest cuBLAS"})"
      << "\n"
      << R"({"over":"cublas","problem":"forward + backward at 512","got":1.2})"
      << "\n";
  EXPECT_THAT(page({"--dense", peers}), AllOf(HasSubstr("fastest cuBLAS, measured"), HasSubstr(">1.44<")));
}

TEST_F(ReportPage, RefusesWhatItCannotRead) {
  Finished done = run({"report", folder_ + "/none.trigen"});
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.err, HasSubstr("name a cache file or a bundle"));
  done = run({"report", cache_, "--dense", folder_ + "/none.jsonl"});
  EXPECT_EQ(done.code, 2);
  EXPECT_THAT(done.err, HasSubstr("trigen-lab tables"));
}

// Containers give /dev/shm 64 MB, which is too little for a browser.
const std::string kBrowser = "chromium-headless-shell --no-sandbox --disable-gpu --disable-dev-shm-usage";

// A browser lays it out: nothing sticks out, at any width, and dark is dark.
class ReportInBrowser : public ReportPage {
 protected:
  // Findings of the script that the test adds, as JSON.
  nlohmann::json look(int width, bool dark) {
    std::string html = slurp(folder_ + "/report.html");
    html.insert(html.rfind("</body>"), R"(<pre id="found"></pre><script>
const out = [];
for (const svg of document.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll('text')) {
    const t = text.getBoundingClientRect();
    if (t.width && (t.left < box.left - 2 || t.right > box.right + 2 || t.top < box.top - 6 || t.bottom > box.bottom + 6)) out.push(text.textContent);
  }
}
const cut = [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth).length;
const channel = c => c.match(/\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3;
const body = getComputedStyle(document.body);
document.getElementById('found').textContent = JSON.stringify({width: innerWidth, page: document.documentElement.scrollWidth, outside: out,
  cut, smallest: Math.min(...[...document.querySelectorAll('.chart text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width)),
  marks: document.querySelectorAll('.mark').length, squares: document.querySelectorAll('.square').length,
  back: channel(body.backgroundColor), ink: channel(body.color)}) + '#end';
</script>)");
    std::ofstream(folder_ + "/looked.html") << html;
    const std::string command =
        kBrowser + " --virtual-time-budget=2000 --window-size=" + std::to_string(width) +
        ",900 --blink-settings=preferredColorScheme=" + (dark ? "0" : "1") + " --dump-dom 'file://" +
        folder_ + "/looked.html' > '" + folder_ + "/dom' 2>'" + folder_ + "/said'";
    EXPECT_EQ(std::system(command.c_str()), 0) << slurp(folder_ + "/said");
    const std::string dom = slurp(folder_ + "/dom");
    const size_t from = dom.find("id=\"found\">"), to = dom.find("#end", from);
    if (from == std::string::npos || to == std::string::npos) return {};
    return nlohmann::json::parse(dom.substr(from + 11, to - from - 11), nullptr, false);
  }
};

TEST_F(ReportInBrowser, NothingSticksOutAndDarkIsDark) {
  LONG_WITH_SANITIZERS();
  if (std::system((kBrowser + " --dump-dom about:blank >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "[SKIP] no chromium-headless-shell that starts; Debian's package of that name has one";
  page();
  for (const int width : {1280, 500}) {
    for (const bool dark : {false, true}) {
      const nlohmann::json found = look(width, dark);
      SCOPED_TRACE(found.dump());
      ASSERT_TRUE(found.is_object());
      EXPECT_LE(found["page"].get<int>(), found["width"].get<int>());
      EXPECT_TRUE(found["outside"].empty());
      EXPECT_GE(found["smallest"].get<double>(), 9) << "letters of charts, in pixels";
      EXPECT_EQ(found["cut"].get<int>() > 0, width < 640) << "tables scroll on phones alone";
      EXPECT_EQ(found["marks"], 28 + 12 + 9) << "a mark for each record";
      EXPECT_GE(found["squares"].get<int>(), 3 * 28);
      EXPECT_EQ(found["back"].get<double>() < 60, dark);
      EXPECT_EQ(found["ink"].get<double>() > 200, dark);
    }
  }
}

}  // namespace
}  // namespace trigen
