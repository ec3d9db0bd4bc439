// Looks host names up again and again without making anybody wait: a look-up that hangs costs a
// thread of its own until the system gives it up.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

class Resolver {
 public:
  /// Called on some thread, or inside look_up() where there is nothing to look up; must not block.
  /// Empty endpoints: the name does not resolve now.
  using Found = std::function<void(const std::string& seed, std::vector<std::string> endpoints)>;

  explicit Resolver(Found found);
  /// At once; what is under way is forgotten.
  ~Resolver();

  /// "tcp://host:port" becomes one endpoint per address of the host; numeric hosts and other
  /// transports stand for themselves. A seed that is being looked up is not looked up twice.
  void look_up(const std::string& seed);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace penstock
