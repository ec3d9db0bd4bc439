// A program that this one starts, watches and does not leave behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace penstock::app {

/// What a child reads and writes in place of nothing and its log; -1: leave it so. The caller keeps
/// its descriptors.
struct ChildStreams {
  int input = -1;
  int output = -1;
};

/// Start it from the main thread: the child is told to end (SIGTERM) when the thread that started
/// it is gone, however this process ends. Its own process group: Ctrl-C reaches it only through us.
/// Variables named PENSTOCK_* are not passed on. Move-only.
class ChildProcess {
 public:
  /// argv[0] is the program's path. Standard input is empty; output and errors go to `log`, which
  /// is made anew. Throws Exit kFailed.
  ChildProcess(const std::vector<std::string>& argv, std::filesystem::path log,
               ChildStreams streams = {});
  /// stop() with a short patience.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  /// "exited with 1", "killed by signal 9"; "" while it runs.
  std::string how_it_ended();
  /// Waits for its end until `patience` is over; false when it still runs.
  bool wait(std::chrono::milliseconds patience);
  /// SIGTERM, and SIGKILL when it runs on after `patience`. Returns when it is gone.
  void stop(std::chrono::milliseconds patience);

  /// CPU time so far of all its threads; 0 when it is gone.
  double cpu_seconds() const;
  /// The last lines of its output, "" when there are none.
  std::string log_tail(std::size_t lines) const;
  const std::filesystem::path& log() const { return log_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;  // of waitpid, once it ended
  std::filesystem::path log_;
};

/// The folder of the running binary.
std::filesystem::path own_folder();
std::filesystem::path own_binary();

/// A folder below the system's temporary folder that goes when this object does.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock::app
