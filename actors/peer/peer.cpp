#include "actors/peer/peer.hpp"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

std::vector<PeerLinks::LocalCard> cards_of(const std::vector<Peer::LocalDevice>& devices) {
  std::vector<PeerLinks::LocalCard> cards;
  for (std::size_t device = 0; device < devices.size(); ++device)
    for (std::size_t nic = 0; nic < devices[device].cards; ++nic)
      cards.push_back({device, static_cast<std::uint16_t>(nic)});
  return cards;
}

template <class T>
bool is(const Answer& answer) {
  return std::holds_alternative<T>(answer);
}

/// Whether this is an answer that the question can have at all.
bool answers(const Question& question, const Answer& answer) {
  struct Kinds {
    const Answer& answer;
    bool operator()(const Hello&) const { return is<HelloOk>(answer); }
    bool operator()(const Open&) const { return is<OpenOk>(answer) || is<AlreadyDone>(answer); }
    bool operator()(const Fin&) const { return is<FinOk>(answer) || is<AlreadyDone>(answer); }
    bool operator()(const Fence&) const { return is<Fenced>(answer) || is<AlreadyDone>(answer); }
    bool operator()(const Revoke&) const { return is<Revoked>(answer); }
  };
  return is<Refused>(answer) || std::visit(Kinds{answer}, question);
}

std::int64_t milliseconds(Clock::duration d) {
  return std::chrono::duration_cast<Milliseconds>(d).count();
}

}  // namespace

Peer::Peer(MemberRecord record, Options options, Port port)
    : record_(std::move(record)),
      options_(std::move(options)),
      port_(std::move(port)),
      links_(cards_of(options_.devices), record_.cards, options_.link_backoff,
             {port_.command, port_.new_link}) {}

void Peer::start(TimePoint now) {
  if (closed_) return;
  say_hello(now);
}

// -- asking --------------------------------------------------------------------------------------

void Peer::ask(std::uint64_t token, Question question, TimePoint deadline, TimePoint now) {
  if (closed_) return port_.answered(token, tl::unexpected(*closed_));
  const std::uint64_t sequence = next_sequence(now);
  auto message = encode(message_of(sequence, question));
  if (!message) return port_.answered(token, tl::unexpected(message.error()));
  Asked asked;
  asked.token = token;
  asked.question = std::move(question);
  asked.message = std::move(*message);
  asked.asked_at = now;
  asked.deadline = deadline;
  asked.interval = options_.repeat_first;
  if (up_) asked.due = now;
  asked_.emplace(sequence, std::move(asked));
  tick(now);
}

void Peer::inbound_moved(TimePoint now) {
  if (!closed_) say_hello(now);
}

// A newer Hello takes the place of one that is still open: only the answer to the newest proves
// that the peer knows where our cards are now.
void Peer::say_hello(TimePoint now) {
  asked_.erase(hello_);
  hello_ = next_sequence(now);
  Asked asked;
  asked.asked_at = now;
  asked.interval = options_.repeat_first;
  asked.due = now;
  asked_.emplace(hello_, std::move(asked));
  send_due(now);
}

// Time in them: a Peer that is made anew for the same incarnation must not repeat the numbers of
// its predecessor, whose answers the other side still keeps.
std::uint64_t Peer::next_sequence(TimePoint now) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch());
  last_sequence_ = std::max(last_sequence_ + 1, static_cast<std::uint64_t>(ns.count()));
  return last_sequence_;
}

Message Peer::message_of(std::uint64_t sequence, std::variant<Question, Answer> body) const {
  Message message;
  message.version = std::min(kWireVersion, record_.wire_version);
  message.source = options_.incarnation;
  message.destination = record_.incarnation;
  message.sequence = sequence;
  message.body = std::move(body);
  return message;
}

void Peer::send(std::uint64_t sequence, Asked& asked, TimePoint now) {
  // Repeated, and not a word from there since: the way itself is in doubt.
  if (asked.sent_at != TimePoint::max() && last_heard_ < asked.sent_at)
    links_.rotate_from(asked.link);
  const auto link = links_.control(now);
  if (!link) {
    asked.due = links_.unblocked_at();
    return;
  }
  std::vector<std::byte> bytes = asked.message;
  if (sequence == hello_) {
    auto hello =
        encode(message_of(sequence, Question(Hello{options_.node, port_.inbound_cards()})));
    if (hello) bytes = std::move(*hello);
  }
  if (!bytes.empty()) {
    port_.command(links_.device_of(*link), SendMessage{*link, std::move(bytes)});
    asked.link = *link;
    asked.sent_at = now;
  }
  asked.due = now + asked.interval;
  asked.interval = std::min(asked.interval * 2, options_.repeat_most);
}

void Peer::send_due(TimePoint now) {
  for (auto& [sequence, asked] : asked_)
    if (asked.due <= now) send(sequence, asked, now);
}

void Peer::expire(TimePoint now) {
  for (auto it = asked_.begin(); it != asked_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    const Asked asked = std::move(it->second);
    it = asked_.erase(it);
    port_.answered(asked.token,
                   fail(ErrorCode::kPeerUnreachable, "node '{}' did not answer {} within {} ms{}",
                        record_.node, name_of(asked.question), milliseconds(now - asked.asked_at),
                        up_ ? "" : " (it never answered our Hello)"));
  }
}

void Peer::receive_answer(std::uint64_t sequence, Answer answer, TimePoint now) {
  // Even to a Hello that a newer one replaced: the cards in it are at least as new as we know.
  if (const auto* ok = std::get_if<HelloOk>(&answer)) learn(ok->devices, now);
  const auto it = asked_.find(sequence);
  if (it == asked_.end()) return;
  if (sequence == hello_) {
    // A refused Hello goes on being repeated: it may be a matter of time over there.
    if (!is<HelloOk>(answer)) return;
    hello_ = 0;
    asked_.erase(it);
    return;
  }
  const Asked asked = std::move(it->second);
  asked_.erase(it);
  if (!answers(asked.question, answer))
    return port_.answered(asked.token,
                          fail(ErrorCode::kInternal, "node '{}' answered {} to {}: a bug there",
                               record_.node, name_of(answer), name_of(asked.question)));
  if (const auto* refused = std::get_if<Refused>(&answer))
    return port_.answered(asked.token, tl::unexpected(refused->error));
  port_.answered(asked.token, std::move(answer));
}

// -- being asked ---------------------------------------------------------------------------------

void Peer::receive(Message message, TimePoint now) {
  if (closed_ || message.source != record_.incarnation ||
      message.destination != options_.incarnation)
    return;
  last_heard_ = now;
  if (auto* question = std::get_if<Question>(&message.body))
    receive_question(message.sequence, std::move(*question), now);
  else
    receive_answer(message.sequence, std::move(std::get<Answer>(message.body)), now);
}

void Peer::receive_question(std::uint64_t sequence, Question question, TimePoint now) {
  if (const auto* hello = std::get_if<Hello>(&question))
    return receive_hello(sequence, *hello, now);
  switch (answered_.arrived(sequence)) {
    case AnsweredQuestions::Seen::kNew:
      return port_.asked(sequence, std::move(question));
    case AnsweredQuestions::Seen::kAnswered:
      send_over_control(answered_.answer(sequence), now);
      return;
    case AnsweredQuestions::Seen::kOpen:
      return;
  }
}

// Answered anew each time, never from what is kept: the answer is where our cards are now.
void Peer::receive_hello(std::uint64_t sequence, const Hello& hello, TimePoint now) {
  Answer answer = HelloOk{port_.inbound_cards()};
  if (hello.node != record_.node)
    answer = Refused{
        {ErrorCode::kInvalidArgument,
         fmt::format("Hello from node '{}', known here as '{}'", hello.node, record_.node)}};
  else
    learn(hello.devices, now);
  if (auto bytes = encode(message_of(sequence, std::move(answer))))
    send_over_control(std::move(*bytes), now);
}

void Peer::answer(std::uint64_t sequence, Answer answer, TimePoint now) {
  if (closed_) return;
  auto bytes = encode(message_of(sequence, std::move(answer)));
  // An answer that does not travel must not leave the asker waiting.
  if (!bytes) bytes = encode(message_of(sequence, Answer(Refused{bytes.error()})));
  if (bytes && answered_.answered(sequence, *bytes)) send_over_control(std::move(*bytes), now);
}

bool Peer::send_over_control(std::vector<std::byte> bytes, TimePoint now) {
  const auto link = links_.control(now);
  if (link) port_.command(links_.device_of(*link), SendMessage{*link, std::move(bytes)});
  return link.has_value();
}

// -- links ---------------------------------------------------------------------------------------

// Both a Hello and its answer tell where the peer's cards are: either one completes the handshake.
void Peer::learn(const std::vector<DeviceCards>& devices, TimePoint now) {
  for (const DeviceCards& device : devices) links_.learn(device.device, device.cards);
  if (up_) return;
  up_ = true;
  links_.keep_open();
  port_.up();
  for (auto& [sequence, asked] : asked_)
    if (sequence != hello_) asked.due = now;
  send_due(now);
}

void Peer::moved(const std::string& remote_device, const std::vector<InboundCard>& cards) {
  if (!closed_) links_.learn(remote_device, cards);
}

bool Peer::link_failed(LinkId link, const Error&, TimePoint now) {
  if (closed_ || !links_.failed(link, now)) return false;
  // What went over it goes over another at once. First contact keeps its pace instead: with many
  // cards and nobody there it would run through all pairs in one breath.
  if (!up_) return true;
  for (auto& [sequence, asked] : asked_)
    if (asked.link == link) asked.due = std::min(asked.due, now);
  send_due(now);
  return true;
}

Result<std::vector<Peer::PathCard>> Peer::links(std::size_t device,
                                                const std::string& remote_device, TimePoint now) {
  if (closed_) return tl::unexpected(*closed_);
  if (!up_)
    return fail(ErrorCode::kPeerUnreachable, "node '{}' has not answered our Hello yet",
                record_.node);
  if (device >= options_.devices.size() || options_.devices[device].cards == 0)
    return fail(ErrorCode::kNotFound, "no device {} with cards here", device);
  const std::vector<std::uint16_t> theirs = links_.remote_nics(remote_device);
  if (theirs.empty())
    return fail(ErrorCode::kNotFound, "node '{}' has no device '{}' with a card that takes writes",
                record_.node, remote_device);
  const std::size_t ours = options_.devices[device].cards;
  std::vector<PathCard> usable;
  std::vector<PathCard> all;
  for (std::size_t i = 0; i < std::max(ours, theirs.size()); ++i) {
    const auto local_nic = static_cast<std::uint16_t>(i % ours);
    const auto link =
        links_.data({device, local_nic}, remote_device, theirs[i % theirs.size()], now);
    if (!link) continue;
    const PathCard path{link->link, local_nic, link->remote_nic, link->generation};
    all.push_back(path);
    if (!link->blocked) usable.push_back(path);
  }
  return usable.empty() ? all : usable;
}

// -- time and end --------------------------------------------------------------------------------

void Peer::tick(TimePoint now) {
  if (closed_) return;
  expire(now);
  send_due(now);
}

TimePoint Peer::next_tick() const {
  TimePoint next = TimePoint::max();
  for (const auto& [sequence, asked] : asked_) next = std::min({next, asked.due, asked.deadline});
  return next;
}

void Peer::close(const Error& error) {
  if (closed_) return;
  closed_ = error;
  up_ = false;
  links_.close();
  for (const auto& [sequence, asked] : std::exchange(asked_, {}))
    if (sequence != hello_) port_.answered(asked.token, tl::unexpected(error));
}

}  // namespace penstock
