#include "runtime/executable.h"

#include <map>
#include <mutex>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "runtime/image.h"
#include "runtime/tensor_map.h"

namespace trigen {

using namespace cuda;

namespace {

constexpr uint32_t kSharedWithoutOptIn = 48 << 10;  // bytes; more needs the function attribute
constexpr uint32_t kPortableCluster = 8;

struct Module {
  const DriverApi* api = nullptr;
  CUcontext context = nullptr;
  CUmodule handle = nullptr;
  bool from_ptx = false;
  ~Module() {
    if (handle == nullptr) return;
    // Fails harmlessly when the context or the driver is gone already.
    const ContextScope scope(*api, context);
    if (scope.result() == CUDA_SUCCESS) api->cuModuleUnload(handle);
  }
};

// Plans of one binary in one context (other batch sizes) share its module.
struct ModuleTable {
  std::mutex mutex;
  std::map<std::tuple<CUcontext, std::string, bool>, std::weak_ptr<Module>> modules;
  static ModuleTable& get() {
    static ModuleTable* const table = new ModuleTable;
    return *table;
  }
};

// The next step for a refused image, by the driver's code.
std::string load_advice(CUresult result, const Device& device, const Binary& binary) {
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    return "a stream capture is under way: make the plan before it begins";
  if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
    return "the PTX of " + binary.key.compiler + " is newer than driver " + device.driver().version() +
           ": compile with an older NVRTC (TRIGEN_NVRTC), or update the driver";
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
    return "the binary is for " + binary.key.arch + ", the device is sm_" +
           std::to_string(device.info().major * 10 + device.info().minor) + ": name a target that it runs";
  if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX)
    return "the cached binary is damaged or not one: remove it with `trigen cache`, and compile it anew";
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return "free device memory and make the plan again";
  return "";
}

// A config is checked where it is parsed; this is the last look before a driver is given numbers that a file
// had a part in. "" or what is out of range.
std::string refuse_geometry(const Launch& launch, const DeviceInfo& device) {
  constexpr uint32_t kMostGrid[] = {0x7fffffffu, 65535, 65535}, kMostBlock = 1024, kMostCluster = 16;
  const std::string of = " of " + launch.entry + " is ";
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.grid[i] > kMostGrid[i])
      return "grid axis " + std::to_string(i) + of + std::to_string(launch.grid[i]) + "; allowed are 1 to " +
             std::to_string(kMostGrid[i]);
    if (launch.block[i] == 0 || launch.block[i] > kMostBlock || (threads *= launch.block[i]) > kMostBlock)
      return "the block" + of + std::to_string(launch.block[0]) + "x" + std::to_string(launch.block[1]) +
             "x" + std::to_string(launch.block[2]) + "; allowed are 1 to " + std::to_string(kMostBlock) +
             " threads";
  }
  if (launch.cluster == 0 || launch.cluster > kMostCluster || launch.grid[0] % launch.cluster != 0)
    return "the cluster" + of + std::to_string(launch.cluster) + " for a grid of " +
           std::to_string(launch.grid[0]) + "; allowed are divisors of that up to " +
           std::to_string(kMostCluster);
  if (device.max_shared_per_block > 0 && launch.shared_bytes > device.max_shared_per_block)
    return "shared memory" + of + std::to_string(launch.shared_bytes) + " B; the device allows " +
           std::to_string(device.max_shared_per_block) + " B";
  return {};
}

struct Image {
  const std::string* bytes;
  bool ptx;
};

// A binary of another version, or a stranger's, may take other parameters: "" or what they are, before the driver
// sees it and not with an illegal access later.
std::string refuse_parameters(const Image& image, const Launch& launch) {
  const auto taken = (image.ptx ? ptx_parameters : cubin_parameters)(*image.bytes, launch.entry);
  std::vector<uint32_t> passed(1 + launch.maps.size(), sizeof(CUtensorMap));
  passed[0] = sizeof(Params);
  if (taken == passed) return {};
  const auto list = [](const std::vector<uint32_t>& sizes) {
    return llvm::join(llvm::map_range(sizes, [](uint32_t bytes) { return std::to_string(bytes); }), ", ");
  };
  return launch.entry + ": " +
         (taken ? "the binary takes parameters of " + list(*taken) + " bytes"
                : std::string("the binary does not say what parameters it takes")) +
         ", this version passes " + list(passed) + "; remove it from the cache";
}

CUresult load_image(const DriverApi& api, const Image& image, CUmodule* module, std::string& log) {
  log.assign(8192, '\0');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // The driver takes sizes as pointers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  const CUresult result = api.cuModuleLoadDataEx(module, image.bytes->c_str(), 2, options, values);
  log.resize(log.find('\0'));
  return result;
}

}  // namespace

Executable::~Executable() = default;

llvm::Expected<std::shared_ptr<const Executable>> Executable::load(const Device& device, CUcontext context,
                                                                   const Candidate& candidate,
                                                                   const Binary& binary, LoadFrom from) {
  const Driver& driver = device.driver();
  const DriverApi& api = driver.api();
  const Target& target = *candidate.target;
  const std::string what = to_string(candidate.problem) + "; " + describe(candidate) + " for " +
                           target.name.str() + " on " + device.info().spec() + " (" + device.info().name +
                           ")";

  std::vector<Image> images;
  if (from == LoadFrom::kCubin || (from == LoadFrom::kAuto && device.runs_cubin_of(target)))
    if (!binary.cubin.empty()) images.push_back({&binary.cubin, false});
  if (from != LoadFrom::kCubin && device.runs_ptx_of(target) && !binary.ptx.empty())
    images.push_back({&binary.ptx, true});
  if (images.empty())
    return make_error(ErrorKind::kUnsupported,
                      what + ": kernels of that target do not run there; the device takes " +
                          device.target().name.str() +
                          " and older targets' PTX (targets with an 'a' run on their own capability only)");

  const ContextScope scope(api, context);
  if (llvm::Error error = driver.check(scope.result(), "cuCtxPushCurrent", what)) return error;
  const RelaxedCapture relaxed(api);

  auto executable = std::make_shared<Executable>();
  executable->candidate_ = candidate;
  executable->device_ = &device;
  executable->api_ = &api;
  executable->context_ = context;
  executable->plan_ = launch_plan_on(candidate, device.info().sms);
  std::shared_ptr<Module> module;
  const std::string digest = binary.key.digest();
  llvm::Error refusal = llvm::Error::success();
  for (const Image& image : images) {
    std::string wrong;
    for (const Launch& launch : executable->plan_.launches)
      if (wrong.empty()) wrong = refuse_parameters(image, launch);
    if (!wrong.empty()) {
      refusal = llvm::joinErrors(std::move(refusal),
                                 make_error(ErrorKind::kCache, (image.ptx ? "PTX: " : "a cubin: ") +
                                                                   llvm::Twine(what) + ": " + wrong));
      continue;
    }
    const auto key = std::make_tuple(context, digest, image.ptx);
    ModuleTable& table = ModuleTable::get();
    const std::lock_guard<std::mutex> lock(table.mutex);
    module = table.modules[key].lock();
    if (module) break;
    auto fresh = std::make_shared<Module>();
    fresh->api = &api;
    fresh->context = context;
    fresh->from_ptx = image.ptx;
    std::string log;
    const CUresult result = load_image(api, image, &fresh->handle, log);
    if (result == CUDA_SUCCESS) {
      module = fresh;
      table.modules[key] = module;
      break;
    }
    fresh->handle = nullptr;
    std::string context_text = what;
    if (const std::string advice = load_advice(result, device, binary); !advice.empty())
      context_text += "; " + advice;
    if (!log.empty()) context_text += "\n" + log;
    refusal =
        llvm::joinErrors(std::move(refusal),
                         driver.check(result, image.ptx ? "loading PTX" : "loading a cubin", context_text));
  }
  if (!module) return refusal;
  llvm::consumeError(std::move(refusal));

  executable->from_ptx_ = module->from_ptx;
  executable->module_ = module;
  if (llvm::Error error = executable->find_functions(module->handle, what)) return error;
  return std::shared_ptr<const Executable>(std::move(executable));
}

llvm::Expected<std::shared_ptr<const Executable>> Executable::again(const Executable& loaded,
                                                                    const Candidate& candidate) {
  auto executable = std::make_shared<Executable>(loaded);
  executable->candidate_ = candidate;
  executable->plan_ = launch_plan_on(candidate, loaded.device_->info().sms);
  executable->steps_.clear();
  executable->packs_ = false;
  const ContextScope scope(*loaded.api_, loaded.context_);
  const std::string what = to_string(candidate.problem) + "; " + describe(candidate);
  const auto module = std::static_pointer_cast<Module>(loaded.module_);
  if (llvm::Error error = executable->find_functions(module->handle, what)) return error;
  return std::shared_ptr<const Executable>(std::move(executable));
}

void Executable::forget(const BinaryKey& key) {
  ModuleTable& table = ModuleTable::get();
  const std::string digest = key.digest();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (auto at = table.modules.begin(); at != table.modules.end();)
    at = std::get<1>(at->first) == digest ? table.modules.erase(at) : std::next(at);
}

llvm::Error Executable::find_functions(CUmodule module, const std::string& what) {
  const Device& device = *device_;
  const Driver& driver = device.driver();
  const DriverApi& api = *api_;
  for (const Launch& launch : plan_.launches) {
    if (const std::string refusal = refuse_geometry(launch, device.info()); !refusal.empty())
      return make_error(ErrorKind::kUnsupported,
                        llvm::Twine(what) + ": " + refusal + "; choose another config");
    Step step;
    std::copy(std::begin(launch.grid), std::end(launch.grid), step.grid);
    std::copy(std::begin(launch.block), std::end(launch.block), step.block);
    step.cluster = launch.cluster;
    step.shared_bytes = launch.shared_bytes;
    step.maps = launch.maps;
    // Older drivers do not capture such launches; without the attribute griddepcontrol.wait returns at once.
    step.early = launch.early && driver.cuda_version() >= 12030;
    step.packed = launch.packed;
    packs_ = packs_ || launch.packed;
    step.prepares_w = launch.prepares_w;
    if (!launch.maps.empty() && api.cuTensorMapEncodeTiled == nullptr)
      return make_error(
          ErrorKind::kDevice,
          what + ": driver " + driver.version() +
              " has no cuTensorMapEncodeTiled, which tensor maps need; update it to 12.0 or newer");
    if (llvm::Error error =
            driver.check(api.cuModuleGetFunction(&step.function, module, launch.entry.c_str()),
                         "cuModuleGetFunction(" + launch.entry + ")",
                         what + "; the binary lacks the entry: remove it from the cache"))
      return error;
    // All that the device has: executables of other batches share the function, and their launches may ask for more.
    if (launch.shared_bytes > kSharedWithoutOptIn) {
      int fixed = 0;
      if (llvm::Error error =
              driver.check(api.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, step.function),
                           "cuFuncGetAttribute(static shared)", what))
        return error;
      const int most = static_cast<int>(device.info().max_shared_per_block) - fixed;
      if (llvm::Error error = driver.check(
              api.cuFuncSetAttribute(step.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most),
              "cuFuncSetAttribute(max dynamic shared = " + std::to_string(most) + ")", what))
        return error;
    }
    if ((launch.cluster > 1 || launch.early || !launch.maps.empty()) && api.cuLaunchKernelEx == nullptr)
      return make_error(ErrorKind::kDevice,
                        what + ": driver " + driver.version() +
                            " has no cuLaunchKernelEx, which clusters need; update it to 11.8 or newer");
    if (launch.cluster > kPortableCluster)
      if (llvm::Error error = driver.check(
              api.cuFuncSetAttribute(step.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
              "cuFuncSetAttribute(cluster of " + std::to_string(launch.cluster) + ")", what))
        return error;
    int threads = 0;
    const uint32_t block = launch.block[0] * launch.block[1] * launch.block[2];
    if (api.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, step.function) ==
            CUDA_SUCCESS &&
        threads > 0 && block > static_cast<uint32_t>(threads))
      return make_error(ErrorKind::kDevice,
                        what + ": " + launch.entry + " allows " + std::to_string(threads) +
                            " threads in a block on this device, the plan has " + std::to_string(block));
    // Otherwise the first launch would load the code, which a capture may forbid.
    if (api.cuFuncLoad != nullptr) api.cuFuncLoad(step.function);
    steps_.push_back(step);
  }
  if (steps_.empty()) return make_error(ErrorKind::kInternal, what + ": the launch plan is empty");
  return llvm::Error::success();
}

CUresult Executable::launch_packed(const Params& params, CUstream stream) const {
  return launch_steps(params, packed_params(candidate_.problem, params), stream);
}

CUresult Executable::launch_prepared(const Params& params, CUstream stream) const {
  Params prepared = params;
  prepared.w = nullptr;
  return launch(prepared, stream);
}

CUresult Executable::launch_mapped(const Step& step, const Params& params, CUstream stream) const {
  CUtensorMap maps[kMostMaps];
  void* arguments[1 + kMostMaps] = {const_cast<Params*>(&params)};
  for (size_t i = 0; i < step.maps.size(); ++i) {
    const CUresult result = encode_tensor_map(*api_, step.maps[i], params, &maps[i]);
    if (result != CUDA_SUCCESS) return result;
    arguments[i + 1] = &maps[i];
  }
  return launch_with_attributes(step, arguments, stream);
}

CUresult Executable::launch_with_attributes(const Step& step, void** arguments, CUstream stream) const {
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim.x = step.cluster;
  attributes[0].value.clusterDim.y = 1;
  attributes[0].value.clusterDim.z = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[1].value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = step.grid[0];
  config.gridDimY = step.grid[1];
  config.gridDimZ = step.grid[2];
  config.blockDimX = step.block[0];
  config.blockDimY = step.block[1];
  config.blockDimZ = step.block[2];
  config.sharedMemBytes = step.shared_bytes;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = step.early ? 2 : 1;
  return api_->cuLaunchKernelEx(&config, step.function, arguments, nullptr);
}

}  // namespace trigen
