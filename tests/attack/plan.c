/* One plan of P (forward, f16, B=1, T=160, D=64), run on small integers, every row compared: what an
 * application sees of a cache. Exit status: 0 right, 1 refused with a text, 4 wrong rows,
 * 5 lost what it had on the device.
 *   plan run [SEED]      an odd SEED has NaN in w above the diagonal, an even one numbers
 *   plan threads N       N threads, three plans each
 *   plan create N        N threads that only create and destroy a plan
 *   plan fork N          N children beside three threads that create, run, destroy; says how many hang */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <trigen/trigen_memory.h>
#include <unistd.h>

enum { T = 160, D = 64, kRight = 0, kRefused = 1, kWrong = 4, kMemoryLost = 5 };
static const char kProblem[] = "forward,dtype=f16,B=1,T=160,D=64";

static uint16_t half(int value) { /* of -3 to 3 */
  static const uint16_t of[] = {0, 0x3c00, 0x4000, 0x4200};
  return value < 0 ? of[-value] | 0x8000 : of[value];
}
/* Whole numbers up to 2048 are exact, and sums of 160 products of such small ones stay below. Subnormal numbers are
 * smaller than what the gate of `trigen verify` allows here, and count as 0. */
static int same(uint16_t bits, int expected) {
  const int exponent = (bits >> 10 & 31) - 25, mantissa = (bits & 0x3ff) | 0x400;
  if ((bits & 0x7c00) == 0) return expected == 0;
  if (exponent > 0 || exponent < -10 || (mantissa & ((1 << -exponent) - 1)) != 0) return 0;
  return (bits >> 15 ? -1 : 1) * (mantissa >> -exponent) == expected;
}

static int said(const char* what) {
  fprintf(stderr, "plan: %s: %s\n", what, trigen_last_error());
  return kRefused;
}
#define TRY(call)                                \
  do {                                           \
    if ((call) != TRIGEN_OK) return said(#call); \
  } while (0)

static int create(trigen_runtime* runtime, trigen_plan** plan) {
  trigen_problem problem = {.struct_size = sizeof problem};
  TRY(trigen_problem_parse(kProblem, &problem));
  TRY(trigen_plan_create(runtime, &problem, 0, plan));
  return kRight;
}

static int run_plan(trigen_runtime* runtime, trigen_plan* plan, unsigned seed) {
  static const int kRange = 7;
  uint16_t x[T * D], w[T * T], y[T * D];
  int small_x[T * D], small_w[T * T], wrong = 0;
  unsigned state = seed;
  for (int i = 0; i < T * D; ++i) x[i] = half(small_x[i] = (int)(rand_r(&state) >> 4) % kRange - 3);
  for (int i = 0; i < T * T; ++i) {
    w[i] = half(small_w[i] = (int)(rand_r(&state) >> 4) % kRange - 3);
    if (seed % 2 == 1 && i % T > i / T) w[i] = 0x7e00;
  }
  memset(y, 0xff, sizeof y);
  trigen_args args = TRIGEN_ARGS_INIT;
  args.workspace_size = trigen_plan_workspace_size(plan);
  TRY(trigen_memory_allocate(runtime, 0, sizeof x, &args.x.data));
  TRY(trigen_memory_allocate(runtime, 0, sizeof w, &args.w));
  TRY(trigen_memory_allocate(runtime, 0, sizeof y, &args.y.data));
  TRY(trigen_memory_allocate(runtime, 0, args.workspace_size, &args.workspace));
  TRY(trigen_memory_write(runtime, 0, args.x.data, x, sizeof x));
  TRY(trigen_memory_write(runtime, 0, args.w, w, sizeof w));
  TRY(trigen_memory_write(runtime, 0, args.y.data, y, sizeof y));
  TRY(trigen_plan_run(plan, &args, NULL));
  TRY(trigen_memory_read(runtime, 0, y, args.y.data, sizeof y));
  for (int t = 0; t < T; ++t) {
    int row = 0;
    for (int d = 0; d < D; ++d) {
      int sum = 0;
      for (int s = 0; s <= t; ++s) sum += small_w[t * T + s] * small_x[s * D + d];
      row |= !same(y[t * D + d], sum);
    }
    wrong += row;
  }
  void* const all[] = {args.x.data, args.w, args.y.data, args.workspace};
  for (int i = 0; i < 4; ++i) TRY(trigen_memory_free(runtime, 0, all[i]));
  if (wrong == 0) return kRight;
  fprintf(stderr, "plan: %d of %d rows wrong\n", wrong, T);
  return kWrong;
}

/* What the application has on the device outlives whatever a plan tried there. */
static int once(unsigned seed, int runs) {
  trigen_runtime* runtime;
  trigen_plan* plan = NULL;
  void* own = NULL;
  char kept[8] = "";
  TRY(trigen_runtime_create(NULL, &runtime));
  if (runs) {
    TRY(trigen_memory_allocate(runtime, 0, sizeof kept, &own));
    TRY(trigen_memory_write(runtime, 0, own, "precious", sizeof kept));
  }
  int result = create(runtime, &plan);
  if (runs && (trigen_memory_read(runtime, 0, kept, own, sizeof kept) != TRIGEN_OK ||
               memcmp(kept, "precious", sizeof kept) != 0)) {
    said("the application's own memory is lost");
    result = kMemoryLost;
  }
  if (runs) trigen_memory_free(runtime, 0, own);
  if (result == kRight && runs) result = run_plan(runtime, plan, seed);
  trigen_plan_destroy(plan);
  trigen_runtime_destroy(runtime);
  return result;
}

static atomic_int worst, stop;
static void worse(int result) {
  int now = atomic_load(&worst);
  while (now < result && !atomic_compare_exchange_weak(&worst, &now, result)) {
  }
}
static void* thrice(void* runs) {
  for (unsigned i = 0; i < (runs ? 3 : 1); ++i) worse(once(i, runs != NULL));
  return NULL;
}
static void* on_and_on(void* runs) {
  while (!atomic_load(&stop)) worse(once(0, runs != NULL));
  return NULL;
}

static int many(int count, int runs) {
  pthread_t* const threads = calloc((size_t)count, sizeof *threads);
  int made = 0;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 512 << 10);
  while (made < count && pthread_create(&threads[made], &small, thrice, runs ? &worst : NULL) == 0) ++made;
  for (int i = 0; i < made; ++i) pthread_join(threads[i], NULL);
  free(threads);
  printf("threads %d\n", made);
  return atomic_load(&worst);
}

static int forks(int count) {
  pthread_t threads[3];
  int hung = 0, killed = 0, wrong = 0, alive = 0;
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, on_and_on, i == 0 ? &worst : NULL);
  for (int i = 0; i < count || alive > 0;) {
    if (i < count && alive < 4) {
      usleep(2000);
      const pid_t child = fork();
      if (child == 0) {
        alarm(10);
        _exit(once(1, 1));
      }
      ++i;
      alive += child > 0;
      continue;
    }
    int status;
    if (wait(&status) <= 0) break;
    --alive;
    hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    killed += WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM;
    wrong += WIFEXITED(status) && WEXITSTATUS(status) == kWrong;
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  printf("hung %d killed %d wrong %d\n", hung, killed, wrong);
  return atomic_load(&worst);
}

int main(int count, char** words) {
  const char* const what = count > 1 ? words[1] : "run";
  const int number = count > 2 ? atoi(words[2]) : 0;
  if (strcmp(what, "run") == 0) return once((unsigned)number, 1);
  if (strcmp(what, "threads") == 0) return many(number, 1);
  if (strcmp(what, "create") == 0) return many(number, 0);
  if (strcmp(what, "fork") == 0) return forks(number);
  fprintf(stderr, "plan: found '%s'; allowed are run, threads, create and fork\n", what);
  return 2;
}
