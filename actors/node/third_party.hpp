// Third-party transfers at one node, both sides: what other nodes carry out for its clients
// (Shadows), and what it carries out for theirs (Delegations), if it does. Who may have that done
// is decided here: the setting, then the `allow` lists of the regions on this node, for the asker's
// node, then what holds for every client (acceptance.hpp), for the client that the asker names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/device/region_table.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/node/asker.hpp"
#include "actors/node/delegations.hpp"
#include "actors/node/shadows.hpp"
#include "actors/protocol/request.hpp"
#include "actors/settings/settings.hpp"

namespace penstock {

/// How a node acts for clients of others.
struct ThirdPartyOptions {
  ThirdParty takes = ThirdParty::kMembers;
  /// A shadow whose other end is this node is told when its pages here are quiet, or after this.
  Milliseconds own_pages{12000};
  Shadows::Options shadows{};
  Delegations::Options delegations{};
};

/// The client that the transfers of a node's clients belong to. No connection has such an identity.
ClientId client_of_node(const std::string& node);

class ThirdPartyTransfers {
 public:
  struct Setup {
    std::string node;  // ours
    ThirdPartyOptions options;
    std::shared_ptr<const RegionTable> regions;
    std::shared_ptr<LiveShadows> shadows;
    std::shared_ptr<Audit> audit;
  };
  /// Effects. Called from within the functions below; must not call back into them.
  struct Port {
    /// answered() is called with the token, once, later.
    std::function<void(const std::string& node, std::uint64_t token, Question, TimePoint deadline)>
        ask;
    std::function<std::map<std::string, std::string>(const std::string& node)> labels;
    /// Accepts it as one of this node's transfers. `shadow`: what the other end waits for, when
    /// that is the node that asked; else 0.
    std::function<Result<TransferId>(const TransferRequest&, const ClientId&, const Asker&,
                                     TransferId shadow)>
        run;
    std::function<void(TransferId)> cancel;     // one of those
    std::function<void(TransferResult)> ended;  // one that another node carried out
  };

  ThirdPartyTransfers(Setup setup, Port port);

  /// Anything but LookAtDelegated.
  Answer asked(const std::string& node, Incarnation peer, const Question& question, TimePoint now);
  void answered(std::uint64_t token, const Result<Answer>& answer, TimePoint now);
  void node_lost(const std::string& node, const Error& error, bool gone, TimePoint now);
  void node_back(const std::string& node, TimePoint now) { delegations_.asker_back(node, now); }

  Shadows& shadows() { return shadows_; }
  const Shadows& shadows() const { return shadows_; }
  Delegations& delegations() { return delegations_; }
  const Delegations& delegations() const { return delegations_; }

 private:
  Shadows::Port shadows_port();
  Delegations::Port delegations_port();
  Result<TransferId> run(const std::string& node, const Delegate& last,
                         const std::shared_ptr<const std::vector<std::byte>>& request);
  Result<void> allowed(const std::string& node, const TransferSpec& spec) const;

  Setup setup_;
  Port port_;
  Shadows shadows_;
  Delegations delegations_;
};

}  // namespace penstock
