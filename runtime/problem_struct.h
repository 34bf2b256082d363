// trigen_problem, the structure of the C interface, and Problem: read and written through the table of
// fields.
#pragma once

#include <array>
#include <string>

#include "generator/problem_fields.h"
#include "runtime/include/trigen/trigen.h"

namespace trigen {

// Error: a bad request, for null and for the struct_size of another version's header.
llvm::Error check_struct_size(const trigen_problem* problem);

// A valid problem, with the default wherever the structure has what stands for it, or what is wrong with the
// structure. Errors: bad requests.
llvm::Expected<Problem> problem_of(const trigen_problem* problem);
trigen_problem struct_of(const Problem& problem);
// The fields that are given, and what stands for the default (else the default itself) in all others.
trigen_problem struct_of_sizes(int op, int dtype, int64_t B, int64_t T, int64_t D);

// The value of every field, in the table's order: equal for equal structures.
using ProblemWords = std::array<int64_t, kProblemFields>;
ProblemWords words_of(const trigen_problem& problem);

// The structure and its fields as JSON, for other languages to compare their own view with:
//   {"struct_size":168,"fields":[{"name":"op","bytes":4,"offset":8,"place":"first","values":["forward",...]},...]}
// in the order of the text form. place: of the text form, "first", "key" or "part" (of epilogue=).
std::string describe_problem_fields();

}  // namespace trigen
