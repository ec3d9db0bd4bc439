#include "transport/memory/bus_fault.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace penstock {

struct BusFaultGuard::Watched {
  std::atomic<std::uintptr_t> begin{0};  // 0: free
  std::atomic<std::uintptr_t> end{0};
  std::atomic<std::uintptr_t> page_mask{0};
  std::atomic<bool> lost{false};
};

namespace {

using Watched = BusFaultGuard::Watched;

// Fixed, and looked at without a lock: a signal handler may neither allocate nor wait.
std::array<Watched, 65536> watched_mappings;
std::atomic<std::size_t> watched_end{0};
std::mutex watched_mutex;  // of those who enter and leave
struct sigaction handler_before {};
std::uintptr_t system_page_mask = 0;

Watched* find(std::uintptr_t address) {
  const std::size_t end = watched_end.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < end; ++i) {
    Watched& each = watched_mappings[i];
    const auto begin = each.begin.load(std::memory_order_acquire);
    if (begin != 0 && begin <= address && address < each.end.load(std::memory_order_acquire))
      return &each;
  }
  return nullptr;
}

void on_bus_fault(int, siginfo_t* info, void*) {
  const int saved = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (Watched* mapping = find(address)) {
    const std::uintptr_t page = address & mapping->page_mask.load();
    mapping->lost.store(true, std::memory_order_release);
    void* got =
        // NOLINTNEXTLINE(performance-no-int-to-ptr): the address of a fault is a number
        ::mmap(reinterpret_cast<void*>(page), mapping->end.load() - page, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (got != MAP_FAILED) {
      errno = saved;
      return;
    }
  }
  ::sigaction(SIGBUS, &handler_before, nullptr);  // the access is repeated and meets that one
  errno = saved;
}

void install_handler() {
  static const bool installed = [] {
    system_page_mask = ~(static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1);
    struct sigaction action {};
    action.sa_sigaction = on_bus_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &handler_before) == 0;
  }();
  (void)installed;
}

}  // namespace

BusFaultGuard::BusFaultGuard(std::span<std::byte> mapping, std::uint64_t page_bytes) {
  install_handler();
  const std::lock_guard lock(watched_mutex);
  for (std::size_t i = 0; i < watched_mappings.size(); ++i) {
    Watched& each = watched_mappings[i];
    if (each.begin.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
    each.lost.store(false, std::memory_order_relaxed);
    each.page_mask.store(page_bytes == 0 ? system_page_mask : ~(page_bytes - 1),
                         std::memory_order_relaxed);
    each.end.store(begin + mapping.size(), std::memory_order_release);
    each.begin.store(begin, std::memory_order_release);
    if (watched_end.load(std::memory_order_relaxed) <= i)
      watched_end.store(i + 1, std::memory_order_release);
    watched_ = &each;
    return;
  }
}

BusFaultGuard::~BusFaultGuard() {
  if (watched_ == nullptr) return;
  const std::lock_guard lock(watched_mutex);
  watched_->begin.store(0, std::memory_order_release);
}

bool BusFaultGuard::lost() const {
  return watched_ != nullptr && watched_->lost.load(std::memory_order_acquire);
}

}  // namespace penstock
