#include "actors/peer/peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/wire/archive.hpp"

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
    bool operator()(const DrainNode&) const { return is<DrainBegun>(answer); }
    bool operator()(const Verify&) const { return is<Verified>(answer); }
    bool operator()(const Delegate&) const { return is<Delegated>(answer); }
    bool operator()(const StopDelegated&) const { return is<StopSeen>(answer); }
    bool operator()(const LookAtDelegated&) const { return is<DelegatedSeen>(answer); }
    bool operator()(const DelegatedEnded&) const { return is<EndSeen>(answer); }
  };
  return is<Refused>(answer) || std::visit(Kinds{answer}, question);
}

/// An answer to a Hello proves that a link works however late it comes, within reason; that its
/// peer lives it proves only for the moment.
constexpr auto kProbeKept = std::chrono::seconds(10);
constexpr auto kProbeFresh = std::chrono::milliseconds(250);
/// A question that went over a link so often without an answer takes another, whatever else is
/// heard from the peer.
constexpr unsigned kTriesPerLink = 2;

/// What greetings are sealed for.
constexpr Seal::Challenge kNoChallenge{};

bool is_greeting(const Message& message) {
  const auto* question = std::get_if<Question>(&message.body);
  return question != nullptr ? std::holds_alternative<Hello>(*question)
                             : is<HelloOk>(std::get<Answer>(message.body));
}

std::vector<std::byte> bytes_of(const Seal::Challenge& challenge) {
  const auto* first = reinterpret_cast<const std::byte*>(challenge.data());
  return {first, first + challenge.size()};
}

Key key_of(const std::vector<std::byte>& bytes) {
  Key key{};
  std::memcpy(key.data(), bytes.data(), std::min(bytes.size(), key.size()));
  return key;
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
             {port_.command, port_.new_link}),
      answered_(options_.answers_kept) {
  views_.resize(cards_of(options_.devices).size(), CardView::kUnknown);
  if (!options_.secrets) return;
  seal_.emplace(*options_.secrets, key_of(record_.fabric_key));
  ours_ = Seal::new_challenge();
}

void Peer::start(TimePoint now) {
  if (closed_) return;
  started_ = std::chrono::floor<Milliseconds>(now);
  say_hello(now);
}

// -- asking --------------------------------------------------------------------------------------

void Peer::ask(std::uint64_t token, Question question, TimePoint deadline, TimePoint now) {
  if (closed_) return port_.answered(token, tl::unexpected(*closed_));
  const auto* open = std::get_if<Open>(&question);
  if (open && !open->data.bytes.empty() && version() < kSentVersion)
    return port_.answered(token,
                          fail(ErrorCode::kUnsupported,
                               "node '{}' is of an earlier version, which writes data that comes "
                               "with a question however late it comes",
                               record_.node));
  const std::uint64_t sequence = next_sequence(now);
  Message unsent = message_of(sequence, std::move(question), now);
  auto message = encode(unsent);
  if (!message) return port_.answered(token, tl::unexpected(message.error()));
  Asked asked;
  asked.token = token;
  asked.question = std::move(std::get<Question>(unsent.body));
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

Message Peer::message_of(std::uint64_t sequence, std::variant<Question, Answer> body,
                         TimePoint now) const {
  Message message;
  message.version = version();
  message.source = options_.incarnation;
  message.destination = record_.incarnation;
  message.sequence = sequence;
  message.body = std::move(body);
  message.sent_ms = PeerClock::ms_of(now);
  message.sent_after_ms = clock_.passed(now);
  return message;
}

void Peer::send(std::uint64_t sequence, Asked& asked, TimePoint now) {
  // Repeated, and not a word from there since: the way itself is in doubt.
  const bool repeated = asked.sent_at != TimePoint::max();
  if (repeated && (last_heard_ < asked.sent_at || (up_ && asked.tries >= kTriesPerLink)))
    links_.rotate_from(asked.link);
  const auto link = links_.control(now);
  if (!link) {
    asked.due = links_.unblocked_at();
    return;
  }
  std::vector<std::byte> bytes = asked.message;
  if (sequence == hello_) {
    auto hello = encode(message_of(sequence, Question(hello_over({})), now));
    if (hello) bytes = std::move(*hello);
  }
  if (!bytes.empty()) {
    send_over(*link, std::move(bytes), sequence == hello_);
    asked.tries = asked.link == *link ? asked.tries + 1 : 1;
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
  if (const auto* ok = std::get_if<HelloOk>(&answer)) {
    if (!answers_ours(ok->answers)) return;  // of an earlier life, come again
    hear_challenge(ok->challenge);
    learn(ok->devices, now);
    probe_answered(sequence, now);
  }
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
  if (const auto* refused = std::get_if<Refused>(&answer)) {
    std::string why = fmt::format("node '{}' refused: {}", record_.node, refused->error.message);
    why.resize(std::min(why.size(), kMaxTextBytes));  // it may be passed on
    return port_.answered(asked.token, tl::unexpected(Error{refused->error.code, std::move(why)}));
  }
  port_.answered(asked.token, std::move(answer));
}

// -- being asked ---------------------------------------------------------------------------------

bool Peer::receive(Message message, TimePoint now) {
  if (closed_ || message.source != record_.incarnation ||
      message.destination != options_.incarnation)
    return true;
  if (!fits(message)) return false;
  last_heard_ = now;
  clock_.heard(message.sent_ms, now);
  // It has our challenge, but its own has not been heard yet: no answer could be sealed for it.
  // It comes again.
  if (seal_ && theirs_ == kNoChallenge && !is_greeting(message)) return true;
  if (auto* question = std::get_if<Question>(&message.body))
    receive_question(message.sequence, std::move(*question), asked_at(message, now), now);
  else
    receive_answer(message.sequence, std::move(std::get<Answer>(message.body)), now);
  return true;
}

bool Peer::fits(const Message& message) const {
  if (!seal_) return true;
  return seal_->fits(message.sealed, message.seal, is_greeting(message) ? kNoChallenge : ours_);
}

/// Whether a greeting proves that its sender has heard us in this life.
bool Peer::answers_ours(const std::vector<std::byte>& challenge) const {
  return !seal_ || challenge == bytes_of(ours_);
}

void Peer::hear_challenge(const std::vector<std::byte>& challenge) {
  if (seal_ && challenge.size() == theirs_.size())
    std::memcpy(theirs_.data(), challenge.data(), theirs_.size());
}

/// Nothing is known of the answers that a Peer before this one gave, nor of those that are not
/// kept.
std::optional<TimePoint> Peer::asked_at(const Message& message, TimePoint now) const {
  const auto written = PeerClock::written_at(message.sent_after_ms, now);
  if (written && (*written < started_ || answered_.may_be_forgotten(message.sequence)))
    return TimePoint::min();
  return written;
}

void Peer::receive_question(std::uint64_t sequence, Question question,
                            std::optional<TimePoint> asked_at, TimePoint now) {
  if (const auto* hello = std::get_if<Hello>(&question))
    return receive_hello(sequence, *hello, now);
  switch (answered_.arrived(sequence)) {
    case AnsweredQuestions::Seen::kNew:
      return port_.asked(sequence, std::move(question), asked_at);
    case AnsweredQuestions::Seen::kAnswered:
      return repeat_answer(sequence, now);
    case AnsweredQuestions::Seen::kOpen:
      return;
  }
}

// The answer was lost, or is late: it takes another way this time.
void Peer::repeat_answer(std::uint64_t sequence, TimePoint now) {
  links_.rotate_from(answered_.way(sequence));
  const auto link = send_over_control(answered_.answer(sequence), now);
  if (link) answered_.way(sequence) = *link;
}

/// The link that a Hello came over, seen from here. None: it leaves the way open.
std::optional<LinkId> Peer::way_back(const Hello& hello) {
  for (std::size_t device = 0; up_ && device < options_.devices.size(); ++device)
    if (options_.devices[device].name == hello.way.to_device)
      return links_.between({device, hello.way.to_nic}, hello.way.from_device, hello.way.from_nic);
  return std::nullopt;
}

// Answered anew each time, never from what is kept: the answer is where our cards are now.
void Peer::receive_hello(std::uint64_t sequence, const Hello& hello, TimePoint now) {
  HelloOk greeting{port_.inbound_cards()};
  if (seal_) {
    greeting.challenge = bytes_of(ours_);
    greeting.answers = hello.challenge;
  }
  Answer answer = std::move(greeting);
  if (hello.node != record_.node) {
    answer = Refused{
        {ErrorCode::kInvalidArgument,
         fmt::format("Hello from node '{}', known here as '{}'", hello.node, record_.node)}};
  } else if (answers_ours(hello.answers)) {
    hear_challenge(hello.challenge);
    learn(hello.devices, now);
  }
  auto bytes = encode(message_of(sequence, std::move(answer), now));
  if (!bytes) return;
  const auto way = way_back(hello);
  if (const auto link = way ? way : links_.control(now)) send_over(*link, std::move(*bytes), true);
  // Whoever does not know our challenge may be the peer in a new life, or a stranger with an old
  // message of its: nothing is believed, but it is asked.
  if (!answers_ours(hello.answers) && hello_ == 0 && hello.challenge != bytes_of(theirs_))
    say_hello(now);
}

Hello Peer::hello_over(Hello::Way way) const {
  Hello hello{options_.node, port_.inbound_cards(), std::move(way)};
  if (seal_) {
    hello.challenge = bytes_of(ours_);
    if (theirs_ != kNoChallenge) hello.answers = bytes_of(theirs_);
  }
  return hello;
}

void Peer::answer(std::uint64_t sequence, Answer answer, TimePoint now) {
  if (closed_) return;
  auto bytes = encode(message_of(sequence, std::move(answer), now));
  // An answer that does not travel must not leave the asker waiting.
  if (!bytes) bytes = encode(message_of(sequence, Answer(Refused{bytes.error()}), now));
  if (!bytes || !answered_.answered(sequence, *bytes)) return;
  const auto link = send_over_control(std::move(*bytes), now);
  if (link && answered_.keeps(sequence)) answered_.way(sequence) = *link;
}

std::optional<LinkId> Peer::send_over_control(std::vector<std::byte> bytes, TimePoint now) {
  const auto link = links_.control(now);
  if (link) send_over(*link, std::move(bytes));
  return link;
}

void Peer::send_over(LinkId link, std::vector<std::byte> bytes, bool greeting) {
  if (seal_) seal_->close(bytes, greeting ? kNoChallenge : theirs_);
  port_.command(links_.device_of(link), SendMessage{link, std::move(bytes)});
}

// -- probes --------------------------------------------------------------------------------------

void Peer::send_probes(TimePoint now) {
  if (!up_) return;
  for (const auto& way : links_.due_probes(now)) probe(way, std::nullopt, now);
}

void Peer::probe(const PeerLinks::Way& way, std::optional<LinkId> suspect, TimePoint now) {
  std::erase_if(probes_, [&](const auto& each) { return each.second.sent_at + kProbeKept < now; });
  const std::uint64_t sequence = next_sequence(now);
  Hello hello = hello_over(links_.way_of(way.pair));
  hello.way.from_device = options_.devices[links_.local_of(way.pair).device].name;
  auto bytes = encode(message_of(sequence, Question(std::move(hello)), now));
  if (!bytes) return;
  probes_.emplace(sequence, Probe{way.pair, now, suspect});
  send_over(way.link, std::move(*bytes), true);
}

void Peer::probe_answered(std::uint64_t sequence, TimePoint now) {
  const auto found = probes_.find(sequence);
  if (found == probes_.end()) return;
  const Probe probe = found->second;
  probes_.erase(found);
  links_.answered(probe.pair, now);
  if (probe.suspect && now - probe.sent_at <= kProbeFresh)
    port_.command(links_.device_of(*probe.suspect), CutOff{*probe.suspect});
  tell_changes();
}

void Peer::link_still(LinkId link, TimePoint now) {
  if (closed_ || !up_) return;
  for (const auto& way : links_.witnesses(link)) probe(way, link, now);
}

void Peer::card_is_up(std::size_t device, std::uint16_t nic, bool up, TimePoint now) {
  if (closed_) return;
  links_.card_is_up({device, nic}, up);
  send_probes(now);
  tell_changes();
}

void Peer::tell_changes() {
  for (const auto& [device, remote_device] : links_.take_returns())
    if (port_.links_back) port_.links_back(device, remote_device);
  const auto cards = cards_of(options_.devices);
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const CardView view = closed_ ? CardView::kUnknown : links_.view_of(cards[i]);
    if (std::exchange(views_[i], view) == view || !port_.card_seen) continue;
    port_.card_seen(cards[i].device, cards[i].nic, view,
                    fmt::format("none of its links to node '{}' answers, others do{}", record_.node,
                                last_trouble_));
  }
}

// -- links ---------------------------------------------------------------------------------------

// Both a Hello and its answer tell where the peer's cards are: either one completes the handshake.
void Peer::learn(const std::vector<DeviceCards>& devices, TimePoint now) {
  for (const DeviceCards& device : devices) links_.learn(device.device, device.cards, now);
  if (up_) return;
  up_ = true;
  links_.keep_open();
  port_.up();
  for (auto& [sequence, asked] : asked_)
    if (sequence != hello_) asked.due = now;
  send_due(now);
}

void Peer::moved(const std::string& remote_device, const std::vector<InboundCard>& cards,
                 TimePoint now) {
  if (closed_) return;
  links_.learn(remote_device, cards, now);
  send_probes(now);
}

bool Peer::link_failed(LinkId link, const Error& error, TimePoint now) {
  if (closed_ || !links_.failed(link, now)) return false;
  last_trouble_ = "; before: " + error.message;
  // What went over it goes over another at once. First contact keeps its pace instead: with many
  // cards and nobody there it would run through all pairs in one breath.
  if (!up_) return true;
  for (auto& [sequence, asked] : asked_)
    if (asked.link == link) asked.due = std::min(asked.due, now);
  send_due(now);
  send_probes(now);
  tell_changes();
  return true;
}

Result<std::vector<Peer::PathCard>> Peer::links(std::size_t device,
                                                const std::string& remote_device, TimePoint) {
  if (closed_) return tl::unexpected(*closed_);
  if (!up_)
    return fail(ErrorCode::kPeerUnreachable, "node '{}' has not answered our Hello yet",
                record_.node);
  if (device >= options_.devices.size() || options_.devices[device].cards == 0)
    return fail(ErrorCode::kNotFound, "no device {} with cards here", device);
  std::vector<PathCard> paths;
  for (const auto& link : links_.rails(device, remote_device))
    paths.push_back({link.link, link.local.nic, link.remote_nic, link.generation});
  if (paths.empty())
    return fail(ErrorCode::kNotFound, "node '{}' has no device '{}' with a card that takes writes",
                record_.node, remote_device);
  return paths;
}

// -- time and end --------------------------------------------------------------------------------

void Peer::tick(TimePoint now) {
  if (closed_) return;
  expire(now);
  send_due(now);
  send_probes(now);
  tell_changes();
}

TimePoint Peer::next_tick() const {
  TimePoint next = up_ ? links_.next_probe() : TimePoint::max();
  for (const auto& [sequence, asked] : asked_) next = std::min({next, asked.due, asked.deadline});
  return next;
}

void Peer::close(const Error& error) {
  if (closed_) return;
  closed_ = error;
  up_ = false;
  links_.close();
  tell_changes();
  for (const auto& [sequence, asked] : std::exchange(asked_, {}))
    if (sequence != hello_) port_.answered(asked.token, tl::unexpected(error));
}

}  // namespace penstock
