#include "common/base/thread_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace zero {
namespace {

TEST(ThreadPool, RunsEveryPartOnceInEachOfManyJobs) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int parts = 0; parts < 200; ++parts) {
      std::vector<int> runs(static_cast<std::size_t>(parts), 0);
      pool.parallel_for(parts, [&](int part) { ++runs[static_cast<std::size_t>(part)]; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(parts), 1));
    }
  }
}

TEST(ThreadPool, OfOneThreadUsesTheCallerOnly) {
  ThreadPool pool(1);
  std::set<std::thread::id> seen;
  pool.parallel_for(20, [&](int) { seen.insert(std::this_thread::get_id()); });
  EXPECT_EQ(seen, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(ThreadPool, PassesAnExceptionToTheCallerAndGoesOnWorking) {
  ThreadPool pool(3);
  std::atomic<int> others = 0;
  const auto fail_at_7 = [&](int part) {
    if (part == 7) throw std::out_of_range("part 7");
    ++others;
  };
  EXPECT_THROW(pool.parallel_for(20, fail_at_7), std::out_of_range);
  EXPECT_EQ(others, 19);
  pool.parallel_for(5, [&](int) { ++others; });
  EXPECT_EQ(others, 24);
}

}  // namespace
}  // namespace zero
