#include "tests/support/mpi_main.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "common/comm/process.h"

namespace zero::testing {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

Group::Group(int size) {
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() / size, world_rank(), &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

Group::~Group() { MPI_Comm_free(&comm_); }

namespace {

/// Says what failed and where; nothing else.
class FailurePrinter : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s, %s:%d: %s\n", world_rank(), test_.c_str(),
                 result.file_name() == nullptr ? "" : result.file_name(), result.line_number(), result.message());
  }

  std::string test_;  // GoogleTest holds a lock while it reports, so it cannot be asked then
};

}  // namespace
}  // namespace zero::testing

int main(int argc, char** argv) {
  const zero::MpiProcess process(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  if (process.rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new zero::testing::FailurePrinter);
  }
  int result = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return result;
}
