#include "apps/penstock/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/penstock/globals.hpp"

namespace penstock::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(5);
constexpr auto kPatienceAtTheEnd = std::chrono::seconds(4);
constexpr int kCouldNotExecute = 127;

/// A null-terminated list of pointers, as execve wants it. The strings must outlive it.
std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What configures this program must not configure the services behind its back.
std::vector<std::string> environment_for_child() {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("PENSTOCK_")) kept.emplace_back(*entry);
  }
  return kept;
}

// Between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* argv, char* const* environment, int log, ChildStreams streams,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kCouldNotExecute);  // it went before we asked to be told
  ::setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int input = streams.input >= 0 ? streams.input : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(input, STDIN_FILENO);
  ::dup2(streams.output >= 0 ? streams.output : log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execve(argv[0], argv, environment);
  ::_exit(kCouldNotExecute);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv, std::filesystem::path log,
                           ChildStreams streams)
    : log_(std::move(log)) {
  if (::access(argv[0].c_str(), X_OK) != 0) {
    throw Exit(ExitCode::kFailed, fmt::format("{} cannot be run: {}; it belongs beside this "
                                              "program",
                                              argv[0], std::strerror(errno)));
  }
  int log_file = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (log_file < 0) {
    throw Exit(ExitCode::kFailed,
               fmt::format("{} cannot be written: {}", log_.string(), std::strerror(errno)));
  }
  auto arguments = pointers_to(argv);
  auto variables = environment_for_child();
  auto environment = pointers_to(variables);
  pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(arguments.data(), environment.data(), log_file, streams, parent);
  int error = errno;
  ::close(log_file);
  if (pid_ < 0) {
    throw Exit(ExitCode::kFailed, fmt::format("cannot start a process: {}", std::strerror(error)));
  }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_), log_(std::move(other.log_)) {}

ChildProcess::~ChildProcess() { stop(kPatienceAtTheEnd); }

bool ChildProcess::running() {
  if (pid_ < 0 || status_) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  status_ = status;
  return false;
}

std::string ChildProcess::how_it_ended() {
  if (running() || !status_) return "";
  if (WIFSIGNALED(*status_)) return fmt::format("killed by signal {}", WTERMSIG(*status_));
  return fmt::format("exited with {}", WEXITSTATUS(*status_));
}

bool ChildProcess::wait(std::chrono::milliseconds patience) {
  auto end = Clock::now() + patience;
  while (running()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kLookEvery);
  }
  return true;
}

void ChildProcess::stop(std::chrono::milliseconds patience) {
  if (!running()) return;
  ::kill(pid_, SIGTERM);
  if (wait(patience)) return;
  ::kill(pid_, SIGKILL);
  wait(patience);
}

double ChildProcess::cpu_seconds() const {
  clockid_t clock{};
  timespec time{};
  if (pid_ < 0 || ::clock_getcpuclockid(pid_, &clock) != 0) return 0;
  if (::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string ChildProcess::log_tail(std::size_t lines) const {
  std::ifstream file(log_);
  std::deque<std::string> tail;
  for (std::string line; std::getline(file, line);) {
    tail.push_back(std::move(line));
    if (tail.size() > lines) tail.pop_front();
  }
  std::string text;
  for (const auto& line : tail) text += line + '\n';
  return text;
}

std::filesystem::path own_binary() { return std::filesystem::read_symlink("/proc/self/exe"); }

std::filesystem::path own_folder() { return own_binary().parent_path(); }

TemporaryFolder::TemporaryFolder() {
  auto pattern = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Exit(ExitCode::kFailed,
               fmt::format("cannot make the folder {}: {}", pattern, std::strerror(errno)));
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace penstock::app
