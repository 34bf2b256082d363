// A loop's timing as text and as a picture.
#pragma once

#include "lab/clock/schedule.h"

namespace trigen {

// Timing of a loop as text: its bound, slots used of each resource, idle schedulers, and a strip a resource and
// warp over one turn. `title` names kernel, target and GPU.
std::string timeline_text(const MainLoop& loop, const LoopTiming& timing, const std::string& title);
// The same as an SVG: a band for each sub-core's tensor pipe and for shared memory, a row for each warp.
std::string timeline_svg(const MainLoop& loop, const LoopTiming& timing, const std::string& title);

}  // namespace trigen
