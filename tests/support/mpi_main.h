#pragma once
/// \file
/// The main function of tests that run on several ranks (link mpi_main.cpp), and groups of ranks for them. A failure on
/// any rank is printed with its rank and fails the program.

#include "common/comm/mpi_api.h"

namespace zero::testing {

int world_rank();
int world_size();

/// The ranks of MPI_COMM_WORLD cut into groups of at most `size`, in rank order: this rank's group. All groups work at
/// the same time, the last one maybe with fewer ranks. Made and freed by all ranks together.
class Group {
 public:
  explicit Group(int size);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace zero::testing
