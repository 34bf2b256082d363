// Problems that a cache answers without compiling, and reasons where it does not: `trigen cache coverage`,
// `trigen cache show`, `trigen cache path`.
#pragma once

#include <string>
#include <vector>

#include "cache/store.h"
#include "generator/problem.h"
#include "generator/target.h"

namespace trigen {

struct CoverageAnswer {
  // kExact: a kernel of a record whose every field fits. kNear: a kernel that runs, though something differs.
  // kNone: a plan would have to compile.
  Match match = Match::kNone;
  // kNear: the very problem and target, and this version's kernel, which the model chose and no device measured.
  bool predicted = false;
  std::string why;                       // what differs, field by field; "" for kExact
  std::string candidate;                 // of the kernel that runs
  std::string layer;                     // path of the layer that answers
  std::optional<Provenance> provenance;  // of the record, where one answers
};

class Coverage {
 public:
  // Reads the store's records once. Without a device (image builds) the fields of devices are not compared.
  Coverage(Store& store, std::optional<cache::DeviceQuery> device)
      : store_(store), device_(std::move(device)), records_(store.list_records()) {}

  // For a problem that validate() accepts.
  CoverageAnswer answer(const Problem& problem, const Target& target);
  // The record of the target and the op whose problem differs least, and what differs: "T 64 here, 512 in the record";
  // null when there is none.
  const FoundRecord* nearest(const Problem& problem, const Target& target, std::string& difference) const;

 private:
  bool answer_by_record(const Problem& problem, const Target& target, CoverageAnswer& answer);
  bool answer_by_policy(const Problem& problem, const Target& target, CoverageAnswer& answer);

  Store& store_;
  std::optional<cache::DeviceQuery> device_;
  std::vector<FoundRecord> records_;
};

}  // namespace trigen
