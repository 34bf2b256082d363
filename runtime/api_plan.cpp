// The C boundary: runtimes and plans.
#include <atomic>
#include <tuple>

#include "generator/cost/dense.h"
#include "generator/slow_path.h"
#include "runtime/api.h"
#include "runtime/plan_log.h"
#include "runtime/plan_table.h"

using namespace trigen;
using namespace trigen::api;

namespace {

// A plan that was made, with the texts that trigen_plan_describe hands out.
struct Resolved {
  std::shared_ptr<const Plan> plan;
  std::string problem, candidate, slow;

  // The dense product's estimate asks the device for its clocks: when a plan is described, not when it is made.
  struct Dense {
    std::string remark;
    double us = 0;
  };
  const Dense& dense() const {
    std::call_once(dense_made_, [this] {
      const Resolution& resolution = plan->resolution();
      const Device& device = plan->executable().device();
      const double seconds = dense_seconds(resolution.candidate.problem, device.gpu(), device.model());
      dense_.us = seconds * 1e6;
      dense_.remark = dense_remark(resolution.candidate.problem.op,
                                   {.seconds = resolution.expected_us * 1e-6,
                                    .measured = resolution.provenance == Provenance::kMeasured,
                                    .dense_s = seconds});
    });
    return dense_;
  }

 private:
  mutable std::once_flag dense_made_;
  mutable Dense dense_;
};

// A request as it comes: the caller's structure, the ordinal, and the context that was current. The same
// request finds the same plan without a text being made or a device being asked.
struct Request {
  ProblemWords words{};
  int ordinal = 0;
  cuda::CUcontext current = nullptr;
  bool operator==(const Request&) const = default;

  Request(const trigen_problem& problem, int ordinal_, cuda::CUcontext current_)
      : words(words_of(problem)), ordinal(ordinal_), current(current_) {}
};

struct RequestHash {
  size_t operator()(const Request& request) const {
    uint64_t hash = static_cast<uint64_t>(request.ordinal) ^ reinterpret_cast<uintptr_t>(request.current);
    for (const int64_t word : request.words)
      hash = (hash ^ static_cast<uint64_t>(word) ^ hash >> 29) * 0x9e3779b97f4a7c15ull;
    return static_cast<size_t>(hash ^ hash >> 32);
  }
};

}  // namespace

struct trigen_runtime {
  Store::Options store_options;
  PlanOptions plan_options;
  std::string driver;
  std::atomic<const DriverApi*> api{nullptr};  // of the driver, once a plan was asked for

  std::mutex mutex;  // guards what follows
  std::unique_ptr<Store> store;
  // Problem text, device, context: a plan made once serves every later request. A few KB each.
  static constexpr size_t kMostPlans = 4096;
  PlanTable<std::tuple<std::string, const Device*, cuda::CUcontext>, Request, RequestHash, Resolved> plans{
      kMostPlans};

  Store& open_store() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!store) store = Store::open(store_options);
    return *store;
  }
};

struct trigen_plan {
  std::shared_ptr<const Resolved> resolved;
  const Plan* plan = nullptr;  // resolved's
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

llvm::Expected<std::shared_ptr<const Resolved>> make_plan(trigen_runtime& runtime,
                                                          const trigen_problem* given, int ordinal) {
  auto problem = problem_of(given);
  if (!problem) return problem.takeError();
  auto device = find_device(runtime, ordinal);
  if (!device) return device.takeError();
  cuda::CUcontext current = nullptr;  // before a primary context is made
  const bool known = (*device)->api().cuCtxGetCurrent(&current) == cuda::CUDA_SUCCESS;
  auto context = (*device)->context();
  if (!context) return context.takeError();
  const auto key = std::make_tuple(to_string(*problem), *device, *context);
  const auto keep = [&](const std::shared_ptr<const Resolved>& resolved) {
    if (known) runtime.plans.remember(Request(*given, ordinal, current), resolved);
    runtime.api.store(&(*device)->api(), std::memory_order_release);
    return resolved;
  };
  {
    const std::lock_guard<std::mutex> lock(runtime.mutex);
    if (auto found = runtime.plans.find(key)) return keep(found);
  }
  // Made outside the lock: other problems need not wait for this compile. Two threads that ask for one
  // problem at once share its compile through the cache's lease, and the first to finish gives the plan.
  PlanLog log(std::get<0>(key), **device);
  auto plan = Plan::create(*problem, **device, runtime.open_store(), runtime.plan_options);
  if (!plan) return log.failed(plan.takeError());
  auto resolved = std::make_shared<Resolved>();
  resolved->problem = to_string((*plan)->problem());
  const Candidate& candidate = (*plan)->resolution().candidate;
  resolved->candidate = describe(candidate);
  resolved->slow = slow_path_warning(candidate, (*device)->target());
  log.made((*plan)->resolution(), resolved->slow);
  resolved->plan = std::move(*plan);
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  return keep(runtime.plans.add(key, std::move(resolved)));
}

// The plan of a request that was answered before; null for any other.
std::shared_ptr<const Resolved> find_plan(trigen_runtime& runtime, const trigen_problem* given, int ordinal) {
  const DriverApi* api = runtime.api.load(std::memory_order_acquire);
  cuda::CUcontext current = nullptr;
  if (api == nullptr || given == nullptr || given->struct_size != sizeof(trigen_problem) ||
      api->cuCtxGetCurrent(&current) != cuda::CUDA_SUCCESS)
    return nullptr;
  const Request request(*given, ordinal, current);
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  return runtime.plans.answer(request);
}

// Its modules are unloaded, which takes locks too. Where those are lost (cache/lock.h) it stays.
template <typename Object>
void destroy(Object* object) {
  const cache::Call call;
  if (call.allowed()) delete object;
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
    if (given.skip_canary != 0) made->plan_options.canary = false;
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
    if (given.trusted_keys != nullptr) made->store_options.trusted_keys = given.trusted_keys;
    made->store_options.log = [](const std::string& line) { log_line(LogLevel::kWarning, line); };
    *runtime = made.release();
    return TRIGEN_OK;
  });
}

void trigen_runtime_destroy(trigen_runtime* runtime) noexcept { destroy(runtime); }

trigen_status trigen_plan_create(trigen_runtime* runtime, const trigen_problem* problem, int device,
                                 trigen_plan** plan) noexcept {
  if (plan == nullptr) return set_error(TRIGEN_BAD_REQUEST, "plan is null");
  *plan = nullptr;
  if (runtime == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, "runtime is null; make one with trigen_runtime_create");
  return guarded_call([&] {
    auto resolved = find_plan(*runtime, problem, device);
    if (!resolved) {
      auto made = make_plan(*runtime, problem, device);
      if (!made) return give(made.takeError());
      resolved = std::move(*made);
    }
    auto handle = std::make_unique<trigen_plan>();
    handle->plan = resolved->plan.get();
    handle->resolved = std::move(resolved);
    *plan = handle.release();
    return TRIGEN_OK;
  });
}

void trigen_plan_destroy(trigen_plan* plan) noexcept { destroy(plan); }

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
  const Resolved::Dense* dense = nullptr;
  const trigen_status made = guarded_call([&] {
    dense = &plan->resolved->dense();
    return TRIGEN_OK;
  });
  if (made != TRIGEN_OK) return made;
  const Resolution& resolution = plan->plan->resolution();
  const Device& device = plan->plan->executable().device();
  info->problem = plan->resolved->problem.c_str();
  info->device = device.info().name.c_str();
  info->target = resolution.candidate.target->name.data();
  info->candidate = plan->resolved->candidate.c_str();
  info->provenance = resolution.provenance == Provenance::kMeasured ? "measured" : "predicted";
  info->match = name_of(resolution.match);
  info->difference = resolution.difference.c_str();
  info->layer = resolution.layer.c_str();
  info->binary_from = resolution.origin == BinaryOrigin::kCompiled ? "compiled" : "cache";
  info->compiler = resolution.binary.key.compiler.c_str();
  info->slow = plan->resolved->slow.c_str();
  info->dense = dense->remark.c_str();
  info->expected_us = resolution.expected_us;
  info->dense_us = dense->us;
  info->workspace_bytes = static_cast<size_t>(plan->plan->workspace_bytes());
  info->loaded_ptx = plan->plan->executable().from_ptx();
  info->device_ordinal = device.info().ordinal;
  const LaunchPlan& launches = plan->plan->executable().launch_plan();
  info->prepared_bytes = static_cast<size_t>(launches.prepared_bytes);
  info->prepared = launches.prepared.c_str();
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

namespace trigen::api {

llvm::Expected<const Device*> device_of(const trigen_runtime& runtime, int ordinal) {
  return find_device(runtime, ordinal);
}
Store& store_of(trigen_runtime& runtime) { return runtime.open_store(); }
const Store::Options& store_options_of(const trigen_runtime& runtime) { return runtime.store_options; }
bool no_jit_of(const trigen_runtime& runtime) { return runtime.plan_options.no_jit; }

}  // namespace trigen::api
