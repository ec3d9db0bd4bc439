// A transfer that stays open: page lists are appended as a program produces them (a model its
// layers), until it is closed.
//
//   auto stream = client.stream({.region = "kv", .target = {"decode", "kv"}, .notify =
//   "request-81"}); for (auto& layer : layers) stream.append({.layout = layer}); stream.close();
//   TransferResult result = stream.wait();
//
// Each part is a transfer of its own, with an id, an end and a notification that carries the
// stream's id and the part's number. Parts run side by side under the stream's terms and one share
// of them, the oldest first: they mostly end in order, and nothing promises it. The stream ends
// once, when it is closed and all parts have ended. A part that fails or is refused, a cancel, or
// the deadline of the stream end it early: the parts under way are cancelled, later ones refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "layout.hpp"
#include "transfer.hpp"

namespace penstock::client {

/// What all parts have in common; members as in TransferSpec.
struct StreamSpec {
  Direction direction = Direction::kWrite;
  std::string region{};  // local: the source of a write, the destination of a read
  Target target{};
  std::uint32_t deadline_ms = 0;  // of the whole stream, from its opening; 0: the service's default
  Lane lane = Lane::kBulk;
  std::uint32_t weight = 1;  // of the stream: its parts have one share together
  std::string key{};         // idempotency: a repeated key returns the first stream. "": none
  std::string notify{};      // of the parts that have none of their own
  Packing packing = Packing::kAuto;
  std::string path{};
  bool verify = false;
};

struct Part {
  Layout layout{};
  std::string notify{};  // "": the stream's
  /// As in TransferSpec: nothing of this part is read before its event is done.
  std::string start_after{};
  std::string record_event{};
};

struct StreamState;

/// A handle; copies mean the same stream. When the last one goes before close(), the stream is
/// cancelled.
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}

  std::uint64_t id() const;

  /// Waits for nothing: a refusal is the handle's result (kRefused), and ends the stream too. Lists
  /// are read before this returns. Parts are numbered in the order of the calls. Throws only what
  /// can be seen here (INVALID_ARGUMENT). May be called from callbacks.
  Transfer append(const Part& part) const;
  /// So many parts were appended.
  std::uint32_t parts() const;

  /// No more parts. Waits for nothing: wait() does, and tells what went wrong.
  void close() const;
  /// As Transfer::cancel(), of all parts.
  void cancel() const;

  /// The stream as a whole, whose result sums up its parts (TransferResult::parts).
  const Transfer& transfer() const;
  TransferResult wait() const { return transfer().wait(); }

 private:
  std::shared_ptr<StreamState> state_;
};

}  // namespace penstock::client
