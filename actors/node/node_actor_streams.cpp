// The node actor: streams of parts.
#include "actors/node/node_actor_class.hpp"

namespace penstock {

void NodeActor::handle(const ClientId& client, std::uint64_t id, const StreamRequest& request) {
  const TimePoint now = Clock::now();
  const std::string& owner = asker_.who.empty() ? client : asker_.who;
  auto accepted = accept_stream(request, client, asker_, rules(), *setup_.regions, ledger_,
                                streams_.open_of(owner));
  if (!accepted) return refuse(client, id, accepted.error());
  if (accepted->is_new) {
    const auto deadline_ms = request.terms.deadline_ms;
    streams_.open(accepted->id,
                  {request.terms, accepted->node, owner, received_, now,
                   now + (deadline_ms ? Milliseconds(deadline_ms) : setup_.default_deadline)});
    watch_streams();
  }
  setup_.send(client, accepted_reply(id, {accepted->id}));
  setup_.set_load(static_cast<std::uint32_t>(ledger_.in_flight()));
}

bool NodeActor::is_anothers(const ClientId& client, std::uint64_t id, TransferId stream) {
  const auto* entry = ledger_.find(stream);
  if (!entry || asker_.may_touch(entry->who)) return false;
  refuse(client, id, asker_.refuse("stream", std::to_string(stream), setup_.audit.get()).value());
  return true;
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const AppendRequest& request) {
  if (is_anothers(client, id, request.stream)) return;
  const auto refused = [&](const Error& error) {
    refuse(client, id, error);
    streams_.refused(request.stream, request.part, error, Clock::now());
  };
  auto next = streams_.next(request);
  if (!next) return refused(next.error());
  if (next->repeated != 0) return setup_.send(client, accepted_reply(id, {next->repeated}));
  // What was promised to a stream before a drain began goes on.
  AcceptanceRules open = rules();
  open.draining = false;
  open.admission.takes_work = [this](const std::string& name) -> Result<void> {
    auto takes = takes_work(name);
    if (!takes && takes.error().code == ErrorCode::kDraining) return {};
    return takes;
  };
  const TransferRequest part{{std::move(next->spec)}};
  auto accepted =
      accept(part, client, asker_, open, *setup_.regions, ledger_, received_, Clock::now());
  if (!accepted) return refused(accepted.error());
  Admitted& admitted = accepted->admitted.front();
  admitted.deadline = next->deadline;
  admitted.stream = request.stream;
  admitted.part = request.part;
  streams_.appended(request.stream, admitted.id, admitted.plan->bytes());
  setup_.send(client, accepted_reply(id, {admitted.id}));
  begin(*accepted);
}

void NodeActor::handle(const ClientId& client, std::uint64_t id, const CloseRequest& request) {
  if (is_anothers(client, id, request.stream)) return;
  // The reply goes before the end that it may bring.
  const auto closed = streams_.can_close(request);
  if (closed)
    ok(client, id, {{"parts", request.parts}});
  else
    refuse(client, id, closed.error());
  streams_.close(request, Clock::now());
}

void NodeActor::watch_streams() {
  const TimePoint next = streams_.next_deadline();
  if (next >= streams_due_) return;
  streams_due_ = next;
  tell_at(this, next, CheckStreams{next});
}

void NodeActor::check_streams(TimePoint due) {
  if (due != streams_due_) return;  // another, earlier one took its place
  streams_due_ = TimePoint::max();
  streams_.expire(Clock::now());
  watch_streams();
}

}  // namespace penstock
