#include "actors/gateway/turns.hpp"

#include <utility>

namespace penstock {

bool Turns::add(const std::string& client, Request&& request, std::size_t bytes) {
  if (loads_.size() >= sweep_at_) {
    std::erase_if(loads_, [](const auto& entry) {
      return entry.second->waiting.empty() && entry.second->under_way == 0;
    });
    sweep_at_ = 64 + 2 * loads_.size();
  }
  std::shared_ptr<Load>& load = loads_[client];
  if (!load) load = std::make_shared<Load>(client);
  const std::size_t has = load->waiting.size() + load->under_way;
  if (has > 0 &&
      (has >= limits_.client_requests || load->waiting_bytes + bytes > limits_.client_bytes))
    return false;
  if (load->waiting.empty()) turns_.push_back(load);
  load->waiting.emplace_back(std::move(request), bytes);
  load->waiting_bytes += bytes;
  waiting_bytes_ += bytes;
  ++waiting_;
  return true;
}

bool Turns::has_any(const std::string& client) const {
  const auto found = loads_.find(client);
  return found != loads_.end() && (!found->second->waiting.empty() || found->second->under_way > 0);
}

std::optional<Turns::Next> Turns::next() {
  for (std::size_t i = turns_.size(); i > 0; --i) {
    std::shared_ptr<Load> load = std::move(turns_.front());
    turns_.pop_front();
    if (load->under_way >= limits_.client_under_way) {
      turns_.push_back(std::move(load));
      continue;
    }
    auto [request, bytes] = std::move(load->waiting.front());
    load->waiting.pop_front();
    load->waiting_bytes -= bytes;
    waiting_bytes_ -= bytes;
    --waiting_;
    ++load->under_way;
    if (!load->waiting.empty()) turns_.push_back(load);
    return Next{std::move(request), std::move(load)};
  }
  return std::nullopt;
}

}  // namespace penstock
