#include "actors/node/acceptance.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/node/streams.hpp"

namespace penstock {
namespace {

/// Each client has its own keys: two that use the same word must not get each other's transfers. A
/// key has no NUL, so the pair is told apart from any other.
std::string key_of(const ClientId& client, const std::string& key) { return key + '\0' + client; }

/// The same word may name a transfer and a stream: no other key begins with a NUL.
std::string stream_key_of(const ClientId& client, const std::string& key) {
  return '\0' + key_of(client, key);
}

/// The local region and, of a copy, the other one too must be the asker's; what other nodes'
/// regions allow is for them to say.
Result<void> owns(const TransferSpec& spec, const Asker& asker, const AcceptanceRules& rules,
                  const RegionTable& regions) {
  if (auto mine = asker.owns_region(regions, spec.region, rules.audit); !mine) return mine;
  for (const TransferTarget& target : spec.targets)
    if (target.node.empty() || target.node == rules.admission.node)
      if (auto mine = asker.owns_region(regions, target.region, rules.audit); !mine) return mine;
  return {};
}

bool is_elsewhere(const TransferSpec& spec, const AcceptanceRules& rules) {
  return !spec.on.empty() && spec.on != rules.admission.node;
}

Shadows::Asked shadow_of(const TransferSpec& spec, TransferId id, const Asker& asker,
                         const AcceptanceRules& rules, TimePoint received, TimePoint now) {
  const TransferTarget& target = spec.targets.front();
  Shadows::Asked asked;
  asked.id = id;
  asked.on = spec.on;
  asked.node = target.node.empty() ? spec.on : target.node;
  asked.region = spec.region;
  asked.remote_region = target.region;
  asked.direction = spec.direction;
  asked.lane = spec.lane;
  asked.client = asker.who;
  asked.admin = asker.role == Role::kAdmin;
  asked.request = spec.to_pass_on;
  asked.received = received;
  asked.accepted = now;
  asked.deadline =
      now + (spec.deadline_ms ? Milliseconds(spec.deadline_ms) : rules.admission.default_deadline);
  return asked;
}

Result<void> has_room(std::size_t fresh, const ClientId& client, const Asker& asker,
                      const AcceptanceRules& rules, const Ledger& ledger) {
  if (ledger.in_flight() + fresh > rules.in_flight)
    return fail(ErrorCode::kResourceExhausted,
                "{} transfers are in flight, {} more were asked for, limits.transfers_in_flight "
                "is {}",
                ledger.in_flight(), fresh, rules.in_flight);
  if (rules.client_in_flight == 0) return {};
  const std::size_t own = ledger.in_flight_of(client, asker.who);
  if (own + fresh > rules.client_in_flight)
    return fail(ErrorCode::kResourceExhausted,
                "{} transfers of this client are in flight, {} more were asked for, "
                "limits.client_transfers is {}",
                own, fresh, rules.client_in_flight);
  return {};
}

}  // namespace

Error draining_error(const std::string& node) {
  return {ErrorCode::kDraining,
          fmt::format("node '{}' is draining: send new work to another node", node)};
}

Result<Accepted> accept(const TransferRequest& request, const ClientId& client, const Asker& asker,
                        const AcceptanceRules& rules, RegionTable& regions, Ledger& ledger,
                        TimePoint received, TimePoint now) {
  const auto known = [&](const std::string& key) {
    return key.empty() ? std::vector<TransferId>{} : ledger.ids_of_key(key_of(client, key));
  };
  // All are checked before any is accepted. Those with a known key were accepted before.
  std::vector<Admitted> admitted;
  std::vector<std::size_t> admitted_of(request.transfers.size());
  std::size_t fresh = 0;
  std::uint64_t passed_on = 0;
  for (std::size_t i = 0; i < request.transfers.size(); ++i) {
    const TransferSpec& spec = request.transfers[i];
    if (!known(spec.key).empty()) continue;
    if (is_elsewhere(spec, rules)) {
      passed_on += spec.to_pass_on->size();
      if (auto takes = rules.delegates(spec.on, passed_on); !takes)
        return tl::unexpected(takes.error());
      ++fresh;
      continue;
    }
    if (auto mine = owns(spec, asker, rules, regions); !mine) return tl::unexpected(mine.error());
    auto checked = admit(spec, rules.admission, regions, now);
    if (!checked) return tl::unexpected(checked.error());
    fresh += admitted_of[i] = checked->size();
    if (admitted.empty())
      admitted = std::move(*checked);
    else
      std::ranges::move(*checked, std::back_inserter(admitted));
  }
  if (rules.draining && fresh > 0) return tl::unexpected(draining_error(rules.admission.node));
  if (auto room = has_room(fresh, client, asker, rules, ledger); !room)
    return tl::unexpected(room.error());

  Accepted accepted;
  std::vector<TransferId>& ids = accepted.ids;
  ids.reserve(fresh);
  auto next = admitted.begin();
  auto kept = next;
  for (std::size_t i = 0; i < request.transfers.size(); ++i) {
    const TransferSpec& spec = request.transfers[i];
    const auto last = next + static_cast<std::ptrdiff_t>(admitted_of[i]);
    // Before, or in this very request.
    if (const auto first = known(spec.key); !first.empty()) {
      ids.insert(ids.end(), first.begin(), first.end());
      next = last;
      continue;
    }
    const auto own = static_cast<std::ptrdiff_t>(ids.size());
    for (; next != last; ++next, ++kept) {
      if (kept != next) *kept = std::move(*next);
      kept->id = ids.emplace_back(ledger.add(client, (*kept->local)->device_index, asker.who));
      kept->received = received;
      kept->accepted = now;
      accepted.verify.push_back(spec.verify);
    }
    if (is_elsewhere(spec, rules)) {
      ids.push_back(ledger.add(client, Ledger::kElsewhere, asker.who));
      accepted.elsewhere.push_back(shadow_of(spec, ids.back(), asker, rules, received, now));
    }
    if (!spec.key.empty()) ledger.set_key(key_of(client, spec.key), {ids.begin() + own, ids.end()});
  }
  admitted.erase(kept, admitted.end());
  accepted.admitted = std::move(admitted);
  return accepted;
}

Result<AcceptedStream> accept_stream(const StreamRequest& request, const ClientId& client,
                                     const Asker& asker, const AcceptanceRules& rules,
                                     RegionTable& regions, Ledger& ledger,
                                     std::size_t open_of_client) {
  const TransferSpec& spec = request.terms;
  const TransferTarget& target = spec.targets.front();
  const std::string node = target.node.empty() ? rules.admission.node : target.node;
  const std::string key = spec.key.empty() ? "" : stream_key_of(client, spec.key);
  if (const auto known = ledger.ids_of_key(key); !known.empty())
    return AcceptedStream{known.front(), node, false};
  if (auto mine = owns(spec, asker, rules, regions); !mine) return tl::unexpected(mine.error());
  const auto local = regions.use(spec.region);
  if (!local) return tl::unexpected(local.error());
  if (node == rules.admission.node) {
    if (const auto other = regions.use(target.region, target.epoch); !other)
      return tl::unexpected(other.error());
  } else if (auto takes = rules.admission.takes_work(node); !takes) {
    return tl::unexpected(takes.error());
  }
  if (rules.draining) return tl::unexpected(draining_error(rules.admission.node));
  if (open_of_client >= Streams::kMostOpenOfClient)
    return fail(ErrorCode::kResourceExhausted,
                "{} streams of this client are open, which is the most: close some",
                open_of_client);
  if (auto room = has_room(1, client, asker, rules, ledger); !room)
    return tl::unexpected(room.error());
  const TransferId id = ledger.add(client, (*local)->device_index, asker.who);
  if (!key.empty()) ledger.set_key(key, {id});
  return AcceptedStream{id, node, true};
}

}  // namespace penstock
