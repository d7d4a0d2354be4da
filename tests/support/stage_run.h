#pragma once
/// \file
/// Runs a trainer in a test and records everything that the promises speak of: bits after every step, bytes held, bytes
/// sent.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/formula/formula.h"
#include "common/storage/block_file.h"
#include "common/train/groups.h"
#include "common/train/trainer.h"

namespace zero::test {

enum class Stage { baseline, ddp, optimizer, gradients, parameters };
std::string name(Stage stage);

/// One run. World and micro-steps of the baseline are those of the ranks that it stands for.
struct RunSetting {
  Stage stage = Stage::baseline;
  ModelConfig config;
  std::string data;
  Index steps = 1;
  Index world = 1;
  Index micro_batch = 1;
  Index micro_steps = 1;
  double clip = 1;
  double learning_rate = 1e-2;
  Accumulation accumulation = Accumulation::ranks_first;
  Index wrap = 1;
  Index bucket_bytes = 0;
  Index prefetch = 1;
  bool reshard_after_forward = true;
  Index shard_group = 0;
  Dtype dtype = Dtype::fp32;
  bool checkpoint_activations = false;
  double dropout = 0;
  bool gpu = false;  ///< the CUDA backend, of the test's build
  ProductKind products = ProductKind::canonical;
  CollectiveKind collectives = CollectiveKind::canonical;
  TransportKind transport = TransportKind::automatic;
  /// Stages 2 and 3: where the optimizer states and (stage 3) the parameters live; the first says that it is offload.
  Tier optimizer_tier = Tier::device;
  Tier parameters_tier = Tier::device;
  int offload_threads = 1;
  OpenBlockFile open_file = nullptr;  ///< makes this rank's swap file; by default one among the temporary files
  Index tiles = 1;                    ///< offload and the baseline
  std::optional<Index> delay_after;   ///< the delayed update, after so many steps; the baseline has it, too

  /// What differs from the defaults, for a failing test's message.
  [[nodiscard]] std::string describe() const;
};

/// State after a step. Trivially copyable, so that ranks can exchange it.
struct StepRecord {
  double loss = 0;
  double norm = 0;
  Verdict verdict = Verdict::ok;
  std::array<Digest, kStateKinds> digests{};  // of the whole model's state

  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

struct RunRecord {
  std::vector<StepRecord> steps;
  std::map<std::string, Index> held_peak;     // by tier and category, "host optimizer"; only what is not zero
  std::map<std::string, Index> held_after;    // model states after the last step, likewise
  std::map<std::string, formula::Sent> sent;  // by purpose, of the last step; every step sends the same (checked)
  std::map<std::string, Index> moved;         // between tiers, by direction, of the last step; likewise checked
};

/// Everything of a run, built but not yet stepping. Collective.
class Run {
 public:
  /// `device`: by default a CPU device of one thread, or with `gpu` a CUDA device.
  Run(const RunSetting& setting, MPI_Comm ranks, std::unique_ptr<Device> device = nullptr);
  Trainer& trainer() { return *trainer_; }
  Context& context() { return *context_; }
  RankGroups& groups() { return *groups_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<RankGroups> groups_;
  std::unique_ptr<TokenFile> file_;
  std::unique_ptr<Sampler> sampler_;
  Timers timers_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Trainer> trainer_;
};

/// Runs on the ranks of `ranks` (the baseline: on the calling rank alone, with MPI_COMM_SELF). Collective.
RunRecord run(const RunSetting& setting, MPI_Comm ranks);

/// The formula of the stage.
formula::Formula expected(const RunSetting& setting);

/// Empty when record and formula agree to the byte, else a sentence for each difference: "optimizer: formula 128 bytes,
/// held 512".
std::string differences(const RunRecord& record, const formula::Formula& formula);

}  // namespace zero::test
