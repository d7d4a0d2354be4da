#include <deque>

#include "common/storage/swap_file.h"

namespace zero {
namespace {

class PositionedFile final : public SwapFile {
 public:
  using SwapFile::SwapFile;

  void start(const Transfer& transfer) override {
    check_start(transfer, static_cast<Index>(ended_.size()));
    const auto bytes = static_cast<std::size_t>(transfer.bytes);
    const Index moved = uninterrupted([&]() -> Index {
      return transfer.kind == Transfer::Kind::read ? pread(descriptor(), transfer.memory, bytes, transfer.offset)
                                                   : pwrite(descriptor(), transfer.memory, bytes, transfer.offset);
    });
    ended_.push_back({transfer.id, moved < 0 ? -Index{errno} : moved});
  }

  Completion wait() override {
    check_wait(static_cast<Index>(ended_.size()));
    const Completion completion = ended_.front();
    ended_.pop_front();
    return completion;
  }

 private:
  std::deque<Completion> ended_;
};

}  // namespace

std::unique_ptr<BlockFile> make_positioned_file(OpenedFile file, Index depth) {
  return std::make_unique<PositionedFile>(std::move(file), depth);
}

}  // namespace zero
