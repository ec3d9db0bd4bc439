#include "actors/node/verifications.hpp"

#include <iterator>
#include <utility>

namespace penstock {
namespace {

/// What one batch needs on the thread that digests it.
struct Task {
  TransferId transfer;
  std::shared_ptr<const Verification::Batch> batch;
  std::shared_ptr<RegionUse> local;
  std::shared_ptr<RegionUse> other;  // on this node too
  caf::actor peer;                   // or of the other node
  std::string node;
  Verify question;
  TimePoint deadline;
  caf::actor self;
};

void run(Task& task) {
  const auto told = [&](Result<std::uint64_t> differing) {
    tell(task.self, BatchCompared{task.transfer, task.batch->first,
                                  std::make_shared<Result<std::uint64_t>>(std::move(differing))});
  };
  const auto digests = digest_ranges(**task.local, task.batch->local);
  if (!digests) return told(tl::unexpected(digests.error()));
  task.question.pages = pages_of(task.batch->other, *digests);
  if (task.other)
    return told(compare_pages(**task.other, task.question).map([](const Verified& verified) {
      return verified.differing;
    }));
  if (!task.peer)
    return told(fail(ErrorCode::kPeerLeft, "node '{}' is not here any more", task.node));
  tell(task.peer,
       AskVerify{task.transfer, task.batch->first,
                 std::make_shared<const Verify>(std::move(task.question)), task.deadline});
}

}  // namespace

void Verifications::expect(const Admitted& admitted) {
  all_.emplace(admitted.id, std::move(Verification::make(admitted).value()));
}

bool Verifications::take(TransferResult& result, TimePoint now) {
  const auto entry = all_.find(result.id);
  if (entry == all_.end()) return false;
  if (result.state != TransferResult::State::kDone) {
    all_.erase(entry);
    return false;
  }
  Verification& verification = *entry->second;
  const TransferId id = result.id;
  result.stages.enter(Stage::kVerification, now);
  const std::uint64_t epoch = result.remote_epoch;
  verification.start(std::move(result), now, compare(id, verification, epoch));
  settle(entry);
  return true;
}

void Verifications::compared(const BatchCompared& batch, TimePoint now) {
  const auto entry = all_.find(batch.transfer);
  if (entry == all_.end()) return;  // it was given up meanwhile
  Verification& verification = *entry->second;
  verification.compared(batch.first, *batch.differing, now,
                        compare(batch.transfer, verification, verification.remote_epoch()));
  settle(entry);
}

bool Verifications::cancel(TransferId transfer) {
  const auto entry = all_.find(transfer);
  if (entry == all_.end() || !entry->second->started()) return false;
  entry->second->cancel();
  settle(entry);
  return true;
}

void Verifications::cancel_region(const std::string& region) {
  const auto uses = [&](const std::shared_ptr<RegionUse>& use) {
    return use && (*use)->name == region;
  };
  for (auto entry = all_.begin(); entry != all_.end();) {
    Verification& verification = *entry->second;
    if (verification.started() && (uses(verification.local()) || uses(verification.copy_target())))
      verification.cancel();
    entry = settle(entry);
  }
}

void Verifications::lost(const std::string& node, const Error& error) {
  for (auto entry = all_.begin(); entry != all_.end();) {
    Verification& verification = *entry->second;
    if (verification.started() && !verification.copy_target() && verification.node() == node)
      verification.give_up(error);
    entry = settle(entry);
  }
}

Verification::Compare Verifications::compare(TransferId id, const Verification& verification,
                                             std::uint64_t epoch) const {
  return [this, id, &verification, epoch](std::shared_ptr<const Verification::Batch> batch) {
    auto task = std::make_shared<Task>();
    task->transfer = id;
    task->batch = std::move(batch);
    task->local = verification.local();
    task->other = verification.copy_target();
    task->node = verification.node();
    if (!task->other) task->peer = port_.peer(task->node);
    task->question = {verification.remote_region(), epoch, {}};
    task->deadline = verification.deadline();
    task->self = port_.self();
    port_.work((*task->local)->device_index, [task] { run(*task); });
  };
}

/// Ends one that has nothing under way any more; returns the next.
Verifications::Entry Verifications::settle(Entry entry) {
  if (!entry->second->ended()) return std::next(entry);
  TransferResult result = entry->second->take_result(Clock::now());
  const Entry next = all_.erase(entry);
  port_.ended(std::move(result));
  return next;
}

}  // namespace penstock
