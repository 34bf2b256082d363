#include "peers/cublas_library.h"

#include <dlfcn.h>

#include <mutex>
#include <set>

#include "generator/error.h"
#include "runtime/nvrtc.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Files that may be cuBLAS, newest major first within a folder.
std::vector<std::string> places() {
  std::vector<std::string> out;
  if (const std::string named = environment("TRIGEN_CUBLAS"); !named.empty()) return {named};
  std::set<std::string> folders;
  auto add_folder = [&](const std::string& folder) {
    if (!folders.insert(folder).second) return;
    for (const char* name : {"/libcublas.so.13", "/libcublas.so.12"}) out.push_back(folder + name);
  };
  for (const bool environment : {true, false}) {
    NvrtcSearch search;
    search.use_environment = environment;
    for (const NvrtcFile& file : find_nvrtc(search)) {
      if (!file.distrust.empty()) continue;
      const std::string folder = folder_of(file.path);
      add_folder(folder);
      add_folder(folder +
                 "/../../cublas/lib");  // wheels of CUDA 12: nvidia/cuda_nvrtc/lib beside nvidia/cublas/lib
    }
  }
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) out.emplace_back(name);
  return out;
}

}  // namespace

llvm::Expected<const CublasLibrary*> CublasLibrary::load() {
  static std::mutex mutex;
  static CublasLibrary* loaded = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr) return loaded;
  std::string tried;
  const auto note = [&](const std::string& path, const std::string& why) {
    tried.append("\n  ").append(path).append(": ").append(why);
  };
  const bool named = !environment("TRIGEN_CUBLAS").empty();
  for (const std::string& path : places()) {
    if (const std::string real = real_path(path); !named && path[0] == '/' && !real.empty()) {
      if (const std::string reason = distrust_of_search(real); !reason.empty()) {
        note(path, "not taken, " + reason);
        continue;
      }
    }
    // libcublas.so names libcublasLt.so by its soname only: open the one beside it first
    const size_t at = path.find("libcublas.so");
    if (at != std::string::npos && path.find('/') != std::string::npos) {
      ::dlopen((path.substr(0, at) + "libcublasLt.so" + path.substr(at + 12)).c_str(),
               RTLD_NOW | RTLD_GLOBAL);
    }
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (path.find('/') == std::string::npos || named) {
        const char* why = ::dlerror();
        note(path, why != nullptr ? why : "not found");
      }
      continue;
    }
    auto* made = new CublasLibrary;  // never unloaded
    bool complete = true;
    auto find = [&](auto& entry, const char* name) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(library, name));
      complete = complete && entry != nullptr;
    };
    find(made->api_.create, "cublasCreate_v2");
    find(made->api_.destroy, "cublasDestroy_v2");
    find(made->api_.get_version, "cublasGetVersion_v2");
    find(made->api_.set_stream, "cublasSetStream_v2");
    find(made->api_.set_workspace, "cublasSetWorkspace_v2");
    find(made->api_.gemm, "cublasGemmStridedBatchedEx");
    find(made->api_.gemm_pointers, "cublasGemmBatchedEx");
    find(made->api_.strmm, "cublasStrmm_v2");
    if (!complete) {
      note(path, "lacks entries of cuBLAS 11.2 or newer");
      delete made;
      continue;
    }
    // libcublas.so needs libcublasLt.so, so a look-up in the one finds what the other exports
    complete = true;
    LtApi& lt = made->lt_;
    find(lt.desc_create, "cublasLtMatmulDescCreate");
    find(lt.desc_destroy, "cublasLtMatmulDescDestroy");
    find(lt.desc_set, "cublasLtMatmulDescSetAttribute");
    find(lt.layout_create, "cublasLtMatrixLayoutCreate");
    find(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(lt.layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(lt.preference_create, "cublasLtMatmulPreferenceCreate");
    find(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(lt.matmul, "cublasLtMatmul");
    made->has_lt_ = complete;
    made->path_ = path;
    loaded = made;
    return loaded;
  }
  return make_error(
      ErrorKind::kUnsupported,
      "cublas is not on this machine, so there is nothing to compare with; install a CUDA toolkit or the "
      "nvidia-cublas wheel, or name the file in TRIGEN_CUBLAS; tried:" +
          tried);
}

int cublas_type(DType dtype) {
  constexpr int kCudaR32F = 0, kCudaR16F = 2, kCudaR16BF = 14;
  return dtype == DType::kF32 ? kCudaR32F : dtype == DType::kF16 ? kCudaR16F : kCudaR16BF;
}

int cublas_compute(const Problem& problem) {
  constexpr int kCompute32F = 68, kCompute32FFastTF32 = 77;
  return problem.math == Math::kTF32 ? kCompute32FFastTF32 : kCompute32F;
}

}  // namespace trigen
