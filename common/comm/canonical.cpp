#include <algorithm>
#include <utility>

#include "common/comm/collectives.h"

namespace zero {
CanonicalCommunicator::CanonicalCommunicator(std::unique_ptr<Transport> transport, Device& device, Buffer sum)
    : Communicator(std::move(transport), device),
      sum_(std::move(sum)),
      offered_(static_cast<std::size_t>(size())),
      expected_(static_cast<std::size_t>(size())),
      terms_(static_cast<std::size_t>(size())) {}

Pending CanonicalCommunicator::reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) {
  Call call(*this, purpose, "reduce_scatter");
  if (size() == 1) {
    const ConstArray own = unit.part(bucket.begin, bucket.size);
    if (own.dtype == Dtype::fp32) {
      if (own.size > 0) sink(bucket.begin, {const_cast<void*>(own.data), own.size, own.dtype});
      return {};
    }
    for (const Bucket part : buckets(bucket.size, sum_.size())) {
      device_.kernels().copy(sum_.part(0, part.size), own.part(part.begin, part.size));
      sink(bucket.begin + part.begin, sum_.part(0, part.size));
    }
    return {};
  }
  const OnQueue queue(device_, Queue::communication);
  const Index slice = slice_of(unit);
  const Index most = std::min(sum_.size(), transport_->max_block() / size_of(unit.dtype));
  for (const Bucket part : buckets(bucket.size, most)) {
    const Index begin = bucket.begin + part.begin;
    const auto columns_of = [&](int p) { return unit.part(p * slice + begin, part.size); };
    for (int p = 0; p < size(); ++p) {
      const auto i = static_cast<std::size_t>(p);
      offered_[i] = bytes_of(columns_of(p));
      expected_[i] = offered_[i].size();
    }
    const Array sum = sum_.part(0, part.size);
    call.exchange(offered_, expected_, [&](std::span<const ConstBytes> received) {
      for (int p = 0; p < size(); ++p) {
        const auto i = static_cast<std::size_t>(p);
        terms_[i] = p == rank() ? columns_of(p) : ConstArray{received[i].data(), part.size, unit.dtype};
      }
      device_.kernels().tree_sum(sum, terms_);  // straight from the peers' memory
    });
    sink(begin, sum);
  }
  return {device_, device_.mark()};
}

Pending CanonicalCommunicator::all_gather(Array unit, Bucket bucket, Purpose purpose) {
  const Index slice = slice_of(unit);
  return all_gather(unit, unit.part(rank() * slice, slice), bucket, purpose);
}

Pending CanonicalCommunicator::all_gather(Array unit, ConstArray slice, Bucket bucket, Purpose purpose) {
  Call call(*this, purpose, "all_gather");
  const OnQueue queue(device_, communication_queue());
  place_own(unit, slice, bucket);
  if (size() == 1) return {};
  const Index most = std::min(kGatherBytes, transport_->max_same_block()) / size_of(unit.dtype);
  for (const Bucket part : buckets(bucket.size, most)) {
    const Index begin = bucket.begin + part.begin;
    call.exchange_same(bytes_of(slice.part(begin, part.size)), [&](std::span<const ConstBytes> received) {
      for (int p = 0; p < size(); ++p) {
        if (p == rank()) continue;
        const ConstArray from = {received[static_cast<std::size_t>(p)].data(), part.size, unit.dtype};
        device_.kernels().copy(unit.part(p * slice_of(unit) + begin, part.size), from);
      }
    });
  }
  return {device_, device_.mark()};
}

std::string CanonicalCommunicator::description() const { return "canonical over " + transport_->description(); }

}  // namespace zero
