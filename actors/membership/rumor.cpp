#include "actors/membership/rumor.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace penstock {

std::uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

IdentityPtr make_identity(std::string node, Incarnation incarnation, std::string endpoint,
                          std::uint64_t digest) {
  auto identity = std::make_shared<Identity>();
  identity->name_hash = hash_of(node);
  identity->endpoint_hash = hash_of(endpoint);
  identity->node = std::move(node);
  identity->incarnation = incarnation;
  identity->endpoint = std::move(endpoint);
  identity->digest = digest;
  return identity;
}

Result<RecordPtr> store_record(std::vector<std::byte> bytes) {
  auto record = decode_member(bytes);
  if (!record) return tl::unexpected(record.error());
  auto stored = std::make_shared<StoredRecord>();
  stored->record = std::move(*record);
  stored->digest = XXH3_64bits(bytes.data(), bytes.size());
  stored->bytes = std::move(bytes);
  return stored;
}

}  // namespace penstock
