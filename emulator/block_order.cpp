#include "emulator/program.h"

namespace trigen::emulator {
namespace {

// Bourdoncle's recursive construction of a weak topological order, reversed at the end.
class WeakTopologicalOrder {
 public:
  explicit WeakTopologicalOrder(const std::vector<std::vector<uint32_t>>& successors)
      : successors_(successors), number_(successors.size(), 0) {}

  std::vector<uint32_t> order() {
    for (uint32_t block = 0; block < successors_.size(); ++block)
      if (number_[block] == 0) {
        std::vector<uint32_t> part;
        visit(block, part);
        out_.insert(out_.end(), part.rbegin(), part.rend());
      }
    return out_;
  }

 private:
  static constexpr uint32_t kDone = 0xffffffffu;

  void component(uint32_t head, std::vector<uint32_t>& out) {
    std::vector<uint32_t> inner;
    for (uint32_t next : successors_[head])
      if (number_[next] == 0) visit(next, inner);
    out.insert(out.end(), inner.begin(), inner.end());
    out.push_back(head);
  }

  // `out` is built back to front: what comes first in the order is pushed last.
  uint32_t visit(uint32_t block, std::vector<uint32_t>& out) {
    stack_.push_back(block);
    number_[block] = ++count_;
    uint32_t head = number_[block];
    bool loop = false;
    for (uint32_t next : successors_[block]) {
      uint32_t low = number_[next] == 0 ? visit(next, out) : number_[next];
      if (low <= head) {
        head = low;
        loop = true;
      }
    }
    if (head == number_[block]) {
      number_[block] = kDone;
      uint32_t top = stack_.back();
      stack_.pop_back();
      if (loop) {
        while (top != block) {
          number_[top] = 0;
          top = stack_.back();
          stack_.pop_back();
        }
        component(block, out);
      } else {
        out.push_back(block);
      }
    }
    return head;
  }

  const std::vector<std::vector<uint32_t>>& successors_;
  std::vector<uint32_t> number_;
  std::vector<uint32_t> stack_;
  std::vector<uint32_t> out_;
  uint32_t count_ = 0;
};

}  // namespace

void order_blocks(Program& program) {
  std::vector<Inst>& code = program.code;
  const uint32_t size = static_cast<uint32_t>(code.size());
  std::vector<bool> leader(size + 1, false);
  leader[0] = true;
  for (uint32_t at = 0; at < size; ++at) {
    const Inst& inst = code[at];
    if (inst.flow == Flow::kBranch) leader[inst.target] = true;
    if (inst.flow == Flow::kBranchTable)
      for (uint32_t i = 0; i < inst.list_count; ++i) leader[inst.list[i]] = true;
    // Collectives need no block of their own: lanes that arrive one by one meet at the instruction itself.
    if (inst.flow != Flow::kNext && inst.flow != Flow::kCollective) leader[at + 1] = true;
  }
  std::vector<uint32_t> block_of(size + 1, 0), begin;
  for (uint32_t at = 0; at < size; ++at) {
    if (leader[at]) begin.push_back(at);
    code[at].leader = leader[at];
    block_of[at] = static_cast<uint32_t>(begin.size()) - 1;
  }
  std::vector<std::vector<uint32_t>> successors(begin.size());
  for (uint32_t block = 0; block < begin.size(); ++block) {
    uint32_t last = (block + 1 < begin.size() ? begin[block + 1] : size) - 1;
    const Inst& inst = code[last];
    bool falls = !((inst.flow == Flow::kBranch || inst.flow == Flow::kExit) && inst.guard == kNoSlot) &&
                 inst.flow != Flow::kBranchTable;
    if (inst.flow == Flow::kBranch && inst.target < size) successors[block].push_back(block_of[inst.target]);
    if (inst.flow == Flow::kBranchTable)
      for (uint32_t i = 0; i < inst.list_count; ++i) successors[block].push_back(block_of[inst.list[i]]);
    if (falls && last + 1 < size) successors[block].push_back(block_of[last + 1]);
  }
  std::vector<uint32_t> order = WeakTopologicalOrder(successors).order();
  for (uint32_t rank = 0; rank < order.size(); ++rank) code[begin[order[rank]]].order = rank;
}

}  // namespace trigen::emulator
