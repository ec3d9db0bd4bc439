// What a polling thread does for others between its rounds.
#pragma once

#include <functional>

namespace penstock {

/// Work that is done on a polling thread though it is not the thread's own. All but waiting() is
/// called there alone.
class SideWork {
 public:
  SideWork() = default;
  SideWork(const SideWork&) = delete;
  SideWork& operator=(const SideWork&) = delete;
  virtual ~SideWork() = default;

  /// Before the first round. `wake`, by any thread, ends the thread's sleep once there is something
  /// to do; not after the last of the thread's devices was closed.
  virtual void begin(std::function<void()> wake) = 0;
  /// Between two rounds; must not block. `quiet`: none of the thread's devices has bulk work, so
  /// that a round may wait a little. False: nothing was done.
  virtual bool work(bool quiet) = 0;
  /// Whether work() has something to do: the thread does not sleep then.
  virtual bool waiting() const = 0;
};

}  // namespace penstock
