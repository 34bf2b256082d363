/* Tunes two problems for a target, ships the choices as one file, and shows that a program which may not compile
 * finds them there: what a build machine and a production machine do. Needs a compiler (NVRTC), no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <trigen/trigen_tune.h>

static const char* const problems[] = {"forward,dtype=f32,B=2,T=48,D=40",
                                       "grad_input,dtype=f32,B=2,T=48,D=40"};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static void require(trigen_status status) {
  if (status == TRIGEN_OK) return;
  fprintf(stderr, "%s: %s\n", trigen_status_name(status), trigen_last_error());
  exit(status == TRIGEN_NO_COMPILER ? 77 : 1);
}

static trigen_runtime* runtime_with(const char* layer, int no_jit) {
  trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
  trigen_runtime* runtime = NULL;
  options.layers = &layer;
  options.layer_count = 1;
  options.no_jit = no_jit;
  require(trigen_runtime_create(&options, &runtime));
  return runtime;
}

static int say(const trigen_tune_result* result, void* count) {
  printf("%s for %s: %s (%s, %.1f us) %s\n", result->problem, result->target, result->candidate,
         result->provenance, 1e6 * result->seconds, result->message);
  ++*(int*)count;
  return 0;
}

/* ship <folder> <target> */
int main(int argc, char** argv) {
  char cache[1024], bundle[1024], production[1024];
  const char *file = bundle, *target = argc > 2 ? argv[2] : "sm_70";
  trigen_tune_options options = TRIGEN_TUNE_OPTIONS_INIT;
  trigen_runtime* runtime;
  int tuned = 0;
  if (argc < 2) {
    fprintf(stderr, "usage: ship FOLDER [TARGET]\n");
    return 2;
  }
  snprintf(cache, sizeof cache, "%s/build.db", argv[1]);
  snprintf(bundle, sizeof bundle, "%s/kernels.trigen", argv[1]);
  snprintf(production, sizeof production, "%s/production.db", argv[1]);

  runtime = runtime_with(cache, 0);
  options.target = target;
  options.predict = 1; /* with a GPU: leave it out, and the choices are measured */
  require(trigen_tune(runtime, problems, PROBLEMS, &options, say, &tuned));
  require(trigen_cache_export(runtime, bundle, &target, 1, problems, PROBLEMS));
  trigen_runtime_destroy(runtime);

  runtime = runtime_with(production, 1);
  require(trigen_cache_import(runtime, &file, 1));
  if (getenv("TRIGEN_DRIVER") !=
      NULL) { /* a device, if only an emulated one: the plan is made without a compiler */
    trigen_problem problem = {.struct_size = sizeof problem};
    trigen_plan* plan = NULL;
    trigen_plan_info info = {.struct_size = sizeof info};
    require(trigen_problem_parse(problems[0], &problem));
    require(trigen_plan_create(runtime, &problem, TRIGEN_CURRENT_DEVICE, &plan));
    require(trigen_plan_describe(plan, &info));
    printf("%s from %s\n", info.candidate, info.binary_from);
    trigen_plan_destroy(plan);
  }
  trigen_runtime_destroy(runtime);
  return tuned == PROBLEMS ? 0 : 1;
}
