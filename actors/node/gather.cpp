#include "actors/node/gather.hpp"

#include <memory>
#include <utility>

#include "actors/messages.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kSnapshotDeadline{2000};

}  // namespace

void gather(caf::event_based_actor& self, const NodeChildren& children,
            std::function<void(const Gathered&)> then) {
  auto gathered = std::make_shared<Gathered>();
  auto waiting = std::make_shared<std::size_t>(1);
  auto answered = [waiting, gathered, then = std::move(then)] {
    if (--*waiting == 0) then(*gathered);
  };
  gathered->devices.resize(children.devices.size());
  gathered->nics.resize(children.nics.size());
  for (std::size_t d = 0; d < children.devices.size(); ++d) {
    ++*waiting;
    self.request(children.devices[d], kSnapshotDeadline, AskSnapshot{})
        .then(
            [=](const DeviceSnapshot& snapshot) {
              gathered->devices[d] = snapshot;
              answered();
            },
            [=](const caf::error&) {
              ++gathered->unanswered;
              answered();
            });
    gathered->nics[d].resize(children.nics[d].size());
    for (std::size_t n = 0; n < children.nics[d].size(); ++n) {
      ++*waiting;
      self.request(children.nics[d][n], kSnapshotDeadline, AskNicHealth{})
          .then(
              [=](const NicHealth& health) {
                gathered->nics[d][n] = health;
                answered();
              },
              [=](const caf::error&) { answered(); });
    }
  }
  answered();
}

}  // namespace penstock
