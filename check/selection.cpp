#include "check/selection.h"

#include "generator/error.h"

namespace trigen {

llvm::Expected<std::vector<Candidate>> select(const Problem& problem, const Target& target,
                                              const Device* device, Store& store,
                                              const Selection& selection) {
  std::vector<Candidate> out;
  if (selection.config && selection.family != nullptr) {
    auto one = make_candidate(problem, target, *selection.family, *selection.config);
    if (!one) return one.takeError();
    one->generic = selection.config_generic;
    return std::vector<Candidate>{*one};
  }
  auto add_generic = [&](const Family& family) {
    const auto config = family.generic_config(problem, target);
    if (!config || family.reject(problem, target, *config)) return;
    out.push_back({problem, &target, &family, *config, true});
  };
  if (selection.all_families || selection.family != nullptr) {
    for (const Family* family : families()) {
      if (!family->serves(target) || (selection.family != nullptr && family != selection.family)) continue;
      auto list = list_candidates(problem, target, family);
      if (list) {
        out.push_back(list->front());
      } else {
        if (selection.family != nullptr) return list.takeError();
        llvm::consumeError(list.takeError());  // this family does not make the problem: another one must
      }
      if (selection.generic) add_generic(*family);
    }
    if (out.empty()) return list_candidates(problem, target, selection.family);  // its error has every reason
    return out;
  }
  const std::string name = device != nullptr ? device->info().name : "";
  const auto found = store.find_record(
      to_string(problem), {target.name},
      {name, device != nullptr ? device->info().sms : 0, device != nullptr ? device->info().driver : ""});
  if (found) {
    auto recorded = parse_candidate(problem, target, found->record.candidate);
    if (recorded) {
      out.push_back(*recorded);
    } else {
      llvm::consumeError(recorded.takeError());  // of another version: the model chooses
    }
  }
  if (out.empty()) {
    auto list = list_candidates(problem, target);
    if (!list) return list.takeError();
    out.push_back(list->front());
  }
  if (selection.generic) {
    auto generic = generic_candidate(problem, target);
    if (!generic) return generic.takeError();
    out.push_back(*generic);
  }
  return out;
}

}  // namespace trigen
