// The C boundary: runtimes and plans.
#include <map>
#include <tuple>

#include "runtime/api.h"

using namespace trigen;
using namespace trigen::api;

struct trigen_runtime {
  Store::Options store_options;
  PlanOptions plan_options;
  std::string driver;

  std::mutex mutex;  // guards what follows
  std::unique_ptr<Store> store;
  // Problem text, device, context: a plan made once serves every later request.
  std::map<std::tuple<std::string, const Device*, cuda::CUcontext>, std::shared_ptr<const Plan>> plans;

  Store& open_store() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!store) store = Store::open(store_options);
    return *store;
  }
};

struct trigen_plan {
  std::shared_ptr<const Plan> plan;
  std::string problem, candidate;  // for describe
};

namespace {

const char* name_of(Match match) {
  return match == Match::kExact ? "exact" : match == Match::kNear ? "near" : "none";
}

llvm::Expected<const Device*> find_device(const trigen_runtime& runtime, int ordinal) {
  auto driver = Driver::load(runtime.driver);
  if (!driver) return driver.takeError();
  if (ordinal != TRIGEN_CURRENT_DEVICE) return Device::open(**driver, ordinal);
  cuda::CUcontext context = nullptr;
  cuda::CUdevice device = 0;
  const DriverApi& api = (*driver)->api();
  if (api.cuCtxGetCurrent(&context) != cuda::CUDA_SUCCESS || context == nullptr ||
      api.cuCtxGetDevice(&device) != cuda::CUDA_SUCCESS)
    device = 0;
  return Device::open(**driver, device);
}

llvm::Expected<std::shared_ptr<const Plan>> make_plan(trigen_runtime& runtime, const trigen_problem* given,
                                                      int ordinal) {
  auto problem = problem_of(given);
  if (!problem) return problem.takeError();
  auto device = find_device(runtime, ordinal);
  if (!device) return device.takeError();
  auto context = (*device)->context();
  if (!context) return context.takeError();
  const auto key = std::make_tuple(to_string(*problem), *device, *context);
  {
    const std::lock_guard<std::mutex> lock(runtime.mutex);
    const auto found = runtime.plans.find(key);
    if (found != runtime.plans.end()) return found->second;
  }
  // Made outside the lock: other problems need not wait for this compile. Two threads that ask for one
  // problem at once share its compile through the cache's lease, and the first to finish gives the plan.
  auto plan = Plan::create(*problem, **device, runtime.open_store(), runtime.plan_options);
  if (!plan) return plan.takeError();
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  return runtime.plans.emplace(key, *plan).first->second;
}

}  // namespace

extern "C" {

trigen_status trigen_runtime_create(const trigen_runtime_options* options,
                                    trigen_runtime** runtime) noexcept {
  if (runtime == nullptr) return set_error(TRIGEN_BAD_REQUEST, "runtime is null");
  *runtime = nullptr;
  return guarded([&] {
    const trigen_runtime_options defaults = TRIGEN_RUNTIME_OPTIONS_INIT;
    const trigen_runtime_options& given = options == nullptr ? defaults : *options;
    if (given.struct_size != sizeof(trigen_runtime_options))
      return set_error(TRIGEN_BAD_REQUEST, "trigen_runtime_options has struct_size " +
                                               std::to_string(given.struct_size) + ", this library's is " +
                                               std::to_string(sizeof(trigen_runtime_options)) +
                                               "; start from TRIGEN_RUNTIME_OPTIONS_INIT");
    if (given.miss < TRIGEN_MISS_FIRST_CHOICE || given.miss > TRIGEN_MISS_ERROR)
      return set_error(
          TRIGEN_BAD_REQUEST,
          "trigen_runtime_options.miss is " + std::to_string(given.miss) +
              "; allowed are TRIGEN_MISS_FIRST_CHOICE, TRIGEN_MISS_GENERIC and TRIGEN_MISS_ERROR");
    if (given.layers == nullptr && given.layer_count > 0)
      return set_error(TRIGEN_BAD_REQUEST, "trigen_runtime_options.layers is null, layer_count is " +
                                               std::to_string(given.layer_count));
    auto made = std::make_unique<trigen_runtime>();
    made->plan_options = plan_options_from_environment();
    made->plan_options.miss = static_cast<MissPolicy>(given.miss);
    if (given.no_jit != 0) made->plan_options.no_jit = true;
    if (given.skip_pointer_checks != 0) made->plan_options.check_pointers = false;
    if (given.target != nullptr) made->plan_options.target = given.target;
    if (!made->plan_options.target.empty()) {
      auto target = find_target(made->plan_options.target);
      if (!target) return give(target.takeError());
    }
    if (given.driver != nullptr) made->driver = given.driver;
    for (size_t i = 0; i < given.layer_count; ++i) {
      if (given.layers[i] == nullptr)
        return set_error(TRIGEN_BAD_REQUEST,
                         "trigen_runtime_options.layers[" + std::to_string(i) + "] is null");
      made->store_options.layers.push_back(given.layers[i]);
    }
    made->store_options.read_only = given.read_only != 0;
    *runtime = made.release();
    return TRIGEN_OK;
  });
}

void trigen_runtime_destroy(trigen_runtime* runtime) noexcept { delete runtime; }

trigen_status trigen_plan_create(trigen_runtime* runtime, const trigen_problem* problem, int device,
                                 trigen_plan** plan) noexcept {
  if (plan == nullptr) return set_error(TRIGEN_BAD_REQUEST, "plan is null");
  *plan = nullptr;
  if (runtime == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, "runtime is null; make one with trigen_runtime_create");
  return guarded([&] {
    auto made = make_plan(*runtime, problem, device);
    if (!made) return give(made.takeError());
    auto handle = std::make_unique<trigen_plan>();
    handle->problem = to_string((*made)->problem());
    handle->candidate = describe((*made)->resolution().candidate);
    handle->plan = std::move(*made);
    *plan = handle.release();
    return TRIGEN_OK;
  });
}

void trigen_plan_destroy(trigen_plan* plan) noexcept { delete plan; }

size_t trigen_plan_workspace_size(const trigen_plan* plan) noexcept {
  return plan == nullptr ? 0 : static_cast<size_t>(plan->plan->workspace_bytes());
}

trigen_status trigen_plan_describe(const trigen_plan* plan, trigen_plan_info* info) noexcept {
  if (plan == nullptr || info == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, plan == nullptr ? "plan is null" : "info is null");
  if (info->struct_size != sizeof(trigen_plan_info))
    return set_error(TRIGEN_BAD_REQUEST, "trigen_plan_info has struct_size " +
                                             std::to_string(info->struct_size) + ", this library's is " +
                                             std::to_string(sizeof(trigen_plan_info)) +
                                             "; set it to sizeof(trigen_plan_info)");
  const Resolution& resolution = plan->plan->resolution();
  const Device& device = plan->plan->executable().device();
  info->problem = plan->problem.c_str();
  info->device = device.info().name.c_str();
  info->target = resolution.candidate.target->name.data();
  info->candidate = plan->candidate.c_str();
  info->provenance = resolution.provenance == Provenance::kMeasured ? "measured" : "predicted";
  info->match = name_of(resolution.match);
  info->difference = resolution.difference.c_str();
  info->layer = resolution.layer.c_str();
  info->binary_from = resolution.origin == BinaryOrigin::kCompiled ? "compiled" : "cache";
  info->compiler = resolution.binary.key.compiler.c_str();
  info->expected_us = resolution.expected_us;
  info->workspace_bytes = static_cast<size_t>(plan->plan->workspace_bytes());
  info->loaded_ptx = plan->plan->executable().from_ptx();
  info->device_ordinal = device.info().ordinal;
  return TRIGEN_OK;
}

trigen_status trigen_plan_run(const trigen_plan* plan, const trigen_args* args, void* stream) noexcept {
  if (plan == nullptr || args == nullptr)
    return set_error(TRIGEN_BAD_REQUEST,
                     plan == nullptr ? "plan is null" : "args is null; start from TRIGEN_ARGS_INIT");
  try {
    if (llvm::Error error = plan->plan->run(*args, static_cast<cuda::CUstream>(stream)))
      return give(std::move(error));
    return TRIGEN_OK;
  } catch (...) {
    return set_error(TRIGEN_INTERNAL_ERROR, "unexpected exception in a run");
  }
}

}  // extern "C"
