// A card driven through libfabric: one domain and address vector, three endpoints, two queues.
#pragma once

#include <array>
#include <set>

#include "transport/fabric/domain.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/half_open.hpp"
#include "transport/fabric/message_buffers.hpp"
#include "transport/fabric/nic.hpp"
#include "transport/fabric/wait_object.hpp"

namespace penstock {

class FabricNic final : public Nic {
 public:
  /// `info` is what fi_getinfo answered for the card; `described` carries what the caller knows
  /// about its place in the machine.
  static Result<std::unique_ptr<Nic>> open(const ProviderTraits& traits, Info info,
                                           NicInfo described);
  ~FabricNic() override;

  const NicInfo& info() const override { return info_; }

  FabricAddress control_address() const override { return control_address_; }
  FabricAddress inbound_address() const override { return inbound_address_; }
  std::uint32_t inbound_generation() const override { return inbound_generation_; }
  Result<PeerHandle> add_peer(const FabricAddress& address) override;
  void remove_peer(PeerHandle peer) override;

  Post post(const OneSided& operation, OperationContext* context) override;
  Post send(PeerHandle peer, std::span<const std::byte> payload,
            OperationContext* context) override;

  std::size_t poll(std::span<Completion> completions) override;
  bool may_wait() override;
  bool tidy(std::chrono::milliseconds silence) override;

  Result<void> reopen_outbound() override;
  Result<void> reopen_inbound() override;

  Result<std::unique_ptr<MemoryRegistration>> register_memory(
      std::span<std::byte> memory) override {
    return domain_->register_memory(memory);
  }
  Result<std::unique_ptr<MemoryRegistration>> register_gpu_memory(std::span<std::byte> memory,
                                                                  int gpu) override {
    if (!info_.gpu_memory) return Nic::register_gpu_memory(memory, gpu);
    return domain_->register_memory(memory, gpu);
  }

 private:
  explicit FabricNic(std::shared_ptr<Domain> domain) : domain_(std::move(domain)) {}

  Result<void> open_endpoints();
  Result<FabricAddress> address_to_listen_on(fid_ep* endpoint);
  Result<void> open_outbound();
  Result<void> open_inbound();
  void close_endpoint(Fid<fid_ep>& endpoint, const FabricAddress& address);
  void end_reads();
  std::size_t poll_outbound(std::span<Completion> completions);
  std::size_t poll_shared(std::span<Completion> completions);
  bool take_shared(void* context, std::uint64_t flags, std::size_t length, std::uint64_t data,
                   int error_number, Completion& completion);

  std::shared_ptr<Domain> domain_;
  NicInfo info_;
  std::unique_ptr<MessageBuffers> messages_;
  std::unique_ptr<WaitObject> wait_object_;

  // Control and inbound share a queue, which lives as long as the card: immediates that arrived
  // just before the inbound endpoint was reopened are still told, since their bytes are here and
  // their senders know it. Nothing in it refers to an operation of ours but sends and receives,
  // which MessageBuffers recognizes by address.
  Fid<fid_cq> shared_queue_;
  Fid<fid_cntr> inbound_count_;
  std::uint64_t inbound_seen_ = 0;
  Fid<fid_ep> control_;
  Fid<fid_ep> inbound_;
  // The outbound endpoint has a queue of its own, closed with it: no context of an operation that
  // was cut off can come out of it later.
  Fid<fid_cq> outbound_queue_;
  Fid<fid_ep> outbound_;

  FabricAddress control_address_;
  FabricAddress inbound_address_;
  FabricAddress outbound_address_;
  std::uint32_t inbound_generation_ = 0;
  std::size_t outbound_out_ = 0;  // posted on the outbound endpoint and not completed
  unsigned outbound_polls_ = 0;   // since the shared queue was last looked at
  unsigned quiet_polls_ = 0;      // since the outbound queue was last looked at

  UnspokenConnections unspoken_;

  // For end_reads(); only where endpoints accept sockets.
  std::size_t reads_out_ = 0;       // those of outbound_out_ that are reads
  std::set<PeerHandle> read_from_;  // since the outbound endpoint was opened
};

}  // namespace penstock
