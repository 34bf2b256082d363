#include "runtime/coverage.h"

#include <cmath>

#include "cache/bundle.h"
#include "generator/candidate.h"
#include "generator/cost/cost.h"
#include "generator/problem_fields.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

void add(std::string& text, const std::string& what) { text += (text.empty() ? "" : "; ") + what; }

// Distance of two problems of one op, and the fields that differ: types count more than sizes, sizes by their
// ratio.
double distance(const Problem& here, const Problem& there, std::string& difference) {
  double sum = 0;
  for (const ProblemField& field : problem_fields()) {
    const int64_t a = field.get(here), b = field.get(there);
    if (a == b) continue;
    add(difference, field.key.str() + " " + field.text(a) + " here, " + field.text(b) + " in the record");
    if (field.kind != ProblemField::kSize)
      sum += 8;
    else
      sum += a > 0 && b > 0 ? 1 + std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b))) : 4;
  }
  return sum;
}

}  // namespace

const FoundRecord* Coverage::nearest(const Problem& problem, const Target& target,
                                     std::string& difference) const {
  const FoundRecord* best = nullptr;
  double least = 0;
  for (const FoundRecord& found : records_) {
    if (found.record.arch != target.name) continue;
    auto there = parse_problem(found.record.problem);
    if (!there) {
      llvm::consumeError(there.takeError());
      continue;
    }
    if (there->op != problem.op) continue;
    std::string text;
    const double far = distance(problem, *there, text);
    if (best != nullptr && far >= least) continue;
    best = &found;
    least = far;
    difference = text.empty() ? "nothing" : text;
  }
  return best;
}

bool Coverage::answer_by_record(const Problem& problem, const Target& target, CoverageAnswer& answer) {
  const cache::DeviceQuery query = device_.value_or(cache::DeviceQuery());
  auto found = store_.find_record(to_string(problem), {target.name}, {query.device, query.sms, query.driver});
  if (!found) return false;
  const Record& record = found->record;
  answer.layer = found->layer;
  answer.provenance = record.provenance;
  auto candidate = parse_candidate(problem, target, record.candidate);
  if (!candidate) {
    add(answer.why,
        "the record's choice is none of this version's (" + take_error(candidate.takeError()).message + ")");
    return false;
  }
  answer.candidate = record.candidate;
  const std::string hash = render(*candidate).hash;
  const bool same_source = record.binary.source_hash == hash;
  if (!(same_source && store_.find_binary(record.binary)) &&
      !store_.find_binary_any_compiler(hash, target.name)) {
    add(answer.why, same_source ? "the record's binary is missing"
                                : "the record was made with other templates than this version's, and no "
                                  "binary of these is there");
    return false;
  }
  if (!same_source) add(answer.why, "the record was made with other templates than this version's");
  if (device_) {
    if (!found->difference.empty()) add(answer.why, found->difference);
  } else if (record.provenance == Provenance::kPredicted) {
    add(answer.why, "predicted, not measured");
  }
  const int model = cache::model_version_of(record.evidence);
  answer.predicted = record.provenance == Provenance::kPredicted && same_source;
  if (record.provenance == Provenance::kPredicted && model < kModelVersion)
    add(answer.why, "predicted by version " + std::to_string(model) + " of the cost model, this is " +
                        std::to_string(kModelVersion));
  answer.match = answer.why.empty() ? Match::kExact : Match::kNear;
  return true;
}

bool Coverage::answer_by_policy(const Problem& problem, const Target& target, CoverageAnswer& answer) {
  auto candidates = list_candidates(problem, target);
  if (!candidates) {
    add(answer.why, take_error(candidates.takeError()).message);
    return false;
  }
  if (candidates->size() > kChoicesWithoutJit) candidates->resize(kChoicesWithoutJit);
  if (auto generic = list_generic(problem, target))
    llvm::append_range(*candidates, *generic);
  else
    llvm::consumeError(generic.takeError());
  for (size_t i = 0; i < candidates->size(); ++i) {
    const Candidate& candidate = (*candidates)[i];
    if (!store_.find_binary_any_compiler(render(candidate).hash, target.name)) continue;
    answer.match = Match::kNear;
    answer.candidate = describe(candidate);
    answer.layer.clear();
    add(answer.why, candidate.generic ? "no record, the generic kernel runs"
                                      : "no record, the model's choice " + std::to_string(i + 1) + " runs");
    return true;
  }
  return false;
}

CoverageAnswer Coverage::answer(const Problem& problem, const Target& target) {
  CoverageAnswer answer;
  if (answer_by_record(problem, target, answer) || answer_by_policy(problem, target, answer)) return answer;
  answer.match = Match::kNone;
  if (!answer.why.empty()) return answer;
  std::string difference;
  const FoundRecord* const near = nearest(problem, target, difference);
  answer.why = near != nullptr ? "no record; the nearest is " + near->record.problem + ": " + difference
                               : "no record of " + to_string(problem.op).str() + " for " + target.name.str();
  return answer;
}

}  // namespace trigen
