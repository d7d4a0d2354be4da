#pragma once
/// \file
/// The three implementations behind make_communicator().

#include <vector>

#include "common/comm/communicator.h"

namespace zero {

inline ConstBytes bytes_of(ConstArray array) {
  return {static_cast<const std::byte*>(array.data), static_cast<std::size_t>(array.bytes())};
}

/// Sums in tree order, over one exchange for each part of a bucket. `sum` holds one part.
class CanonicalCommunicator : public Communicator {
 public:
  CanonicalCommunicator(std::unique_ptr<Transport> transport, Device& device, Buffer sum);
  Pending reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) override;
  Pending all_gather(Array unit, Bucket bucket, Purpose purpose) override;
  Pending all_gather(Array unit, ConstArray slice, Bucket bucket, Purpose purpose) override;
  [[nodiscard]] std::string description() const override;

 private:
  Buffer sum_;
  std::vector<ConstBytes> offered_;    ///< one for each rank
  std::vector<std::size_t> expected_;  ///< bytes of them
  std::vector<ConstArray> terms_;      ///< one for each rank
};

/// The textbook ring: N - 1 steps, each to the right neighbour and from the left one. `sum` holds one part.
class RingCommunicator : public Communicator {
 public:
  RingCommunicator(std::unique_ptr<Transport> transport, Device& device, Buffer sum);
  Pending reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) override;
  Pending all_gather(Array unit, Bucket bucket, Purpose purpose) override;
  Pending all_gather(Array unit, ConstArray slice, Bucket bucket, Purpose purpose) override;
  [[nodiscard]] std::string description() const override;

 private:
  /// Offers `block` to the right neighbour and nothing to the others; what comes from the left one.
  void pass(Call& call, ConstArray block, const std::function<void(ConstArray from_left)>& consume);
  /// The rank `distance` >= 0 steps to the left in the ring.
  [[nodiscard]] int left(int distance) const { return (rank() - distance % size() + size()) % size(); }

  Buffer sum_;
  std::vector<ConstBytes> offered_;    ///< one for each rank
  std::vector<std::size_t> expected_;  ///< bytes of them
};

/// A library's own collectives, on memory of the device, queued on its present queue.
class LibraryCollectives {
 public:
  virtual ~LibraryCollectives() = default;
  /// sum[i] = the sum over ranks r of terms_of_r[rank * sum.size + i], fp32, in the library's own order.
  virtual void reduce_scatter(Array sum, ConstArray terms) = 0;
  /// all[r * mine.size + i] = mine_of_r[i]; `mine` may be in its place in `all`.
  virtual void all_gather(Array all, ConstArray mine) = 0;
  /// "Open MPI"
  [[nodiscard]] virtual std::string description() const = 0;
};

/// MPI_Reduce_scatter_block and MPI_Allgather over the ranks of `ranks` (duplicated). Collective.
std::unique_ptr<LibraryCollectives> make_mpi_collectives(MPI_Comm ranks);

/// Those of the library behind a transport of make_device_transport(), which outlives them. Throws UnusableInput where
/// it goes through host memory. Defined as that is.
std::unique_ptr<LibraryCollectives> make_device_collectives(Transport& transport);

/// Sums in the order of a library. `sum` holds a part of a slice, `packed` N parts (nothing when a part is always a
/// whole slice). A part is the largest that `sum` holds.
class NativeCommunicator : public Communicator {
 public:
  NativeCommunicator(std::unique_ptr<Transport> transport, std::unique_ptr<LibraryCollectives> library, Device& device,
                     Buffer sum, Buffer packed);
  Pending reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) override;
  Pending all_gather(Array unit, Bucket bucket, Purpose purpose) override;
  Pending all_gather(Array unit, ConstArray slice, Bucket bucket, Purpose purpose) override;
  [[nodiscard]] bool counts_bytes() const override { return false; }
  [[nodiscard]] std::string description() const override;

 private:
  /// A library's collectives have no watchdog: this comes before each of them, and has one.
  void wait_for_all(Call& call);
  void check_packed(Bucket part) const;

  std::unique_ptr<LibraryCollectives> library_;
  Buffer sum_;
  Buffer packed_;
};

}  // namespace zero
