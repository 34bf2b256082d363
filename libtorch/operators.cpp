// The operators torch.ops.trigen.*, for programs without Python and for models compiled ahead of time: the
// names and schemas of python/trigen/torch/ops.py. GPU tensors run trigen's kernels.
#include <cstdio>

#include "libtorch/signatures.h"

namespace {

#define TRIGEN_OPTIONS "int pad=0, str layout=\"btd\", str fill=\"lower\", int diag=0"
#define TRIGEN_FORWARD_ARGUMENTS                                                                           \
  "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, " TRIGEN_OPTIONS \
  ", str activation=\"none\", str math=\"default\", str form=\"dense\")"

constexpr const char* kSchemas[] = {
    "forward" TRIGEN_FORWARD_ARGUMENTS " -> Tensor",
    "forward_pre" TRIGEN_FORWARD_ARGUMENTS " -> (Tensor, Tensor)",
    "grad_input(Tensor grad, Tensor weight, Tensor? residual=None, " TRIGEN_OPTIONS
    ", str math=\"default\", str form=\"dense\") -> Tensor",
    "grad_weight(Tensor grad, Tensor x, SymInt[] weight_size, ScalarType weight_dtype, bool "
    "bias=False, " TRIGEN_OPTIONS ", str math=\"default\", str form=\"dense\") -> (Tensor, Tensor)",
};

bool ours = false;  // whether the operators are this library's

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(trigen, library) {
  try {
    for (const char* schema : kSchemas) library.def(schema);
    ours = true;
  } catch (
      const std::runtime_error&) {  // nothing may leave this function: it runs while the library is loaded
    std::fputs(
        "trigen: libtrigen_torch.so: this process has the operators torch.ops.trigen already (from import "
        "trigen.torch); "
        "they stay as they are; to use this library's, load it first\n",
        stderr);
  }
}

STABLE_TORCH_LIBRARY_IMPL(trigen, CUDA, library) {
  namespace kernels = trigen::libtorch::kernels;
  if (!ours) return;
  library.impl("forward", TORCH_BOX(&kernels::forward));
  library.impl("forward_pre", TORCH_BOX(&kernels::forward_pre));
  library.impl("grad_input", TORCH_BOX(&kernels::grad_input));
  library.impl("grad_weight", TORCH_BOX(&kernels::grad_weight));
}

STABLE_TORCH_LIBRARY_IMPL(trigen, CPU, library) {
  namespace cpu = trigen::libtorch::cpu;
  if (!ours) return;
  library.impl("forward", TORCH_BOX(&cpu::forward));
  library.impl("forward_pre", TORCH_BOX(&cpu::forward_pre));
  library.impl("grad_input", TORCH_BOX(&cpu::grad_input));
  library.impl("grad_weight", TORCH_BOX(&cpu::grad_weight));
}
