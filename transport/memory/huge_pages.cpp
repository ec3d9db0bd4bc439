#include "transport/memory/huge_pages.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace penstock {
namespace {

constexpr std::uint64_t kKib = 1024;
constexpr std::uint64_t kDefaultPageBytes = 2048 * kKib;

struct MountLine {
  std::string folder;
  std::string type;
  std::string options;
};

/// The kernel writes a space in a path as \040, and the like.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 3, value, 8).ptr == &text[i + 1] + 3) {
      plain += static_cast<char>(value);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<MountLine> read_mounts(const std::filesystem::path& mounts) {
  std::vector<MountLine> lines;
  std::ifstream file(mounts);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string device, folder;
    MountLine mount;
    if (words >> device >> folder >> mount.type >> mount.options) {
      mount.folder = unescaped(folder);
      lines.push_back(std::move(mount));
    }
  }
  return lines;
}

/// The value of `key=` among comma-separated options.
std::optional<std::string> option_of(const std::string& options, std::string_view key) {
  std::istringstream list(options);
  for (std::string option; std::getline(list, option, ',');)
    if (option.starts_with(key) && option.size() > key.size() && option[key.size()] == '=')
      return option.substr(key.size() + 1);
  return std::nullopt;
}

/// "2M", "1024M", "1G" or plain bytes.
std::uint64_t page_bytes_of(const std::string& options) {
  const auto text = option_of(options, "pagesize");
  if (!text) return kDefaultPageBytes;
  std::uint64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc()) return 0;
  if (rest == end) return number;
  switch (*rest) {
    case 'K':
    case 'k':
      return number * kKib;
    case 'M':
    case 'm':
      return number * kKib * kKib;
    case 'G':
    case 'g':
      return number * kKib * kKib * kKib;
    default:
      return 0;
  }
}

std::uint64_t number_in(const std::filesystem::path& path) {
  std::uint64_t number = 0;
  std::ifstream(path) >> number;
  return number;
}

}  // namespace

std::vector<HugePageMount> huge_page_mounts(const std::filesystem::path& mounts,
                                            const std::filesystem::path& counts) {
  std::vector<HugePageMount> found;
  for (const MountLine& line : read_mounts(mounts)) {
    if (line.type != "hugetlbfs") continue;
    HugePageMount mount;
    mount.folder = line.folder;
    mount.page_bytes = page_bytes_of(line.options);
    if (mount.page_bytes == 0) continue;
    const auto pool = counts / fmt::format("hugepages-{}kB", mount.page_bytes / kKib);
    const std::uint64_t free = number_in(pool / "free_hugepages");
    mount.total_pages = number_in(pool / "nr_hugepages");
    mount.free_pages = free - std::min(free, number_in(pool / "resv_hugepages"));
    found.push_back(std::move(mount));
  }
  std::stable_sort(found.begin(), found.end(), [](const HugePageMount& a, const HugePageMount& b) {
    return a.free_pages * a.page_bytes > b.free_pages * b.page_bytes;
  });
  return found;
}

std::string shared_memory_huge_option(const std::filesystem::path& mounts) {
  std::string option = "never";
  for (const MountLine& line : read_mounts(mounts))  // the last one covers the earlier ones
    if (line.folder == "/dev/shm") option = option_of(line.options, "huge").value_or("never");
  return option;
}

std::uint64_t rounded_up(std::uint64_t bytes, const HugePageMount& mount) {
  const std::uint64_t pages = bytes / mount.page_bytes + (bytes % mount.page_bytes != 0 ? 1 : 0);
  std::uint64_t rounded = 0;
  return __builtin_mul_overflow(pages, mount.page_bytes, &rounded) ? 0 : rounded;
}

Result<HugePageMount> mount_with_room(const std::vector<HugePageMount>& mounts,
                                      std::uint64_t bytes) {
  if (mounts.empty())
    return fail(ErrorCode::kResourceExhausted,
                "{} bytes on huge pages asked, no hugetlbfs is mounted here: mount -t hugetlbfs "
                "none /dev/hugepages, and reserve pages (echo N > /proc/sys/vm/nr_hugepages)",
                bytes);
  for (const HugePageMount& mount : mounts) {
    const std::uint64_t rounded = rounded_up(bytes, mount);
    if (rounded != 0 && rounded / mount.page_bytes <= mount.free_pages) return mount;
  }
  const HugePageMount& best = mounts.front();
  const std::uint64_t needed = (bytes - 1) / best.page_bytes + 1;
  return fail(ErrorCode::kResourceExhausted,
              "{} bytes on huge pages asked: {} pages of {} KiB are needed, {} of {} are free in "
              "{}; reserve more: echo {} > /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
              bytes, needed, best.page_bytes / kKib, best.free_pages, best.total_pages,
              best.folder.string(), best.total_pages + needed - best.free_pages,
              best.page_bytes / kKib);
}

const HugePageMount* mount_of(const std::vector<HugePageMount>& mounts,
                              const std::filesystem::path& path) {
  for (const HugePageMount& mount : mounts)
    if (path.parent_path() == mount.folder && path.has_filename() && path.filename() != "." &&
        path.filename() != "..")
      return &mount;
  return nullptr;
}

}  // namespace penstock
