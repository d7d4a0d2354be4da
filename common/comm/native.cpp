#include <stdexcept>
#include <utility>

#include "common/comm/collectives.h"

namespace zero {
namespace {

int count_of(Index elements) { return static_cast<int>(elements); }  // parts are made so that N of them fit an int

class MpiCollectives final : public LibraryCollectives {
 public:
  explicit MpiCollectives(MPI_Comm ranks) : comm_(ranks) {}

  void reduce_scatter(Array sum, ConstArray terms) override {
    check_mpi(MPI_Reduce_scatter_block(terms.data, sum.data, count_of(sum.size), MPI_FLOAT, MPI_SUM, comm_.get()),
              "MPI_Reduce_scatter_block");
  }

  void all_gather(Array all, ConstArray mine) override {
    const MPI_Datatype element = all.dtype == Dtype::fp32 ? MPI_FLOAT : MPI_UINT16_T;
    const int count = count_of(mine.size);
    if (mine.data == all.part(comm_.rank() * mine.size, 0).data) {
      check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data, count, element, comm_.get()),
                "MPI_Allgather");
    } else {
      check_mpi(MPI_Allgather(mine.data, count, element, all.data, count, element, comm_.get()), "MPI_Allgather");
    }
  }

  [[nodiscard]] std::string description() const override { return "Open MPI"; }

 private:
  OwnedComm comm_;
};

}  // namespace

std::unique_ptr<LibraryCollectives> make_mpi_collectives(MPI_Comm ranks) {
  return std::make_unique<MpiCollectives>(ranks);
}

NativeCommunicator::NativeCommunicator(std::unique_ptr<Transport> transport,
                                       std::unique_ptr<LibraryCollectives> library, Device& device, Buffer sum,
                                       Buffer packed)
    : Communicator(std::move(transport), device),
      library_(std::move(library)),
      sum_(std::move(sum)),
      packed_(std::move(packed)) {}

void NativeCommunicator::wait_for_all(Call& call) {
  call.exchange_same_of_hosts({}, [](std::span<const ConstBytes>) {});
}

void NativeCommunicator::check_packed(Bucket part) const {
  if (packed_.size() < size() * part.size) throw std::length_error("this communicator was made for whole slices");
}

Pending NativeCommunicator::reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) {
  Call call(*this, purpose, "reduce_scatter");
  const OnQueue queue(device_, communication_queue());
  const Index slice = slice_of(unit);
  for (const Bucket part : buckets(bucket.size, sum_.size())) {
    const Index begin = bucket.begin + part.begin;
    const Array sum = sum_.part(0, part.size);
    ConstArray from = unit;
    if (part.size < slice || unit.dtype != Dtype::fp32) {  // the library wants the N parts one after the other, in fp32
      check_packed(part);
      for (int p = 0; p < size(); ++p) {
        device_.kernels().copy(packed_.part(p * part.size, part.size), unit.part(p * slice + begin, part.size));
      }
      from = packed_.part(0, size() * part.size);
    }
    wait_for_all(call);
    library_->reduce_scatter(sum, from);
    sink(begin, sum);
  }
  return {device_, device_.mark()};
}

Pending NativeCommunicator::all_gather(Array unit, Bucket bucket, Purpose purpose) {
  const Index slice = slice_of(unit);
  return all_gather(unit, unit.part(rank() * slice, slice), bucket, purpose);
}

Pending NativeCommunicator::all_gather(Array unit, ConstArray slice_data, Bucket bucket, Purpose purpose) {
  Call call(*this, purpose, "all_gather");
  const OnQueue queue(device_, communication_queue());
  place_own(unit, slice_data, bucket);
  const Index slice = slice_of(unit);
  for (const Bucket part : buckets(bucket.size, sum_.size())) {
    wait_for_all(call);
    if (part.size == slice) {
      library_->all_gather(unit, unit.part(rank() * slice, slice));
      continue;
    }
    check_packed(part);
    const Array packed = {packed_.array().data, size() * part.size, unit.dtype};
    const auto columns_of = [&](int p) { return unit.part(p * slice + bucket.begin + part.begin, part.size); };
    library_->all_gather(packed, columns_of(rank()));
    for (int p = 0; p < size(); ++p) {
      if (p != rank()) device_.kernels().copy(columns_of(p), packed.part(p * part.size, part.size));
    }
  }
  return {device_, device_.mark()};
}

std::string NativeCommunicator::description() const {
  return "native (the reductions of " + library_->description() + ", in its own order)";
}

}  // namespace zero
