#include "common/train/verify.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/train/run.h"

namespace zero {
namespace {

constexpr Index kBlock = 8192;  ///< elements of a message: 32 KiB
constexpr int kTag = 1;

/// Announces a part of a tensor; `kind` -1 ends a rank's state.
struct Header {
  Index kind = -1;
  Index tensor = 0;
  Index begin = 0;
  Index size = 0;
};

std::string when(Index t) { return t == 0 ? "before step 1" : fmt::format("step {}", t); }

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

double difference(float a, float b) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

/// Waits without taking the core from rank 0, which computes meanwhile.
void wait_for_rank0(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  char go = 0;
  check_mpi(MPI_Irecv(&go, 1, MPI_CHAR, 0, kTag, comm, &request), "MPI_Irecv");
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

template <typename Show>
void for_each_part(const Trainer& trainer, Show show) {
  trainer.visit_state([&](StateKind kind, const UnitView& view) {
    for (const TensorPart& part : trainer.units()[view.unit].parts(view.begin, view.values.size)) {
      show(kind, part, static_cast<const float*>(view.values.data) + (part.flat_begin - view.begin));
    }
  });
}

}  // namespace

struct Verifier::Reference {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> comm;
  Timers timers;
  std::unique_ptr<Trainer> trainer;
};

/// What the baseline holds after a step, and what was found so far in comparing with it.
struct Verifier::Comparison {
  struct Tensor {
    const TensorSpec* spec;
    const float* values;
  };
  std::map<std::pair<Index, Index>, Tensor> tensors;  ///< by kind and tensor
  Index step;
  double largest = 0;
  std::string first;  ///< the first difference, in words
  std::array<Index, kStateKinds> compared{};

  Comparison(const Trainer& reference, Index t) : step(t) {
    for_each_part(reference, [&](StateKind kind, const TensorPart& part, const float* values) {
      tensors[{static_cast<Index>(kind), part.tensor->id}] = {part.tensor, values};
    });
  }

  /// Compares elements [begin, begin + size) of a tensor as rank `rank` keeps them.
  void add(int rank, const Header& part, Index begin, const float* values, Index size) {
    compared[part.kind] += size;
    const auto found = tensors.find({part.kind, part.tensor});
    if (found == tensors.end()) return;  // check_complete() finds the counts different
    const Tensor& tensor = found->second;
    if (std::memcmp(values, tensor.values + begin, static_cast<std::size_t>(size) * sizeof(float)) == 0) return;
    for (Index i = 0; i < size; ++i) {
      const float expected = tensor.values[begin + i];
      largest = std::max(largest, difference(values[i], expected));
      const bool bits_differ = std::bit_cast<std::uint32_t>(values[i]) != std::bit_cast<std::uint32_t>(expected);
      if (!first.empty() || !bits_differ) continue;
      first =
          fmt::format("{}: {} of {}, element {}, is {} on rank {} and {} in the baseline", when(step),
                      name(static_cast<StateKind>(part.kind)), tensor.spec->name, begin + i, values[i], rank, expected);
    }
  }

  /// Whether each kind was compared wholly: once where it is sharded, once per rank where it is copied.
  void check_complete(int ranks) const {
    for (int kind = 0; kind < kStateKinds; ++kind) {
      Index elements = 0;
      for (const auto& [key, tensor] : tensors) elements += key.first == kind ? tensor.spec->size : 0;
      if (compared[kind] == elements || compared[kind] == ranks * elements) continue;
      throw ResultFailure(fmt::format("{}: the ranks keep {} elements of {}, and the baseline has {}", when(step),
                                      compared[kind], name(static_cast<StateKind>(kind)), elements));
    }
  }
};

Verifier::Verifier(const Ranks& ranks, const Options& options, Index world, const Sampler& sampler, bool exact)
    : ranks_(ranks), exact_(exact) {
  on_rank0(ranks_, [&] {
    auto reference = std::make_unique<Reference>();
    reference->device = make_cpu_device(options.products, options.threads);
    reference->comm = make_communicator(MPI_COMM_SELF, CollectiveKind::canonical, TransportKind::automatic,
                                        *reference->device, options.timeout_seconds, 0, 0);
    reference->trainer = make_reference_trainer(
        make_context(options, world, *reference->device, *reference->comm, sampler, reference->timers));
    reference_ = std::move(reference);
  });
}

Verifier::~Verifier() = default;

void Verifier::run_reference(Index t, const StepResult& mine) {
  if (t == 0) return;
  expected_ = reference_->trainer->train_step(t);
  if (!exact_) return;
  const auto compare = [&](const char* what, double got, double expected) {
    if (same(got, expected)) return;
    throw ResultFailure(fmt::format("{}: the {} is {} and {} in the baseline", when(t), what, got, expected));
  };
  compare("loss", mine.loss, expected_->loss);
  compare("gradient norm", mine.norm.value, expected_->norm.value);
}

void Verifier::check(Index t, const StepResult& mine, const Trainer& trainer) {
  std::optional<Error> error;
  if (ranks_.rank == 0) {
    error = error_of([&] { run_reference(t, mine); });
    const char go = 1;
    for (int r = 1; r < ranks_.size; ++r) check_mpi(MPI_Send(&go, 1, MPI_CHAR, r, kTag, ranks_.comm), "MPI_Send");
  } else {
    wait_for_rank0(ranks_.comm);
  }
  agree_with_rank0(ranks_, error);

  // Rank 0 takes in all that the others send, whatever it finds, so that no rank is left sending.
  if (ranks_.rank == 0) {
    Comparison comparison(*reference_->trainer, t);
    for_each_part(trainer, [&](StateKind kind, const TensorPart& part, const float* values) {
      const Header header{static_cast<Index>(kind), part.tensor->id, part.tensor_begin, part.size};
      comparison.add(0, header, part.tensor_begin, values, part.size);
    });
    for (int r = 1; r < ranks_.size; ++r) receive_state(r, comparison);
    largest_difference_ = comparison.largest;
    error = error_of([&] {
      if (exact_ && !comparison.first.empty()) throw ResultFailure(comparison.first);
      comparison.check_complete(ranks_.size);
    });
  } else {
    send_state(trainer);
  }
  agree_with_rank0(ranks_, error);
}

void Verifier::send_state(const Trainer& trainer) const {
  const auto send = [&](const void* data, Index bytes) {
    check_mpi(MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, 0, kTag, ranks_.comm), "MPI_Send");
  };
  for_each_part(trainer, [&](StateKind kind, const TensorPart& part, const float* values) {
    const Header header{static_cast<Index>(kind), part.tensor->id, part.tensor_begin, part.size};
    send(&header, sizeof header);
    for (Index done = 0; done < part.size; done += kBlock) {
      send(values + done, std::min(kBlock, part.size - done) * static_cast<Index>(sizeof(float)));
    }
  });
  const Header end;
  send(&end, sizeof end);
}

void Verifier::receive_state(int rank, Comparison& comparison) const {
  const auto receive = [&](void* data, Index bytes) {
    check_mpi(MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, rank, kTag, ranks_.comm, MPI_STATUS_IGNORE),
              "MPI_Recv");
  };
  std::vector<float> block(kBlock);
  for (Header header;;) {
    receive(&header, sizeof header);
    if (header.kind < 0) return;
    for (Index done = 0; done < header.size; done += kBlock) {
      const Index size = std::min(kBlock, header.size - done);
      receive(block.data(), size * static_cast<Index>(sizeof(float)));
      comparison.add(rank, header, header.begin + done, block.data(), size);
    }
  }
}

}  // namespace zero
