// The lists of one layout where kernels read them.
#pragma once

#include <memory>
#include <variant>

#include "transport/gpu/cuda/copy_kernels.hpp"
#include "transport/gpu/cuda/list_arena.hpp"
#include "transport/gpu/page_mover.hpp"

namespace penstock::gpu {

class PreparedPlan final : public GpuPlan {
 public:
  /// Copies the lists into `arena`; long ones go on to the GPU's memory on `upload`.
  static Result<std::shared_ptr<const PreparedPlan>> make(std::shared_ptr<ListArena> arena,
                                                          const Layout& layout,
                                                          cudaStream_t upload);
  ~PreparedPlan() override;

  std::uint64_t elements() const override { return elements_; }
  std::uint64_t bytes() const override { return bytes_; }
  std::uint64_t bytes(std::uint64_t first, std::uint64_t count) const override;
  std::uint64_t elements_of(std::uint64_t first, std::uint64_t bytes) const override;

  /// What a lane has to wait for before it reads the lists; null: nothing.
  cudaEvent_t uploaded() const { return uploaded_; }
  const ListArena* arena() const { return arena_.get(); }
  /// The kernel's list for elements [first, first + count). kInvalidArgument: too many at once.
  Result<std::variant<PieceList, PageList>> slice(std::uint64_t first, std::uint64_t count,
                                                  std::uint64_t from, std::uint64_t to) const;

 private:
  explicit PreparedPlan(std::shared_ptr<ListArena> arena) : arena_(std::move(arena)) {}
  Result<void> take_room(std::uint64_t bytes);
  Result<void> write_pages(const Pages& pages);
  Result<void> write_ranges(const Ranges& ranges);
  Result<void> make_readable(cudaStream_t upload);
  const PieceEntry* host_pieces() const;

  std::shared_ptr<ListArena> arena_;
  std::uint64_t room_ = 0;  // offset in the arena
  std::uint64_t room_bytes_ = 0;
  const std::byte* lists_ = nullptr;  // as kernels see them
  std::uint64_t source_pages_at_ = 0;
  std::uint64_t destination_pages_at_ = 0;
  cudaEvent_t uploaded_ = nullptr;
  bool ranges_ = false;
  std::uint64_t longest_ = 0;  // range
  std::uint64_t bits_ = 0;     // of all offsets and lengths together: what they are multiples of
  PageList pages_;             // all but addresses and slice
  std::uint64_t elements_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock::gpu
