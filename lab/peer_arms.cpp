#include "lab/peer_arms.h"

#include "check/text.h"

namespace trigen {

PeerArms peer_arms(Workbench& bench, bool epilogue, const Reference* reference) {
  PeerArms out;
  auto made = CublasPeer::create(bench);
  if (!made) {
    out.notes.push_back(take_error(made.takeError()).message);
    return out;
  }
  out.cublas = std::move(*made);
  out.library = "cublas " + out.cublas->version();
  const ContextScope scope(bench.device().api(), bench.context());
  for (CublasPeer::Arm& arm : out.cublas->arms(epilogue, out.notes)) {
    llvm::Error error = arm.launch(0, bench.stream());
    if (!error) error = bench.synchronize();
    if (!error && arm.exact && reference != nullptr) {
      auto off = out.cublas->error_of(arm, *reference);
      if (!off)
        error = off.takeError();
      else if (!(*off < kPeerTolerance))
        error = make_error(ErrorKind::kInternal,
                           format("differs from the reference by %.2g, so it is not timed", *off));
    }
    if (error) {
      out.notes.push_back(arm.name + ": " + take_error(std::move(error)).message);
      continue;
    }
    out.arms.push_back({arm.name, std::move(arm.launch)});
  }
  return out;
}

}  // namespace trigen
