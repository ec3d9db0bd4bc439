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

void find_trace(caf::event_based_actor& self, const NodeChildren& children, TraceQuestion question,
                std::function<void(Result<nlohmann::json>)> then) {
  const TransferId id = question.transfer;
  if (auto kept = question.monitor.trace(id); !kept.is_null()) return then(std::move(kept));
  const auto* entry = question.ledger.find(id);
  const Error none = no_trace(id, question.kept);
  if (!entry || entry->result) return then(tl::unexpected(none));
  if (const auto stream = question.streams.unfinished(id, Clock::now()))
    return then(unfinished_report(*stream, name_of(stream->stages.spans().back().stage)));
  // Carried out elsewhere: nothing here knows more of it while its event waits for our pages.
  if (entry->device == Ledger::kElsewhere) return then(tl::unexpected(none));
  self.request(children.devices[entry->device], kSnapshotDeadline, AskUnfinished{id})
      .then(
          [=](const UnfinishedTransfer& answer) {
            // It may have ended on the way.
            if (auto kept = question.monitor.trace(id); !kept.is_null())
              return then(std::move(kept));
            if (!*answer.found) return then(tl::unexpected(none));
            then(unfinished_report((*answer.found)->result, name_of((*answer.found)->state)));
          },
          [=](const caf::error&) { then(tl::unexpected(none)); });
}

}  // namespace penstock
