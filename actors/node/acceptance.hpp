// One transfer request, accepted or refused as a whole: everything that can be known here is
// checked before anything is given an id. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/node/admission.hpp"
#include "actors/node/asker.hpp"
#include "actors/node/ledger.hpp"
#include "actors/node/shadows.hpp"

namespace penstock {

struct AcceptanceRules {
  AdmissionRules admission;
  std::size_t in_flight = 65536;     // transfers at most
  std::size_t client_in_flight = 0;  // of one client; 0: no limit of its own
  bool draining = false;
  Audit* audit = nullptr;
  /// Whether another node may be asked to carry out transfers, whose requests have so many bytes.
  std::function<Result<void>(const std::string& node, std::uint64_t bytes)> delegates{};
};

struct Accepted {
  std::vector<TransferId> ids;              // one per target; of a repeated key the first one's
  std::vector<Admitted> admitted{};         // those that are new, with their ids
  std::vector<bool> verify{};               // the same, by place
  std::vector<Shadows::Asked> elsewhere{};  // new too: those that other nodes carry out
};

/// `received`: when the request came.
Result<Accepted> accept(const TransferRequest& request, const ClientId& client, const Asker& asker,
                        const AcceptanceRules& rules, RegionTable& regions, Ledger& ledger,
                        TimePoint received, TimePoint now);

/// A stream: nothing of it moves yet.
struct AcceptedStream {
  TransferId id = 0;
  std::string node;     // the target's
  bool is_new = false;  // otherwise its key was known
};
/// `open_of_client`: streams, now.
Result<AcceptedStream> accept_stream(const StreamRequest& request, const ClientId& client,
                                     const Asker& asker, const AcceptanceRules& rules,
                                     RegionTable& regions, Ledger& ledger,
                                     std::size_t open_of_client);

Error draining_error(const std::string& node);

}  // namespace penstock
