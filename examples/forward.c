/* One causal token mixing in C: y[b,t,d] = sum over s <= t of W[t,s] x[b,s,d], in f32, checked at every
 * element. */
#include <math.h>
#include <trigen/trigen.h>

#include "device.h"

enum { B = 2, T = 48, D = 40 };

static float x[B][T][D], w[T][T], y[B][T][D];

/* Numbers in [-1, 1) that are the same everywhere. */
static float next_number(void) {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (1 << 23) - 1.0f;
}

int main(void) {
  trigen_problem problem = {.struct_size = sizeof(trigen_problem)};
  trigen_plan* plan = NULL;
  trigen_plan_info info = {.struct_size = sizeof(trigen_plan_info)};
  trigen_args args = TRIGEN_ARGS_INIT;
  double worst = 0;
  int b, t, s, d;

  device_open();
  for (b = 0; b < B; ++b)
    for (t = 0; t < T; ++t)
      for (d = 0; d < D; ++d) x[b][t][d] = next_number();
  /* The upper triangle is never read: it may hold anything. */
  for (t = 0; t < T; ++t)
    for (s = 0; s < T; ++s) w[t][s] = s <= t ? next_number() : NAN;

  device_check(trigen_problem_init(&problem, TRIGEN_FORWARD, TRIGEN_F32, B, T, D));
  device_check(trigen_plan_create(device_runtime, &problem, TRIGEN_CURRENT_DEVICE, &plan));
  device_check(trigen_plan_describe(plan, &info));
  printf("%s\n  %s for %s on %s (%s, kernel from %s)\n", info.problem, info.candidate, info.target,
         info.device, info.provenance, info.binary_from);

  args.x.data = device_allocate(sizeof x);
  args.w = device_allocate(sizeof w);
  args.y.data = device_allocate(sizeof y);
  args.workspace_size = trigen_plan_workspace_size(plan);
  args.workspace = device_allocate(args.workspace_size);
  device_upload(args.x.data, x, sizeof x);
  device_upload(args.w, w, sizeof w);
  device_check(trigen_plan_run(plan, &args, NULL));
  device_download(y, args.y.data, sizeof y);

  for (b = 0; b < B; ++b)
    for (t = 0; t < T; ++t)
      for (d = 0; d < D; ++d) {
        double sum = 0, difference;
        for (s = 0; s <= t; ++s) sum += (double)w[t][s] * x[b][s][d];
        difference = fabs(sum - y[b][t][d]);
        if (!(difference <= worst)) worst = difference; /* true for NaN too */
      }
  device_free(args.x.data);
  device_free(args.w);
  device_free(args.y.data);
  device_free(args.workspace);
  trigen_plan_destroy(plan);
  trigen_runtime_destroy(device_runtime);

  /* f32 sums of up to 48 products of numbers up to 1: at most 48 roundings of 48 * 2^-24. */
  printf("largest difference from the CPU's sums: %.3g\n", worst);
  if (!(worst <= 48.0 * 48.0 / (1 << 24))) {
    fprintf(stderr, "wrong result\n");
    return 1;
  }
  return 0;
}
