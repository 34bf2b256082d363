// Serves a model that torch.export and AOTInductor compiled (MODEL.pt2), in a process without Python. LIBRARY
// is libtrigen_torch.so, which registers the operators that the model calls.
//
//   serve LIBRARY MODEL.pt2 cpu|cuda float32|float16|bfloat16 2x512x64 < x.bin > y.bin
//
// Both files are dense arrays in this machine's byte order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace {

int fail(const std::string& text) {
  std::fprintf(stderr, "serve: %s\n", text.c_str());
  return 1;
}

std::vector<int64_t> sizes_of(const char* text) {
  std::vector<int64_t> sizes;
  for (char* end = nullptr; *text != '\0'; text = *end == '\0' ? end : end + 1) {
    sizes.push_back(std::strtoll(text, &end, 10));
    if (end == text) return {};
  }
  return sizes;
}

int serve(char** arguments) {
  if (dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) return fail(dlerror());
  const std::string dtype_name = arguments[4];
  const at::ScalarType dtype = dtype_name == "bfloat16"  ? at::kBFloat16
                               : dtype_name == "float16" ? at::kHalf
                                                         : at::kFloat;
  const std::vector<int64_t> sizes = sizes_of(arguments[5]);
  if (sizes.empty()) return fail(std::string(arguments[5]) + " is no shape; allowed: 2x512x64");
  at::Tensor x = at::empty(sizes, at::TensorOptions(dtype));
  if (std::fread(x.data_ptr(), 1, x.nbytes(), stdin) != x.nbytes())
    return fail("the input is shorter than the shape");
  torch::inductor::AOTIModelPackageLoader model(arguments[2]);
  const at::Tensor y = model.run({x.to(at::Device(arguments[3]))})[0].to(at::kCPU).contiguous();
  return std::fwrite(y.data_ptr(), 1, y.nbytes(), stdout) == y.nbytes() ? 0
                                                                        : fail("the output was not written");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6)
    return fail("usage: serve LIBRARY MODEL.pt2 cpu|cuda float32|float16|bfloat16 2x512x64 < x.bin > y.bin");
  try {
    return serve(arguments);
  } catch (const std::exception& error) {  // LibTorch's way to say what is wrong
    return fail(error.what());
  }
}
