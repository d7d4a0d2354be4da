#pragma once
/// \file
/// The transport over MPI messages: ranks anywhere.

#include <vector>

#include "common/comm/transport.h"

namespace zero {

/// Every exchange is one message to and one from each other rank, an empty one too, so that nobody needs to know sizes
/// beforehand. Blocks are sent from where they are and received into staging memory. A message's count is an int to
/// MPI; it stays below the staging memory's size, so it always fits.
class MessageTransport final : public Transport {
 public:
  /// `staging` holds what is received. `description` is the transport's, with the reason for messages.
  MessageTransport(MPI_Comm ranks, Buffer staging, double timeout_seconds, std::string description);
  ~MessageTransport() override = default;

  [[nodiscard]] int rank() const override { return comm_.rank(); }
  [[nodiscard]] int size() const override { return comm_.size(); }
  void exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected, const Consume& consume,
                const char* what) override;
  void exchange_same(ConstBytes offered, const Consume& consume, const char* what) override;
  [[nodiscard]] Index max_block() const override { return max_block_; }
  [[nodiscard]] Index max_same_block() const override { return max_block_; }
  [[nodiscard]] std::string description() const override { return description_; }

 private:
  void wait_for_all(const char* what);
  [[noreturn]] void fail(const char* what);

  OwnedComm comm_;
  Buffer staging_;  ///< size() - 1 blocks are used
  double timeout_seconds_;
  std::string description_;
  Index max_block_;
  std::vector<MPI_Request> requests_;  ///< for each rank: the receive, then the send
  std::vector<MPI_Status> statuses_;
  std::vector<ConstBytes> received_;  ///< one for each rank
};

}  // namespace zero
