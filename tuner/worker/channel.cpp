#include "tuner/worker/channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "generator/error.h"

namespace trigen::worker {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // a binary is some hundred KB

llvm::Error gone(const char* what) {
  return make_error(ErrorKind::kDevice, llvm::Twine("the other process is gone (") + what + ")");
}

llvm::Error read_all(int socket, uint8_t* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, to, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return gone(got == 0 ? "end of stream" : std::strerror(errno));
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return llvm::Error::success();
}

}  // namespace

llvm::Error Channel::send(const json& message) const {
  std::vector<uint8_t> bytes(kLengthBytes);
  json::to_cbor(message, bytes);
  const uint64_t length = bytes.size() - kLengthBytes;
  for (size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<uint8_t>(length >> (8 * i));
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return gone(std::strerror(errno));
    at += static_cast<size_t>(sent);
  }
  return llvm::Error::success();
}

llvm::Expected<std::optional<json>> Channel::receive(int milliseconds) const {
  pollfd wanted{socket_, POLLIN, 0};
  const int ready = ::poll(&wanted, 1, milliseconds);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return std::nullopt;
  if (ready < 0) return gone(std::strerror(errno));
  uint8_t head[kLengthBytes];
  if (auto error = read_all(socket_, head, sizeof head)) return error;
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t{head[i]} << (8 * i);
  if (length > kMostBytes) return gone("a message of another protocol");
  std::string bytes(length,
                    '\0');  // chars: libc++ has no traits of unsigned ones, which json's reader asks for
  if (auto error = read_all(socket_, reinterpret_cast<uint8_t*>(bytes.data()), bytes.size())) return error;
  json message = json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (!message.is_object()) return gone("a message of another protocol");
  return message;
}

}  // namespace trigen::worker
