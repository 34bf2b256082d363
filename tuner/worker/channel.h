// Messages between the tune and its workers: JSON values over a socket, each as CBOR (RFC 8949, which keeps
// doubles and machine code as they are) behind its length in eight bytes, least first.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "llvm/Support/Error.h"

namespace trigen::worker {

class Channel {
 public:
  explicit Channel(int socket = -1) : socket_(socket) {}
  // Owns nothing: who made the socket closes it.
  int socket() const { return socket_; }
  // Errors: device, when no process is at the other end.
  llvm::Error send(const nlohmann::json& message) const;
  // The next message; nullopt when `milliseconds` (-1: no limit) pass without a byte of it.
  llvm::Expected<std::optional<nlohmann::json>> receive(int milliseconds) const;

 private:
  int socket_;
};

}  // namespace trigen::worker
