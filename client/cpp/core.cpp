#include "client/cpp/core.hpp"

#include <algorithm>
#include <future>
#include <random>

namespace penstock::client {
namespace {

using namespace std::chrono_literals;

// An end that did not come is asked for after this long, and so often.
constexpr auto kAskAfter = 1s;
constexpr std::size_t kAskLimit = 1000;

Options checked(Options options) {
  if (options.identity.empty()) options.identity = random_name("client");
  if (options.identity.size() > 255 || options.identity[0] == '\0') {
    throw Error("INVALID_ARGUMENT",
                "an identity has 1 to 255 bytes and does not start with a zero byte");
  }
  return options;
}

/// What may be asked again without harm, when the connection was lost before the answer.
bool repeatable(const std::string& operation) {
  constexpr std::array<std::string_view, 10> kRepeatable{"hello",     "regions", "nodes",  "status",
                                                         "transfers", "cancel",  "digest", "fill",
                                                         "keep",      "close"};
  return std::ranges::find(kRepeatable, operation) != kRepeatable.end();
}

/// What is answered with the ids of transfers, by on_accepted().
bool starts_transfers(const std::string& operation) {
  return operation == "transfer" || operation == "stream" || operation == "append";
}

}  // namespace

std::string random_name(const std::string& prefix) {
  std::random_device random;
  return prefix + "-" + std::to_string(random()) + "-" + std::to_string(random());
}

Core::Core(Options options)
    : options_(std::move(options)),
      keys_(keys_for(options_)),
      connection_(options_.endpoint, options_.identity, keys_) {}

std::shared_ptr<Core> Core::open(Options options) {
  std::shared_ptr<Core> core(new Core(checked(std::move(options))));
  auto greeted = std::make_shared<std::promise<Outcome>>();
  core->first_hello_ = [greeted](const Outcome& outcome) { greeted->set_value(outcome); };
  // The thread holds the core: the last handle may go on that very thread.
  core->thread_ = std::thread([core] { core->run(); });
  auto outcome = greeted->get_future();
  if (outcome.wait_for(std::chrono::milliseconds(core->timeout_ms())) !=
      std::future_status::ready) {
    auto error = core->no_answer({.operation = "hello", .timeout_ms = core->timeout_ms()});
    core->close();
    throw error;
  }
  auto greeting = outcome.get();
  if (auto* error = std::get_if<Error>(&greeting)) {
    core->close();
    throw *error;
  }
  return core;
}

void Core::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  connection_.wake();
  if (!thread_.joinable()) return;
  if (on_own_thread()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

ServiceInfo Core::service() const {
  std::lock_guard lock(mutex_);
  return service_;
}

void Core::refuse_on_own_thread(const char* what) const {
  if (!on_own_thread()) return;
  throw Error("INVALID_ARGUMENT", std::string(what) +
                                      " would wait for the thread that runs this callback; use "
                                      "submit() and on_done(), or another thread");
}

Error Core::no_answer(const Request& request) const {
  return Error("DEADLINE_EXCEEDED",
               "no answer from " + options_.endpoint + " to '" + request.operation + "' within " +
                   std::to_string(request.timeout_ms) + " ms; " +
                   (connected_ ? "it is connected: is the service busy or stopped?"
                    : keys_    ? "it is not connected: is penstockd running there, and is "
                                 "server_key its public key?"
                               : "it is not connected: is penstockd running there, and does "
                                 "it ask for a key?"));
}

// ---- asking ----

void Core::post(Request request) {
  if (send_at_once(request)) return;
  {
    std::lock_guard lock(mutex_);
    if (!closing_) {
      posted_.push_back(std::move(request));
      connection_.wake();
      return;
    }
  }
  request.done(Error("CANCELLED", "the client is closed"));
}

Json Core::call(const std::string& operation, Json fields, std::uint32_t timeout_ms) {
  refuse_on_own_thread(operation.c_str());
  auto answered = std::make_shared<std::promise<Outcome>>();
  Request request{.id = next_id(),
                  .operation = operation,
                  .timeout_ms = timeout_ms != 0 ? timeout_ms : options_.timeout_ms,
                  .repeatable = repeatable(operation),
                  .done = [answered](const Outcome& outcome) { answered->set_value(outcome); }};
  request.message = encode_request(request.id, operation, std::move(fields));
  auto outcome = answered->get_future();
  post(std::move(request));
  spin_until([&outcome] { return outcome.wait_for(0s) == std::future_status::ready; });
  auto answer = outcome.get();  // ends by the request's deadline or by close()
  if (auto* error = std::get_if<Error>(&answer)) throw *error;
  return std::get<Json>(std::move(answer));
}

std::vector<std::shared_ptr<TransferState>> Core::submit(std::span<const TransferSpec> specs) {
  std::vector<std::shared_ptr<TransferState>> states;
  bool keyed = !specs.empty();
  bool any_key = false;
  for (const auto& spec : specs) {
    if (spec.targets.empty()) throw Error("INVALID_ARGUMENT", "a transfer needs a target");
    for (std::size_t i = 0; i < spec.targets.size(); ++i) {
      states.push_back(std::make_shared<TransferState>());
    }
    keyed = keyed && !spec.key.empty();
    any_key = any_key || !spec.key.empty();
  }
  if (specs.empty()) return states;
  Request request{.id = next_id(),
                  .operation = "transfer",
                  .timeout_ms = options_.timeout_ms,
                  .repeatable = keyed,
                  .done = [this, states, any_key](const Outcome& outcome) {
                    on_accepted(states, any_key, outcome);
                  }};
  request.message = encode_transfer(request.id, specs);
  post(std::move(request));
  return states;
}

std::shared_ptr<TransferState> Core::start_transfer(
    const std::string& operation, const std::function<Message(std::uint64_t id)>& encode,
    bool may_have_ended) {
  auto state = std::make_shared<TransferState>();
  Request request{.id = next_id(),
                  .operation = operation,
                  .timeout_ms = options_.timeout_ms,
                  .repeatable = true,
                  .done = [this, state, may_have_ended](const Outcome& outcome) {
                    on_accepted({state}, may_have_ended, outcome);
                  }};
  request.message = encode(request.id);
  post(std::move(request));
  return state;
}

void Core::close_stream(std::uint64_t id, std::uint32_t parts,
                        const std::shared_ptr<TransferState>& whole) {
  // An expired stream refuses it with the code that we have for no answer, but sooner.
  const auto again_from = Clock::now() + std::chrono::milliseconds(timeout_ms());
  auto done = [this, id, parts, whole, again_from](const Outcome& outcome) {
    const auto* error = std::get_if<Error>(&outcome);
    if (error == nullptr || whole->has_ended()) return;
    const auto& code = error->code();
    if (code == "NOT_FOUND" || code == "CANCELLED") return;  // it, or this client, is gone
    const bool again = code == "DEADLINE_EXCEEDED" && Clock::now() >= again_from;
    // Not here: whoever learned this may have the turn.
    do_on_own_thread([this, id, parts, whole, again] {
      if (again) return close_stream(id, parts, whole);
      tell("cancel", {{"ids", packed(std::span<const std::uint64_t>({id}))}});
    });
  };
  tell("close", {{"stream", id}, {"parts", parts}}, std::move(done));
}

void Core::tell(const std::string& operation, Json fields,
                std::function<void(const Outcome&)> done) {
  Request request{.id = next_id(),
                  .operation = operation,
                  .timeout_ms = options_.timeout_ms,
                  .repeatable = repeatable(operation),
                  .done = std::move(done)};
  request.message = encode_request(request.id, operation, std::move(fields));
  post(std::move(request));
}

std::shared_ptr<SubscriptionState> Core::subscribe(const std::vector<std::string>& topics,
                                                   EventCallback callback,
                                                   std::optional<std::uint64_t> since) {
  refuse_on_own_thread("subscribe");
  std::shared_ptr<SubscriptionState> state;
  std::vector<std::string> all_topics = topics;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(subscriptions_, [](auto& subscription) { return subscription->stopped(); });
    state = std::make_shared<SubscriptionState>(topics, std::move(callback),
                                                since.value_or(last_sequence_));
    for (const auto& other : subscriptions_) {
      all_topics.insert(all_topics.end(), other->topics().begin(), other->topics().end());
    }
    subscriptions_.push_back(state);
  }
  std::ranges::sort(all_topics);
  all_topics.erase(std::unique(all_topics.begin(), all_topics.end()), all_topics.end());
  Json fields{{"topics", all_topics}};
  if (since) fields["since"] = *since;
  try {
    auto reply = call("subscribe", std::move(fields));
    if (!since) start_from_now(*state, reply);
  } catch (const Error&) {
    state->stop();
    throw;
  }
  return state;
}

void Core::start_from_now(SubscriptionState& subscription, const Json& reply) {
  auto newest = reply.find("seq");
  if (newest == reply.end() || !newest->is_number_unsigned()) return;
  subscription.skip_to(newest->get<std::uint64_t>());
  std::lock_guard lock(mutex_);
  last_sequence_ = std::max(last_sequence_, newest->get<std::uint64_t>());
}

// ---- the client's thread ----

void Core::run() {
  thread_id_ = std::this_thread::get_id();
  const Connection::Listener listener{
      .connected = [this] { on_connected(); },
      .disconnected = [this] { on_disconnected(); },
      .message =
          [this](std::span<const std::uint8_t> message, std::uint64_t number) {
            if (ring_ && number != 0) return ring_->came_by_socket(number, message);
            if (!message.empty())
              on_message(message);  // an empty one is about a ring that has ended
          },
      .refused = [this](const std::string& why) { on_refused(why); }};
  for (;;) {
    std::unique_lock turn(turn_);
    do_what_was_left();
    take_posted();
    send_unsent();
    {
      std::lock_guard lock(mutex_);
      if (closing_) break;
    }
    const auto patience = prepare_to_wait();
    const int bell = ring_ ? ring_->fd() : -1;
    turn.unlock();
    if (dozes_) doze();
    const bool bell_rang = connection_.wait(patience, bell);
    turn.lock();
    connection_.tell(listener);
    after_wait(bell_rang);
    check_time();
  }
  const std::lock_guard turn(turn_);
  end_everything();
}

void Core::take_posted() {
  std::vector<Request> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (auto& request : posted) add(std::move(request));
}

void Core::begin(const Request& request) {
  if (starts_transfers(request.operation)) waiting_.request_sent();
}

void Core::note_sent(Request& request) {
  request.sent = true;
  if (!request.repeatable) request.message = {};  // page lists can be large
}

void Core::add(Request request) {
  begin(request);
  auto& added = pending_.add(std::move(request), Clock::now());
  if (greeted_) send(added);
}

void Core::send(Request& request) {
  if (transmit(request.message)) note_sent(request);  // else on_connected() comes, then it is sent
}

void Core::ask(const std::string& operation, Json fields,
               std::function<void(const Outcome&)> done) {
  Request request{.id = next_id(),
                  .operation = operation,
                  .timeout_ms = options_.timeout_ms,
                  .done = std::move(done)};
  request.message = encode_request(request.id, operation, std::move(fields));
  add(std::move(request));
}

std::chrono::milliseconds Core::until_next_deadline() const {
  auto next = next_check_;
  if (options_.lease_ms != 0 && greeted_) next = std::min(next, next_renewal_);
  if (auto deadline = pending_.next_deadline()) next = std::min(next, *deadline);
  auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return std::max(wait, 0ms);
}

void Core::on_message(std::span<const std::uint8_t> message) {
  last_heard_ = Clock::now();
  try {
    auto heard = hear(message);
    heard.is_event ? on_event(heard, message) : on_reply(heard, message);
  } catch (const Error&) {
    // Not understood: no request is known that it answers.
  } catch (const Json::exception&) {
  }
}

void Core::on_reply(Heard& heard, std::span<const std::uint8_t> message) {
  if (!heard.answers) return;
  auto request = pending_.take(*heard.answers);
  if (!request) return;  // too late, or answered twice
  if (heard.ok && starts_transfers(request->operation))
    return request->done(Ids{std::move(heard.ids)});
  Outcome outcome = Json();
  try {
    auto reply = decode_message(message);
    outcome = heard.ok ? Outcome(std::move(reply)) : Outcome(read_error(reply));
  } catch (const std::exception& nonsense) {
    outcome = Error("INTERNAL", std::string("the reply is not understood: ") + nonsense.what());
  }
  request->done(std::move(outcome));
}

void Core::on_event(const Heard& heard, std::span<const std::uint8_t> message) {
  if (heard.ended) waiting_.end(*heard.ended);
  std::vector<std::shared_ptr<SubscriptionState>> subscriptions;
  {
    std::lock_guard lock(mutex_);
    last_sequence_ = std::max(last_sequence_, heard.sequence);
    subscriptions = subscriptions_;
  }
  if (subscriptions.empty()) return;
  const auto body = decode_message(message);
  auto event = read_event(body);
  event.json = to_text(body);
  do_on_own_thread([subscriptions = std::move(subscriptions), event = std::move(event)] {
    for (const auto& subscription : subscriptions) subscription->deliver(event);
  });
}

// ---- a connection, the first or another ----

void Core::on_connected() {
  connected_ = true;
  ++connections_;
  asking_ = false;
  drop_ring();
  ring_failed_ = false;
  say_hello();
}

void Core::on_disconnected() {
  connected_ = false;
  greeted_ = false;
  drop_ring();
}

/// Before the first hello that is the end of it; later it may be let in again.
void Core::on_refused(const std::string& why) {
  if (auto first_hello = std::exchange(first_hello_, nullptr))
    first_hello(Error("DENIED", options_.endpoint + " does not let this client in: " + why));
}

void Core::say_hello() {
  Request hello{.id = next_id(),
                .operation = "hello",
                .timeout_ms = options_.timeout_ms,
                .done = [this, connection = connections_](const Outcome& outcome) {
                  on_hello(connection, outcome);
                }};
  hello.message = encode_request(hello.id, "hello", {{"client", options_.client}});
  send(pending_.add(std::move(hello), Clock::now()));
}

void Core::on_hello(std::uint64_t connection, const Outcome& outcome) {
  if (connection != connections_ || !connected_) return;
  auto result = outcome;
  try {
    if (auto* hello = std::get_if<Json>(&outcome)) {
      wants_ring_ = may_have_ring(*hello);
      resume(read_service(*hello));
    }
  } catch (const Error& error) {
    result = error;
  }
  if (auto first_hello = std::exchange(first_hello_, nullptr)) first_hello(result);
  auto* error = std::get_if<Error>(&result);
  if (error != nullptr && error->code() == "DEADLINE_EXCEEDED") say_hello();
}

void Core::resume(const ServiceInfo& now) {
  bool restarted = false;
  {
    std::lock_guard lock(mutex_);
    restarted = service_.incarnation != 0 && service_.incarnation != now.incarnation;
    service_ = now;
    if (restarted) {
      last_sequence_ = 0;
      for (auto& subscription : subscriptions_) subscription->start_over();
      to_make_ = regions_;
      restart_ = Restart{now, {}, {}};
    }
  }
  if (restarted) {
    Error gone("PEER_LEFT", "the service at " + options_.endpoint + " was restarted meanwhile");
    waiting_.lose_before(connections_, gone);
    // Nobody is left to answer these.
    for (auto& request : pending_.take_unanswerable()) request.done(gone);
  }
  make_regions_again();
}

void Core::go_on() {
  greeted_ = true;
  renew_lease();
  for (auto* request : pending_.to_send()) send(*request);
  if (connections_ == 1) return;
  subscribe_again();
  ask_for_waiting(0s);
}

/// A service that knows no leases refuses it, and that is that.
void Core::renew_lease() {
  if (!greeted_ || (options_.lease_ms == 0 && !wants_ring_)) return;
  Json fields{{"client", options_.client}};
  if (options_.lease_ms != 0) {
    next_renewal_ = Clock::now() + std::chrono::milliseconds(options_.lease_ms) / 3;
    fields["lease_ms"] = options_.lease_ms;
  }
  if (!std::exchange(wants_ring_, false))
    return ask("hello", std::move(fields), [](const Outcome&) {});
  fields["ring"] = kRingVersion;
  ask("hello", std::move(fields), [this, connection = connections_](const Outcome& outcome) {
    if (connection != connections_ || !connected_) return;
    if (const auto* hello = std::get_if<Json>(&outcome)) take_ring(*hello);
  });
}

void Core::subscribe_again() {
  std::vector<std::string> topics;
  std::uint64_t since = 0;
  {
    std::lock_guard lock(mutex_);
    for (auto& subscription : subscriptions_) {
      if (subscription->stopped()) continue;
      topics.insert(topics.end(), subscription->topics().begin(), subscription->topics().end());
    }
    since = last_sequence_;
  }
  if (topics.empty()) return;
  std::ranges::sort(topics);
  topics.erase(std::unique(topics.begin(), topics.end()), topics.end());
  ask("subscribe", {{"topics", topics}, {"since", since}}, [](const Outcome&) {});
}

// ---- transfers ----

void Core::on_accepted(const std::vector<std::shared_ptr<TransferState>>& states, bool ask_at_once,
                       const Outcome& outcome) {
  struct Answered {
    WaitingTransfers& waiting;
    ~Answered() { waiting.request_answered(); }
  } answered{waiting_};
  if (auto* error = std::get_if<Error>(&outcome)) return end_unaccepted(states, *error);
  const auto& ids = std::get<Ids>(outcome).list;
  if (ids.size() != states.size()) {
    return end_unaccepted(states, Error("INTERNAL",
                                        "the service gave another number of ids than "
                                        "there were targets"));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    waiting_.accept(ids[i], states[i], connections_, last_heard_);
  }
  // A repeated key may name a transfer whose end was told long ago.
  if (ask_at_once) ask_for(ids);
}

void Core::end_unaccepted(const std::vector<std::shared_ptr<TransferState>>& states,
                          const Error& error) {
  bool unknown = error.code() == "CANCELLED" || error.code() == "INTERNAL" ||
                 error.code() == "DEADLINE_EXCEEDED" || error.code() == "PEER_LEFT";
  auto state = unknown ? TransferResult::State::kLost : TransferResult::State::kRefused;
  for (const auto& transfer : states) transfer->end(untold(state, 0, error));
}

void Core::ask_for_waiting(Clock::duration age) {
  if (asking_) return;
  auto ids = waiting_.to_ask(Clock::now(), age, kAskLimit);
  if (!ids.empty()) ask_for(ids);
}

void Core::ask_for(const std::vector<std::uint64_t>& ids) {
  asking_ = true;
  Json fields{{"ids", packed(std::span<const std::uint64_t>(ids))}, {"limit", ids.size()}};
  ask("transfers", std::move(fields),
      [this, ids, connection = connections_](const Outcome& outcome) {
        // Another life of the service may have other transfers under the same ids.
        if (connection != connections_) return;
        asking_ = false;
        if (auto* reply = std::get_if<Json>(&outcome)) on_asked(ids, *reply);
      });
}

void Core::on_asked(const std::vector<std::uint64_t>& ids, const Json& reply) {
  std::set<std::uint64_t> known;
  for (const auto& transfer : reply.value("transfers", Json::array())) {
    auto id = transfer.value("id", std::uint64_t{0});
    if (transfer.value("state", "") != "unknown") known.insert(id);
    if (is_terminal(transfer)) waiting_.end(read_transfer_result(transfer));
  }
  for (auto id : ids) {
    if (known.contains(id)) continue;
    waiting_.lose(id, Error("NOT_FOUND", "the service no longer knows transfer " +
                                             std::to_string(id) + "; its end was not kept"));
  }
}

// ---- time ----

void Core::check_time() {
  auto now = Clock::now();
  for (auto& request : pending_.take_expired(now)) request.done(no_answer(request));
  if (now >= next_renewal_) renew_lease();
  if (now < next_check_) return;
  next_check_ = now + kAskAfter;
  ask_for_waiting(kAskAfter);
  if (now - last_heard_ >= std::chrono::milliseconds(options_.lost_after_ms)) {
    waiting_.lose_before(
        UINT64_MAX,
        Error("PEER_UNREACHABLE", "the service at " + options_.endpoint + " has not answered for " +
                                      std::to_string(options_.lost_after_ms) + " ms"));
  }
}

void Core::end_everything() {
  do_what_was_left();
  take_posted();
  drop_ring();
  Error closed("CANCELLED", "the client was closed before the answer");
  for (auto& request : pending_.take_all()) request.done(closed);
  waiting_.lose_before(UINT64_MAX,
                       Error("CANCELLED", "the client was closed; the transfer goes on"));
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  do_what_was_left();
}

}  // namespace penstock::client
