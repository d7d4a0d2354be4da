#pragma once
/// \file
/// The command line that all programs share (docs: README, `--help`).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/comm/communicator.h"
#include "common/formula/formula.h"
#include "common/model/config.h"
#include "common/optim/adamw.h"
#include "common/train/groups.h"
#include "common/train/trainer.h"

namespace zero {

/// `--backend`
enum class Backend { cpu, cuda, automatic };

/// The options of a run after checking: effective values, nothing left to derive but what depends on the machine.
struct Options {
  std::string model = "tiny";
  ModelConfig config;  ///< before derive(): the sizes given, 0 for those of the preset
  std::string data = "docs/corpus.txt";
  Index steps = 20;
  std::uint64_t seed = 1;
  Index micro_batch = 0;   ///< before derive(): 0 for the preset's
  Index global_batch = 0;  ///< before derive(): 0 for micro_batch * world
  Index micro_steps = 1;   ///< k = global_batch / (micro_batch * world)
  AdamWOptions optimizer;
  std::string precision = "fp32";
  bool checkpoint_activations = false;
  double dropout = 0;
  bool skip_not_finite = false;                   ///< go on after a step whose loss or norm is not finite
  Index eval_every = 0;                           ///< steps between evaluations; 0: none, and no data is held out
  ProductKind products = ProductKind::canonical;  ///< before derive(): if `products_given`
  bool products_given = false;
  CollectiveKind collectives = CollectiveKind::canonical;
  TransportKind transport = TransportKind::automatic;
  Accumulation accumulation = Accumulation::ranks_first;
  Index bucket_bytes = 0;  ///< 0: one unit
  Index wrap = 1;
  Index prefetch = 1;                    ///< offered by programs that gather parameters
  bool reshard_after_forward = true;     ///< likewise
  Index shard_group = 0;                 ///< offered by programs that shard parameters; 0 before derive(): all ranks
  Index as_world = 1;                    ///< offered by the baseline
  bool delayed_update = false;           ///< offered by the baseline and by programs that update on the host
  Index delay_after = -1;                ///< likewise: steps before the delay begins; before derive() -1 for 40
  Index tiles = 1;                       ///< likewise: parts in which a block's large products are computed
  Backend backend = Backend::automatic;  ///< after derive(): cpu or cuda
  bool backend_chosen = false;           ///< by `--backend auto`
  std::optional<Index> device_memory;
  std::optional<Index> host_memory;
  int threads = 1;
  bool verify = false;
  Index digest_every = 0;
  double timeout_seconds = 60;
  std::string out;                   ///< empty: nothing is written
  std::vector<std::string> offered;  ///< the program's options, without dashes; empty: all

  [[nodiscard]] Dtype dtype() const { return precision == "bf16" ? Dtype::bf16 : Dtype::fp32; }
  /// N: ranks, or for the baseline the N whose order of additions it follows.
  [[nodiscard]] Index order_world(Index ranks) const { return ranks == 1 ? as_world : ranks; }
};

/// A program: its name, what it says of itself, and what it adds to the shared command line.
struct Program {
  std::string name;             ///< of the executable
  std::string description;      ///< one paragraph for --help
  bool single_process = false;  ///< the baseline
  bool offers_accumulation =
      true;  ///< `local-first` exists; else `--accumulation local-first` is refused with the reason
  std::string why_no_local_first;
  /// Adds the options that this program alone offers (none by default).
  std::function<void(CLI::App&, Options&)> add_options = [](CLI::App&, Options&) {};
  /// Checks the program's own options once the shared ones are derived, for a run of `world` ranks; throws
  /// UnusableInput.
  std::function<void(Options&, Index world)> check = [](Options&, Index) {};
  /// The program's own options under their names, for summary.json; and rows of the plan: a word, and what it says.
  std::function<nlohmann::json()> own_options = [] { return nlohmann::json::object(); };
  std::function<std::vector<std::pair<std::string, std::string>>()> plan_rows = [] {
    return std::vector<std::pair<std::string, std::string>>();
  };
  /// Takes, on rank 0 alone, what one run at a time may have; throws UnusableInput.
  std::function<void()> claim = [] {};
  /// Builds the trainer.
  std::function<std::unique_ptr<Trainer>(const Context&)> make_trainer;
  /// The program's memory and traffic formula.
  std::function<formula::Formula(const formula::Setting&)> formula;
};

/// So many steps in a row that are not taken end a run of `--on-nonfinite skip`: what has diverged does not come back.
inline constexpr Index kMostNotTaken = 10;

/// The default of `--data`.
inline constexpr const char* kDefaultData = "docs/corpus.txt";

/// Reads the command line for a run of `world` ranks. Throws UnusableInput with one sentence that names the option, the
/// value and what would do. Returns nothing when `--help` or `--version` was asked for; `text` then holds what to
/// print.
std::optional<Options> parse_options(const Program& program, int argc, const char* const* argv, int world,
                                     std::string& text);

/// Adds to `app` the options that all programs share. Both outlive the parsing; what depends on several options is left
/// to derive().
void add_common_options(CLI::App& app, Options& options);

/// Adds `--prefetch` and `--reshard-after-forward`: for programs that gather parameters.
void add_gather_options(CLI::App& app, Options& options);
/// Adds `--shard-group`: for programs that shard parameters in groups of ranks.
void add_shard_group_option(CLI::App& app, Options& options);
/// Adds `--as-world`: for the baseline.
void add_as_world_option(CLI::App& app, Options& options);
/// Adds `--tile`: for programs that gather parameters from slow memory, and for the baseline.
void add_tile_option(CLI::App& app, Options& options);
/// Adds `--delayed-update` and `--delay-after`: for programs that update on the host, and for the baseline.
void add_delay_options(CLI::App& app, Options& options);

/// Checks what depends on several options and derives the rest (model sizes, batches), for a run of `world` ranks.
/// Throws UnusableInput.
void derive(const Program& program, Options& options, Index world);

/// The text of `--help`.
std::string help_text(const Program& program, const CLI::App& app);

/// The text of one error of the command line that CLI11 found, in our words.
std::string command_line_error(const Program& program, const CLI::App& app, const CLI::ParseError& error);

/// The effective options under the names of the command line, for summary.json.
nlohmann::json to_json(const Options& options);

/// The device that the options ask for, without the caps of its tiers. Throws UnusableInput where it cannot be had.
std::unique_ptr<Device> make_device(const Options& options);

/// What a trainer is built from, for N = `world`. The references outlive the trainer.
Context make_context(const Options& options, Index world, Device& device, RankGroups& groups, const Sampler& sampler,
                     Timers& timers);

/// What the communicators need of the options.
GroupSetting group_setting(const Options& options);

/// What the formulas need of the options; `world` = N.
formula::Setting formula_setting(const Options& options, Index world);

}  // namespace zero
