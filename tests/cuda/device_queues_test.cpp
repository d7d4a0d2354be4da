// Queues of the CUDA device: tied by marks and nothing else. Work runs in every schedule that the order of streams and
// their events allows, so what lacks a wait reads poison or freed memory in one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/cuda/device_case.h"
#include "tests/device/views.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

INSTANTIATE_TEST_SUITE_P(InEverySchedule, CudaDeviceQueues, ::testing::Range(std::size_t{0}, adversaries()));

TEST_P(CudaDeviceQueues, WhatWaitsForAMarkSeesWhatIsBeforeIt) {
  for (int i = 0; i < 20; ++i) {
    const Buffer from = buffer(), to = buffer(), other = buffer();
    Mark written;
    {
      const OnQueue queue(device_, Queue::communication);
      device_.kernels().fill(from.array(), 3.0F);
      written = device_.mark();
      device_.kernels().fill(other.array(), 4.0F);
    }
    const Mark before = device_.mark();
    device_.wait(written);
    device_.kernels().copy(to.part(0, 1), from.part(kSize - 1, 1));
    {
      const OnQueue queue(device_, Queue::copies);
      device_.wait(before);  // of the queue that it was forked from: no more
      device_.wait(written);
      EXPECT_EQ(downloaded(device_, from.array()), all(3.0F));
    }
    device_.wait({Queue::communication, written.number});  // twice
    EXPECT_EQ(downloaded(device_, to.part(0, 1))[0], 3.0F);
    device_.synchronize([&] {
      const OnQueue queue(device_, Queue::communication);
      return device_.mark();
    }());
  }
}

TEST_P(CudaDeviceQueues, AQueueBeginsAfterWhatTheQueueBeforeItHasReached) {
  for (int i = 0; i < 20; ++i) {
    const Buffer from = buffer(), to = buffer();
    device_.kernels().fill(from.array(), 5.0F);
    Mark copied;
    {
      const OnQueue queue(device_, Queue::communication);
      device_.kernels().copy(to.array(), from.array());
      const OnQueue within(device_, Queue::copies);
      EXPECT_EQ(downloaded(device_, to.array()), all(5.0F));
      copied = device_.mark();
    }
    EXPECT_EQ(device_.queue(), Queue::compute);
    device_.wait(copied);
    device_.kernels().fill(from.array(), 6.0F);
    EXPECT_EQ(downloaded(device_, to.array()), all(5.0F));
  }
}

TEST_P(CudaDeviceQueues, CopiesGoDownAndUpBehindWhatThePresentQueueHasReached) {
  const Buffer device = buffer();
  Buffer host = buffer(Tier::host);
  for (const float value : {2.0F, 3.0F}) {
    device_.kernels().fill(device.array(), value);
    const Mark down = device_.copy_down(host.array(), device.array());
    device_.wait(down);
    device_.kernels().fill(device.array(), -1.0F);
    device_.synchronize(down);
    EXPECT_EQ(std::vector<float>(floats(host), floats(host) + kSize), all(value));
    floats(host)[kSize - 1] = 7.0F;
    device_.wait(device_.copy_up(device.array(), host.array()));
    EXPECT_EQ(downloaded(device_, device.array())[kSize - 1], 7.0F);
    EXPECT_EQ(downloaded(device_, device.array())[0], value);
  }
  EXPECT_EQ(device_.transfers().down, 2 * host.array().bytes());
  EXPECT_EQ(device_.transfers().up, 2 * host.array().bytes());
}

TEST_P(CudaDeviceQueues, PinnedMemoryIsFreedWhenTheCopyThatUsesItIsDone) {
  const Buffer device = buffer();
  device_.kernels().fill(device.array(), 2.0F);
  Buffer host = buffer(Tier::host);
  Mark copied = device_.copy_down(host.array(), device.array());
  host.reset();
  device_.synchronize(copied);
  host = device_.allocate(Category::activations, kSize, Dtype::fp32, Tier::host);
  copied = device_.copy_up(device.array(), host.array());
  host.reset();
  device_.wait(copied);
  EXPECT_EQ(downloaded(device_, device.array()), all(0.0F));
}

TEST_P(CudaDeviceQueues, UploadedBytesAreTakenWhenTheCallReturns) {
  constexpr Index kMany = 20000;  // more than the runtime takes without waiting
  const Buffer few = buffer(), many = device_.allocate_uninitialized(Category::activations, kMany);
  std::vector<float> host(static_cast<std::size_t>(kMany), 4.0F);
  const Buffer pinned = buffer(Tier::host);
  std::fill_n(floats(pinned), kSize, 5.0F);
  device_.upload(few.array(), host.data());
  device_.upload(many.array(), host.data());
  std::fill(host.begin(), host.end(), 9.0F);
  EXPECT_EQ(downloaded(device_, few.array()), all(4.0F));
  EXPECT_EQ(downloaded(device_, many.part(kMany - kSize, kSize)), all(4.0F));
  device_.upload(few.array(), floats(pinned));
  std::fill_n(floats(pinned), kSize, 9.0F);
  EXPECT_EQ(downloaded(device_, few.array()), all(5.0F));
  device_.download(floats(pinned), many.part(0, kSize));
  EXPECT_EQ(std::vector<float>(floats(pinned), floats(pinned) + kSize), all(4.0F));
}

TEST_P(CudaDeviceQueues, MemoryComesAndGoesInTheOrderOfComputing) {
  for (int i = 0; i < 20; ++i) {
    Buffer first = buffer();
    device_.kernels().fill(first.array(), 1.0F);
    const Buffer sum = buffer();
    Mark read;
    {
      const OnQueue queue(device_, Queue::communication);
      device_.kernels().copy(sum.array(), first.array());
      read = device_.mark();
    }
    device_.wait(read);
    first.reset();
    const Buffer second = device_.allocate(Category::activations, kSize);
    EXPECT_EQ(downloaded(device_, second.array()), all(0.0F));
    EXPECT_EQ(downloaded(device_, sum.array()), all(1.0F));
  }
}

TEST_P(CudaDeviceQueues, MemoryIsThereForTheQueueThatItIsAllocatedOn) {
  for (int i = 0; i < 20; ++i) {
    const OnQueue queue(device_, Queue::communication);
    const Buffer other = buffer();
    const Buffer zeros = device_.allocate(Category::activations, kSize);
    device_.kernels().fill(other.array(), 1.0F);
    device_.kernels().copy(other.part(0, 1), zeros.part(kSize - 1, 1));
    EXPECT_EQ(downloaded(device_, other.part(0, 2)), (std::vector<float>{0.0F, 1.0F}));
  }
}

TEST_P(CudaDeviceQueues, ResultsOfKernelsComeBackFromThePresentQueue) {
  const Buffer twos = buffer();
  device_.kernels().fill(twos.array(), 2.0F);
  const OnQueue queue(device_, Queue::communication);
  OrderFreeSum sum;
  sum.add(scanned(device_.kernels(), twos.array()).squares);
  EXPECT_EQ(sum.value(), 4.0 * kSize);
  EXPECT_EQ(scanned(device_.kernels(), twos.array()).first_not_finite, ScanResult::kNone);
  EXPECT_EQ(device_.kernels().sum_in_order(twos.array()), 2.0 * kSize);
}

TEST_P(CudaDeviceQueues, AMarkIsStillWaitedForWhenOneBeforeItIsReached) {
  for (int i = 0; i < 20; ++i) {
    const Buffer from = buffer(), to = buffer();
    Mark first, second;
    {
      const OnQueue queue(device_, Queue::communication);
      device_.kernels().fill(from.array(), 1.0F);
      first = device_.mark();
      device_.kernels().fill(from.array(), 2.0F);
      second = device_.mark();
    }
    device_.synchronize(first);
    device_.wait(second);
    device_.kernels().copy(to.array(), from.array());
    EXPECT_EQ(downloaded(device_, to.array()), all(2.0F));
  }
}

TEST_P(CudaDeviceQueues, OfManyMarksEachIsStillWaitedFor) {
  constexpr Index kMarks = 600;
  const Buffer written = device_.allocate_uninitialized(Category::activations, kMarks);
  const Buffer read = device_.allocate_uninitialized(Category::activations, kMarks);
  std::vector<Mark> marks;
  {
    const OnQueue queue(device_, Queue::communication);
    for (Index i = 0; i < kMarks; ++i) {
      device_.kernels().fill(written.part(i, 1), static_cast<float>(i));
      marks.push_back(device_.mark());
    }
  }
  std::vector<float> expected;
  for (Index i = 0; i < kMarks; ++i) {
    device_.wait(marks[static_cast<std::size_t>(i)]);
    device_.kernels().copy(read.part(i, 1), written.part(i, 1));
    expected.push_back(static_cast<float>(i));
  }
  EXPECT_EQ(downloaded(device_, read.array()), expected);
}

TEST_P(CudaDeviceQueues, ThousandsOfMarksKeepTheirMeaning) {
  constexpr Index kLinks = 3000;  // of a chain through two queues: each copies what the one before has written
  const Buffer chain = device_.allocate_uninitialized(Category::activations, kLinks + 1);
  device_.kernels().fill(chain.part(0, 1), 1.0F);
  std::vector<Mark> marks = {Mark{}};
  for (Index i = 1; i <= kLinks; ++i) {
    const OnQueue queue(device_, i % 2 == 0 ? Queue::communication : Queue::copies);
    device_.wait(marks.back());
    device_.kernels().copy(chain.part(i, 1), chain.part(i - 1, 1));
    marks.push_back(device_.mark());
    if (i % 700 == 0) device_.synchronize(marks[static_cast<std::size_t>(i) - 300]);
  }
  for (const Mark mark : marks) device_.wait(mark);
  EXPECT_EQ(downloaded(device_, chain.part(kLinks, 1))[0], 1.0F);
  for (const Mark mark : marks) device_.synchronize(mark);
  EXPECT_THROW(device_.wait({Queue::copies, 1'000'000}), std::logic_error);
  EXPECT_THROW(device_.synchronize({Queue::copies, 1'000'000}), std::logic_error);
}

}  // namespace
}  // namespace zero
