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

constexpr Index kBlock = 32768;  ///< bytes of a message
constexpr int kTag = 1;

/// Announces a part of a tensor; `kind` -1 ends a rank's state.
struct Header {
  Index kind = -1;
  Index tensor = 0;
  Index begin = 0;
  Index size = 0;
  Dtype dtype = Dtype::fp32;
};

std::string when(Index t) { return t == 0 ? "before step 1" : fmt::format("step {}", t); }

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Element i of either type; bf16 is the upper half of an fp32.
float element(ConstArray values, Index i) {
  if (values.dtype == Dtype::fp32) return static_cast<const float*>(values.data)[i];
  return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(values.data)[i]) << 16);
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
      show(kind, part, view.values.part(part.flat_begin - view.begin, part.size));
    }
  });
}

/// Bytes of a device's memory in the host's: a block at a time.
class HostBlock {
 public:
  explicit HostBlock(Device& device) : device_(device), bytes_(kBlock) {}

  /// At most kBlock bytes, until the next call.
  ConstArray of(ConstArray values) {
    device_.download(bytes_.data(), values);
    return {bytes_.data(), values.size, values.dtype};
  }
  /// Shows all values, block by block, with the place where each begins.
  template <typename Show>
  void for_each(ConstArray values, Show show) {
    const Index most = kBlock / size_of(values.dtype);
    for (Index begin = 0; begin < values.size; begin += most) {
      show(begin, of(values.part(begin, std::min(most, values.size - begin))));
    }
  }

 private:
  Device& device_;
  std::vector<std::byte> bytes_;
};

}  // namespace

struct Verifier::Reference {
  std::unique_ptr<Device> device;
  std::unique_ptr<RankGroups> groups;
  Timers timers;
  std::unique_ptr<Trainer> trainer;
};

/// What the baseline holds after a step, and what was found so far in comparing with it.
struct Verifier::Comparison {
  struct Tensor {
    const TensorSpec* spec;
    ConstArray values;
  };
  HostBlock block;
  std::map<std::array<Index, 3>, Tensor> tensors;  ///< by kind, tensor and its first element: units may hold parts
  Index step;
  double largest = 0;
  std::string first;  ///< the first difference, in words
  std::array<Index, kStateKinds> compared{};

  Comparison(const Trainer& reference, Device& device, Index t) : block(device), step(t) {
    for_each_part(reference, [&](StateKind kind, const TensorPart& part, ConstArray values) {
      tensors[{static_cast<Index>(kind), part.tensor->id, part.tensor_begin}] = {part.tensor, values};
    });
  }

  /// Compares elements [begin, begin + size) of a tensor as rank `rank` keeps them: a block in host memory.
  void add(int rank, const Header& part, Index begin, ConstArray values) {
    const Index size = values.size;
    compared[part.kind] += size;
    auto found = tensors.upper_bound({part.kind, part.tensor, begin});
    if (found == tensors.begin()) return;  // check_complete() finds the counts different
    --found;
    const Tensor& tensor = found->second;
    const Index at = begin - found->first[2];  // in the part of the tensor that the baseline's unit holds
    if (found->first[0] != part.kind || found->first[1] != part.tensor || at + size > tensor.values.size) return;
    const ConstArray wanted = block.of(tensor.values.part(at, size));
    if (std::memcmp(values.data, wanted.data, static_cast<std::size_t>(values.bytes())) == 0) return;
    for (Index i = 0; i < size; ++i) {
      const float got = element(values, i);
      const float expected = element(wanted, i);
      largest = std::max(largest, difference(got, expected));
      const bool bits_differ = std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(expected);
      if (!first.empty() || !bits_differ) continue;
      first = fmt::format("{}: {} of {}, element {}, is {} on rank {} and {} in the baseline", when(step),
                          name(static_cast<StateKind>(part.kind)), tensor.spec->name, begin + i, got, rank, expected);
    }
  }

  /// Whether each kind was compared wholly: once for each group where it is sharded, once per rank where it is copied.
  void check_complete(int ranks, int groups) const {
    for (int kind = 0; kind < kStateKinds; ++kind) {
      Index elements = 0;
      for (const auto& [key, tensor] : tensors) elements += key[0] == kind ? tensor.values.size : 0;
      if (compared[kind] == groups * elements || compared[kind] == ranks * elements) continue;
      throw ResultFailure(fmt::format("{}: the ranks keep {} elements of {}, and the baseline has {}", when(step),
                                      compared[kind], name(static_cast<StateKind>(kind)), elements));
    }
  }
};

Verifier::Verifier(const Ranks& ranks, const Options& options, Index world, const Sampler& sampler, Device& device,
                   bool exact)
    : ranks_(ranks), device_(device), exact_(exact), groups_count_(ranks.size / static_cast<int>(options.shard_group)) {
  on_rank0(ranks_, [&] {
    auto reference = std::make_unique<Reference>();
    reference->device = make_device(options);
    GroupSetting alone = group_setting(options);
    alone.shard_group = 1;
    alone.collectives = CollectiveKind::canonical;
    reference->groups = std::make_unique<RankGroups>(MPI_COMM_SELF, alone, std::vector<FlatUnit>(), *reference->device);
    reference->trainer = make_reference_trainer(
        make_context(options, world, *reference->device, *reference->groups, sampler, reference->timers));
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
    Comparison comparison(*reference_->trainer, *reference_->device, t);
    HostBlock mine_here(device_);
    for_each_part(trainer, [&](StateKind kind, const TensorPart& part, ConstArray values) {
      const Header header{static_cast<Index>(kind), part.tensor->id, part.tensor_begin, part.size, values.dtype};
      mine_here.for_each(
          values, [&](Index begin, ConstArray some) { comparison.add(0, header, part.tensor_begin + begin, some); });
    });
    for (int r = 1; r < ranks_.size; ++r) receive_state(r, comparison);
    largest_difference_ = comparison.largest;
    error = error_of([&] {
      if (exact_ && !comparison.first.empty()) throw ResultFailure(comparison.first);
      comparison.check_complete(ranks_.size, groups_count_);
    });
  } else {
    send_state(trainer);
  }
  agree_with_rank0(ranks_, error);
}

void Verifier::send_state(const Trainer& trainer) const {
  HostBlock block(device_);
  const auto send = [&](const void* data, Index bytes) {
    check_mpi(MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, 0, kTag, ranks_.comm), "MPI_Send");
  };
  for_each_part(trainer, [&](StateKind kind, const TensorPart& part, ConstArray values) {
    const Header header{static_cast<Index>(kind), part.tensor->id, part.tensor_begin, part.size, values.dtype};
    send(&header, sizeof header);
    block.for_each(values, [&](Index, ConstArray some) { send(some.data, some.bytes()); });
  });
  const Header end;
  send(&end, sizeof end);
}

void Verifier::receive_state(int rank, Comparison& comparison) const {
  const auto receive = [&](void* data, Index bytes) {
    check_mpi(MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, rank, kTag, ranks_.comm, MPI_STATUS_IGNORE),
              "MPI_Recv");
  };
  std::vector<std::byte> bytes(kBlock);
  for (Header header;;) {
    receive(&header, sizeof header);
    if (header.kind < 0) return;
    const Index block = kBlock / size_of(header.dtype);
    for (Index done = 0; done < header.size; done += block) {
      const ConstArray some = {bytes.data(), std::min(block, header.size - done), header.dtype};
      receive(bytes.data(), some.bytes());
      comparison.add(rank, header, header.begin + done, some);
    }
  }
}

}  // namespace zero
