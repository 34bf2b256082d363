// A measured row of a benchmark table.
#pragma once

#include "lab/table_result.h"

namespace trigen {

inline TableResult measured(double got, double asked, double stretch, bool at_most) {
  TableResult result;
  result.table = "t";
  result.title = "a < b & c";
  result.problem = "forward,dtype=bf16,B=16,T=1024,D=1024";
  result.over = "cublas";
  result.ran = true;
  result.got = got;
  result.asked = asked;
  result.stretch = stretch;
  result.at_most = at_most;
  result.seconds = 31e-6;
  result.peer_seconds = 50e-6;
  result.peer = "cublas flat";
  result.kernel = "wgmma_sm90:tile=128x256x64";
  result.device = "D";
  result.driver = "1.2";
  result.arms = {{"trigen", 31e-6, 30e-6, 32e-6}, {"cublas flat", 50e-6, 49e-6, 51e-6}};
  result.rounds = 7;
  return result;
}

}  // namespace trigen
