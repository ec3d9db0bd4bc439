#include "tests/transport/gpu/other_process.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "transport/gpu/gpu_pattern.hpp"

namespace penstock {
namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int));

void send_with_descriptor(int socket, const Question& question, int fd) {
  iovec part{const_cast<Question*>(&question), sizeof(question)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[kControlBytes] = {};
  if (fd != -1) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  if (sendmsg(socket, &message, 0) != sizeof(question)) throw std::runtime_error("sendmsg");
}

/// False at the end.
bool receive_with_descriptor(int socket, Question& question, GpuDescriptor& fd) {
  iovec part{&question, sizeof(question)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[kControlBytes] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, 0) != sizeof(question)) return false;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof(received));
    fd = GpuDescriptor(received);
  }
  return true;
}

class Answers {
 public:
  Answer to(const Question& question, const GpuDescriptor& fd) {
    Answer answer;
    const auto result = act(question, fd, answer);
    answer.good = result.has_value();
    if (!result) {
      answer.code = result.error().code;
      result.error().message.copy(answer.message.data(), answer.message.size() - 1);
    }
    return answer;
  }

 private:
  Result<void> act(const Question& question, const GpuDescriptor& fd, Answer& answer) {
    switch (question.ask) {
      case Ask::kImport: {
        auto memory = import_gpu_memory(0, question.memory, question.bytes);
        if (!memory) return tl::unexpected(memory.error());
        imported_ = *memory;
        return digest_and_fill(question, answer);
      }
      case Ask::kImportDescriptor: {
        auto memory =
            import_gpu_descriptor(0, fd.get(), question.allocation_bytes, 0, question.bytes);
        if (!memory) return tl::unexpected(memory.error());
        imported_ = *memory;
        return digest_and_fill(question, answer);
      }
      case Ask::kLetGo:
        imported_.reset();
        return {};
      case Ask::kAllocate: {
        auto memory = allocate_gpu_memory(0, question.bytes);
        if (!memory) return tl::unexpected(memory.error());
        own_ = *memory;
        if (auto filled = fill_gpu_pattern(*own_, 0, question.bytes, question.seed); !filled)
          return filled;
        auto handle = own_->ipc_handle();
        if (!handle) return tl::unexpected(handle.error());
        answer.memory = *handle;
        return {};
      }
      case Ask::kFree:
        own_.reset();
        return {};
      case Ask::kCopyAfter:
        return copy_after(question, answer);
      case Ask::kRecordAfter:
        return record_after(question);
      case Ask::kDescribe: {
        const auto found = describe_gpu_address(question.address, question.bytes);
        if (!found) return tl::unexpected(found.error());
        return {};
      }
      case Ask::kPoison:
        return poison();
      case Ask::kInventory: {
        std::string words = gpu_inventory().why_none;
        for (const Gpu& gpu : gpu_inventory().gpus) words += gpu.bus_id + " ";
        words.copy(answer.message.data(), answer.message.size() - 1);
        return {};
      }
      case Ask::kPoisonThenUse: {
        const auto memory = allocate_gpu_memory(0, 4096);
        if (!memory) return tl::unexpected(memory.error());
        return {};
      }
    }
    return fail(ErrorCode::kInternal, "unknown question");
  }

  Result<void> digest(const RegionMemory& memory, std::uint64_t bytes, Answer& answer) {
    const std::uint64_t start = 0;
    return digest_gpu_pages(memory, bytes, std::span(&start, 1), std::span(&answer.digest, 1));
  }

  Result<void> digest_and_fill(const Question& question, Answer& answer) {
    if (auto done = digest(*imported_, question.bytes, answer); !done) return done;
    return fill_gpu_pattern(*imported_, 0, question.bytes, question.seed);
  }

  Result<void> copy_after(const Question& question, Answer& answer) {
    const auto memory = import_gpu_memory(0, question.memory, question.bytes);
    if (!memory) return tl::unexpected(memory.error());
    const auto event = import_gpu_event(0, question.event);
    if (!event) return tl::unexpected(event.error());
    const auto mover = PageMover::make(0);
    if (!mover) return tl::unexpected(mover.error());
    const auto own = allocate_gpu_memory(0, question.bytes);
    if (!own) return tl::unexpected(own.error());
    const CopyPiece all{0, 0, question.bytes};
    const auto ticket = (*mover)->start(std::span(&all, 1), {address_of(**memory), 0},
                                        {address_of(**own), 0}, 0, {event->get(), nullptr});
    if (!ticket) return tl::unexpected(ticket.error());
    if (auto done = wait(**mover, *ticket); !done) return done;
    return digest(**own, question.bytes, answer);
  }

  /// A copy of known bytes into the asker's memory, with the asker's event behind it.
  Result<void> record_after(const Question& question) {
    const auto memory = import_gpu_memory(0, question.memory, question.bytes);
    if (!memory) return tl::unexpected(memory.error());
    const auto event = import_gpu_event(0, question.event);
    if (!event) return tl::unexpected(event.error());
    auto mover = PageMover::make(0);
    if (!mover) return tl::unexpected(mover.error());
    const auto own = allocate_gpu_memory(0, question.bytes);
    if (!own) return tl::unexpected(own.error());
    if (auto filled = fill_gpu_pattern(**own, 0, question.bytes, question.seed); !filled)
      return filled;
    const CopyPiece all{0, 0, question.bytes};
    const auto ticket = (*mover)->start(std::span(&all, 1), {address_of(**own), 0},
                                        {address_of(**memory), 0}, 0, {nullptr, event->get()});
    if (!ticket) return tl::unexpected(ticket.error());
    // Answers while the copy may still run: the asker waits for the event. All stays until then.
    kept_mover_ = *std::move(mover);
    own_ = *own;
    imported_ = *memory;
    event_ = *event;
    return {};
  }

  Result<void> poison() {
    const auto mover = PageMover::make(0);
    if (!mover) return tl::unexpected(mover.error());
    const auto own = allocate_gpu_memory(0, 4096);
    if (!own) return tl::unexpected(own.error());
    const CopyPiece all{0, 0, 4096};
    const auto ticket = (*mover)->start(std::span(&all, 1), {0x1000, 0}, {address_of(**own), 0}, 0);
    if (!ticket) return tl::unexpected(ticket.error());
    if (auto done = wait(**mover, *ticket); !done) {
      const auto next =
          (*mover)->start(std::span(&all, 1), {address_of(**own), 0}, {address_of(**own), 0}, 1);
      if (next) return fail(ErrorCode::kInternal, "a broken mover starts copies");
      return done;
    }
    return {};
  }

  std::shared_ptr<GpuMemory> imported_;
  std::shared_ptr<GpuMemory> own_;
  std::shared_ptr<GpuEvent> event_;
  std::unique_ptr<PageMover> kept_mover_;
};

}  // namespace

OtherProcess::OtherProcess(const char* visible_devices) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) throw std::runtime_error("socketpair");
  const std::string number = std::to_string(sockets[1]);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    close(sockets[0]);
    if (visible_devices != nullptr) setenv("CUDA_VISIBLE_DEVICES", visible_devices, 1);
    execl("/proc/self/exe", "gpu_test", kOtherProcessFlag, number.c_str(), nullptr);
    _exit(127);
  }
  close(sockets[1]);
  socket_ = sockets[0];
}

OtherProcess::~OtherProcess() {
  kill();
  close(socket_);
}

void OtherProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void OtherProcess::send(const Question& question, int fd) {
  send_with_descriptor(socket_, question, fd);
}

Answer OtherProcess::receive() {
  Answer answer;
  const timeval patience{60, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (recv(socket_, &answer, sizeof(answer), 0) != sizeof(answer))
    throw std::runtime_error("the other process gives no answer");
  return answer;
}

Answer OtherProcess::ask(const Question& question, int fd) {
  send(question, fd);
  return receive();
}

int run_other_process(int socket) {
  Answers answers;
  Question question;
  for (;;) {
    GpuDescriptor fd;
    if (!receive_with_descriptor(socket, question, fd)) return 0;
    const Answer answer = answers.to(question, fd);
    if (send(socket, &answer, sizeof(answer), 0) != sizeof(answer)) return 1;
  }
}

}  // namespace penstock
