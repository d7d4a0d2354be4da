#include <stdexcept>
#include <utility>

#include "common/comm/collectives.h"

namespace zero {
namespace {

int count_of(Index elements) { return static_cast<int>(elements); }  // parts are made so that N of them fit an int

}  // namespace

NativeCommunicator::NativeCommunicator(MPI_Comm ranks, std::unique_ptr<Transport> transport, Device& device, Buffer sum,
                                       Buffer packed)
    : Communicator(std::move(transport), device), comm_(ranks), sum_(std::move(sum)), packed_(std::move(packed)) {}

void NativeCommunicator::wait_for_all(Call& call) {
  call.exchange_same({}, [](std::span<const ConstBytes>) {});
}

void NativeCommunicator::check_packed(Bucket part) const {
  if (packed_.size() < size() * part.size) throw std::length_error("this communicator was made for whole slices");
}

void NativeCommunicator::reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) {
  Call call(*this, purpose, "reduce_scatter");
  const Index slice = slice_of(unit);
  for (const Bucket part : buckets(bucket.size, sum_.size())) {
    const Index begin = bucket.begin + part.begin;
    const Array sum = sum_.part(0, part.size);
    ConstArray from = unit;
    if (part.size < slice ||
        unit.dtype != Dtype::fp32) {  // MPI wants the N parts one after the other, and knows no bf16
      check_packed(part);
      for (int p = 0; p < size(); ++p) {
        device_.kernels().copy(packed_.part(p * part.size, part.size), unit.part(p * slice + begin, part.size));
      }
      from = packed_.part(0, size() * part.size);
    }
    wait_for_all(call);
    check_mpi(MPI_Reduce_scatter_block(from.data, sum.data, count_of(part.size), MPI_FLOAT, MPI_SUM, comm_.get()),
              "MPI_Reduce_scatter_block");
    sink(begin, sum);
  }
}

Pending NativeCommunicator::all_gather(Array unit, Bucket bucket, Purpose purpose) {
  const Index slice = slice_of(unit);
  return all_gather(unit, unit.part(rank() * slice, slice), bucket, purpose);
}

Pending NativeCommunicator::all_gather(Array unit, ConstArray slice_data, Bucket bucket, Purpose purpose) {
  Call call(*this, purpose, "all_gather");
  place_own(unit, slice_data, bucket);
  const Index slice = slice_of(unit);
  const MPI_Datatype element = unit.dtype == Dtype::fp32 ? MPI_FLOAT : MPI_UINT16_T;
  for (const Bucket part : buckets(bucket.size, sum_.size())) {
    const int count = count_of(part.size);
    wait_for_all(call);
    if (part.size == slice) {
      check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, unit.data, count, element, comm_.get()),
                "MPI_Allgather");
      continue;
    }
    check_packed(part);
    const Array packed = {packed_.array().data, size() * part.size, unit.dtype};
    const auto columns_of = [&](int p) { return unit.part(p * slice + bucket.begin + part.begin, part.size); };
    check_mpi(MPI_Allgather(columns_of(rank()).data, count, element, packed.data, count, element, comm_.get()),
              "MPI_Allgather");
    for (int p = 0; p < size(); ++p) {
      if (p != rank()) device_.kernels().copy(columns_of(p), packed.part(p * part.size, part.size));
    }
  }
  return {};
}

std::string NativeCommunicator::description() const { return "native (Open MPI's reductions, in its own order)"; }

}  // namespace zero
