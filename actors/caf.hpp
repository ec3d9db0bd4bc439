// The one place that knows which CAF this is. Debian ships 0.17; 1.x renamed what is wrapped here.
#pragma once

#include <algorithm>
#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <utility>

#include "actors/clock.hpp"

#if CAF_VERSION >= 10000
#error "CAF 1.x: give the messages of actors/messages.hpp type ids and adapt this header"
#endif

/// At global scope, before first use: lets T travel between actors of this process.
#define PENSTOCK_MESSAGE(T) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(T)

namespace penstock {

/// Sends from any thread, without a sender.
template <class Message>
void tell(const caf::actor& to, Message&& message) {
  if (to) caf::anon_send(to, std::forward<Message>(message));
}

/// Sends to oneself at `when`.
template <class Message>
void tell_at(caf::event_based_actor* self, TimePoint when, Message&& message) {
  const auto delay = std::max(when - Clock::now(), Clock::duration::zero());
  self->delayed_send(self, std::chrono::ceil<Milliseconds>(delay), std::forward<Message>(message));
}

/// Ends an actor before it handles what is in its mailbox (anon_send_exit queues up behind that).
inline void end_actor(const caf::actor& actor) {
  if (!actor) return;
  actor->enqueue(nullptr, caf::make_message_id(caf::message_priority::high),
                 caf::make_message(caf::exit_msg{actor.address(), caf::exit_reason::user_shutdown}),
                 nullptr);
}

}  // namespace penstock
