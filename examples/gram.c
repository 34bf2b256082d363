/* Symmetric products in C: the M orthonormal rows that are nearest to those of X, (X X^T)^(-1/2) X, by
 * Newton-Schulz iterations in Gram form. R = X X^T and every product after it is symmetric, so that gram makes
 * half of each; in f32, checked by the rows' products with one another. */
#include <math.h>
#include <trigen/trigen.h>

#include "device.h"

enum { M = 24, K = 96, STEPS = 12 };

static float x[M][K], q[M][M];

static trigen_plan* plan_of(const char* text) {
  trigen_problem problem = {.struct_size = sizeof problem};
  trigen_plan* plan = NULL;
  device_check(trigen_problem_parse(text, &problem));
  device_check(trigen_plan_create(device_runtime, &problem, TRIGEN_CURRENT_DEVICE, &plan));
  return plan;
}

/* D = A B^T, and with C: 0.375 A B^T - 1.25 C + 1.875 I */
static void gram(trigen_plan* plan, void* a, void* b, void* c, void* d) {
  static void* workspace;
  static size_t size;
  trigen_args args = TRIGEN_ARGS_INIT;
  args.y.data = a;
  args.x.data = b;
  args.w = d;
  if (c) args.residual.data = c, args.alpha = 0.375f, args.beta = -1.25f, args.gamma = 1.875f;
  args.workspace_size = trigen_plan_workspace_size(plan);
  if (args.workspace_size > size) workspace = device_allocate(size = args.workspace_size);
  args.workspace = args.workspace_size ? workspace : NULL;
  device_check(trigen_plan_run(plan, &args, NULL));
}

int main(void) {
  trigen_plan *of_x, *product, *with_c;
  void *on_device, *r, *z, *product_of_z, *next, *swap;
  double norm = 0, worst = 0;
  unsigned state = 1;
  int i, j, k, l, step;

  device_open();
  for (i = 0; i < M; ++i)
    for (k = 0; k < K; ++k) {
      state = state * 1664525u + 1013904223u;
      x[i][k] = (float)(state >> 8) / (1 << 23) - 1.0f;
      norm += (double)x[i][k] * x[i][k];
    }
  for (i = 0; i < M; ++i)
    for (k = 0; k < K; ++k) x[i][k] /= (float)sqrt(norm); /* no singular value is above 1 */
  for (i = 0; i < M; ++i) q[i][i] = 1;

  of_x = plan_of("gram,dtype=f32,B=1,T=24,D=96,epilogue=mirror");
  product = plan_of("gram,dtype=f32,B=1,T=24,D=24,epilogue=mirror");
  with_c = plan_of("gram,dtype=f32,B=1,T=24,D=24,epilogue=residual+mirror");
  on_device = device_allocate(sizeof x);
  r = device_allocate(sizeof q);
  z = device_allocate(sizeof q);
  next = device_allocate(sizeof q);
  product_of_z = device_allocate(sizeof q);
  device_upload(on_device, x, sizeof x);
  device_upload(product_of_z, q, sizeof q);

  gram(of_x, on_device, on_device, NULL, r);
  for (step = 0; step < STEPS; ++step) { /* all of them are polynomials of X X^T: products are symmetric */
    gram(with_c, r, r, r, z);
    gram(product, r, z, NULL, next);
    gram(product, next, z, NULL, r); /* of Z X */
    gram(product, product_of_z, z, NULL, next);
    swap = product_of_z, product_of_z = next, next = swap;
  }
  device_download(q, product_of_z, sizeof q);

  for (i = 0; i < M; ++i)
    for (j = 0; j < M; ++j) {
      double dot = 0, difference;
      for (k = 0; k < K; ++k) {
        double one = 0, two = 0;
        for (l = 0; l < M; ++l) {
          one += (double)q[i][l] * x[l][k];
          two += (double)q[j][l] * x[l][k];
        }
        dot += one * two;
      }
      difference = q[i][j] == q[j][i] ? fabs(dot - (i == j)) : NAN; /* both triangles hold the same bits */
      if (!(difference <= worst)) worst = difference;
    }
  /* The end of the process frees memory, plans and the runtime. */
  printf("largest difference of the rows' products from 0 and 1: %.3g\n", worst);
  if (!(worst <= 1e-4)) {
    fprintf(stderr, "wrong result\n");
    return 1;
  }
  return 0;
}
