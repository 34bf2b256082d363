// A tune's measurements of a problem's candidates, as a compact text: data to test search strategies on
// without a device (lab/replay.h).
//
//   trigen recording 1
//   problem forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0
//   target sm_90a
//   device NVIDIA H200, 132 SMs, driver 580.159.04
//   date 2026-11-21T04:10:00Z
//   role fit            (fit, hand: chosen on by hand, or check: never looked at when choosing)
//   sample the first 12 and 24 drawn, seed 1
//   candidates 353
//   # rank outcome us lower upper finals_us predicted_us registers candidate
//   1 chosen 24.100 24.050 24.200 24.010 21.300 168 wgmma_sm90:tile=128x256x64,...
//   7 spills - - - - 22.900 255 wgmma_sm90:tile=...
//
// Ranks count from 1 in the model's order; predicted_us is what that order was made of, before anything was
// compiled. lower and upper are quartiles of the samples, finals_us the median in turn with the other
// finalists. "-": none. `role` says what the times may be used for (fit, the default, or check:
// lab/model_check.h), `sample` which of the candidates were taken where that was decided beforehand. A file
// may hold several recordings, one after another.
#pragma once

#include <string>
#include <vector>

#include "llvm/Support/Error.h"
#include "tuner/tune.h"

namespace trigen {

struct RecordedCandidate {
  size_t rank = 0;
  std::string outcome;                                                         // as to_string(Outcome)
  double us = 0, lower_us = 0, upper_us = 0, finals_us = 0, predicted_us = 0;  // 0: none
  int registers = 0;
  std::string candidate;
  bool timed() const { return us > 0; }
};

struct Recording {
  std::string problem, target, device, date;
  std::string role = "fit", sample;
  std::string file;       // that it was read from
  size_t candidates = 0;  // of the whole space; fewer rows: it was not exhaustive
  std::vector<RecordedCandidate> rows;
  bool exhaustive() const { return rows.size() == candidates; }
};

// The recording of a report with measurements; candidates that were not tried are left out.
Recording recording_of(const TuneReport& report, const std::string& date);
std::string to_string(const Recording& recording);
// Errors: bad request, with the line's number; parse_recording takes exactly one.
llvm::Expected<Recording> parse_recording(llvm::StringRef text);
llvm::Expected<std::vector<Recording>> parse_recordings(llvm::StringRef text);
// Recordings of files, and of every .txt and .zst (the same, packed by `zstd -19`) in folders and below, in the order
// of their paths; what `trigen-lab sweep` wrote (.jsonl), as recordings of role check. Errors name the file.
llvm::Expected<std::vector<Recording>> read_recordings(const std::vector<std::string>& paths);
// Time of each row's candidate, in microseconds, 0 for those not timed: the median of the finals, else of
// the quick samples, scaled to the finals, which run on a warmer device.
std::vector<double> settled_us(const Recording& recording);
// "sm_90a-forward-dtype.bf16-B.32-....txt": a file's name for it, of letters, digits, '.', '_' and '-' alone.
std::string file_name(const Recording& recording);

}  // namespace trigen
