#include <algorithm>
#include <array>
#include <utility>

#include "common/comm/collectives.h"

namespace zero {
RingCommunicator::RingCommunicator(std::unique_ptr<Transport> transport, Device& device, Buffer sum)
    : Communicator(std::move(transport), device),
      sum_(std::move(sum)),
      offered_(static_cast<std::size_t>(size())),
      expected_(static_cast<std::size_t>(size())) {}

void RingCommunicator::pass(Call& call, ConstArray block, const std::function<void(ConstArray from_left)>& consume) {
  const auto right = static_cast<std::size_t>((rank() + 1) % size());
  offered_[right] = bytes_of(block);
  expected_[static_cast<std::size_t>(left(1))] = offered_[right].size();
  call.exchange(offered_, expected_, [&](std::span<const ConstBytes> received) {
    consume({received[static_cast<std::size_t>(left(1))].data(), block.size, block.dtype});
  });
}

// Slice s starts at rank s + 1, which passes its own elements on; each rank adds its own to what comes from the left;
// the last is rank s. N - 1 steps, in each of which every rank passes another slice.
Pending RingCommunicator::reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) {
  Call call(*this, purpose, "reduce_scatter");
  const OnQueue queue(device_, communication_queue());
  const Index slice = slice_of(unit);
  const Index most = std::min(sum_.size(), transport_->max_block() / size_of(Dtype::fp32));
  for (const Bucket part : buckets(bucket.size, most)) {
    const Index begin = bucket.begin + part.begin;
    const auto columns_of = [&](int p) { return unit.part(p * slice + begin, part.size); };
    const Array sum = sum_.part(0, part.size);
    ConstArray passed = columns_of(left(1));
    for (int step = 0; step + 1 < size(); ++step) {
      pass(call, passed, [&](ConstArray from_left) {
        const std::array<ConstArray, 2> terms = {from_left, columns_of(left(step + 2))};
        device_.kernels().tree_sum(sum, terms);
      });
      passed = sum;
    }
    sink(begin, sum);
  }
  return {device_, device_.mark()};
}

Pending RingCommunicator::all_gather(Array unit, Bucket bucket, Purpose purpose) {
  const Index slice = slice_of(unit);
  return all_gather(unit, unit.part(rank() * slice, slice), bucket, purpose);
}

// In step t a rank passes on the slice that it got in step t - 1; its own in step 0.
Pending RingCommunicator::all_gather(Array unit, ConstArray slice, Bucket bucket, Purpose purpose) {
  Call call(*this, purpose, "all_gather");
  const OnQueue queue(device_, communication_queue());
  place_own(unit, slice, bucket);
  const Index most = transport_->max_block() / size_of(unit.dtype);
  for (const Bucket part : buckets(bucket.size, most)) {
    const Index begin = bucket.begin + part.begin;
    const auto columns_of = [&](int p) { return unit.part(p * slice_of(unit) + begin, part.size); };
    for (int step = 0; step + 1 < size(); ++step) {
      pass(call, columns_of(left(step)),
           [&](ConstArray from_left) { device_.kernels().copy(columns_of(left(step + 1)), from_left); });
    }
  }
  return {device_, device_.mark()};
}

std::string RingCommunicator::description() const { return "ring over " + transport_->description(); }

}  // namespace zero
