// The worker's side: a process that holds one device and runs candidates on it until its parent ends.
#pragma once

namespace trigen::worker {

// The first argument of a trigen program that is to be a worker; the second is its parent's process id.
inline constexpr const char* kCommand = "worker";

// Answers on standard input, a socket, until the other end closes; the process's exit code. What libraries
// print on standard output goes to standard error. Ends with its parent even while the device hangs.
int serve(int parent);

}  // namespace trigen::worker
