// The collectives on GPUs give the bits of the CPU's, whichever way the bytes go. Nothing here is of a fake: the
// program that is linked with CUDA runs it on GPUs.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/comm/communicator.h"
#include "common/device/scalar_math.h"
#include "tests/comm/comm_data.h"
#include "tests/support/mpi_main.h"

namespace zero::testing {
namespace {

const CommLimits kTiny = {4096, 1000};  // blocks of some hundred bytes

/// A unit, whole slices of which are of ranks, in the memory of a device.
class Unit {
 public:
  Unit(Device& device, Index size, Dtype dtype = Dtype::fp32)
      : device_(device), buffer_(device.allocate_uninitialized(Category::workspace, size, dtype)) {}

  /// Of fp32 values, rounded.
  Unit(Device& device, const std::vector<float>& values, Dtype dtype = Dtype::fp32)
      : Unit(device, static_cast<Index>(values.size()), dtype) {
    std::vector<Bf16> rounded;
    for (const float value : values) rounded.push_back(from_float<Bf16>(value));
    if (dtype == Dtype::bf16) {
      device_.upload(array(), rounded.data());
    } else {
      device_.upload(array(), values.data());
    }
  }

  [[nodiscard]] Array array() const { return buffer_.array(); }
  [[nodiscard]] std::vector<std::byte> bits() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(array().bytes()));
    device_.download(bytes.data(), array());
    return bytes;
  }

 private:
  Device& device_;
  Buffer buffer_;
};

/// One world of ranks, one communicator on each kind of device for it.
struct Case {
  const Group& group;
  Index slice, largest_bucket;
  Dtype dtype;
  CommLimits limits;

  [[nodiscard]] std::vector<float> values(Element element) const {
    return unit_of(group.rank(), slice * group.size(), element);
  }
};

/// Every N that the ranks can make, ordinary and tiny limits, slices in several buckets or one, both types.
void for_every_case(const std::function<void(const Case&)>& check) {
  for (int n = 1; n <= world_size(); ++n) {
    const Group group(n);
    for (CommLimits limits : {CommLimits{}, kTiny}) {
      for (const auto& [slice, largest] : {std::pair<Index, Index>{224, 100}, {1600, 1600}, {1599, 999}}) {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
          limits.dtype = dtype;
          SCOPED_TRACE("N " + std::to_string(group.size()) + ", slice " + std::to_string(slice) + ", bucket " +
                       std::to_string(largest) + ", staging " + std::to_string(limits.staging_bytes) + ", bytes " +
                       std::to_string(size_of(dtype)));
          check({group, slice, largest, dtype, limits});
        }
      }
    }
  }
}

/// A run of collectives on a device: bits that must not depend on the device.
using Program = std::function<std::vector<std::byte>(const Case&, Device&, Communicator&)>;

/// The GPU's bits are the CPU's, and so is what is sent.
void expect_bits_of_cpu(CollectiveKind kind, const Program& run) {
  const auto cpu = make_cpu_device(ProductKind::canonical, 1);
  const auto gpu = make_cuda_device(ProductKind::canonical, world_rank());
  for_every_case([&](const Case& c) {
    std::vector<std::byte> bits[2];
    Traffic traffic[2];
    for (Device* device : {cpu.get(), gpu.get()}) {
      const int i = device == gpu.get() ? 1 : 0;
      const auto communicator = make_communicator(c.group.comm(), kind, TransportKind::automatic, *device, kTimeout,
                                                  c.slice, c.largest_bucket, c.limits);
      bits[i] = run(c, *device, *communicator);
      traffic[i] = communicator->traffic(Purpose::gradients);
    }
    EXPECT_TRUE(bits[0] == bits[1]);
    EXPECT_EQ(traffic[0].sent, traffic[1].sent);
    EXPECT_EQ(traffic[0].calls, traffic[1].calls);
    EXPECT_EQ(traffic[0].collective, traffic[1].collective);
  });
}

/// The sums of this rank's slice, bucket by bucket, each waited for only after all were started.
std::vector<std::byte> reduce_scatter(const Case& c, Device& device, Communicator& communicator, Element element) {
  const Unit unit(device, c.values(element), c.dtype);
  const Unit sums(device, c.slice);
  std::vector<Pending> pending;
  for (const Bucket bucket : buckets(c.slice, c.largest_bucket)) {
    pending.push_back(
        communicator.reduce_scatter(unit.array(), bucket, Purpose::gradients, [&](Index begin, Array sum) {
          device.kernels().copy(sums.array().part(begin, sum.size), sum);
          device.kernels().fill(unit.array().part(c.group.rank() * c.slice + begin, sum.size), -3);
        }));
  }
  for (Pending& one : pending) one.wait();
  return sums.bits();
}

/// Every rank's slice at every rank, from its place in the unit and from elsewhere.
std::vector<std::byte> all_gather(const Case& c, Device& device, Communicator& communicator) {
  const std::vector<float> values = unit_of(c.group.rank(), c.slice, rough);
  const Unit slice(device, values, c.dtype);
  std::vector<std::byte> bits;
  for (const bool in_place : {false, true}) {
    const Unit unit(device, c.slice * c.group.size(), c.dtype);
    device.kernels().fill(unit.array(), -1);
    if (in_place) device.kernels().copy(unit.array().part(c.group.rank() * c.slice, c.slice), slice.array());
    std::vector<Pending> pending;
    for (const Bucket bucket : buckets(c.slice, c.largest_bucket)) {
      pending.push_back(in_place ? communicator.all_gather(unit.array(), bucket, Purpose::gradients)
                                 : communicator.all_gather(unit.array(), slice.array(), bucket, Purpose::gradients));
    }
    for (Pending& one : pending) one.wait();
    const auto gathered = unit.bits();
    bits.insert(bits.end(), gathered.begin(), gathered.end());
  }
  return bits;
}

TEST(CollectivesOnGpu, OfCanonicalGiveTheCpusBits) {
  expect_bits_of_cpu(CollectiveKind::canonical, [](const Case& c, Device& device, Communicator& communicator) {
    return reduce_scatter(c, device, communicator, rough);
  });
  expect_bits_of_cpu(CollectiveKind::canonical, all_gather);
}

TEST(CollectivesOnGpu, OfRingGiveTheCpusBits) {
  expect_bits_of_cpu(CollectiveKind::ring, [](const Case& c, Device& device, Communicator& communicator) {
    // Ring passes on fp32 sums only.
    const Case wide = {c.group, c.slice, c.largest_bucket, Dtype::fp32, c.limits};
    return reduce_scatter(wide, device, communicator, rough);
  });
  expect_bits_of_cpu(CollectiveKind::ring, all_gather);
}

TEST(CollectivesOnGpu, AddOverAllRanksInPlaceAsTheCpuDoes) {
  expect_bits_of_cpu(CollectiveKind::canonical, [](const Case& c, Device& device, Communicator& communicator) {
    const Unit unit(device, c.values(rough));
    {
      const OnQueue queue(device, Queue::communication);
      communicator.all_reduce(unit.array(), Purpose::gradients);
      Pending(device, device.mark()).wait();
      device.synchronize(device.mark());
    }
    return unit.bits();
  });
}

/// Whether the GPUs are enough for a library's own collectives.
bool has_native() {
  const auto gpu = make_cuda_device(ProductKind::canonical, world_rank());
  const auto transport = make_transport(MPI_COMM_WORLD, TransportKind::automatic, *gpu, kTimeout);
  return transport->description().starts_with("NCCL");
}

TEST(CollectivesOnGpu, OfNativeGiveTheExactSumOfSmallIntegers) {
  const Program reduce = [](const Case& c, Device& device, Communicator& communicator) {
    return reduce_scatter(c, device, communicator, smooth);
  };
  if (has_native()) {
    expect_bits_of_cpu(CollectiveKind::native, reduce);
    expect_bits_of_cpu(CollectiveKind::native, all_gather);
    return;
  }
  const auto gpu = make_cuda_device(ProductKind::canonical, world_rank());
  EXPECT_THROW(
      make_communicator(MPI_COMM_WORLD, CollectiveKind::native, TransportKind::automatic, *gpu, kTimeout, 32, 32),
      UnusableInput);
}

TEST(CollectivesOnGpu, OfSeveralMegabytesGiveTheCpusBits) {
  const auto cpu = make_cpu_device(ProductKind::canonical, 1);
  const auto gpu = make_cuda_device(ProductKind::canonical, world_rank());
  const Group group(world_size());
  const Case c = {group, 200003, 200003, Dtype::fp32, {}};
  std::vector<std::byte> bits[2];
  for (Device* device : {cpu.get(), gpu.get()}) {
    const auto communicator = make_communicator(group.comm(), CollectiveKind::canonical, TransportKind::automatic,
                                                *device, kTimeout, c.slice, c.largest_bucket);
    auto& of = bits[device == gpu.get() ? 1 : 0];
    of = reduce_scatter(c, *device, *communicator, rough);
    const auto gathered = all_gather(c, *device, *communicator);
    of.insert(of.end(), gathered.begin(), gathered.end());
  }
  EXPECT_TRUE(bits[0] == bits[1]);
}

TEST(CollectivesOnGpu, GatherBytesOfTheHostAndMeet) {
  const auto gpu = make_cuda_device(ProductKind::canonical, world_rank());
  for (int n = 1; n <= world_size(); ++n) {
    const Group group(n);
    const auto communicator = make_communicator(group.comm(), CollectiveKind::canonical, TransportKind::automatic, *gpu,
                                                kTimeout, 32, 32, kTiny);
    const std::vector<std::byte> mine(10001, static_cast<std::byte>(group.rank() + 1));
    const auto all = communicator->gather_bytes(mine, Purpose::scalars, "a test");
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(static_cast<std::size_t>(all[i]), i / mine.size() + 1);
    communicator->barrier();
  }
}

}  // namespace
}  // namespace zero::testing
