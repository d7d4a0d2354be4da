#include "common/device/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/device/cpu_device.h"

namespace zero {
namespace {

constexpr Index kMiB = Index{1} << 20;

TEST(MemoryLedger, KnowsCurrentAndPeakByTierAndCategory) {
  MemoryLedger ledger;
  ledger.add(Tier::device, Category::parameters, 100);
  ledger.add(Tier::device, Category::gradients, 50);
  ledger.remove(Tier::device, Category::parameters, 100);
  ledger.add(Tier::device, Category::gradients, 20);
  ledger.add(Tier::host, Category::optimizer, 7);
  EXPECT_EQ(ledger.current(Tier::device, Category::parameters), 0);
  EXPECT_EQ(ledger.peak(Tier::device, Category::parameters), 100);
  EXPECT_EQ(ledger.current(Tier::device, Category::gradients), 70);
  EXPECT_EQ(ledger.peak(Tier::device, Category::gradients), 70);
  EXPECT_EQ(ledger.current(Tier::device), 70);
  EXPECT_EQ(ledger.peak(Tier::device), 150) << "held at one time, not the sum of the categories' peaks";
  EXPECT_EQ(ledger.current(Tier::host), 7);
  EXPECT_EQ(ledger.current(Tier::nvme), 0);
}

TEST(MemoryLedger, RefusesInOneSentenceWhatPassesTheCapAndBooksNothing) {
  MemoryLedger ledger;
  ledger.set_cap(Tier::device, 512 * kMiB);
  ledger.add(Tier::device, Category::parameters, 400 * kMiB);
  ledger.add(Tier::device, Category::activations, 100 * kMiB);
  try {
    ledger.add(Tier::device, Category::gathered, 12 * kMiB + 1);
    FAIL() << "the cap was passed";
  } catch (const ResourceFailure& failure) {
    EXPECT_STREQ(failure.what(),
                 "asked for 12.0 MiB (gathered) with 500.0 MiB of 512.0 MiB held on the device (parameters 400.0 MiB, "
                 "activations 100.0 MiB); ask plan what fits");
    EXPECT_EQ(failure.status(), ExitStatus::failed);
  }
  EXPECT_EQ(ledger.current(Tier::device), 500 * kMiB);
  EXPECT_EQ(ledger.peak(Tier::device), 500 * kMiB);
  ledger.add(Tier::device, Category::gathered, 12 * kMiB);  // to the byte
  ledger.add(Tier::host, Category::gathered, 1000 * kMiB);  // another tier has its own cap
  EXPECT_EQ(ledger.cap(Tier::device), 512 * kMiB);
  EXPECT_EQ(ledger.cap(Tier::host), std::nullopt);
}

class CpuDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device(ProductKind::canonical, 1);
  Index held(Category category) { return device->ledger().current(Tier::device, category); }
};

TEST_F(CpuDeviceTest, AllocatesZerosAlignedAndBooked) {
  for (int round = 0; round < 2; ++round) {  // the second round reuses what the first one soiled
    for (const Index size : {1, 33, 5000, 300000}) {
      Buffer buffer = device->allocate(Category::activations, size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.array().data) % 128, 0U);
      EXPECT_EQ(held(Category::activations), 4 * size);
      auto* x = static_cast<float*>(buffer.array().data);
      for (Index i = 0; i < size; ++i) ASSERT_EQ(x[i], 0.0F) << i << " of " << size;
      device->kernels().fill(buffer.array(), 1.0F);
    }
  }
  EXPECT_EQ(held(Category::activations), 0);
}

TEST_F(CpuDeviceTest, EqualSizesHaveEqualOffsetsInAPage) {
  const auto offset = [](const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.array().data) % 4096; };
  const Buffer parameters = device->allocate(Category::parameters, 1000);
  const Buffer other = device->allocate(Category::parameters, 1000);
  const Buffer gathered = device->allocate(Category::gathered, 1000);
  const Buffer gradients = device->allocate(Category::gradients, 1000);
  const Buffer in_flight = device->allocate(Category::gradient_in_flight, 1000);
  EXPECT_EQ(offset(parameters), offset(other));
  EXPECT_EQ(offset(parameters), offset(gathered));
  EXPECT_EQ(offset(gradients), offset(in_flight));
}

TEST_F(CpuDeviceTest, TheStreamsOfAdamWBeginAtDifferentOffsetsInAPage) {
  const auto offset = [](const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.array().data) % 4096; };
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    for (int unit = 0; unit < 4; ++unit) {
      std::vector<Buffer> buffers;
      buffers.push_back(device->allocate(Category::parameters, 1000, dtype));
      buffers.push_back(device->allocate(Category::gradients, 1000, dtype));
      for (int moment = 0; moment < (dtype == Dtype::bf16 ? 3 : 2); ++moment) {  // bf16: the master weights too
        buffers.push_back(device->allocate(Category::optimizer, 1000));
      }
      for (const Buffer& a : buffers) {
        for (const Buffer& b : buffers) EXPECT_TRUE(&a == &b || offset(a) != offset(b));
      }
    }
  }
}

TEST_F(CpuDeviceTest, AnEmptyBufferIsABufferThatHoldsNothing) {
  Buffer buffer = device->allocate(Category::parameters, 0);
  EXPECT_TRUE(buffer);
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_EQ(held(Category::parameters), 0);
  device->kernels().fill(buffer.array(), 1.0F);
  buffer.reset();
  EXPECT_FALSE(buffer);
}

TEST_F(CpuDeviceTest, MovingABufferMovesItsMemoryAndFreesItOnce) {
  Buffer a = device->allocate(Category::gradients, 100);
  void* memory = a.array().data;
  Buffer b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: what a moved-from buffer is, is the point
  EXPECT_EQ(b.array().data, memory);
  EXPECT_EQ(held(Category::gradients), 400);
  Buffer c = device->allocate(Category::activations, 10);
  c = std::move(b);
  EXPECT_EQ(held(Category::activations), 0) << "what it held before is freed";
  EXPECT_EQ(c.array().data, memory);
  Buffer& same = c;
  c = std::move(same);
  EXPECT_EQ(c.array().data, memory);
  c.reset();
  c.reset();
  EXPECT_EQ(held(Category::gradients), 0);
  EXPECT_EQ(device->ledger().peak(Tier::device, Category::gradients), 400);
}

TEST_F(CpuDeviceTest, ACapHoldsForBuffersAndLeavesTheDeviceUsable) {
  device->ledger().set_cap(Tier::device, device->ledger().current(Tier::device) + 1000);
  EXPECT_THROW(auto buffer = device->allocate(Category::parameters, 251), ResourceFailure);
  const Buffer buffer = device->allocate(Category::parameters, 250);
  EXPECT_EQ(held(Category::parameters), 1000);
}

TEST_F(CpuDeviceTest, MemoryThatTheMachineDoesNotHaveIsARefusalAndUnbooked) {
  for (const Index size : {Index{1} << 60, (Index{1} << 62) - 1, std::numeric_limits<Index>::max()}) {
    try {
      const Buffer buffer = device->allocate(Category::parameters, size);
      FAIL() << "allocated " << size;
    } catch (const ResourceFailure& failure) {
      EXPECT_NE(std::string(failure.what()).find("(parameters)"), std::string::npos) << failure.what();
    }
    EXPECT_EQ(held(Category::parameters), 0);
  }
}

TEST_F(CpuDeviceTest, RefusesTheTierItHasNot) {
  EXPECT_THROW(auto buffer = device->allocate(Category::parameters, 1, Dtype::fp32, Tier::nvme), UnusableInput);
  EXPECT_EQ(device->ledger().current(Tier::nvme), 0);
}

TEST_F(CpuDeviceTest, BooksTheWorkspaceOfItsProducts) {
  EXPECT_EQ(held(Category::workspace), 4 * device->products().workspace_elements());
  EXPECT_EQ(device->ledger().current(Tier::device), held(Category::workspace));
}

// Under AddressSanitizer no block is kept, so that it sees every use after the end.
const bool kKeeps = PageBlocks::keeps_freed_blocks();

TEST(PageBlocks, ReuseAFreedBlockOfTheSameSize) {
  PageBlocks blocks;
  bool is_zero = false;
  void* a = blocks.acquire(3 * kMiB, 0, is_zero);
  EXPECT_EQ(is_zero, kKeeps);
  blocks.release(a, 3 * kMiB);
  EXPECT_EQ(blocks.in_use(), 0);
  EXPECT_EQ(blocks.kept(), kKeeps ? 3 * kMiB : 0);
  void* b = blocks.acquire(3 * kMiB, 0, is_zero);
  EXPECT_TRUE(a == b || !kKeeps);
  EXPECT_FALSE(is_zero);
  EXPECT_EQ(blocks.kept(), 0);
  blocks.release(b, 3 * kMiB);
}

TEST(PageBlocks, HoldHardlyMoreThanEverWasInUse) {
  PageBlocks blocks;
  bool is_zero = false;
  for (Index size = 64; size <= 128; ++size) {
    void* block = blocks.acquire(size * kMiB, 0, is_zero);
    EXPECT_LE(blocks.in_use() + blocks.kept(), size * kMiB + size * kMiB / 64 + 8 * kMiB);
    blocks.release(block, size * kMiB);
  }
}

TEST(PageBlocks, AStepThatFreesAndAllocatesTheSameSizesGetsTheSameBlocks) {
  PageBlocks blocks;
  bool is_zero = false;
  void* kept = blocks.acquire(100 * kMiB, 0, is_zero);
  for (int step = 0; step < 3; ++step) {
    void* a = blocks.acquire(30 * kMiB, 0, is_zero);
    EXPECT_EQ(is_zero, kKeeps && step == 0);
    void* b = blocks.acquire(20 * kMiB, 1024, is_zero);
    EXPECT_EQ(is_zero, kKeeps && step == 0);
    blocks.release(a, 30 * kMiB);
    blocks.release(b, 20 * kMiB);
  }
  blocks.release(kept, 100 * kMiB);
}

TEST(PageBlocks, ServeASmallerRequestFromAKeptBlockBeforeTheyHoldMoreThanEverWasInUse) {
  PageBlocks blocks;
  bool is_zero = false;
  for (int step = 0; step < 3; ++step) {
    void* a = blocks.acquire(100 * kMiB, 0, is_zero);
    void* b = blocks.acquire(100 * kMiB, 0, is_zero);
    EXPECT_EQ(is_zero, kKeeps && step == 0);
    blocks.release(a, 100 * kMiB);
    void* c = blocks.acquire(30 * kMiB, 1024, is_zero);
    EXPECT_FALSE(is_zero);
    EXPECT_EQ(blocks.in_use(), 130 * kMiB + 4096);
    EXPECT_TRUE(c == static_cast<std::byte*>(a) + 1024 || !kKeeps);
    blocks.release(c, 30 * kMiB);
    EXPECT_EQ(blocks.kept(), kKeeps ? 100 * kMiB : 0);
    blocks.release(b, 100 * kMiB);
  }
}

TEST(CpuIsa, IsWhatTheEnvironmentAsksForOrARefusal) {
  ASSERT_EQ(setenv("ZERO_CPU_ISA", "generic", 1), 0);
  EXPECT_EQ(cpu_isa(), CpuIsa::generic);
  EXPECT_EQ(make_cpu_device(ProductKind::canonical, 1)->description(), "cpu, generic kernels");
  for (const char* wrong : {"", "sse", "AVX2", "avx2 "}) {
    ASSERT_EQ(setenv("ZERO_CPU_ISA", wrong, 1), 0);
    EXPECT_THROW(cpu_isa(), UnusableInput) << wrong;
  }
  for (const auto& [value, isa] : {std::pair{"avx2", CpuIsa::avx2}, std::pair{"avx512", CpuIsa::avx512}}) {
    ASSERT_EQ(setenv("ZERO_CPU_ISA", value, 1), 0);
    if (available(isa)) {
      EXPECT_EQ(cpu_isa(), isa);
    } else {
      EXPECT_THROW(cpu_isa(), UnusableInput);
    }
  }
  ASSERT_EQ(unsetenv("ZERO_CPU_ISA"), 0);
  EXPECT_TRUE(available(cpu_isa()));
}

}  // namespace
}  // namespace zero
