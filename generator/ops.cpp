#include "generator/ops.h"

namespace trigen {

const char* to_string(Role role) {
  constexpr const char* kNames[kRoles] = {"x", "y", "w", "bias", "pre", "gate", "residual"};
  return kNames[static_cast<size_t>(role)];
}

std::string argument_name(Op op, Role role) {
  const OpTensor* tensor = tensor_of(op, role);
  const std::string name = to_string(role);
  return tensor == nullptr || tensor->symbol == name ? name : name + " (" + tensor->symbol + ")";
}

}  // namespace trigen
