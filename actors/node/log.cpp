#include "actors/node/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace penstock {
namespace {

/// What a line says apart from its numbers.
std::string shape_of(std::string_view line) {
  std::string shape;
  for (char c : line)
    if (c < '0' || c > '9') shape.push_back(c);
  return shape;
}

class RepeatLimit : public spdlog::sinks::base_sink<std::mutex> {
 public:
  RepeatLimit(spdlog::sink_ptr next, std::uint32_t per_s) : next_(std::move(next)), per_s_(per_s) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.time - second_ >= std::chrono::seconds(1)) {
      tell_suppressed(message);
      second_ = message.time;
      seen_.clear();
    }
    const auto count = ++seen_[shape_of({message.payload.data(), message.payload.size()})];
    if (count <= per_s_)
      next_->log(message);
    else
      ++suppressed_;
  }
  void flush_() override { next_->flush(); }
  void set_pattern_(const std::string& pattern) override { next_->set_pattern(pattern); }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    next_->set_formatter(std::move(formatter));
  }

 private:
  void tell_suppressed(const spdlog::details::log_msg& message) {
    if (suppressed_ == 0) return;
    const std::string text =
        fmt::format("{} repeated lines were left out (log.repeat_per_s)", suppressed_);
    next_->log(
        spdlog::details::log_msg(message.time, {}, message.logger_name, spdlog::level::warn, text));
    suppressed_ = 0;
  }

  spdlog::sink_ptr next_;
  std::uint32_t per_s_;
  spdlog::log_clock::time_point second_;
  std::unordered_map<std::string, std::uint32_t> seen_;
  std::uint64_t suppressed_ = 0;
};

class JsonLine : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch())
            .count();
    const auto level = spdlog::level::to_string_view(message.level);
    const nlohmann::json line = {
        {"time_ms", ms},
        {"level", std::string(level.data(), level.size())},
        {"message", std::string(message.payload.data(), message.payload.size())}};
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonLine>(); }
};

}  // namespace

Result<void> start_log(const LogOptions& options) {
  try {
    spdlog::sink_ptr out;
    if (options.file.empty())
      out = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    else
      out = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    auto limited = std::make_shared<RepeatLimit>(std::move(out), options.repeat_per_s);
    auto logger = std::make_shared<spdlog::logger>("penstockd", std::move(limited));
    if (options.json)
      logger->set_formatter(std::make_unique<JsonLine>());
    else
      logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
    logger->set_level(spdlog::level::from_str(options.level));
    logger->flush_on(spdlog::level::info);
    spdlog::set_default_logger(std::move(logger));
  } catch (const spdlog::spdlog_ex& error) {
    return fail(ErrorCode::kInvalidArgument, "log.file '{}' cannot be written: {}", options.file,
                error.what());
  }
  return {};
}

}  // namespace penstock
