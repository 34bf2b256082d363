// A second process that does something real and says in text how it went.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

namespace trigen::testing {

class Child {
 public:
  // The child runs `work`, which returns "" or what went wrong; `say` lets the parent go on before it ends.
  explicit Child(const std::function<std::string(const std::function<void()>& say)>& work) {
    int ends[2];
    if (pipe(ends) != 0) {
      ADD_FAILURE() << "no pipe";
      return;
    }
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      const std::string text = work([&] {
        if (write(ends[1], "!", 1) != 1) _exit(2);
      });
      if (!text.empty() && write(ends[1], text.data(), text.size()) < 0) _exit(2);
      _exit(text.empty() ? 0 : 1);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) kill_now();
    if (from_ >= 0) close(from_);
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), from_(std::exchange(other.from_, -1)) {}
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  // Until the child called say(); false when it ended before.
  bool wait_for_word() {
    char byte = 0;
    return read(from_, &byte, 1) == 1 && byte == '!';
  }
  // Until it ends: "" when all went well, else its text or how it died.
  std::string join() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(from_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    while (!text.empty() && text[0] == '!') text.erase(0, 1);
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status)) + " " + text;
    if (WEXITSTATUS(status) != 0 && text.empty()) return "exit " + std::to_string(WEXITSTATUS(status));
    return text;
  }
  void kill_now() {
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
};

}  // namespace trigen::testing
