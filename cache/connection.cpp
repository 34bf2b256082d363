#include "cache/connection.h"

#include "cache/fork.h"

namespace trigen::cache {

KeptConnection::KeptConnection() {
  close_before_fork(this, [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    database_.reset();
  });
}

KeptConnection::~KeptConnection() {
  forget_before_fork(this);
  const Operation operation;
  if (operation.allowed())
    database_.reset();
  else
    (void)database_.release();  // in a child that was forked in the middle of an operation: not to be touched
}

std::unique_ptr<Database> KeptConnection::take(const ConnectionOf& wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Database> taken = std::move(database_);
  if (taken == nullptr || !(of_ == wanted)) return nullptr;
  taken->resume();
  return taken;
}

void KeptConnection::give(std::unique_ptr<Database> database, const ConnectionOf& of) {
  database->rest();
  const std::lock_guard<std::mutex> lock(mutex_);
  database_ = std::move(database);
  of_ = of;
}

}  // namespace trigen::cache
