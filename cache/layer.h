// One layer: a cache file, its opening, its possible faults, and their remedies.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "cache/bundle.h"
#include "cache/index.h"
#include "cache/lock.h"
#include "cache/signature.h"
#include "cache/verdict.h"

namespace trigen::cache {

// One line per distinct problem, however often it comes.
class Log {
 public:
  explicit Log(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}
  void once(const std::string& line);

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
  std::function<void(const std::string&)> sink_;
};

class Layer final : public CacheFile {
 public:
  Layer(LayerPlan plan, bool read_only, LockTimeout* timeout, Log* log, const Signers* signers);
  ~Layer() override { publish(/*now=*/true); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // Opens, checks, runs `work`, closes. False when the layer cannot be read: that is logged, and a damaged
  // user layer is set aside.
  bool read(Work work) override;
  // The same without logging and without touching anything.
  Verdict inspect(Work work);
  // In one transaction, in a file that is made when it is not there.
  llvm::Error write(Work work) override;
  // Writes the file anew without its free pages; its bytes after that.
  llvm::Error compact(int64_t& bytes);
  LayerInfo info();

  IndexKeeper& index() { return index_; }
  const std::string& path() const override { return plan_.path; }
  std::string lock_path() const { return plan_.path + ".lock"; }
  bool user() const { return plan_.user; }
  bool stores() const { return plan_.user && !read_only_; }
  // Healthy when a file may be made or written here: looks who else may, then makes the folder, 0700.
  Verdict prepare() const;

 private:
  Verdict open_checked(Database& database, OpenMode mode, Clock::time_point deadline) const;
  Verdict open_behind_journal(Database& database) const;
  bool must_be_signed() const;
  bool is_own(Database& database) const;
  Verdict read_signed_file(Work work) const;
  std::string signed_bytes(SignedFile::Bytes& bytes) const;
  Verdict read_file(Work work, Clock::time_point deadline, bool& foreign) const;
  Verdict work_on(std::unique_ptr<Database> database, const ConnectionOf& of, uint32_t schema,
                  Work work) const;
  Verdict try_read(Work work, Clock::time_point deadline) const;
  void remember(const Verdict& v, Clock::time_point since);
  llvm::Error write_with(llvm::function_ref<Verdict(Clock::time_point)> attempt);
  Verdict try_write(Work work, Clock::time_point deadline) const;
  Verdict try_compact(int64_t& bytes, Clock::time_point deadline) const;
  Verdict create_file() const;
  SqlStatus create_schema(Database& database) const;
  // A spool's rows, where they were put since the last time: now, or when that is kPublishEvery ago.
  void publish(bool now);
  bool recheck_and_set_aside(Clock::time_point deadline);
  void set_aside(const std::string& reason);
  bool may_write() const;
  void keep_write_problem(const std::string& text);
  std::string kept_write_problem();

  const LayerPlan plan_;
  const bool read_only_;
  LockTimeout* const timeout_;
  const Judge judge_{plan_, timeout_};
  std::atomic<bool> met_lock_{false};  // the last time somebody asked
  IndexKeeper index_;
  Log* const log_;
  const Signers* const signers_;
  mutable SignedFile signed_file_;
  mutable KeptConnection connection_;
  std::mutex mutex_;
  std::string write_problem_;  // of the last put, empty when it went well
  std::atomic<bool> unpublished_{false};
  std::atomic<Clock::rep> published_{0};  // ticks
};

// The rows of one file under the rules of a layer; an error where it is not there or cannot be used.
llvm::Expected<Contents> read_layer(LayerPlan plan, ReadFor use, const Signers& signers,
                                    Rows rows = Rows::kAll);

}  // namespace trigen::cache
