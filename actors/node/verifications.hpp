// The transfers of a node that are to be verified: they wait here from their acceptance on, and
// between their last byte and their terminal event they are compared. Part of the node actor, on
// its thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/messages.hpp"
#include "actors/node/verification.hpp"

namespace penstock {

class Verifications {
 public:
  struct Port {
    /// On a thread of the device that may read gigabytes.
    std::function<void(std::size_t device, std::function<void()>)> work;
    /// The actor of a node; none: it is not here.
    std::function<caf::actor(const std::string& node)> peer;
    /// Whom the outcome of each batch is told; it calls compared().
    std::function<caf::actor()> self;
    std::function<void(TransferResult)> ended;
  };
  explicit Verifications(Port port) : port_(std::move(port)) {}

  /// An accepted transfer is to be verified when it has ended well.
  /// Its layout has been admitted, so that a plan can be made of it.
  void expect(const Admitted& admitted);
  /// True: the result was taken, ended() comes later. False: the transfer has ended as it says.
  bool take(TransferResult& result, TimePoint now);
  void compared(const BatchCompared& batch, TimePoint now);
  /// False: it is not being verified.
  bool cancel(TransferId transfer);
  /// A region of ours is to be released.
  void cancel_region(const std::string& region);
  /// The node is not here any more: nobody answers.
  void lost(const std::string& node, const Error& error);

 private:
  using Entry = std::map<TransferId, std::unique_ptr<Verification>>::iterator;
  Verification::Compare compare(TransferId id, const Verification& verification,
                                std::uint64_t epoch) const;
  Entry settle(Entry entry);

  Port port_;
  std::map<TransferId, std::unique_ptr<Verification>> all_;
};

}  // namespace penstock
