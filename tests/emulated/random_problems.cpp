// Prints random small problems, one a line: random_problems SEED COUNT [no-tf32]. The same seed gives the
// same problems.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/unit/random_problem.h"

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: random_problems SEED COUNT [no-tf32]\n");
    return 2;
  }
  const bool tf32 = count < 4 || std::strcmp(arguments[3], "no-tf32") != 0;
  trigen::RandomProblem random(std::strtoull(arguments[1], nullptr, 10));
  std::printf("# seed %s\n", arguments[1]);
  for (int left = std::atoi(arguments[2]); left > 0;) {
    // Everything but the sizes is the generator's; the sizes are those that the emulated device computes in
    // no time.
    trigen::Problem p = random.next();
    p.B = 1 + random.pick(3), p.H = 1 + random.pick(3), p.K = random.coin() ? 1 : 1 + random.pick(5);
    p.T = 1 + random.pick(random.coin() ? 20 : 140), p.D = 1 + random.pick(random.coin() ? 20 : 140);
    if (random.coin()) p.T = (p.T + 7) / 8 * 8, p.D = (p.D + 7) / 8 * 8;
    p.pad = random.pick(p.K);
    p.diag = random.coin() ? 0 : random.pick(2 * p.T - 1) - (p.T - 1);
    set_contiguous_alignment(p);
    if (!tf32 && p.math == trigen::Math::kTF32) continue;
    if (llvm::Error error = validate(p)) {
      llvm::consumeError(std::move(error));
      continue;
    }
    std::printf("%s\n", to_string(p).c_str());
    --left;
  }
  return 0;
}
