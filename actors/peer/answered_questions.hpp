// What a peer has asked us. A question that comes again is not asked again: its answer is repeated,
// or it is dropped while it is being worked on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "transport/poller/command.hpp"

namespace penstock {

class AnsweredQuestions {
 public:
  static constexpr std::size_t kMostOpen = 4096;  // questions that wait for their answer

  explicit AnsweredQuestions(std::size_t answers_kept) : answers_kept_(answers_kept) {}

  enum class Seen : unsigned char { kNew, kOpen, kAnswered };

  /// Notes a question that arrived. kOpen also when too many wait: the asker repeats it.
  Seen arrived(std::uint64_t sequence) {
    const auto known = questions_.find(sequence);
    if (known != questions_.end())
      return known->second.message.empty() ? Seen::kOpen : Seen::kAnswered;
    if (questions_.size() - order_.size() >= kMostOpen) return Seen::kOpen;
    questions_.emplace(sequence, Kept());
    return Seen::kNew;
  }

  /// Keeps the answer as it was sent; false when nobody asked (or it was long ago).
  bool answered(std::uint64_t sequence, std::vector<std::byte> message) {
    const auto known = questions_.find(sequence);
    if (known == questions_.end()) return false;
    if (known->second.message.empty()) order_.push_back(sequence);
    known->second.message = std::move(message);
    if (order_.size() > answers_kept_) {
      newest_forgotten_ = std::max(newest_forgotten_, order_.front());
      questions_.erase(order_.front());
      order_.pop_front();
    }
    return true;
  }

  const std::vector<std::byte>& answer(std::uint64_t sequence) const {
    return questions_.at(sequence).message;
  }
  /// Whether a question that seems new may be one whose answer is not kept any more.
  bool may_be_forgotten(std::uint64_t sequence) const { return sequence <= newest_forgotten_; }

  /// The link that it was sent over last. Only while its answer is kept.
  LinkId& way(std::uint64_t sequence) { return questions_.at(sequence).way; }
  bool keeps(std::uint64_t sequence) const { return questions_.contains(sequence); }

 private:
  struct Kept {
    std::vector<std::byte> message;  // empty: no answer yet
    LinkId way = 0;
  };
  std::size_t answers_kept_;
  std::map<std::uint64_t, Kept> questions_;
  std::deque<std::uint64_t> order_;  // of the answers, oldest first
  std::uint64_t newest_forgotten_ = 0;
};

}  // namespace penstock
