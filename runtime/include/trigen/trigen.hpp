// trigen: the C++ interface. A thin, header-only owner of the C one (trigen.h says what everything means);
// C++17.
//
//   trigen::Runtime runtime;
//   trigen::Plan plan = runtime.plan("forward,dtype=bf16,B=32,T=512,D=1024");
//   plan.run(trigen::Args().x(x).w(w).y(y).workspace(space, plan.workspace_size()), stream);
//
// Errors are trigen::Error exceptions. Code without exceptions uses Runtime::try_plan and Plan::try_run,
// which return the status (the text is trigen_last_error()); built with -fno-exceptions, the throwing calls
// abort.
#ifndef TRIGEN_TRIGEN_HPP
#define TRIGEN_TRIGEN_HPP

#include <trigen/trigen.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace trigen {

// The refusal of a C call: who must act, and the text (found, allowed, next step).
class Error : public std::runtime_error {
 public:
  Error(trigen_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  trigen_status status() const noexcept { return status_; }

 private:
  trigen_status status_;
};

inline void check(trigen_status status) {
  if (status == TRIGEN_OK) return;
#if defined(__cpp_exceptions)
  throw Error(status, trigen_last_error());
#else
  std::abort();
#endif
}

// A problem by text or by sizes; every field of the C structure may be changed.
class Problem : public trigen_problem {
 public:
  Problem(const char* text) : trigen_problem() {
    struct_size = sizeof(trigen_problem);
    check(trigen_problem_parse(text, this));
  }
  Problem(const std::string& text) : Problem(text.c_str()) {}
  Problem(trigen_op operation, trigen_dtype type, int64_t batch, int64_t tokens, int64_t features)
      : trigen_problem() {
    struct_size = sizeof(trigen_problem);
    check(trigen_problem_init(this, operation, type, batch, tokens, features));
  }
  // The canonical text.
  std::string text() const {
    size_t needed = 0;
    check(trigen_problem_format(this, nullptr, 0, &needed));
    std::string result(needed, '\0');
    check(trigen_problem_format(this, &result[0], needed, nullptr));
    result.resize(needed - 1);
    return result;
  }
};

// A device tensor with strides in elements; zeros mean contiguous. Inputs may be const.
inline trigen_tensor tensor(const void* data, int64_t batch = 0, int64_t head = 0, int64_t row = 0) noexcept {
  return {const_cast<void*>(data), batch, head, row};
}

// As x or y of newton_schulz: an array of pointers in device memory, to a matrix for each b. As x, y or residual of gram with
// pointers=1: to a matrix for each h.
inline trigen_tensor pointers(const void* const* array, int64_t head = 0, int64_t row = 0) noexcept {
  return {const_cast<void**>(array), TRIGEN_POINTER_ARRAY, head, row};
}

// A scan's vector with strides in elements, of which 0 repeats: one number, unless they say more.
inline trigen_vector vector(const void* data, int64_t head = 0, int64_t token = 0) noexcept {
  return {data, head, token};
}

class Args : public trigen_args {
 public:
  Args() noexcept : trigen_args(TRIGEN_ARGS_INIT) {}
  Args& x(const void* data) noexcept { return x(tensor(data)); }
  Args& x(trigen_tensor view) noexcept { return trigen_args::x = view, *this; }
  Args& y(const void* data) noexcept { return y(tensor(data)); }
  Args& y(trigen_tensor view) noexcept { return trigen_args::y = view, *this; }
  Args& pre(void* data) noexcept { return pre(tensor(data)); }
  Args& pre(trigen_tensor view) noexcept { return trigen_args::pre = view, *this; }
  Args& gate(const void* data) noexcept { return gate(tensor(data)); }
  Args& gate(trigen_tensor view) noexcept { return trigen_args::gate = view, *this; }
  Args& residual(const void* data) noexcept { return residual(tensor(data)); }
  Args& residual(trigen_tensor view) noexcept { return trigen_args::residual = view, *this; }
  Args& w(const void* data, int64_t head = 0, int64_t row = 0) noexcept {
    trigen_args::w = const_cast<void*>(data), w_head = head, w_row = row;
    return *this;
  }
  Args& source(trigen_vector view) noexcept { return trigen_args::source = view, *this; }
  Args& target(trigen_vector view) noexcept { return trigen_args::target = view, *this; }
  Args& decay(trigen_vector view) noexcept { return trigen_args::decay = view, *this; }
  Args& decay(trigen_vector view, float low, float high) noexcept {
    decay_low = low, decay_high = high;
    return decay(view);
  }
  Args& diagonal(trigen_vector view) noexcept { return trigen_args::diagonal = view, *this; }
  Args& bias(const void* data) noexcept { return trigen_args::bias = const_cast<void*>(data), *this; }
  Args& workspace(void* data, size_t bytes) noexcept {
    trigen_args::workspace = data, workspace_size = bytes;
    return *this;
  }
  // w is as in an earlier run with this workspace.
  Args& w_unchanged(bool yes = true) noexcept { return trigen_args::w_unchanged = yes, *this; }
  // decode: the rows of this run.
  Args& rows(int64_t first, int64_t count = 1) noexcept {
    first_row = first, trigen_args::rows = count;
    return *this;
  }
};

class Plan {
 public:
  Plan() = default;
  // Takes ownership.
  explicit Plan(trigen_plan* plan) noexcept : plan_(plan) {}
  explicit operator bool() const noexcept { return plan_ != nullptr; }
  trigen_plan* get() const noexcept { return plan_.get(); }
  // Bytes of device memory, 16-byte aligned, that each run needs.
  size_t workspace_size() const noexcept { return trigen_plan_workspace_size(plan_.get()); }
  // Texts are valid as long as the plan.
  trigen_plan_info describe() const {
    trigen_plan_info info{};
    info.struct_size = sizeof info;
    check(trigen_plan_describe(plan_.get(), &info));
    return info;
  }
  // Asynchronous on a CUstream or cudaStream_t of the plan's context; null = the legacy default stream.
  void run(const trigen_args& args, void* stream = nullptr) const { check(try_run(args, stream)); }
  trigen_status try_run(const trigen_args& args, void* stream = nullptr) const noexcept {
    return trigen_plan_run(plan_.get(), &args, stream);
  }

 private:
  struct Destroy {
    void operator()(trigen_plan* plan) const noexcept { trigen_plan_destroy(plan); }
  };
  std::unique_ptr<trigen_plan, Destroy> plan_;
};

struct Options {
  std::vector<std::string> layers;  // cache files in lookup order; empty: the default order
  bool read_only = false;
  trigen_miss_policy miss = TRIGEN_MISS_FIRST_CHOICE;
  bool no_jit = false;
  bool skip_pointer_checks = false;
  bool skip_canary = false;
  std::string target;  // "" = the device's own
  std::string driver;  // "" = TRIGEN_DRIVER, else libcuda; "emulated:sm_70"
  // Whose signatures cache files of others need; none given: TRIGEN_TRUSTED_KEYS.
  std::optional<std::string> trusted_keys;
};

class Runtime {
 public:
  explicit Runtime(const Options& options = {}) {
    std::vector<const char*> layers;
    for (const std::string& layer : options.layers) layers.push_back(layer.c_str());
    trigen_runtime_options given = TRIGEN_RUNTIME_OPTIONS_INIT;
    if (!layers.empty()) given.layers = layers.data(), given.layer_count = layers.size();
    given.read_only = options.read_only;
    given.miss = options.miss;
    given.no_jit = options.no_jit;
    given.skip_pointer_checks = options.skip_pointer_checks;
    given.skip_canary = options.skip_canary;
    if (!options.target.empty()) given.target = options.target.c_str();
    if (!options.driver.empty()) given.driver = options.driver.c_str();
    if (options.trusted_keys) given.trusted_keys = options.trusted_keys->c_str();
    trigen_runtime* runtime = nullptr;
    check(trigen_runtime_create(&given, &runtime));
    runtime_.reset(runtime);
  }
  trigen_runtime* get() const noexcept { return runtime_.get(); }
  // Make plans outside stream capture. Slow the first time, a fast lookup after that.
  Plan plan(const Problem& problem, int device = TRIGEN_CURRENT_DEVICE) const {
    Plan made;
    check(try_plan(problem, device, &made));
    return made;
  }
  trigen_status try_plan(const trigen_problem& problem, int device, Plan* plan) const noexcept {
    trigen_plan* made = nullptr;
    const trigen_status status = trigen_plan_create(runtime_.get(), &problem, device, &made);
    if (status == TRIGEN_OK) *plan = Plan(made);
    return status;
  }

 private:
  struct Destroy {
    void operator()(trigen_runtime* runtime) const noexcept { trigen_runtime_destroy(runtime); }
  };
  std::unique_ptr<trigen_runtime, Destroy> runtime_;
};

inline std::string version() { return trigen_version_string(); }

}  // namespace trigen

#endif  // TRIGEN_TRIGEN_HPP
