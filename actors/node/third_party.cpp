#include "actors/node/third_party.hpp"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

/// Questions of both sides go the same way.
constexpr std::uint64_t kSides = 2;
constexpr std::uint64_t kAsker = 0;
constexpr std::uint64_t kExecutor = 1;

std::string named(const std::string& client) {
  return client.empty() ? "a client" : "client '" + client + "'";
}

/// As the allow-list of any node may have it.
bool is_name(const std::string& client) {
  return client.size() <= kMaxNameBytes &&
         std::ranges::all_of(client, [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

// Identities that a client chooses do not begin with a NUL, and those that ZeroMQ chooses are
// shorter.
ClientId client_of_node(const std::string& node) { return std::string(1, '\0') + "node " + node; }

ThirdPartyTransfers::ThirdPartyTransfers(Setup setup, Port port)
    : setup_(std::move(setup)),
      port_(std::move(port)),
      shadows_(setup_.options.shadows, shadows_port(), setup_.shadows),
      delegations_(setup_.options.delegations, delegations_port()) {}

Shadows::Port ThirdPartyTransfers::shadows_port() {
  return {.ask =
              [this](const std::string& node, std::uint64_t token, Question question,
                     TimePoint deadline) {
                port_.ask(node, token * kSides + kAsker, std::move(question), deadline);
              },
          .refused =
              [this](const std::string& client, const std::string& what) {
                if (setup_.audit) setup_.audit->refused(named(client), what);
              },
          .ended = [this](TransferResult result) { port_.ended(std::move(result)); }};
}

Delegations::Port ThirdPartyTransfers::delegations_port() {
  return {
      .run = [this](const std::string& node, const Delegate& last,
                    std::shared_ptr<const std::vector<std::byte>> request) -> Result<TransferId> {
        auto running = run(node, last, request);
        if (!running && running.error().code == ErrorCode::kDenied && setup_.audit)
          setup_.audit->refused(named(last.client) + " of node '" + node + "'",
                                running.error().message);
        return running;
      },
      .cancel = [this](TransferId transfer) { port_.cancel(transfer); },
      .ask =
          [this](const std::string& node, std::uint64_t token, Question question,
                 TimePoint deadline) {
            port_.ask(node, token * kSides + kExecutor, std::move(question), deadline);
          }};
}

// -- being asked ---------------------------------------------------------------------------------

Answer ThirdPartyTransfers::asked(const std::string& node, Incarnation peer,
                                  const Question& question, TimePoint now) {
  if (const auto* part = std::get_if<Delegate>(&question))
    return delegations_.delegate(node, peer, *part, now);
  if (const auto* stop = std::get_if<StopDelegated>(&question))
    return delegations_.stop(node, peer, *stop, now);
  if (const auto* end = std::get_if<DelegatedEnded>(&question)) {
    shadows_.over(node, *end, now);
    return EndSeen{};
  }
  return Refused{{ErrorCode::kUnsupported, "no such question"}};
}

void ThirdPartyTransfers::answered(std::uint64_t token, const Result<Answer>& answer,
                                   TimePoint now) {
  if (token % kSides == kAsker)
    shadows_.answered(token / kSides, answer, now);
  else
    delegations_.answered(token / kSides, answer);
}

void ThirdPartyTransfers::node_lost(const std::string& node, const Error& error, bool gone,
                                    TimePoint now) {
  shadows_.executor_lost(node, error, now);
  delegations_.asker_lost(node, gone);
}

// -- carrying out --------------------------------------------------------------------------------

/// A region of ours that the transfer names must be for the asker's node as for a peer that wants
/// its pages.
Result<void> ThirdPartyTransfers::allowed(const std::string& node, const TransferSpec& spec) const {
  const auto labels = port_.labels(node);
  const auto check = [&](const std::string& name) -> Result<void> {
    const auto region = setup_.regions->find(name);
    if (!region || region->allows(node, labels)) return {};
    return fail(ErrorCode::kDenied, "region '{}' is not for node '{}' (allow)", name, node);
  };
  if (auto local = check(spec.region); !local) return local;
  for (const TransferTarget& target : spec.targets)
    if (target.node.empty() || target.node == setup_.node)
      if (auto other = check(target.region); !other) return other;
  return {};
}

Result<TransferId> ThirdPartyTransfers::run(
    const std::string& node, const Delegate& last,
    const std::shared_ptr<const std::vector<std::byte>>& request) {
  if (setup_.options.takes == ThirdParty::kNone)
    return fail(ErrorCode::kDenied,
                "node '{}' carries out nothing for other nodes (security.third_party)",
                setup_.node);
  if (!is_name(last.client))
    return fail(ErrorCode::kInvalidArgument, "the client has a name that none can have");
  auto decoded = decode_request(*request, request);
  if (!decoded) return tl::unexpected(decoded.error().error);
  auto* transfers = std::get_if<TransferRequest>(&decoded->body);
  if (transfers == nullptr || transfers->transfers.size() != 1 ||
      transfers->transfers.front().targets.size() != 1)
    return fail(ErrorCode::kInvalidArgument, "not the request of one transfer");
  TransferSpec& spec = transfers->transfers.front();
  if (!spec.on.empty())
    return fail(ErrorCode::kInvalidArgument, "a transfer is not passed on twice");
  spec.key.clear();  // keys are the asker's
  spec.deadline_ms = last.deadline_ms;
  if (auto may = allowed(node, spec); !may) return tl::unexpected(may.error());
  return port_.run(*transfers, client_of_node(node),
                   {last.client, last.admin ? Role::kAdmin : Role::kTransfer},
                   spec.targets.front().node == node ? last.transfer : 0);
}

}  // namespace penstock
