// PollerLoop: what each command does.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "transport/poller/loop_state.hpp"

namespace penstock {
namespace {

/// A peer that takes no messages for so long has missed every deadline they had.
constexpr std::size_t kOutboxMessages = 256;

Error no_path() {
  return {ErrorCode::kPeerUnreachable,
          "no usable path is left: links closed, cards down, the region not registered on them, or "
          "chunks larger than they take"};
}

Error no_slots() {
  return {ErrorCode::kResourceExhausted,
          "no staging slots are lent, and nothing of the transfer may go without"};
}

Error closed(LinkId link) {
  return {ErrorCode::kNotFound, fmt::format("link {} is not open (closed, or never opened)", link)};
}

}  // namespace

Link* PollerLoop::State::find_link(LinkId id) {
  const auto found = links.find(id);
  return found == links.end() || found->second->closing ? nullptr : found->second.get();
}

TransferWork* PollerLoop::State::find_transfer(TransferId id) {
  const auto found = transfers.find(id);
  return found == transfers.end() ? nullptr : found->second.get();
}

// -- links ---------------------------------------------------------------------------------------

void PollerLoop::State::execute(OpenLink&& command) {
  const auto refuse = [&](Error error) { link_failed(command.link, std::move(error)); };
  if (command.nic >= cards.size())
    return refuse({ErrorCode::kInvalidArgument,
                   fmt::format("link {}: card {} of {}", command.link, command.nic, cards.size())});
  if (links.contains(command.link))
    return refuse(
        {ErrorCode::kAlreadyExists, fmt::format("link {} was opened before", command.link)});
  Nic& nic = *cards[command.nic]->nic;
  auto control = nic.add_peer(command.control);
  if (!control) return refuse(control.error());
  auto link = std::make_unique<Link>();
  link->id = command.link;
  link->nic = command.nic;
  link->control = *control;
  links.emplace(command.link, std::move(link));
  if (!command.inbound.empty())
    execute(MoveLink{command.link, std::move(command.inbound), command.generation});
}

void PollerLoop::State::execute(MoveLink&& command) {
  Link* link = find_link(command.link);
  if (link == nullptr) return link_failed(command.link, closed(command.link));
  auto handle = cards[link->nic]->nic->add_peer(command.inbound);
  if (!handle) return link_failed(command.link, handle.error());
  PeerAddress* old = link->inbound;
  link->addresses.push_back(std::make_unique<PeerAddress>());
  link->inbound = link->addresses.back().get();
  link->inbound->handle = *handle;
  link->generation = command.generation;
  link->data_backoff.accepted();
  if (old == nullptr) return;
  old->retired = true;
  release(old, *link);
  std::vector<TransferWork*> affected;
  for (auto& [id, transfer] : transfers)
    if (transfer->uses(link)) affected.push_back(transfer.get());
  const Error moved{ErrorCode::kProvider,
                    fmt::format("link {}: the peer opened its inbound endpoint anew", link->id)};
  for (TransferWork* transfer : affected) {
    transfer->drop_paths(link);
    lost_paths(*transfer, moved);
  }
}

void PollerLoop::State::execute(CloseLink&& command) {
  Link* link = find_link(command.link);
  if (link == nullptr) return;
  link->closing = true;
  link->outbox.clear();
  std::erase(with_messages, link);
  drop_link(*link, no_path());
  close_if_quiet(*link);
}

void PollerLoop::State::execute(SendMessage&& command) {
  Link* link = find_link(command.link);
  if (link == nullptr) return link_failed(command.link, closed(command.link));
  if (command.payload.size() > kMaxMessageBytes)
    return link_failed(link->id, {ErrorCode::kInvalidArgument,
                                  fmt::format("a message of {} bytes is longer than {}",
                                              command.payload.size(), kMaxMessageBytes)});
  if (link->outbox.size() >= kOutboxMessages)
    return link_failed(link->id, {ErrorCode::kResourceExhausted,
                                  fmt::format("{} messages wait for link {}: the peer takes none",
                                              link->outbox.size(), link->id)});
  if (link->outbox.empty()) with_messages.push_back(link);
  link->outbox.push_back(std::move(command.payload));
}

// -- transfers -----------------------------------------------------------------------------------

void PollerLoop::State::execute(StartTransfer&& command) {
  const TransferId id = command.transfer;
  if (transfers.contains(id)) {
    spdlog::error("poller: transfer {} is known already, its second start is ignored", id);
    return;
  }
  const auto refuse = [&](ErrorCode code, std::string words) {
    TransferIdle event;
    event.transfer = id;
    event.error = Error{code, std::move(words)};
    event.shares.resize(cards.size());
    events.emplace_back(std::move(event));
  };
  if (!command.plan) return refuse(ErrorCode::kInvalidArgument, "a transfer without a plan");
  const bool writes = command.direction == Direction::kWrite;
  const auto end = writes ? command.plan->source_end() : command.plan->destination_end();
  const bool has_memory = command.local && command.local->memory;
  const auto size = has_memory ? command.local->memory->bytes().size() : 0;
  if (command.plan->chunks() > 0 && end > size)
    return refuse(ErrorCode::kOutOfRange,
                  fmt::format("the plan reaches to byte {}, the local region has {}", end, size));
  SlotMover* mover = nullptr;
  if (command.packing && command.packing->only && has_memory) {
    const auto most =
        packed_page_most(std::min(command.packing->slot_bytes, send_slots.slot_bytes()));
    if (command.plan->limits().max_chunk_bytes > most)
      return refuse(ErrorCode::kResourceExhausted,
                    fmt::format("chunks of up to {} bytes do not fit into staging slots that take "
                                "{}; see fabric.packing and fabric.staging_bytes",
                                command.plan->limits().max_chunk_bytes, most));
    if (command.packing->slots.empty()) return refuse(no_slots().code, no_slots().message);
    if (const auto error = mover_error(*command.local->memory))
      return refuse(error->code, error->message);
    mover = mover_of(*command.local->memory);
  } else if (has_memory && command.local->memory->gpu() >= 0) {
    // A card reaches it: a few small chunks among long ones are not worth a kernel.
    command.packing.reset();
  }
  const auto paths = std::move(command.paths);
  auto owned =
      std::make_unique<TransferWork>(std::move(command), cards.size(), send_slots, pieces, mover);
  TransferWork& transfer = *owned;
  transfers.emplace(id, std::move(owned));
  if (mover != nullptr)
    gatherers.insert(transfer.lane() == Lane::kUrgent ? gatherers.begin() : gatherers.end(),
                     &transfer);
  if (transfer.complete()) return settle(transfer);
  add_paths(transfer, paths);
  lost_paths(transfer, no_path());
}

void PollerLoop::State::add_paths(TransferWork& transfer, const std::vector<RemotePath>& paths) {
  for (const auto& path : paths) {
    Link* link = find_link(path.link);
    if (link == nullptr) {
      link_failed(path.link, closed(path.link));
      continue;
    }
    const CardState& card = *cards[link->nic];
    const auto& registrations = transfer.local().registrations;
    // What is packed leaves from staging memory, which is registered with every card.
    const bool registered = transfer.packed_only()
                                ? path.staging_key != 0
                                : link->nic < registrations.size() && registrations[link->nic];
    const bool fits = transfer.plan().limits().max_chunk_bytes <= card.nic->info().max_chunk_bytes;
    const bool counts = !transfer.immediate() || card.nic->info().immediate_data;
    const bool current = path.generation == link->generation;
    if (card.up && registered && fits && counts && current && !transfer.uses(link))
      transfer.paths(link->nic).push_back(
          {link, path.remote_base, path.remote_key, path.staging_base, path.staging_key});
  }
}

void PollerLoop::State::execute(AddPaths&& command) {
  TransferWork* transfer = find_transfer(command.transfer);
  if (transfer == nullptr || transfer->state != TransferWork::State::kRunning) return;
  add_paths(*transfer, command.paths);
}

void PollerLoop::State::forget(TransferId id) {
  const auto found = transfers.find(id);
  if (found == transfers.end()) return;
  std::erase(gatherers, found->second.get());
  transfers.erase(found);
}

SlotMover* PollerLoop::State::mover_of(const RegionMemory& memory) const {
  for (const auto& [gpu, mover] : movers)
    if (gpu == memory.gpu()) return mover.get();
  return nullptr;
}

std::optional<Error> PollerLoop::State::mover_error(const RegionMemory& memory) const {
  if (memory.gpu() < 0 || mover_of(memory) != nullptr) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("memory of GPU {} cannot be staged by this device: it moves pages of {}",
                           memory.gpu(), movers.empty() ? "host memory only" : "other GPUs")};
}

/// Whoever waits for its end must not wait for ever.
void PollerLoop::State::unknown_transfer(TransferId id) {
  TransferIdle event;
  event.transfer = id;
  event.error = Error{ErrorCode::kNotFound,
                      fmt::format("transfer {} is not known here: refused, or ended", id)};
  event.shares.resize(cards.size());
  events.emplace_back(std::move(event));
}

void PollerLoop::State::execute(Grant&& command) {
  TransferWork* transfer = find_transfer(command.transfer);
  // Grants cross stops on their way: those are void.
  if (transfer == nullptr || transfer->state != TransferWork::State::kRunning) return;
  transfer->grant(command.bytes);
  enqueue(*transfer);
  tell_hunger(*transfer);
}

void PollerLoop::State::execute(StopTransfer&& command) {
  TransferWork* transfer = find_transfer(command.transfer);
  if (transfer == nullptr) return unknown_transfer(command.transfer);
  if (transfer->state == TransferWork::State::kIdle) {
    events.emplace_back(transfer->idle_event());
    return;
  }
  halt(*transfer, std::nullopt);
}

void PollerLoop::State::execute(ResumeTransfer&& command) {
  TransferWork* transfer = find_transfer(command.transfer);
  if (transfer == nullptr) return unknown_transfer(command.transfer);
  if (transfer->state != TransferWork::State::kIdle) {
    spdlog::error("poller: transfer {} is resumed while it is not idle: ignored", command.transfer);
    return;
  }
  const bool slots = command.packing && !command.packing->slots.empty();
  transfer->resume(std::move(command.packing));
  if (transfer->complete()) return settle(*transfer);
  if (transfer->packed_only() && !slots) return halt(*transfer, no_slots());
  transfer->clear_paths();
  add_paths(*transfer, command.paths);
  lost_paths(*transfer, no_path());
}

void PollerLoop::State::execute(EndTransfer&& command) {
  TransferWork* transfer = find_transfer(command.transfer);
  if (transfer == nullptr) return;
  if (transfer->state == TransferWork::State::kIdle) return forget(command.transfer);
  // Operations that are out point to it: it goes with the last of them, after its TransferIdle.
  transfer->end_when_idle = true;
  halt(*transfer, std::nullopt);
}

// -- counting and quiet --------------------------------------------------------------------------

void PollerLoop::State::execute(ArmImmediate&& command) {
  if (immediates.arm(command.immediate, command.count))
    events.emplace_back(ImmediateComplete{command.immediate});
}

void PollerLoop::State::execute(UseStaging&& command) {
  send_slots = SendSlots(std::move(command.memory), command.slot_bytes, command.slots);
}

void PollerLoop::State::execute(UseMover&& command) {
  std::erase_if(movers, [&](const auto& each) { return each.first == command.gpu; });
  movers.emplace_back(command.gpu, std::move(command.mover));
}

void PollerLoop::State::execute(ArmPacked&& command) {
  // Nothing that arrives is taken then: the sender stops waiting for credits by itself.
  if (const auto error = mover_error(*command.region))
    return spdlog::error("packed writes are refused: {}", error->message);
  SlotMover* mover = mover_of(*command.region);
  arrivals.arm(std::move(command), mover);
}

void PollerLoop::State::execute(DisarmPacked&& command) {
  const bool quiet = arrivals.disarm(command.slots, command.tag);
  if (quiet && command.tag != 0) events.emplace_back(PackedDisarmed{command.tag});
}

void PollerLoop::State::execute(DisarmImmediate&& command) { immediates.disarm(command.immediate); }

void PollerLoop::State::execute(ReopenOutbound&& command) {
  if (command.nic < cards.size()) reopen_outbound(command.nic);
}

void PollerLoop::State::execute(ReopenInbound&& command) {
  InboundReopened event;
  event.nic = command.nic;
  if (command.nic >= cards.size()) {
    event.generation = command.generation;
    event.error =
        Error{ErrorCode::kInvalidArgument, fmt::format("card {} of {}", command.nic, cards.size())};
    events.emplace_back(std::move(event));
    return;
  }
  Nic& nic = *cards[command.nic]->nic;
  if (nic.inbound_generation() <= command.generation) {
    if (const auto reopened = nic.reopen_inbound(); !reopened) event.error = reopened.error();
  }
  event.generation = nic.inbound_generation();
  event.address = nic.inbound_address();
  events.emplace_back(std::move(event));
}

}  // namespace penstock
