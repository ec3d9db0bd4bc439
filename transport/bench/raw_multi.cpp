#include "transport/bench/raw_multi.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "transport/bench/raw_endpoint.hpp"

namespace penstock {

struct RawStreams::Card {
  RawEndpoint raw;
  fi_addr_t target = FI_ADDR_UNSPEC;
  std::uint64_t remote_key = 0;
  std::uint64_t remote_base = 0;
  std::size_t window = 0;  // in pages
  std::vector<OperationContext> slots;
  std::vector<OperationContext*> free;
  /// Both shuffled, walked through again and again.
  std::vector<std::uint32_t> from, to;
  std::size_t next = 0;
  std::uint64_t completed_bytes = 0;
};

RawStreams::RawStreams(std::uint64_t page_bytes) : page_bytes_(page_bytes) {}
RawStreams::~RawStreams() = default;

Result<std::unique_ptr<RawStreams>> RawStreams::open(const std::vector<RawOptions>& cards,
                                                     const std::vector<RawDescription>& targets,
                                                     std::span<std::byte> memory,
                                                     std::uint64_t page_bytes) {
  const std::size_t part = cards.empty() ? 0 : memory.size() / cards.size();
  if (page_bytes == 0 || part < page_bytes || cards.size() != targets.size())
    return fail(ErrorCode::kInvalidArgument,
                "raw streams: {} cards, {} targets and {} bytes of memory do not go together",
                cards.size(), targets.size(), memory.size());
  std::unique_ptr<RawStreams> streams(new RawStreams(page_bytes));
  for (std::size_t i = 0; i < cards.size(); ++i) {
    std::uint64_t words[2] = {};
    if (targets[i].size() <= sizeof words)
      return fail(ErrorCode::kInvalidArgument, "raw streams: target {} is cut short", i);
    std::memcpy(words, targets[i].data(), sizeof words);
    auto raw = RawEndpoint::open(cards[i], memory.subspan(i * part, part));
    if (!raw) return tl::unexpected(raw.error());
    auto card = std::make_unique<Card>();
    card->raw = std::move(*raw);
    card->remote_key = words[0];
    card->remote_base = words[1];
    card->window =
        std::clamp<std::size_t>(cards[i].window_bytes / page_bytes, 1, cards[i].window_operations);
    card->slots = std::vector<OperationContext>(card->window);
    for (auto& slot : card->slots) card->free.push_back(&slot);
    card->from.resize(part / page_bytes);
    std::iota(card->from.begin(), card->from.end(), 0u);
    card->to = card->from;
    std::mt19937_64 random(i + 1);
    std::shuffle(card->from.begin(), card->from.end(), random);
    std::shuffle(card->to.begin(), card->to.end(), random);
    if (fi_av_insert(card->raw.addresses.get(), targets[i].data() + sizeof words, 1, &card->target,
                     0, nullptr) != 1)
      return fail(ErrorCode::kProvider, "raw streams: fi_av_insert refused target {}", i);
    streams->patience_ = std::max(streams->patience_, cards[i].patience);
    streams->cards_.push_back(std::move(card));
  }
  return streams;
}

Result<void> RawStreams::post(Card& card) {
  while (!card.free.empty()) {
    const std::size_t next = card.next % card.from.size();
    iovec local{card.raw.base + card.from[next] * page_bytes_, page_bytes_};
    fi_rma_iov remote{card.remote_base + card.to[next] * page_bytes_, page_bytes_, card.remote_key};
    void* descriptor = fi_mr_desc(card.raw.memory.get());
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = card.target;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = card.free.back();
    const auto status =
        fi_writemsg(card.raw.endpoint.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    if (status == -FI_EAGAIN) return {};
    if (status != 0)
      return fail(ErrorCode::kProvider, "raw streams: posting: {}", fabric_error(status));
    card.free.pop_back();
    ++card.next;
  }
  return {};
}

Result<void> RawStreams::reap(Card& card) {
  std::array<fi_cq_entry, 64> entries;
  const auto read = fi_cq_read(card.raw.queue.get(), entries.data(), entries.size());
  if (read == -FI_EAGAIN) return {};
  if (read == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    fi_cq_readerr(card.raw.queue.get(), &error, 0);
    return fail(ErrorCode::kProvider, "raw streams: a write failed: {}", fi_strerror(error.err));
  }
  if (read < 0)
    return fail(ErrorCode::kProvider, "raw streams: fi_cq_read: {}", fabric_error(read));
  for (ssize_t i = 0; i < read; ++i)
    card.free.push_back(static_cast<OperationContext*>(entries[i].op_context));
  card.completed_bytes += static_cast<std::uint64_t>(read) * page_bytes_;
  return {};
}

Result<void> RawStreams::step() {
  for (const auto& card : cards_) {
    if (auto posted = post(*card); !posted) return posted;
    if (auto reaped = reap(*card); !reaped) return reaped;
  }
  return {};
}

Result<void> RawStreams::finish() {
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  const auto out = [](const auto& card) { return card->free.size() < card->window; };
  while (std::any_of(cards_.begin(), cards_.end(), out)) {
    for (const auto& card : cards_)
      if (auto reaped = reap(*card); !reaped) return reaped;
    if (std::chrono::steady_clock::now() > deadline)
      return fail(ErrorCode::kDeadlineExceeded, "raw streams: writes are out after {} ms",
                  patience_.count());
  }
  return {};
}

std::vector<std::uint64_t> RawStreams::completed_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const auto& card : cards_) bytes.push_back(card->completed_bytes);
  return bytes;
}

}  // namespace penstock
