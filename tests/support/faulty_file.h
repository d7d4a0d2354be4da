#pragma once
/// \file
/// Storage that fails as planned: what a full, broken or lying disk does, put between a program and its file.

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/storage/block_file.h"

namespace zero::testing {

/// What happens to one transfer of a file.
struct Fault {
  enum class Kind { none, fails, is_short, flips_a_bit };
  Kind kind = Kind::none;
  Transfer::Kind of = Transfer::Kind::read;  ///< counted are transfers of this direction only
  Index at = 0;                              ///< how many of them go well before
  int error = EIO;                           ///< what it fails with
};

/// A file that does to the chosen transfer what its fault says, and everything else as the file inside.
class FaultyFile final : public BlockFile {
 public:
  FaultyFile(std::unique_ptr<BlockFile> inside, const Fault& fault) : inside_(std::move(inside)), fault_(fault) {}

  void start(const Transfer& transfer) override {
    if (fault_.kind != Fault::Kind::none && transfer.kind == fault_.of && started_++ == fault_.at) {
      Transfer chosen = transfer;
      if (fault_.kind == Fault::Kind::is_short) chosen.bytes /= 2;
      if (fault_.kind == Fault::Kind::is_short && transfer.kind == Transfer::Kind::read) {
        // No test may pass because the right bytes were there before.
        std::memset(transfer.memory, 0xA5, static_cast<std::size_t>(transfer.bytes));
      }
      chosen_.emplace(transfer.id, transfer);
      inside_->start(chosen);
      return;
    }
    inside_->start(transfer);
  }

  Completion wait() override {
    Completion completion = inside_->wait();
    const auto found = chosen_.find(completion.id);
    if (found == chosen_.end()) return completion;
    const Transfer transfer = found->second;
    chosen_.erase(found);
    if (fault_.kind == Fault::Kind::fails) completion.result = -Index{fault_.error};
    if (fault_.kind == Fault::Kind::flips_a_bit) {
      static_cast<std::byte*>(transfer.memory)[transfer.bytes / 3] ^= std::byte{0x10};
    }
    return completion;
  }

  [[nodiscard]] Index size() const override { return inside_->size(); }
  [[nodiscard]] Index depth() const override { return inside_->depth(); }
  [[nodiscard]] std::string path() const override { return inside_->path(); }
  [[nodiscard]] std::string description() const override { return inside_->description(); }

 private:
  std::unique_ptr<BlockFile> inside_;
  Fault fault_;
  Index started_ = 0;
  std::map<std::uint64_t, Transfer> chosen_;
};

/// Files as `open_file` makes them, with a fault.
inline OpenBlockFile with_fault(OpenBlockFile open_file, const Fault& fault) {
  return [open_file = std::move(open_file), fault](Index bytes) {
    return std::make_unique<FaultyFile>(open_file(bytes), fault);
  };
}

}  // namespace zero::testing
