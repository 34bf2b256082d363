#include "lab/clock/timeline.h"

#include <algorithm>
#include <cmath>

#include "check/text.h"
#include "cli/drawing.h"

namespace trigen {
namespace {

struct Kind {
  char letter;
  const char* name;
  const char* colour;
};
Kind kind_of_pipe(Pipe pipe) {
  switch (pipe) {
    case Pipe::kTensor:
      return {'m', "HMMA", "#2a7f3f"};
    case Pipe::kFma:
      return {'f', "FMA", "#2a7f3f"};
    case Pipe::kMemory:
      return {'s', "loads and stores", "#c8641e"};
    case Pipe::kBranch:
    case Pipe::kNone:
      return {'b', "barriers and branches", "#b02030"};
    default:
      return {'i', "integers and others", "#3f6fb0"};
  }
}

// Of `columns` parts of the turn, the share in which a resource was busy.
class Strip {
 public:
  Strip(const LoopTiming& timing, int columns) : timing_(timing), share_(columns) {}
  void add(double begin, double length, double weight = 1) {
    const double width = timing_.cycles / static_cast<double>(share_.size());
    begin -= timing_.from;
    for (double left = length; left > 0;) {
      const auto column = static_cast<size_t>(begin / width);
      if (column >= share_.size()) return;
      const double here = std::min(left, static_cast<double>(column + 1) * width - begin);
      if (here <= 0) {
        begin = std::nextafter(static_cast<double>(column + 1) * width, HUGE_VAL);
        continue;
      }
      share_[column] += weight * here / width;
      begin += here, left -= here;
    }
  }
  std::string text() const {
    std::string out;
    for (const double share : share_) {
      const int tenths = static_cast<int>(std::lround(10 * share));
      out += tenths <= 0 ? '.' : tenths >= 10 ? '#' : static_cast<char>('0' + tenths);
    }
    return out;
  }

 private:
  const LoopTiming& timing_;
  std::vector<double> share_;
};

int warps_of(const LoopTiming& timing) {
  int most = 0;
  for (const Issued& one : timing.issues) most = std::max(most, one.warp + 1);
  return most;
}

// A warp's strip: the pipe that it issued to most in each column.
std::string warp_strip(const LoopTiming& timing, int warp, int columns) {
  std::vector<std::array<int, 128>> counts(columns);
  for (const Issued& one : timing.issues) {
    if (one.warp != warp) continue;
    const auto column = static_cast<int>((one.cycle - timing.from) / timing.cycles * columns);
    ++counts[std::clamp(column, 0, columns - 1)][kind_of_pipe(one.pipe).letter];
  }
  std::string out;
  for (const auto& count : counts) {
    const auto most = std::max_element(count.begin(), count.end());
    out += *most == 0 ? '.' : static_cast<char>(most - count.begin());
  }
  return out;
}

}  // namespace

std::string timeline_text(const MainLoop& loop, const LoopTiming& timing, const std::string& title) {
  constexpr int kColumns = 80;
  std::string out = title + "\n" +
                    format("main loop of %s at 0x%x to 0x%x: %zu instructions of a warp, %zu of them %s\n",
                           loop.function.c_str(), loop.begin, loop.end, loop.body.size(), loop.products,
                           loop.tensor ? "HMMA" : "FFMA");
  out += format("a turn takes %.0f cycles (predicted); the busiest is: %s\n\n", timing.cycles,
                timing.bound().name);
  out += format("%-22s %8s %7s\n", "resource", "cycles", "busy");
  for (const Busy& busy : timing.busy)
    out += format("%-22s %8.0f %6.1f %%\n", busy.name, busy.cycles, 100 * busy.cycles / timing.cycles);
  out += format("\n%-22s %8s %7s\n", "schedulers idle for", "cycles", "share");
  for (int i = 0; i < kIdles; ++i)
    if (timing.idle[i] >= 0.5)
      out += format("%-22s %8.0f %6.1f %%\n", name_of(static_cast<Idle>(i)), timing.idle[i],
                    100 * timing.idle[i] / timing.cycles);
  out += format("\none turn, %.0f cycles a column; busy in tenths, # is full\n", timing.cycles / kColumns);
  Strip tensor(timing, kColumns), issue(timing, kColumns), shared(timing, kColumns);
  for (const Issued& one : timing.issues) {
    issue.add(one.cycle, 1, 0.25);
    if (one.pipe == (loop.tensor ? Pipe::kTensor : Pipe::kFma)) tensor.add(one.cycle, one.length, 0.25);
  }
  for (const auto& [begin, length] : timing.wavefronts) shared.add(begin, length);
  out += format("%-8s %s\n", loop.tensor ? "tensor" : "fma", tensor.text().c_str());
  out += format("%-8s %s\n", "issue", issue.text().c_str());
  out += format("%-8s %s\n", "shared", shared.text().c_str());
  for (int warp = 0; warp < warps_of(timing); ++warp)
    out += format("warp %-3d %s\n", warp, warp_strip(timing, warp, kColumns).c_str());
  out +=
      "warps: m HMMA, f FMA, s loads and stores, i integers and others, b barriers and branches, . waits\n";
  return out;
}

std::string timeline_svg(const MainLoop& loop, const LoopTiming& timing, const std::string& title) {
  constexpr double kLeft = 110, kWidth = 1000, kRow = 16, kTop = 64;
  const int warps = warps_of(timing);
  const int rows = 4 + 1 + warps;
  const double height = kTop + (rows + 2) * kRow + 24;
  std::string out = svg::text(10, 18, title, "font-size=\"13\"");
  std::string turn =
      format("a turn of %zu instructions: %.0f cycles (predicted)", loop.body.size(), timing.cycles);
  for (const Busy& busy : timing.busy)
    if (busy.cycles >= 0.05 * timing.cycles)
      turn += format("; %s %.0f %%", busy.name, 100 * busy.cycles / timing.cycles);
  out += svg::text(10, 36, turn);
  const auto x = [&](double cycle) { return kLeft + (cycle - timing.from) / timing.cycles * kWidth; };
  const auto y = [&](int row) { return kTop + row * kRow; };
  const auto label = [&](int row, const std::string& text) { out += svg::text(10, y(row) + kRow - 4, text); };
  // Neighbours of one colour are one rectangle.
  struct Bar {
    int row = -1;
    double begin = 0, end = 0;
    const char* colour = "";
  };
  std::vector<Bar> open(rows);
  const auto close = [&](Bar& bar) {
    const double end = std::min(bar.end, timing.from + timing.cycles);
    if (bar.row >= 0 && end > bar.begin)
      out +=
          svg::rect(x(bar.begin), y(bar.row) + 2, std::max(0.3, (end - bar.begin) / timing.cycles * kWidth),
                    kRow - 3, format("fill=\"%s\"", bar.colour));
    bar.row = -1;
  };
  const auto add = [&](int row, double begin, double length, const char* colour) {
    Bar& bar = open[row];
    if (bar.row == row && bar.colour == colour && begin <= bar.end + 0.001) {
      bar.end = std::max(bar.end, begin + length);
      return;
    }
    close(bar);
    bar = {row, begin, begin + length, colour};
  };
  for (int core = 0; core < 4; ++core)
    label(core, format("%s %d", loop.tensor ? "tensor pipe" : "FMA pipe", core));
  label(4, "shared memory");
  for (int warp = 0; warp < warps; ++warp) label(5 + warp, format("warp %d", warp));
  for (const Issued& one : timing.issues) {
    const Kind kind = kind_of_pipe(one.pipe);
    if (one.pipe == (loop.tensor ? Pipe::kTensor : Pipe::kFma))
      add(one.warp % 4, one.cycle, one.length, kind.colour);
    add(5 + one.warp, one.cycle, one.pipe == Pipe::kTensor ? one.length : 1, kind.colour);
  }
  for (const auto& [begin, length] : timing.wavefronts)
    add(4, begin, length, kind_of_pipe(Pipe::kMemory).colour);
  for (Bar& bar : open) close(bar);
  double at = kLeft;
  for (const Pipe pipe :
       {loop.tensor ? Pipe::kTensor : Pipe::kFma, Pipe::kMemory, Pipe::kAlu, Pipe::kBranch}) {
    const Kind kind = kind_of_pipe(pipe);
    out += svg::rect(at, y(rows) + 8, 10, 10, format("fill=\"%s\"", kind.colour)) +
           svg::text(at + 14, y(rows) + 17, kind.name);
    at += 150;
  }
  return svg::document(kLeft + kWidth + 20, height, 11, out);
}

}  // namespace trigen
