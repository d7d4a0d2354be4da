#include "common/comm/cuda/staged_transport.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero::cuda {

StagedTransport::StagedTransport(CudaDevice& device, Buffer staging, Buffer pinned, std::unique_ptr<Transport> host,
                                 int ranks_on_a_gpu)
    : device_(device),
      staging_(std::move(staging)),
      pinned_(std::move(pinned)),
      host_(std::move(host)),
      ranks_on_a_gpu_(ranks_on_a_gpu),
      max_block_(block_bytes(pinned_.array().bytes(), host_->size())),
      offered_(static_cast<std::size_t>(host_->size())),
      received_(static_cast<std::size_t>(host_->size())) {}

StagedTransport::~StagedTransport() {
  try {
    device_.wait(used_);  // the present queue gives the staging memory back
  } catch (const Error&) {
    // The device failed, which somebody was told.
  }
}

void StagedTransport::exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                               const Consume& consume, const char* what) {
  Index offset = 0;
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const auto i = static_cast<std::size_t>(p);
    offered_[i] = copy_down(offered[i], offset);
    offset += max_block_;
  }
  wait_for_copies();
  host_->exchange(
      offered_, expected, [&](std::span<const ConstBytes> received) { bring_up(received, consume); }, what);
}

void StagedTransport::exchange_same(ConstBytes offered, const Consume& consume, const char* what) {
  const ConstBytes block = copy_down(offered, 0);
  wait_for_copies();
  host_->exchange_same(
      block, [&](std::span<const ConstBytes> received) { bring_up(received, consume); }, what);
}

ConstBytes StagedTransport::copy_down(ConstBytes block, Index offset) {
  if (static_cast<Index>(block.size()) > max_block_) {
    throw std::length_error("a block of an exchange is larger than max_block()");
  }
  auto* to = static_cast<std::byte*>(pinned_.array().data) + offset;
  if (!block.empty()) {
    check(cudaMemcpyAsync(to, block.data(), block.size(), cudaMemcpyDeviceToHost, device_.stream()), "cudaMemcpyAsync");
  }
  return {to, block.size()};
}

void StagedTransport::bring_up(std::span<const ConstBytes> received, const Consume& consume) {
  auto* room = static_cast<std::byte*>(staging_.array().data);
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const auto i = static_cast<std::size_t>(p);
    if (!received[i].empty()) {
      check(cudaMemcpyAsync(room, received[i].data(), received[i].size(), cudaMemcpyHostToDevice, device_.stream()),
            "cudaMemcpyAsync");
    }
    received_[i] = {room, received[i].size()};
    room += max_block_;
  }
  wait_for_copies();  // the peers' memory is theirs again when this returns
  consume(received_);
  used_ = device_.mark();
}

void StagedTransport::wait_for_copies() { device_.synchronize(device_.mark()); }

std::string StagedTransport::description() const {
  const std::string reason = is_by_wish() ? "by --transport" : fmt::format("{} ranks share a GPU", ranks_on_a_gpu_);
  return fmt::format("pinned host memory ({}), {}", reason, host_->description());
}

}  // namespace zero::cuda
