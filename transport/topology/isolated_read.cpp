// Reads a topology file in a child process, which sends back what it found as JSON: hwloc's parser
// may crash, hang or overwrite memory on a broken file, and none of that may happen to a service.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "transport/topology/hwloc_reader.hpp"

namespace penstock {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumaNode, index, memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Core, numa_node, cpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Bridge, name, root_complex)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(IoDevice, bus, pci_class, vendor, device, numa_node, bridges,
                                   interfaces, rdma_devices)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Topology, machine, numa_nodes, cores, devices)

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeadline{10};
constexpr std::size_t kLargestFile = 16u << 20;
constexpr std::size_t kLargestReply = 64u << 20;

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

// A crash in the child is expected: it must leave no core file, run none of the parent's handlers
// and write nothing between the parent's log lines.
void become_expendable() {
  for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGPIPE})
    std::signal(signal, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const int null = open("/dev/null", O_RDWR);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
}

[[noreturn]] void read_in_child(const std::string& xml, int reply_fd) {
  become_expendable();
  nlohmann::json reply;
  try {
    auto topology = read_xml(xml);
    if (topology)
      reply["topology"] = *topology;
    else
      reply["error"] = topology.error().message;
    write_all(reply_fd, reply.dump());
  } catch (const std::exception&) {
    // No reply tells enough.
  }
  _exit(0);
}

/// Everything the child writes until it closes its end, at most until the deadline.
std::optional<std::string> read_reply(int fd) {
  const auto deadline = Clock::now() + kDeadline;
  std::string reply;
  std::array<char, 65536> buffer;
  while (reply.size() <= kLargestReply) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{fd, POLLIN, 0};
    if (left <= 0) return std::nullopt;
    const int polled = poll(&ready, 1, static_cast<int>(left));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return std::nullopt;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0) return reply;
    if (n < 0 && errno != EINTR) return std::nullopt;
    if (n > 0) reply.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return std::nullopt;
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status))
    return fail(ErrorCode::kNotFound, "topology file {}: no such file", path.string());
  if (!std::filesystem::is_regular_file(status))
    return fail(ErrorCode::kInvalidArgument, "topology file {}: not a regular file", path.string());
  const auto size = std::filesystem::file_size(path, error);
  if (error || size == 0 || size > kLargestFile)
    return fail(ErrorCode::kInvalidArgument,
                "topology file {}: {} bytes; an hwloc file has at least one and at most {}",
                path.string(), error ? 0 : size, kLargestFile);
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(size)))
    return fail(ErrorCode::kDenied, "topology file {}: cannot be read; check its permissions",
                path.string());
  return text;
}

}  // namespace

Result<Topology> topology_of_reply(const std::string& reply) {
  if (reply.empty()) return fail(ErrorCode::kInvalidArgument, "hwloc crashes on it");
  try {
    bool fractions = false;  // no field has one, and not every one fits an integer
    const auto note = [&](int, nlohmann::json::parse_event_t, const nlohmann::json& value) {
      fractions |= value.is_number_float();
      return true;
    };
    const auto json = nlohmann::json::parse(reply, note);
    if (fractions) return fail(ErrorCode::kInvalidArgument, "hwloc reads nonsense from it");
    if (json.contains("topology")) return json.at("topology").get<Topology>();
    return fail(ErrorCode::kInvalidArgument, "{}", json.at("error").get<std::string>());
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::kInvalidArgument, "hwloc reads nonsense from it");
  }
}

Result<Topology> read_xml_isolated(const std::string& xml) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return fail(ErrorCode::kResourceExhausted, "no pipe: too many open files");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    read_in_child(xml, ends[1]);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return fail(ErrorCode::kResourceExhausted, "no process to read it in: {}", strerror(errno));
  }
  const auto reply = read_reply(ends[0]);
  close(ends[0]);
  kill(child, SIGKILL);  // it has answered, or never will
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!reply)
    return fail(ErrorCode::kInvalidArgument, "hwloc did not finish reading it within {} s",
                kDeadline.count());
  return topology_of_reply(*reply);
}

Result<Topology> Topology::from_xml(const std::filesystem::path& path) {
  auto xml = read_file(path);
  if (!xml) return tl::unexpected(xml.error());
  auto topology = read_xml_isolated(*xml);
  if (!topology)
    return fail(topology.error().code,
                "topology file {}: {}; write a sound one with: lstopo --of xml FILE", path.string(),
                topology.error().message);
  return topology;
}

Result<Topology> Topology::discover() {
  // hwloc itself obeys these; the topology of another machine must be asked for by name.
  for (const char* variable : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT"})
    if (std::getenv(variable) != nullptr)
      return fail(ErrorCode::kUnsupported,
                  "{} is set: it would describe another machine; unset it, or name the file as "
                  "fabric.topology_file",
                  variable);
  auto topology = read_this_machine();
  if (!topology) return topology;
  if (auto allowed = topology->allow_only(process_cpus()); !allowed)
    return tl::unexpected(allowed.error());
  return topology;
}

}  // namespace penstock
