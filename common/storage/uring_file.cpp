#include "common/storage/swap_file.h"

#ifdef ZERO_HAVE_URING

#include <fmt/format.h>
#include <liburing.h>

#include <cstring>

#include "common/base/error.h"

namespace zero {
namespace {

/// A ring of the system: a queue of requests and a queue of their ends.
class Ring {
 public:
  explicit Ring(Index depth) : error_(-io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0)) {}
  ~Ring() {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  int error_;
};

class UringFile final : public SwapFile {
 public:
  UringFile(OpenedFile file, Index depth, std::unique_ptr<Ring> ring)
      : SwapFile(std::move(file), depth), ring_(std::move(ring)) {}

  ~UringFile() override {
    try {
      while (under_way_ > 0) wait();
    } catch (const ResourceFailure&) {
      // Nothing more can be learnt about them; the ring's end cancels what it can.
    }
  }

  void start(const Transfer& transfer) override {
    check_start(transfer, under_way_);
    io_uring_sqe* request = io_uring_get_sqe(ring_->get());  // there is one: no more than depth() are under way
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<std::uint64_t>(transfer.offset);
    if (transfer.kind == Transfer::Kind::read) {
      io_uring_prep_read(request, descriptor(), transfer.memory, bytes, offset);
    } else {
      io_uring_prep_write(request, descriptor(), transfer.memory, bytes, offset);
    }
    request->user_data = transfer.id;
    ++under_way_;
    submit();
  }

  Completion wait() override {
    check_wait(under_way_);
    if (io_uring_sq_ready(ring_->get()) > 0) submit();
    io_uring_cqe* end = nullptr;
    int result = 0;
    do {
      result = io_uring_wait_cqe(ring_->get(), &end);
    } while (result == -EINTR);
    if (result < 0) throw failure(-result);
    const Completion completion{end->user_data, end->res};
    io_uring_cqe_seen(ring_->get(), end);
    --under_way_;
    return completion;
  }

 private:
  /// Hands over what is in the queue. Where the system is short of something for the moment, it stays there for wait(),
  /// which first waits for what is under way.
  void submit() {
    int result = 0;
    do {
      result = io_uring_submit(ring_->get());
    } while (result == -EINTR);
    const bool later = result == -EAGAIN || result == -EBUSY;
    const bool others = under_way_ > static_cast<Index>(io_uring_sq_ready(ring_->get()));
    if (result < 0 && !(later && others)) throw failure(-result);
  }

  [[nodiscard]] ResourceFailure failure(int error) const {
    return ResourceFailure(fmt::format("{}: io_uring failed ({})", path(), std::strerror(error)));
  }

  std::unique_ptr<Ring> ring_;
  Index under_way_ = 0;
};

std::string reason(int error) {
  switch (error) {
    case ENOSYS: return "io_uring is not in this kernel";
    case EPERM:
    case EACCES: return "io_uring is not permitted here";
    default: return fmt::format("io_uring cannot be had: {}", std::strerror(error));
  }
}

}  // namespace

std::unique_ptr<BlockFile> make_uring_file(OpenedFile& file, Index depth, std::string& why_not) {
  auto ring = std::make_unique<Ring>(depth);
  if (ring->error() != 0) {
    why_not = reason(ring->error());
    return nullptr;
  }
  // Plain reads and writes, without vectors, came with Linux 5.6, and so did this feature.
  if ((ring->get()->features & IORING_FEAT_RW_CUR_POS) == 0) {
    why_not = "io_uring of this kernel is too old";
    return nullptr;
  }
  return std::make_unique<UringFile>(std::move(file), depth, std::move(ring));
}

}  // namespace zero

#else

namespace zero {

std::unique_ptr<BlockFile> make_uring_file(OpenedFile& /*file*/, Index /*depth*/, std::string& why_not) {
  why_not = "io_uring was not built in";
  return nullptr;
}

}  // namespace zero

#endif
