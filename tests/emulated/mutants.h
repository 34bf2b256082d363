// Faults that are planted in a kernel's PTX, one at a time: a synchronising instruction that is missing, a
// comparison that is off by one, an address with another constant, a conversion that cuts off.
#pragma once

#include <string>
#include <vector>

namespace trigen::mutations {

// PTX as the compiler made it with line information, and the same without it: what a kernel is made of.
struct Listing {
  struct Line {
    std::string text;
    std::string file, source;  // the template's line that it comes from: file, text
  };
  std::vector<Line> lines;
  std::string ptx() const;
};
// Lines of `ptx/` and of min, max and the like count as their callers'.
Listing read_listing(const std::string& ptx_with_locations);

// One mutant. Its class follows from its kind of instruction and, for comparisons, from the template's line:
//   sync      a synchronising instruction is missing, or has a narrower scope
//   mask      comparisons that make the triangle: off by one, the other way round, always, never
//   bound     comparisons, clamps and zero fills at the edges of T, D, B and of heads
//   index     arithmetic on integers, and addresses: another constant, a term missing, the next element
//   product   a matrix instruction is missing
//   rounding  cut off instead of rounded, sums rounded to f16; in all instructions of a template's line at once
struct Mutant {
  std::string kind, change;   // "mask", "setp.lt.s32: off by one"
  std::string file, source;   // the template's line
  int number = 0, count = 1;  // the instruction among those of the line that can be changed so
  struct Edit {
    size_t line;  // of Listing::lines, counted from 0
    std::string instead;
    int lines = 1;  // it stands for as many
  };
  std::vector<Edit> edits;

  // "mask | setp.lt.s32: off by one | operand.cuh: if (t >= z.T) r = {0, 0};"
  std::string name() const {
    return kind + " | " + change + " | " + file + (source.empty() ? "" : ": " + source);
  }
};

// Every synchronising instruction, and one instruction for each other change of a template's line (the middle
// one: unrolled loops hold many).
std::vector<Mutant> find_mutants(const Listing& listing);
// The numbers of the lines stay.
std::string mutated(const Listing& listing, const Mutant& mutant);
// The same instructions as traps, under their predicates: where they never run, nothing can notice.
Mutant as_traps(const Listing& listing, Mutant mutant);

}  // namespace trigen::mutations
