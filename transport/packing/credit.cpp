#include "transport/packing/credit.hpp"

#include <cstring>

namespace penstock {
namespace {

// No msgpack array starts with this byte: 0xc1 is never used there.
constexpr std::uint32_t kMark = 0x444352c1;  // c1 "RCD"

struct CreditHeader {
  std::uint32_t mark;
  std::uint32_t count;
  std::uint64_t transfer;
};

}  // namespace

std::vector<std::byte> encode_credit(const Credit& credit) {
  const CreditHeader header{kMark, static_cast<std::uint32_t>(credit.immediates.size()),
                            credit.transfer};
  const std::size_t list = credit.immediates.size() * sizeof(std::uint32_t);
  std::vector<std::byte> bytes(sizeof header + list);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (list > 0) std::memcpy(bytes.data() + sizeof header, credit.immediates.data(), list);
  return bytes;
}

std::optional<Credit> decode_credit(std::span<const std::byte> payload) {
  CreditHeader header{};
  if (payload.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, payload.data(), sizeof header);
  if (header.mark != kMark || header.count > kMaxCreditSlots ||
      payload.size() != sizeof header + header.count * sizeof(std::uint32_t))
    return std::nullopt;
  Credit credit{header.transfer, std::vector<std::uint32_t>(header.count)};
  if (header.count > 0)
    std::memcpy(credit.immediates.data(), payload.data() + sizeof header,
                header.count * sizeof(std::uint32_t));
  return credit;
}

}  // namespace penstock
