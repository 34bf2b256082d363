// trigen report: a base as a page for people.
#include <unistd.h>

#include <cstdio>

#include "cache/host.h"
#include "cache/upkeep.h"
#include "cli/cache.h"
#include "cli/command.h"
#include "cli/problem_options.h"
#include "cli/report_data.h"
#include "cli/report_page.h"
#include "generator/names.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

namespace trigen::cli {
namespace {

struct Report {
  std::string base, out = "report.html", peers;
  ProblemOptions problems;

  llvm::Expected<int> run() const {
    std::vector<std::string> asked;
    if (problems.any()) {
      auto list = problems.problems();
      if (!list) return list.takeError();
      for (const Problem& problem : *list) asked.push_back(to_string(problem));
    }
    DensePeers dense;
    if (!peers.empty()) {
      auto read = read_dense_peers(peers);
      if (!read) return read.takeError();
      dense = std::move(*read);
    }
    auto date = making_date();
    if (!date) return date.takeError();
    auto contents = cache::read_contents(base, cache::ReadFor::kLook);
    if (!contents) return contents.takeError();
    for (const std::string& line : contents->damaged) remark("warning: " + line);
    ReportData data = report_data(*contents, asked, dense);
    data.path = base;
    data.made_by = made_by().begin()->second;
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    data.made = when(*date) + " UTC on " + host;
    data.command = command_line();
    if (auto bytes = llvm::MemoryBuffer::getFile(base, /*IsText=*/false, /*RequiresNullTerminator=*/false)) {
      data.digest = cache::sha256_of((*bytes)->getBuffer());
      data.bytes = static_cast<int64_t>((*bytes)->getBufferSize());
    }
    const std::string page = report_page(data);
    if (const int error = cache::write_output(out, page))
      return make_error(ErrorKind::kBadRequest, "the report '" + out + "' cannot be written (" +
                                                    cache::errno_text(error) + "); name a writable folder");
    std::printf("%s: %zu problems on %zu kind%s of device, %zu KB\n", printable(out).c_str(),
                data.problems.size(), data.kinds.size(), data.kinds.size() == 1 ? "" : "s",
                page.size() / 1000);
    return kDone;
  }
};

}  // namespace

void add_report(CLI::App& app, Commands& commands) {
  auto verb = std::make_shared<Report>();
  CLI::App* sub =
      app.add_subcommand("report",
                         "a bundle or cache file as one HTML page: roofline, speed, holes, searches")
          ->group(kLookGroup);
  sub->add_option("base", verb->base, "a bundle or cache file")->required();
  sub->add_option("-o,--output", verb->out, "the page (report.html)")->type_name("FILE");
  sub->add_option("--dense", verb->peers,
                  "measured dense products to compare with: JSON lines of `trigen-lab tables`")
      ->type_name("FILE");
  verb->problems.add_to(*sub, /*positional=*/false);
  commands.push_back({sub, [verb] { return report(verb->run()); }});
}

}  // namespace trigen::cli
