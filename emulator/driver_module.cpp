// Modules, libraries, kernels, functions. PTX text loads; a cubin does not (CUDA_ERROR_NO_BINARY_FOR_GPU),
// because machine code cannot be executed here.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/driver.h"

using namespace trigen::cuda;
using namespace trigen::emulator;

namespace trigen::emulator {
namespace {

struct ModuleSymbols : SymbolTable {
  const CUmod_st* module;
  explicit ModuleSymbols(const CUmod_st* m) : module(m) {}
  uint64_t address_of(const std::string& name) const override {
    auto found = module->globals.find(name);
    return found == module->globals.end() ? 0 : found->second.first;
  }
};

// "sm_90a" -> 90 and whether it has a suffix.
int parse_target(const std::string& target, bool* specific) {
  *specific = !target.empty() && (target.back() == 'a' || target.back() == 'f');
  return target.rfind("sm_", 0) == 0 ? std::atoi(target.c_str() + 3) : 0;
}

CUresult make_globals(const ModuleAst& ast, CUmod_st* module, DeviceMemory& memory) {
  constexpr uint64_t kMostBytes =
      1 << 30;  // of a module: its variables are written, so the host has to have them
  uint64_t all = 0;
  for (const Variable& variable : ast.variables) {
    if (variable.space != Space::kGlobal && variable.space != Space::kConst) continue;
    if (variable.is_extern && variable.bytes == 0) continue;
    if ((all += variable.bytes) > kMostBytes) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = memory.allocate(std::max<uint64_t>(variable.bytes, 1));
    if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::vector<uint8_t> init = variable.init;
    init.resize(std::max<uint64_t>(variable.bytes, 1), 0);  // variables without a value start as zeros
    std::memcpy(host_pointer(address), init.data(), init.size());
    memory.mark_written(address, init.size());
    memory.find(address)->is_const = variable.space == Space::kConst;
    module->globals[variable.name] = {address, variable.bytes};
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult load_module(CUctx_st* context, const void* image, std::unique_ptr<CUmod_st>* out, std::string* log) {
  if (image == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "a null image");
  const char* bytes = static_cast<const char*>(image);
  if (std::strncmp(bytes, "\177ELF", 4) == 0 || std::strncmp(bytes, "\x50\xed\x55\xba", 4) == 0) {
    *log = "the emulated device executes PTX and cannot run machine code; load the PTX of this kernel";
    return fail(CUDA_ERROR_NO_BINARY_FOR_GPU, *log);
  }
  Device* device = driver().device(context->device);
  auto module = std::make_unique<CUmod_st>();
  module->context = context;
  try {
    ModuleAst ast = parse_ptx(bytes);
    if (ast.target.empty()) throw PtxError(1, "no .target directive: not PTX");
    module->ptx_target = parse_target(ast.target, &module->arch_specific);
    module->ptx_version = static_cast<int>(std::lround(std::min(std::stod(ast.version), 99.0) * 10));
    const int capability = device->model->capability;
    if (module->ptx_target > capability || (module->arch_specific && module->ptx_target != capability))
      throw PtxError(1, "PTX for " + ast.target + " does not run on an emulated " + driver().options.target);
    if (CUresult error = make_globals(ast, module.get(), *device->memory))
      return fail(error, "no memory for the module's variables");
    ModuleSymbols symbols(module.get());
    for (const Function& function : ast.functions) {
      if (!function.is_entry || !function.has_body) continue;
      auto loaded = std::make_unique<CUfunc_st>();
      loaded->module = module.get();
      loaded->program =
          decode_kernel(ast, function, symbols, module->ptx_target, capability, module->arch_specific);
      driver().functions.insert(loaded.get());
      module->functions[function.name] = std::move(loaded);
    }
  } catch (const std::bad_alloc&) {
    unload_module(module.get());
    throw;
  } catch (const std::exception& error) {
    *log = error.what();
    unload_module(module.get());
    return fail(CUDA_ERROR_INVALID_PTX, *log);
  }
  *out = std::move(module);
  return CUDA_SUCCESS;
}

void unload_module(CUmod_st* module) {
  DeviceMemory& memory = *driver().device(module->context->device)->memory;
  for (auto& [name, global] : module->globals) memory.free(global.first);
  for (auto& [name, function] : module->functions) driver().functions.erase(function.get());
}

CUfunc_st* find_function(CUfunction handle) {
  if (driver().functions.count(handle) != 0) return handle;
  if (driver().kernels.count(handle) == 0) return nullptr;
  CUfunction function = nullptr;  // a CUkernel stands for its function in the current context
  return cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(handle)) == CUDA_SUCCESS ? function
                                                                                            : nullptr;
}

CUresult function_attribute(const CUfunc_st& function, CUfunction_attribute attribute, int* value) {
  const Program& program = *function.program;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(program.max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(program.static_shared);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(program.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 0;
      break;  // only ptxas knows
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = function.module->ptx_target;
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function.max_dynamic_shared != 0 ? function.max_dynamic_shared
                                                : 49152 - static_cast<int>(program.static_shared);
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function.carveout;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      *value = static_cast<int>(program.required_cluster[0]);
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      *value = static_cast<int>(program.required_cluster[1]);
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = static_cast<int>(program.required_cluster[2]);
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = function.non_portable_cluster;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      break;
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown function attribute " + std::to_string(attribute));
  }
  return CUDA_SUCCESS;
}

CUresult set_function_attribute(CUfunc_st& function, CUfunction_attribute attribute, int value) {
  const DeviceModel& model = *driver().device(function.module->context->device)->model;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      int allowed = model.shared_per_block_optin - static_cast<int>(function.program->static_shared);
      if (value < 0 || value > allowed)
        return fail(CUDA_ERROR_INVALID_VALUE, std::to_string(value) + " B of dynamic shared memory, " +
                                                  model.target + " allows " + std::to_string(allowed) + " B");
      function.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100)
        return fail(CUDA_ERROR_INVALID_VALUE, "the carveout is a percentage or -1");
      function.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      function.non_portable_cluster = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;
    default:
      return fail(CUDA_ERROR_INVALID_VALUE,
                  "function attribute " + std::to_string(attribute) + " cannot be set");
  }
}

namespace {

// Copies the text into CU_JIT_ERROR_LOG_BUFFER, when the caller gave one.
void give_log(const std::string& text, unsigned count, CUjit_option* options, void** values) {
  char* buffer = nullptr;
  size_type size = 0;
  size_type* size_out = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      size = reinterpret_cast<size_type>(values[i]);
      size_out = reinterpret_cast<size_type*>(&values[i]);
    }
  }
  if (buffer == nullptr || size == 0) return;
  size_type length = std::min(text.size(), size - 1);
  std::memcpy(buffer, text.data(), length);
  buffer[length] = 0;
  if (size_out != nullptr) *size_out = length;
}

}  // namespace
}  // namespace trigen::emulator

namespace trigen::cuda {

TRIGEN_ENTRY CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                                         CUjit_option* options, void** values) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (CUresult error = refuse_during_capture("cuModuleLoadData")) return error;
  std::unique_ptr<CUmod_st> loaded;
  std::string log;
  CUresult result = load_module(context, image, &loaded, &log);
  if (!log.empty()) give_log(log, count, options, values);
  if (result != CUDA_SUCCESS) return result;
  *module = loaded.release();
  driver().modules.insert(*module);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuModuleLoadData(CUmodule* module, const void* image) try {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuModuleUnload(CUmodule module) try {
  std::lock_guard lock(driver().mutex);
  if (driver().modules.erase(module) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a module");
  unload_module(module);
  delete module;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) try {
  std::lock_guard lock(driver().mutex);
  auto found = module->functions.find(name);
  if (found == module->functions.end())
    return fail(CUDA_ERROR_NOT_FOUND, std::string("no kernel '") + name + "' in the module");
  *function = found->second.get();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_type* bytes, CUmodule module,
                                           const char* name) try {
  std::lock_guard lock(driver().mutex);
  auto found = module->globals.find(name);
  if (found == module->globals.end())
    return fail(CUDA_ERROR_NOT_FOUND, std::string("no variable '") + name + "' in the module");
  if (pointer != nullptr) *pointer = found->second.first;
  if (bytes != nullptr) *bytes = found->second.second;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options,
                                        void** jit_values, unsigned jit_count, CUlibraryOption*, void**,
                                        unsigned) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (CUresult error = refuse_during_capture("cuLibraryLoadData")) return error;
  std::unique_ptr<CUmod_st> loaded;
  std::string log;
  CUresult result = load_module(context, code, &loaded, &log);
  if (!log.empty()) give_log(log, jit_count, jit_options, jit_values);
  if (result != CUDA_SUCCESS) return result;
  auto* created = new CUlib_st;
  created->image = static_cast<const char*>(code);
  for (auto& [name, function] : loaded->functions) {
    auto kernel = std::make_unique<CUkern_st>();
    kernel->library = created;
    kernel->name = name;
    driver().kernels.insert(kernel.get());
    created->kernels[name] = std::move(kernel);
  }
  driver().modules.insert(loaded.get());
  created->modules[context] = std::move(loaded);
  driver().libraries.insert(created);
  *library = created;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLibraryUnload(CUlibrary library) try {
  std::lock_guard lock(driver().mutex);
  if (driver().libraries.erase(library) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a library");
  for (auto& [context, module] : library->modules) {
    driver().modules.erase(module.get());
    unload_module(module.get());
  }
  for (auto& [name, kernel] : library->kernels) driver().kernels.erase(kernel.get());
  delete library;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) try {
  std::lock_guard lock(driver().mutex);
  if (driver().libraries.count(library) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a library");
  auto found = library->kernels.find(name);
  if (found == library->kernels.end())
    return fail(CUDA_ERROR_NOT_FOUND, std::string("no kernel '") + name + "' in the library");
  *kernel = found->second.get();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (driver().libraries.count(library) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a library");
  auto& loaded = library->modules[context];
  if (loaded == nullptr) {
    std::string log;
    if (CUresult error = load_module(context, library->image.c_str(), &loaded, &log)) return error;
    driver().modules.insert(loaded.get());
    for (auto& [key, value] : library->attributes) {
      auto found = loaded->functions.find(key.first);
      if (found != loaded->functions.end())
        set_function_attribute(*found->second, static_cast<CUfunction_attribute>(key.second), value);
    }
  }
  *module = loaded.get();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, size_type* bytes, CUlibrary library,
                                         const char* name) try {
  CUmodule module = nullptr;
  if (CUresult error = cuLibraryGetModule(&module, library)) return error;
  return cuModuleGetGlobal_v2(pointer, bytes, module, name);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) try {
  std::lock_guard lock(driver().mutex);
  if (driver().kernels.count(kernel) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a kernel");
  CUmodule module = nullptr;
  if (CUresult error = cuLibraryGetModule(&module, kernel->library)) return error;
  return cuModuleGetFunction(function, module, kernel->name.c_str());
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuKernelGetName(const char** name, CUkernel kernel) try {
  std::lock_guard lock(driver().mutex);
  if (driver().kernels.count(kernel) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a kernel");
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                           CUdevice) try {
  std::lock_guard lock(driver().mutex);
  CUfunction function = nullptr;
  if (CUresult error = cuKernelGetFunction(&function, kernel)) return error;
  return function_attribute(*function, attribute, value);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                           CUdevice) try {
  std::lock_guard lock(driver().mutex);
  CUfunction function = nullptr;
  if (CUresult error = cuKernelGetFunction(&function, kernel)) return error;
  if (CUresult error = set_function_attribute(*function, attribute, value)) return error;
  kernel->library->attributes[{kernel->name, attribute}] = value;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) try {
  std::lock_guard lock(driver().mutex);
  CUfunc_st* function = find_function(handle);
  return function != nullptr ? function_attribute(*function, attribute, value)
                             : fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) try {
  std::lock_guard lock(driver().mutex);
  CUfunc_st* function = find_function(handle);
  return function != nullptr ? set_function_attribute(*function, attribute, value)
                             : fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) try {
  return find_function(handle) != nullptr ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) try {
  CUfunc_st* function = find_function(handle);
  if (function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  *module = function->module;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuFuncGetName(const char** name, CUfunction handle) try {
  CUfunc_st* function = find_function(handle);
  if (function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  *name = function->program->name.c_str();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuFuncGetParamInfo(CUfunction handle, size_type index, size_type* offset,
                                         size_type* bytes) try {
  CUfunc_st* function = find_function(handle);
  if (function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  if (index >= function->program->parameters.size())
    return fail(CUDA_ERROR_INVALID_VALUE, "no such parameter");
  if (offset != nullptr) *offset = function->program->parameters[index].offset;
  if (bytes != nullptr) *bytes = function->program->parameters[index].bytes;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

}  // namespace trigen::cuda
