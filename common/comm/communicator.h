#pragma once
/// \file
/// The collectives of ZeRO over a transport, with the byte ledger. Communication moves bytes; every sum is ours and in
/// a stated order.

#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/transport.h"
#include "common/device/device.h"

namespace zero {

/// What bytes are sent for. `control` (digests, agreement on errors, verification) is not part of a step and is not
/// reported.
enum class Purpose { gradients, gradients_across, parameters, scalars, control };
inline constexpr int kPurposes = 5;
std::string_view name(Purpose purpose);

/// What a rank has sent for one purpose since the ledger was cleared.
struct Traffic {
  std::string collective;  ///< "reduce_scatter", "all_gather", "reduce_scatter + all_gather"
  Index sent = 0;          ///< payload bytes that left this rank
  Index calls = 0;         ///< collectives
};

/// A range of columns [begin, begin + size) of a unit's N x slice view: what one collective moves.
struct Bucket {
  Index begin = 0;
  Index size = 0;
};

/// The buckets of a slice of `slice` elements, each at most `largest` elements (at least 1): whole blocks first, the
/// rest last. One bucket when `largest >= slice`.
std::vector<Bucket> buckets(Index slice, Index largest);

/// `--collectives`
enum class CollectiveKind { canonical, ring, native };

/// A collective that has been started. On a device without queues it is complete at once; wait() is where the algorithm
/// needs its result, or takes away what the collective reads.
class Pending {
 public:
  Pending() = default;
  Pending(Device& device, Mark mark) : device_(mark.number == 0 ? nullptr : &device), mark_(mark) {}

  [[nodiscard]] bool is_complete() const { return device_ == nullptr; }
  /// What is queued on the device from now on runs after the collective.
  void wait() {
    if (device_ != nullptr) device_->wait(mark_);
    device_ = nullptr;
  }

 private:
  Device* device_ = nullptr;
  Mark mark_;
};

/// The sums of canonical and ring are passed on in parts of at most this many bytes, which stay in the cache between
/// being summed and being used.
inline constexpr Index kSumBytes = Index{256} << 10;

/// all_gather of canonical goes in parts of at most this many bytes of a slice.
inline constexpr Index kGatherBytes = Index{256} << 10;

/// What tests lower to see many parts in little data.
struct CommLimits {
  Index staging_bytes = kStagingBytes;  ///< of the transport, on each rank
  Index mpi_count = INT_MAX;            ///< elements that one MPI reduction or gather may move over all ranks
  Dtype dtype = Dtype::fp32;            ///< of the units that are moved
};

/// Collectives of one communicator. Not thread-safe. All calls are collective: same order, same sizes on all ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// Works on Queue::communication of the device, where there are two or more ranks. Receives sum, fp32, the elements
  /// [begin, begin + sum.size) of this rank's slice, summed over the ranks. `sum` is valid for what is queued during
  /// the call. Called for consecutive parts of the bucket. With one rank and fp32 `sum` is that part of the unit
  /// itself.
  using Sink = std::function<void(Index begin, Array sum)>;

  /// Sums the bucket over ranks; every rank gets its own slice's columns:
  /// \code
  ///   for i in bucket:  sum[i] = tree over ranks r of unit_of_rank_r[rank() * slice + i],  slice = unit.size / size()
  /// \endcode
  /// canonical: tree order. ring: ring order (rank()+1, rank()+2, ... , rank()). native: MPI_Reduce_scatter_block's.
  /// `unit` is a flat unit of size() equal slices; the sink may overwrite this rank's own slice of it.
  /// One rank: the sink gets its own elements. Sends (N-1) * bucket.size elements.
  virtual Pending reduce_scatter(ConstArray unit, Bucket bucket, Purpose purpose, const Sink& sink) = 0;

  /// Every rank's columns of the bucket, from its own slice of `unit`, to all ranks, in place:
  /// \code
  ///   for r, i in bucket:  unit[r * slice + i] = unit_of_rank_r[r * slice + i]
  /// \endcode
  /// Sends (N-1) * bucket.size elements.
  virtual Pending all_gather(Array unit, Bucket bucket, Purpose purpose) = 0;

  /// Like all_gather, but this rank's slice comes from `slice` (and is copied into its place in `unit`).
  virtual Pending all_gather(Array unit, ConstArray slice, Bucket bucket, Purpose purpose) = 0;

  /// Adds `values` (fp32) over the ranks, in place, on every rank:
  /// \code
  ///   values[i] = tree over ranks r of values_of_rank_r[i]
  /// \endcode
  /// Every rank sends all its values to every other, (N-1) * values.size elements, and adds for itself: for the few
  /// ranks that hold the same slice in different groups. On the device's present queue. One rank: nothing.
  virtual void all_reduce(Array values, Purpose purpose);

  /// The `mine.size()` bytes of every rank (the same number on all), one after the other in rank order. Small data.
  std::vector<std::byte> gather_bytes(ConstBytes mine, Purpose purpose, const char* what);

  /// gather_bytes for a trivially copyable value.
  template <typename T>
  std::vector<T> gather(const T& mine, Purpose purpose, const char* what) {
    const auto bytes = gather_bytes(std::as_bytes(std::span(&mine, 1)), purpose, what);
    std::vector<T> all(static_cast<std::size_t>(size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  /// Waits for all ranks.
  void barrier();

  [[nodiscard]] const Traffic& traffic(Purpose purpose) const { return traffic_[static_cast<std::size_t>(purpose)]; }
  /// Starts the counts of a step at zero.
  void clear_traffic();
  /// Seconds spent inside collectives, waits and sinks included and control apart, since clear_traffic().
  [[nodiscard]] double seconds() const { return seconds_; }
  /// False under native: a library's bytes are not seen.
  [[nodiscard]] virtual bool counts_bytes() const { return true; }
  /// For the plan: "canonical over shared memory windows, 4 MiB a rank".
  [[nodiscard]] virtual std::string description() const = 0;

 protected:
  Communicator(std::unique_ptr<Transport> transport, Device& device);

  /// One collective while it runs: counts it, measures it, and is its only way to the transport, where bytes are
  /// counted.
  class Call {
   public:
    /// `collective` is booked with the purpose; `what` names it for the watchdog, "COLLECTIVE of PURPOSE" when null.
    Call(Communicator& communicator, Purpose purpose, std::string_view collective, const char* what = nullptr);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void exchange(std::span<const ConstBytes> offered, std::span<const std::size_t> expected,
                  const Transport::Consume& consume);
    void exchange_same(ConstBytes offered, const Transport::Consume& consume);
    /// The same between hosts, for what lies in host memory.
    void exchange_same_of_hosts(ConstBytes offered, const Transport::Consume& consume);

   private:
    void exchange_same_by(Transport& transport, ConstBytes offered, const Transport::Consume& consume);

    using Clock = std::chrono::steady_clock;
    Communicator& communicator_;
    Purpose purpose_;
    std::string what_;
    Clock::time_point start_ = Clock::now();
  };

  /// Where collectives work: one rank has nothing to do beside its computing.
  [[nodiscard]] Queue communication_queue() const { return size_ == 1 ? device_.queue() : Queue::communication; }
  /// Elements of one slice of `unit`.
  [[nodiscard]] Index slice_of(ConstArray unit) const { return unit.size / size_; }
  /// Copies the bucket of `slice` into its place in `unit`, unless it stands there.
  void place_own(Array unit, ConstArray slice, Bucket bucket);

  std::unique_ptr<Transport> transport_;
  Device& device_;
  int rank_ = 0;
  int size_ = 1;
  std::array<Traffic, kPurposes> traffic_{};
  double seconds_ = 0;
};

/// Makes the communicator over `ranks`. With one rank every kind is the same, MPI is not called, and nothing is held
/// but kSumBytes where units are not fp32. Else each rank holds, as Category::buckets and for as long as the
/// communicator lives, the transport's kStagingBytes, and besides: canonical and ring kSumBytes; native a bucket of
/// sums, and N buckets to pack into where a bucket is less than a slice or units are not fp32 (MPI adds no bf16, so
/// that they are widened first) (4 * largest_bucket and 4 * N * largest_bucket bytes, by the largest slice and the
/// largest bucket of any unit, in elements of one slice; less where a bucket over N ranks exceeds `limits.mpi_count`).
/// Collective, and so is its destruction; all ranks throw alike (UnusableInput, ResourceFailure).
std::unique_ptr<Communicator> make_communicator(MPI_Comm ranks, CollectiveKind kind, TransportKind transport,
                                                Device& device, double timeout_seconds, Index largest_slice,
                                                Index largest_bucket, CommLimits limits = {});

}  // namespace zero
