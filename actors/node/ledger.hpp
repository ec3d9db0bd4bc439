// The transfers that this node accepted: which run, how the ended ones ended (kept for a while, so
// that a client that reconnects learns what it missed), and which idempotency key stands for which
// ids. Pure; time is passed in.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/clock.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/protocol/reply.hpp"

namespace penstock {

class Ledger {
 public:
  struct Options {
    Milliseconds keep{600000};
    std::size_t keep_most = 100000;
  };
  /// The device of a transfer that another node carries out.
  static constexpr std::size_t kElsewhere = SIZE_MAX;
  struct Entry {
    ClientId client;
    std::string who;  // the client's name in the allow-list
    std::size_t device = 0;
    std::optional<TransferResult> result;  // once ended
  };
  struct Totals {
    std::uint64_t accepted = 0;
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t expired = 0;
  };

  explicit Ledger(Options options, std::uint64_t first_id)
      : options_(options), next_id_(first_id) {}

  TransferId add(ClientId client, std::size_t device, std::string who = "");
  /// False when it is unknown or has ended already: then nothing changes.
  bool end(TransferResult result, TimePoint now);
  const Entry* find(TransferId id) const;
  /// Newest first, at most `limit`.
  std::vector<TransferId> newest(std::size_t limit) const;
  /// The last that ended first, at most `limit`.
  std::vector<TransferId> newest_ended(std::size_t limit) const;

  /// The ids that a key stands for, empty when it is new. Keys live as long as their transfers.
  std::vector<TransferId> ids_of_key(const std::string& key) const;
  void set_key(const std::string& key, std::vector<TransferId> ids);

  /// Forgets ended transfers that are too old or too many.
  void forget(TimePoint now);

  std::size_t in_flight() const { return in_flight_; }
  /// Of one client, all connections that have its name together.
  std::size_t in_flight_of(const ClientId& client, const std::string& who) const {
    const auto found = in_flight_of_.find(owner_of(client, who));
    return found == in_flight_of_.end() ? 0 : found->second;
  }
  const Totals& totals() const { return totals_; }

 private:
  void erase(TransferId id);
  /// No name has a NUL: it is no connection's.
  static std::string owner_of(const ClientId& client, const std::string& who) {
    return who.empty() ? client : who + std::string(2, '\0');
  }

  Options options_;
  std::uint64_t next_id_;
  std::map<TransferId, Entry> entries_;
  std::deque<std::pair<TimePoint, TransferId>> ended_;  // by time
  struct Key {
    std::vector<TransferId> ids;
    std::size_t kept = 0;  // of them; with the last the key goes
  };
  std::unordered_map<std::string, Key> keys_;
  std::unordered_map<TransferId, std::string> key_of_;
  std::size_t in_flight_ = 0;
  std::unordered_map<std::string, std::size_t> in_flight_of_;  // by owner
  Totals totals_;
};

}  // namespace penstock
