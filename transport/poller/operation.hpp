// What is posted on a card. The provider's scratch is at the front: a completion's context is the
// operation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/fabric/nic.hpp"
#include "transport/packing/bundle.hpp"
#include "transport/poller/chunk_run.hpp"
#include "transport/poller/link.hpp"

namespace penstock {

class TransferWork;

struct PostedOperation : OperationContext {
  enum class Kind : unsigned char { kFree, kChunk, kSend };
  Kind kind = Kind::kFree;
  Link* link = nullptr;
};

struct ChunkOperation : PostedOperation {
  bool counted = false;  // carries an immediate
  PeerAddress* address = nullptr;
  TransferWork* transfer = nullptr;
  ChunkRun run;              // what goes directly,
  Bundle* bundle = nullptr;  // or what is packed
  std::uint64_t bytes = 0;   // on the wire
};

struct SendOperation : PostedOperation {};

/// A fixed number of operations, handed out without allocating. The one given back last is the
/// next one out: it is still in the cache.
template <class Operation>
class OperationSlab {
 public:
  explicit OperationSlab(std::size_t size)
      : operations_(std::make_unique<Operation[]>(size)), size_(size) {
    free_.reserve(size);
    for (std::size_t i = size; i > 0; --i) free_.push_back(&operations_[i - 1]);
  }
  bool exhausted() const { return free_.empty(); }
  Operation* take(PostedOperation::Kind kind) {
    Operation* operation = free_.back();
    free_.pop_back();
    operation->kind = kind;
    return operation;
  }
  void give_back(Operation* operation) {
    operation->kind = PostedOperation::Kind::kFree;
    free_.push_back(operation);
  }
  /// Calls `visit` for each operation that is out; it may give back the one it is called with.
  template <class Visit>
  void for_each_out(Visit visit) {
    for (std::size_t i = 0; i < size_; ++i)
      if (operations_[i].kind != PostedOperation::Kind::kFree) visit(&operations_[i]);
  }

 private:
  std::unique_ptr<Operation[]> operations_;
  std::size_t size_;
  std::vector<Operation*> free_;
};

}  // namespace penstock
