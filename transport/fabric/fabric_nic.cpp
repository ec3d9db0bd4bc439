#include "transport/fabric/fabric_nic.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>

namespace penstock {
namespace {

constexpr std::size_t kQueueEntries = 4096;
constexpr std::size_t kReadAtOnce = 64;
/// While the outbound queue keeps giving, the shared one is looked at every so many polls: each
/// look at an empty queue runs the provider's progress, a system call on tcp.
constexpr unsigned kOutboundPollsAtMost = 4;
/// With nothing out, the outbound queue holds nothing of ours. A look now and then is for what the
/// provider does there by itself.
constexpr unsigned kQuietPollsAtMost = 16;
/// Descriptors that tidying looks at in one go: a millisecond in which nothing else goes on.
constexpr std::size_t kTidiedAtOnce = 1024;
/// For the second half of a stranger's connection request: 7 to 12 ms where the kernel's tick is 4.
/// A member's comes in one piece.
constexpr std::chrono::microseconds kFirstReadsWait{1000};
/// A socket that was shut down needs no answer from anybody: its buffer is emptied and it is gone.
constexpr std::chrono::milliseconds kReadsEndWithin{200};

/// Reading a queue runs the provider's progress. The thread's errno is forgotten before:
/// libfabric's tcp (1.17, xnet_recv_cm_msg) asks errno why a stranger's connection ended without a
/// word, where nothing has set it, and keeps the descriptor for good when it still says EAGAIN.
ssize_t read_queue(fid_cq* queue, fi_cq_data_entry* entries, std::size_t most) {
  errno = 0;
  return fi_cq_read(queue, entries, most);
}

std::string_view describe(Direction direction) {
  return direction == Direction::kWrite ? "write" : "read";
}

}  // namespace

Result<std::unique_ptr<Nic>> FabricNic::open(const ProviderTraits& traits, Info info,
                                             NicInfo described) {
  auto domain = Domain::open(traits, std::move(info));
  if (!domain) return tl::unexpected(domain.error());
  std::unique_ptr<FabricNic> nic(new FabricNic(std::move(*domain)));
  const fi_info* answer = nic->domain_->info();
  nic->info_ = std::move(described);
  nic->info_.name = answer->domain_attr->name;
  nic->info_.provider = traits.name;
  // A chunk has to be short against a quantum anyhow; the limit keeps lengths sane where the
  // provider claims to have none.
  nic->info_.max_chunk_bytes =
      std::min<std::uint64_t>(answer->ep_attr->max_msg_size, std::uint64_t{1} << 30);
  nic->info_.local_pieces = std::clamp<std::size_t>(answer->tx_attr->iov_limit, 1, kMostPieces);
  nic->info_.immediate_data = answer->domain_attr->cq_data_size >= 4;
  nic->info_.memory_address_is_virtual = nic->domain_->has_memory_mode(FI_MR_VIRT_ADDR);
  nic->info_.gpu_memory = nic->info_.gpu_memory && (answer->caps & FI_HMEM) != 0;
  nic->info_.fence = traits.fence;
  if (auto opened = nic->open_endpoints(); !opened) return tl::unexpected(opened.error());
  nic->info_.wait_fd = nic->wait_object_->fd();
  return nic;
}

FabricNic::~FabricNic() {
  end_reads();
  close_endpoint(outbound_, outbound_address_);
  close_endpoint(inbound_, inbound_address_);
  close_endpoint(control_, control_address_);
}

Result<void> FabricNic::open_endpoints() {
  auto queue = open_completion_queue(*domain_, kQueueEntries);
  if (!queue) return tl::unexpected(queue.error());
  shared_queue_ = std::move(*queue);
  if (domain_->traits().counts_inbound) {
    fi_cntr_attr attributes{};
    attributes.events = FI_CNTR_EVENTS_COMP;
    fid_cntr* counter = nullptr;
    if (const int status = fi_cntr_open(domain_->domain(), &attributes, &counter, nullptr))
      return fail(ErrorCode::kProvider, "{}: fi_cntr_open: {}", info_.name, fabric_error(status));
    inbound_count_.reset(counter);
  }
  auto messages = MessageBuffers::open(*domain_);
  if (!messages) return tl::unexpected(messages.error());
  messages_ = std::move(*messages);
  auto control = open_endpoint(*domain_, shared_queue_.get());
  if (!control) return tl::unexpected(control.error());
  control_ = std::move(*control);
  auto address = address_to_listen_on(control_.get());
  if (!address) return tl::unexpected(address.error());
  control_address_ = std::move(*address);
  if (auto posted = messages_->post_receives(control_.get()); !posted) return posted;
  if (auto opened = open_inbound(); !opened) return opened;
  if (auto opened = open_outbound(); !opened) return opened;
  wait_object_ = std::make_unique<WaitObject>(*domain_);
  return {};
}

Result<FabricAddress> FabricNic::address_to_listen_on(fid_ep* endpoint) {
  auto address = endpoint_address(endpoint);
  if (address && domain_->traits().accepts_sockets &&
      bound_first_reads(*address, kFirstReadsWait) == 0)
    spdlog::warn(
        "{}: a stranger may hold its polling thread: no listening socket was found in /proc",
        info_.name);
  return address;
}

Result<void> FabricNic::open_outbound() {
  auto queue = open_completion_queue(*domain_, kQueueEntries);
  if (!queue) return tl::unexpected(queue.error());
  auto endpoint = open_endpoint(*domain_, queue->get());
  if (!endpoint) return tl::unexpected(endpoint.error());
  auto address = address_to_listen_on(endpoint->get());
  if (!address) return tl::unexpected(address.error());
  outbound_queue_ = std::move(*queue);
  outbound_ = std::move(*endpoint);
  outbound_address_ = std::move(*address);
  return {};
}

Result<void> FabricNic::open_inbound() {
  auto endpoint = open_endpoint(*domain_, shared_queue_.get(), inbound_count_.get());
  if (!endpoint) return tl::unexpected(endpoint.error());
  auto address = address_to_listen_on(endpoint->get());
  if (!address) return tl::unexpected(address.error());
  inbound_ = std::move(*endpoint);
  inbound_address_ = std::move(*address);
  ++inbound_generation_;
  return {};
}

void FabricNic::close_endpoint(Fid<fid_ep>& endpoint, const FabricAddress& address) {
  if (!endpoint) return;
  const auto lock = domain_->progress_lock();
  std::vector<OpenSocket> sockets;
  if (domain_->traits().accepts_sockets) sockets = shut_down_accepted(address);
  // Each round of progress takes a bounded number of events; a few hundred connections may end at
  // once. Reading 0 entries runs progress and takes nothing out of the queue.
  if (!sockets.empty())
    for (int round = 0; round < 64; ++round) read_queue(shared_queue_.get(), nullptr, 0);
  endpoint.reset();
  close_left(sockets);
}

/// libfabric's tcp before 1.18, closing an endpoint whose socket has given a part of a read's
/// answer, frees the entry of that read twice, and two later operations of the card share it. When
/// the socket itself ends it frees it once: so connections with reads end before the endpoint does.
void FabricNic::end_reads() {
  const fi_info* own = domain_->info();
  if (reads_out_ > 0 && own->src_addr != nullptr) {
    const auto lock = domain_->progress_lock();
    const auto* bytes = static_cast<const std::byte*>(own->src_addr);
    const FabricAddress card(bytes, bytes + own->src_addrlen);
    // Connections to peers that were removed have been shut down by that.
    for (const PeerHandle peer : read_from_)
      if (const auto* address = domain_->address_of(peer)) shut_down_connected(card, *address);
    // What a socket holds is taken out first, a message a round.
    std::array<Completion, kReadAtOnce> dropped;
    const auto deadline = std::chrono::steady_clock::now() + kReadsEndWithin;
    while (reads_out_ > 0 && std::chrono::steady_clock::now() < deadline) poll_outbound(dropped);
    if (reads_out_ > 0)
      spdlog::warn("{}: {} reads did not end within {} ms of their connections", info_.name,
                   reads_out_, kReadsEndWithin.count());
  }
  read_from_.clear();
  reads_out_ = 0;
}

Result<PeerHandle> FabricNic::add_peer(const FabricAddress& address) {
  return domain_->add_peer(address);
}

void FabricNic::remove_peer(PeerHandle peer) {
  const std::array listening{control_address_, inbound_address_};
  domain_->remove_peer(peer, listening);
}

Post FabricNic::post(const OneSided& operation, OperationContext* context) {
  if (!outbound_)
    return {PostStatus::kFailed,
            {ErrorCode::kProvider, fmt::format("card {} could not be reopened", info_.name)}};
  std::array<iovec, kMostPieces> local;
  std::array<void*, kMostPieces> descriptors;
  for (std::size_t i = 0; i < operation.pieces; ++i) {
    local[i] = {operation.local[i].address, operation.local[i].length};
    descriptors[i] = operation.local_descriptor;
  }
  fi_rma_iov remote{operation.remote_address, operation.length, operation.remote_key};
  fi_msg_rma message{};
  message.msg_iov = local.data();
  message.desc = descriptors.data();
  message.iov_count = operation.pieces;
  message.addr = operation.peer;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = context;
  message.data = operation.immediate.value_or(0);
  ssize_t status = 0;
  if (operation.direction == Direction::kWrite) {
    // Without delivery complete, tcp reports a write when its bytes are in a socket's buffer.
    std::uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    if (operation.immediate) flags |= FI_REMOTE_CQ_DATA;
    status = fi_writemsg(outbound_.get(), &message, flags);
  } else {
    status = fi_readmsg(outbound_.get(), &message, FI_COMPLETION);
    if (status == 0 && domain_->traits().accepts_sockets) {
      ++reads_out_;
      read_from_.insert(operation.peer);
    }
  }
  if (status == 0) {
    ++outbound_out_;
    return {};
  }
  if (status == -FI_EAGAIN) {
    quiet_polls_ = kQuietPollsAtMost;  // the connection may need the next look
    return {PostStatus::kAgain, {}};
  }
  return {PostStatus::kFailed,
          {ErrorCode::kProvider,
           fmt::format("{}: posting a {} of {} bytes: {}", info_.name,
                       describe(operation.direction), operation.length, fabric_error(status))}};
}

Post FabricNic::send(PeerHandle peer, std::span<const std::byte> payload,
                     OperationContext* context) {
  return messages_->send(control_.get(), peer, payload, context);
}

std::size_t FabricNic::poll(std::span<Completion> completions) {
  messages_->recycle();
  const auto lock = domain_->progress_lock();
  if (auto posted = messages_->post_receives(control_.get()); !posted)
    spdlog::error("{}: {}", info_.name, posted.error().message);
  const bool look = outbound_out_ > 0 || ++quiet_polls_ >= kQuietPollsAtMost;
  std::size_t count = look ? poll_outbound(completions) : 0;
  if (count > 0 && ++outbound_polls_ < kOutboundPollsAtMost) return count;
  outbound_polls_ = 0;
  if (count < completions.size()) count += poll_shared(completions.subspan(count));
  return count;
}

std::size_t FabricNic::poll_outbound(std::span<Completion> completions) {
  if (!outbound_queue_) return 0;
  quiet_polls_ = 0;
  std::array<fi_cq_data_entry, kReadAtOnce> entries;
  const auto room = std::min(entries.size(), completions.size());
  const auto read = read_queue(outbound_queue_.get(), entries.data(), room);
  std::size_t count = 0;
  for (ssize_t i = 0; i < read; ++i) {
    if (entries[i].flags & (FI_REMOTE_WRITE | FI_REMOTE_READ | FI_RECV)) continue;
    Completion& completion = completions[count++];
    completion.kind = Completion::Kind::kOperation;
    completion.context = static_cast<OperationContext*>(entries[i].op_context);
    completion.ok = true;
    if (reads_out_ > 0 && (entries[i].flags & FI_READ)) --reads_out_;
  }
  outbound_out_ -= count;
  if (read != -FI_EAVAIL) return count;
  while (count < room) {
    fi_cq_err_entry error{};
    if (fi_cq_readerr(outbound_queue_.get(), &error, 0) != 1) break;
    if (error.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ | FI_RECV)) continue;
    Completion& completion = completions[count++];
    completion.kind = Completion::Kind::kOperation;
    completion.context = static_cast<OperationContext*>(error.op_context);
    completion.ok = false;
    completion.error_number = error.err;
    --outbound_out_;
    if (reads_out_ > 0 && (error.flags & FI_READ)) --reads_out_;
  }
  return count;
}

std::size_t FabricNic::poll_shared(std::span<Completion> completions) {
  std::array<fi_cq_data_entry, kReadAtOnce> entries;
  const auto room = std::min(entries.size(), completions.size());
  const auto read = read_queue(shared_queue_.get(), entries.data(), room);
  std::size_t count = 0;
  for (ssize_t i = 0; i < read; ++i)
    count += take_shared(entries[i].op_context, entries[i].flags, entries[i].len, entries[i].data,
                         0, completions[count]);
  if (read != -FI_EAVAIL) return count;
  while (count < room) {
    fi_cq_err_entry error{};
    if (fi_cq_readerr(shared_queue_.get(), &error, 0) != 1) break;
    count += take_shared(error.op_context, error.flags, 0, 0, error.err, completions[count]);
  }
  return count;
}

/// Turns an entry of the shared queue into a completion; false when nobody needs to know of it.
bool FabricNic::take_shared(void* context, std::uint64_t flags, std::size_t length,
                            std::uint64_t data, int error_number, Completion& completion) {
  // Inbound one-sided operations come with a context that means nothing.
  if (flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) {
    if (error_number != 0 || !(flags & FI_REMOTE_CQ_DATA)) return false;
    completion = {};
    completion.kind = Completion::Kind::kImmediate;
    completion.immediate = static_cast<std::uint32_t>(data);
    return true;
  }
  const auto finished = messages_->finish(context, length);
  if (!finished) return false;
  if (finished->receive) {
    if (error_number != 0) return false;  // the slot is posted again by the next poll
    completion = {};
    completion.kind = Completion::Kind::kMessage;
    completion.payload = finished->received;
    return true;
  }
  completion = {};
  completion.kind = Completion::Kind::kOperation;
  completion.context = finished->sent;
  completion.ok = error_number == 0;
  completion.error_number = error_number;
  return true;
}

bool FabricNic::may_wait() {
  const auto lock = domain_->progress_lock();  // reading the counter runs progress
  if (inbound_count_) {
    const auto count = fi_cntr_read(inbound_count_.get());
    const bool busy = count != inbound_seen_;
    inbound_seen_ = count;
    if (busy) return false;
  }
  return wait_object_->may_wait();
}

bool FabricNic::tidy(std::chrono::milliseconds silence) {
  if (!domain_->traits().accepts_sockets) return false;
  std::vector<FabricAddress> listening;
  if (control_) listening.push_back(control_address_);
  if (inbound_) listening.push_back(inbound_address_);
  if (outbound_) listening.push_back(outbound_address_);
  const auto lock = domain_->progress_lock();
  const auto ended = unspoken_.look(kTidiedAtOnce, listening, silence);
  if (ended.connections > 0)
    spdlog::debug("{}: {} connections that never spoke were ended", info_.name, ended.connections);
  return ended.more;
}

Result<void> FabricNic::reopen_outbound() {
  end_reads();
  close_endpoint(outbound_, outbound_address_);
  outbound_queue_.reset();
  outbound_out_ = 0;
  return open_outbound();
}

Result<void> FabricNic::reopen_inbound() {
  close_endpoint(inbound_, inbound_address_);
  return open_inbound();
}

}  // namespace penstock
