// penstock top
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "apps/penstock/commands.hpp"
#include "client/cli/top_frame.hpp"

namespace penstock::app {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

struct TopArguments {
  double interval_s = 1;
  bool once = false;
};

cli::NodeSample look(client::Client& client) {
  cli::NodeSample sample;
  sample.status = json::parse(client.status());
  sample.nodes = json::parse(client.call("nodes", "{}")).at("nodes");
  sample.transfers =
      json::parse(client.call("transfers", R"({"under_way_first":true})")).at("transfers");
  sample.when = std::chrono::steady_clock::now();
  return sample;
}

/// The whole screen, without a cursor, as long as this lives; keys come one by one and unseen.
class Screen {
 public:
  Screen() {
    std::fputs("\033[?1049h\033[?25l", stdout);
    reads_keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!reads_keys_) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  }
  ~Screen() {
    if (reads_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Without a flicker: each line is overwritten, what is left of it and below it cleared.
  void show(const std::string& frame) {
    std::string text = "\033[H";
    for (const char c : frame) text += c == '\n' ? std::string("\033[K\r\n") : std::string(1, c);
    text += "\033[J";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  cli::FrameStyle style() const {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return {known ? size.ws_col : std::size_t{100}, known ? size.ws_row - std::size_t{1} : 40,
            true};
  }
  /// Waits; true when q was pressed meanwhile.
  bool quit_within(milliseconds time) const {
    if (!reads_keys_) {
      std::this_thread::sleep_for(time);
      return false;
    }
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    char key = 0;
    return ::poll(&keys, 1, static_cast<int>(time.count())) > 0 &&
           ::read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 'Q');
  }

 private:
  termios before_{};
  bool reads_keys_ = false;
};

void run_top(const Globals& globals, const TopArguments& arguments) {
  auto client = globals.connect();
  const auto interval = milliseconds(static_cast<long>(arguments.interval_s * 1000));
  auto before = look(client);
  if (arguments.once) {
    std::this_thread::sleep_for(interval);
    const auto now = look(client);
    return fmt::print("{}", cli::top_frame(now, before, {200, 0, false}));
  }
  if (::isatty(STDOUT_FILENO) != 1)
    throw Exit(ExitCode::kUsage, "USAGE: top needs a terminal; --once prints one frame");
  watch_interrupts();
  Screen screen;
  screen.show(cli::top_frame(before, before, screen.style()));
  while (!interrupted() && !screen.quit_within(interval)) {
    auto now = look(client);
    screen.show(cli::top_frame(now, before, screen.style()));
    before = std::move(now);
  }
}

}  // namespace

void add_top(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<TopArguments>();
  auto* top = app.add_subcommand("top", "Cards, members, transfers and errors, refreshed live");
  top->add_option("--interval", arguments->interval_s, "Seconds between looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  top->add_flag("--once", arguments->once, "Print one frame and end");
  top->footer("Ends with q or Ctrl-C.\nExample: penstock top --interval 2");
  top->callback([&globals, arguments] { run_top(globals, *arguments); });
}

}  // namespace penstock::app
