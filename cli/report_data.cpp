#include "cli/report_data.h"

#include <algorithm>

#include "cache/host.h"
#include "check/text.h"
#include "generator/cost/dense.h"
#include "generator/error.h"
#include "runtime/json.h"
#include "tuner/ceiling.h"

namespace trigen::cli {
namespace {

using cache::DeviceKind;
using cache::FleetAnswer;
using nlohmann::json;

double number_in(const json& value, const char* key, double otherwise) {
  const auto found = value.find(key);
  return found != value.end() && found->is_number() ? found->get<double>() : otherwise;
}

void read_search(const json& search, ReportRow& row) {
  if (!search.is_object()) return;
  row.space = static_cast<size_t>(number_in(search, "space", 0));
  row.tried = static_cast<size_t>(number_in(search, "tried", 0));
  row.expected_loss = number_in(search, "expected_loss", -1);
  if (const auto over = search.find("passed_over"); over != search.end() && over->is_object())
    for (const auto& [why, count] : over->items())
      if (count.is_number_unsigned()) row.passed_over[why] = count.get<size_t>();
  if (const auto best = search.find("best"); best != search.end() && best->is_array())
    for (const json& step : *best)
      if (step.is_array() && step.size() == 2 && step[0].is_number() && step[1].is_number())
        row.best.emplace_back(step[0].get<double>(), step[1].get<double>());
}

// Records of before there were search reports have the list of what was tried.
void read_tried(const json& evidence, ReportRow& row) {
  row.space = static_cast<size_t>(number_in(evidence, "considered", 0));
  const auto list = evidence.find("candidates");
  if (list != evidence.end() && list->is_array()) row.tried = list->size();
}

std::optional<ReportRow> row_of(const cache::RecordRow& stored, const DensePeers& peers) {
  const Record& record = stored.record;
  auto problem = parse_problem(record.problem);
  auto target = find_target(record.arch);
  if (!problem || !target) {
    llvm::consumeError(problem.takeError());
    llvm::consumeError(target.takeError());
    return std::nullopt;
  }
  ReportRow row;
  row.problem = *problem;
  row.text = record.problem;
  row.target = *target;
  row.measured = record.provenance == Provenance::kMeasured;
  row.kind =
      row.measured ? DeviceKind{record.arch, record.device, record.sms} : DeviceKind{record.arch, "", 0};
  row.driver = record.driver;
  row.candidate = record.candidate;
  row.seconds = record.median_us * 1e-6;
  row.error = record.error;
  const Target* gpu = *target;  // with the rates of the very GPU, where gpus.def has it
  if (auto known = find_gpu(record.device); !known)
    llvm::consumeError(known.takeError());
  else if (row.measured && (*known)->name == record.arch)
    gpu = *known;
  DeviceModel device = model_of(*gpu);
  if (row.measured && record.sms > 0) device.sms = record.sms;
  const Ceiling ceiling = ceiling_of(*problem, *gpu, device);
  const Totals work = count_work(*problem);
  row.flop = work.triangle_flop;
  row.dense_flop = work.dense_flop;
  row.bytes = work.min_bytes;
  row.roof_s = ceiling.seconds();
  row.compute_s = ceiling.compute_s;
  row.memory_s = ceiling.memory_s;
  row.dense_s = dense_seconds(*problem, *gpu, device);
  if (const auto peer = peers.find({record.problem, record.device}); row.measured && peer != peers.end()) {
    row.dense_s = row.seconds * peer->second.first;
    row.dense_peer = peer->second.second;
  }
  const json evidence = read_json(cache::unpack_evidence(stored.evidence));
  if (!evidence.is_object()) return row;
  row.joules = number_in(evidence, "joules", 0);
  row.elapsed_s = number_in(evidence, "elapsed_s", 0);
  if (const auto search = evidence.find("search"); search != evidence.end())
    read_search(*search, row);
  else
    read_tried(evidence, row);
  return row;
}

std::string name_of_kind(const DeviceKind& kind) {
  if (kind.device.empty()) return kind.arch + ", no device";
  return format("%s (%s, %d SMs)", kind.device.c_str(), kind.arch.c_str(), kind.sms);
}

// Larger problems later, the three ops of one shape together.
bool before(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& text) {
    auto p = parse_problem(text);
    if (!p) {
      llvm::consumeError(p.takeError());
      return std::make_tuple(int64_t{0}, int64_t{0}, int64_t{0}, text);
    }
    return std::make_tuple(p->T, p->D, p->B, text);
  };
  return key(a) < key(b);
}

}  // namespace

size_t ReportKind::count(FleetAnswer answer) const {
  return static_cast<size_t>(std::count(answers.begin(), answers.end(), answer));
}

size_t ReportKind::holes() const {
  const FleetAnswer enough = kind.device.empty() ? FleetAnswer::kPredicted : FleetAnswer::kMeasured;
  return static_cast<size_t>(
      std::count_if(answers.begin(), answers.end(), [&](FleetAnswer a) { return a < enough; }));
}

llvm::Expected<DensePeers> read_dense_peers(const std::string& path) {
  auto text = cache::read_input(path, "the dense products ", "name what `trigen-lab tables` wrote");
  if (!text) return text.takeError();
  DensePeers peers;
  for (llvm::StringRef rest = *text; !rest.empty();) {
    llvm::StringRef line;
    std::tie(line, rest) = rest.split('\n');
    const json row = read_json(line);
    if (!row.is_object() || row.value("over", "") != "cublas" || number_in(row, "got", 0) <= 0) continue;
    auto problem = parse_problem(row.value("problem", ""));
    if (!problem) {  // rows of steps and of pages, which are no one problem
      llvm::consumeError(problem.takeError());
      continue;
    }
    peers[{to_string(*problem), row.value("device", "")}] = {number_in(row, "got", 0),
                                                             row.value("peer", "cuBLAS")};
  }
  if (peers.empty())
    return make_error(ErrorKind::kBadRequest, "'" + path +
                                                  "' has no row against cuBLAS; name what `trigen-"
                                                  "lab tables` wrote, JSON lines");
  return peers;
}

ReportData report_data(const cache::Contents& contents, const std::vector<std::string>& asked,
                       const DensePeers& peers) {
  ReportData data;
  data.records = contents.records.size();
  data.binaries = contents.binaries.size();
  std::set<std::string> problems(asked.begin(), asked.end());
  if (asked.empty())
    for (const auto& [arch, problem] : contents.asked) problems.insert(problem);
  std::map<DeviceKind, ReportKind> kinds;
  std::set<std::string> measured_archs, archs;
  // The last row met counts where rows differ in the driver alone.
  std::map<std::pair<DeviceKind, std::string>, ReportRow> rows;
  for (const auto& [key, stored] : contents.records) {
    auto row = row_of(stored, peers);
    if (!row) {
      ++data.unreadable;
      continue;
    }
    data.compilers.insert(stored.record.binary.compiler);
    if (asked.empty()) problems.insert(row->text);
    archs.insert(row->kind.arch);
    if (row->measured) measured_archs.insert(row->kind.arch);
    rows[{row->kind, row->text}] = std::move(*row);
  }
  for (const auto& [arch, problem] : contents.asked)
    if (archs.insert(arch).second) kinds[{arch, "", 0}] = {};
  data.problems.assign(problems.begin(), problems.end());
  std::sort(data.problems.begin(), data.problems.end(), before);
  std::map<std::pair<std::string, std::string>, FleetAnswer> by_arch;  // best of any kind
  for (const auto& [key, row] : rows) {
    FleetAnswer& best = by_arch[{row.kind.arch, row.text}];
    best = std::max(best, row.measured ? FleetAnswer::kNear : FleetAnswer::kPredicted);
    if (!row.kind.device.empty() || measured_archs.count(row.kind.arch) == 0) kinds[row.kind] = {};
  }
  for (auto& [kind, of] : kinds) {
    of.kind = kind;
    of.name = name_of_kind(kind);
    for (const std::string& problem : data.problems) {
      // A prediction stands in the row of each kind of its arch.
      auto row = rows.find({kind, problem});
      if (row == rows.end()) row = rows.find({DeviceKind{kind.arch, "", 0}, problem});
      if (row != rows.end()) of.rows.push_back(row->second);
      const bool measured = row != rows.end() && row->second.measured;
      of.answers.push_back(measured ? FleetAnswer::kMeasured : by_arch[{kind.arch, problem}]);
    }
    data.kinds.push_back(std::move(of));
  }
  return data;
}

}  // namespace trigen::cli
