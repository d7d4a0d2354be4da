#include "common/train/run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/base/bytes.h"
#include "common/train/agreement.h"
#include "common/train/digests.h"
#include "common/train/evaluation.h"
#include "common/train/history.h"
#include "common/train/machine.h"
#include "common/train/plan_print.h"
#include "common/train/probe.h"
#include "common/train/progress.h"
#include "common/train/report.h"
#include "common/train/summary.h"
#include "common/train/verify.h"

namespace zero {
namespace {

/// Prints on rank 0, at once: a pipe would keep lines back. That it cannot be written is said at the end.
void say(const Ranks& ranks, const std::string& text) {
  if (ranks.rank != 0) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// The default data stands in the source tree, whatever the current directory is.
std::string data_path(const Options& options) {
  if (options.data != kDefaultData || access(options.data.c_str(), F_OK) == 0) return options.data;
  return std::string(ZERO_SOURCE_DIR) + "/" + kDefaultData;
}

/// A run that the machine cannot hold would be killed without a word by the kernel.
void check_fits(const Program& program, const Options& options, const Ranks& ranks) {
  const formula::Formula formula = program.formula(formula_setting(options, options.order_world(ranks.size)));
  Index held = 0;
  for (const auto* memory : {&formula.memory, &formula.host_memory}) {
    if (memory == &formula.memory && options.backend == Backend::cuda) continue;
    for (const auto& [category, bytes] : *memory) held += bytes;
  }
  const Index here = ranks_here();
  const std::optional<Index> there_is = machine_memory();
  if (!there_is || held <= *there_is / here) return;
  throw ResourceFailure(
      fmt::format("--model {} with --micro-batch {} needs {} for each of the ranks here, {} in all, and this "
                  "machine has {}; the plan program says what fits",
                  options.model, options.micro_batch, format_bytes(held), here, format_bytes(*there_is)));
}

std::unique_ptr<Device> make_capped_device(const Options& options) {
  std::unique_ptr<Device> device = make_device(options);
  device->ledger().set_cap(Tier::device, options.device_memory);
  device->ledger().set_cap(Tier::host, options.host_memory);
  return device;
}

/// Everything of a run that stands when the first step begins. Members in order of construction.
class Run {
 public:
  Run(const Program& program, const Options& options, const Ranks& ranks);
  /// All steps; returns the exit status.
  ExitStatus train();

 private:
  /// One step with its times; an error of one rank alone ends the job here.
  StepResult step(Index t, StepSeconds& spent);
  /// What every rank computes on, for the plan. Collective.
  std::vector<std::string> devices();
  /// Opens the data: with evaluations, the last tenth of it is held out.
  void make_samplers();
  /// The digests of the states; an error of one rank alone ends the job here. Collective.
  StateDigests digest();
  /// The mean loss of the held-out sequences; an error of one rank alone ends the job here. Collective.
  double evaluate();
  ExitStatus finish(Index t, const StepResult& last, const StateDigests& digests);
  nlohmann::json summary(const StateDigests& digests, const Report& report) const;
  [[nodiscard]] Index tokens_per_step() const { return options_.global_batch * options_.config.context; }

  const Program& program_;
  const Options& options_;
  const Ranks& ranks_;
  std::unique_ptr<TokenFile> file_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<HeldOut> held_out_;  // with --eval-every
  std::unique_ptr<Device> device_;
  std::unique_ptr<RankGroups> groups_;
  Timers timers_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<OutputDirectory> out_;  // rank 0, with --out
  TrafficLog traffic_;
  History history_;
};

Run::Run(const Program& program, const Options& options, const Ranks& ranks)
    : program_(program), options_(options), ranks_(ranks) {
  if (!options.out.empty()) on_rank0(ranks, [&] { OutputDirectory::check(options.out); });
  on_rank0(ranks, program.claim);
  file_ = agree_to_make(ranks.comm, [&] {
    return std::make_unique<TokenFile>(data_path(options), options.config.context, options.config.vocab);
  });
  make_samplers();
  device_ = agree_to_make(ranks.comm, [&] {
    check_fits(program, options, ranks);
    return make_capped_device(options);
  });

  const std::vector<FlatUnit> units = model_units(options.config, options.wrap, options.shard_group, options.tiles);
  groups_ = std::make_unique<RankGroups>(ranks.comm, group_setting(options), units, *device_);
  probe_products(*device_, groups_->world(), options.dtype());
  device_->ledger().restart_peaks();

  const Context context =
      make_context(options, options.order_world(ranks.size), *device_, *groups_, *sampler_, timers_);
  say(ranks, plan_text(program, options, context, units,
                       {ranks.size, file_->size(), sampler_->sequences(), held_out_ ? held_out_->sequences() : 0,
                        held_out_ ? held_out_->evaluated() : 0, devices(),
                        options.dtype() == Dtype::bf16 ? device_->products().bf16_description()
                                                       : device_->products().description(),
                        groups_->description()}));
  trainer_ = agree_to_make(ranks.comm, [&] { return program.make_trainer(context); });
  if (const std::string storage = trainer_->storage(); !storage.empty()) say(ranks, "swap files by " + storage + "\n");
  if (options.verify) {
    const bool exact = options.collectives == CollectiveKind::canonical || ranks.size == 1;
    verifier_ = std::make_unique<Verifier>(ranks, options, context.world, *sampler_, *device_, exact);
    verifier_->check(0, {}, *trainer_);
  }
  if (!options.out.empty()) on_rank0(ranks, [&] { out_ = std::make_unique<OutputDirectory>(options.out); });
}

StepResult Run::step(Index t, StepSeconds& spent) {
  try {
    groups_->clear_traffic();
    device_->clear_transfers();
    timers_ = {};
    StepResult result;
    {
      const Stopwatch watch(spent.total);
      result = trainer_->train_step(t);
    }
    spent.communication = groups_->seconds();
    spent.optimizer = timers_.optimizer;
    spent.offload = timers_.offload;
    return result;
  } catch (const std::exception& error) {
    fail_alone(ranks_, error);
  }
}

ExitStatus Run::train() {
  StepTable table(options_.steps, tokens_per_step());
  say(ranks_, "\n" + table.head());
  for (Index t = 1;; ++t) {
    StepSeconds spent;
    const StepResult result = step(t, spent);
    const bool finite = result.verdict != Verdict::not_finite;
    // A step that was not taken published nothing, and with a delayed update a step may publish never or twice.
    const bool usual = finite && result.updates == 1;
    if (usual || (t == 1 && !finite && !options_.skip_not_finite)) traffic_.record(*groups_, device_->transfers(), t);
    history_.add(result, spent);
    if (verifier_) verifier_->check(t, result, *trainer_);

    const bool gives_up = !options_.skip_not_finite || history_.not_taken_in_a_row() == kMostNotTaken;
    const bool last = t == options_.steps || (!finite && gives_up);
    std::optional<StateDigests> digests;
    if (last || (options_.digest_every > 0 && t % options_.digest_every == 0)) {
      digests = digest();
    }
    const double rate = learning_rate(options_.optimizer, t);
    std::string line = table.line(t, result, rate, spent.total);
    nlohmann::json metrics = History::metrics(t, result, spent, rate, tokens_per_step());
    if (!finite) {
      metrics["not_finite"] = result.not_finite;
      metrics["steps_not_taken"] = history_.not_taken();
      line += fmt::format("  first in {}; {} not taken", result.not_finite, counted_steps(history_.not_taken()));
    }
    if (digests) metrics["digest"] = to_json(*digests);
    if (held_out_ && (t % options_.eval_every == 0 || t == options_.steps) && !(last && !finite)) {
      const double loss = evaluate();
      metrics["held_out_loss"] = number(loss);
      line += fmt::format("  held out {:.6f}", printable(loss));
    }
    if (verifier_ && !verifier_->exact()) {
      metrics["largest_difference"] = number(verifier_->largest_difference());
      line += fmt::format("  {:.3g} from the baseline", verifier_->largest_difference());
    }
    if (table.shows(t, result.verdict)) say(ranks_, line + "\n");
    if (out_) {
      if (const auto error = error_of([&] { out_->append_metrics(metrics); })) fail_alone(ranks_, *error);
    }
    if (last) return finish(t, result, *digests);
  }
}

StateDigests Run::digest() {
  try {
    return digest_state(*trainer_, *device_, groups_->world(), groups_->group());
  } catch (const ResourceFailure& error) {  // reading states from storage
    fail_alone(ranks_, error);
  }
}

std::vector<std::string> Run::devices() {
  std::array<char, 256> mine{};
  device_->description().copy(mine.data(), mine.size() - 1);
  const auto all = groups_->world().gather(mine, Purpose::control, "devices");
  if (std::all_of(all.begin(), all.end(), [&](const auto& each) { return each == all[0]; })) return {all[0].data()};
  std::vector<std::string> devices;
  for (const auto& each : all) devices.emplace_back(each.data());
  return devices;
}

void Run::make_samplers() {
  const Index context = options_.config.context;
  if (options_.eval_every > 0) {
    held_out_ = std::make_unique<HeldOut>(*file_, context, options_.seed, options_.eval_every, options_.data);
  }
  sampler_ = std::make_unique<Sampler>(*file_, context, options_.seed, 0,
                                       held_out_ ? HeldOut::training_tokens(*file_) : file_->size());
}

double Run::evaluate() {
  try {
    return held_out_->mean_loss(*trainer_, groups_->world(), options_.micro_batch);
  } catch (const std::exception& error) {
    fail_alone(ranks_, error);
  }
}

nlohmann::json Run::summary(const StateDigests& digests, const Report& report) const {
  Index parameters = 0;
  Index padded = 0;
  for (const FlatUnit& unit : trainer_->units()) {
    parameters += unit.elements();
    padded += unit.size();
  }
  nlohmann::json options = to_json(options_);
  options.update(program_.own_options());
  nlohmann::json all = {{"schema", 1},
                        {"executable", program_.name},
                        {"world", ranks_.size},
                        {"options", options},
                        {"parameters", parameters},
                        {"padded_parameters", padded},
                        {"digest", to_json(digests)},
                        {"memory", report.memory_json()},
                        {"communication", report.communication_json()},
                        {"offload", report.offload_json()}};
  history_.write(all, tokens_per_step());
  return all;
}

ExitStatus Run::finish(Index t, const StepResult& last, const StateDigests& digests) {
  Report report;
  report.ranks = groups_->world().gather(measure(device_->ledger(), traffic_), Purpose::control,
                                         "memory and traffic of all ranks");
  for (int p = 0; p < kPurposes; ++p) report.collectives[p] = traffic_.last()[p].collective;
  report.counts_bytes = groups_->group().counts_bytes();
  const formula::Setting setting = formula_setting(options_, options_.order_world(ranks_.size));
  report.formula = program_.formula(setting);
  report.activations = formula::activations(setting);
  std::string text = "\n";
  const nlohmann::json hex = to_json(digests);
  for (int i = 0; i < kStateKinds; ++i) {
    const std::string kind(name(static_cast<StateKind>(i)));
    text += fmt::format("digest {:<10} {}\n", kind, hex[kind].get<std::string>());
  }
  if (options_.skip_not_finite && history_.not_taken() > 0) {
    text += fmt::format("skipped: {} of {} not taken, since loss or gradient norm was not finite\n",
                        history_.not_taken(), counted_steps(t));
  }
  const auto write_summary = [&] {
    on_rank0(ranks_, [&] {
      if (out_) out_->write_summary(summary(digests, report));
    });
  };
  if (last.verdict == Verdict::not_finite) {
    say(ranks_, text);
    write_summary();
    if (ranks_.rank == 0) print_error(not_finite_sentence(t, last, history_.not_taken_in_a_row()));
    return ExitStatus::differs;
  }
  for (const std::string& line : report.memory_lines()) text += line + "\n";
  text += report.activations_line() + "\n";
  for (const std::string& line : report.communication_lines()) text += line + "\n";
  for (const std::string& line : report.offload_lines()) text += line + "\n";
  if (verifier_ && verifier_->exact()) {
    text += fmt::format("verify: the same bytes as the unsharded baseline after each of {} steps\n", t);
  } else if (verifier_ && verifier_->largest_difference() == 0) {
    text += "verify: equal here; with 3 or more ranks these collectives add in another order\n";
  } else if (verifier_) {
    text +=
        fmt::format("verify: at most {:.3g} from the baseline after step {}: these collectives add in another order\n",
                    verifier_->largest_difference(), t);
  }
  say(ranks_, text);  // before the files: what was found is not lost with them
  write_summary();
  report.check_steady();
  return ExitStatus::done;
}

/// Ranks that `--backend auto` leads to different backends are named and refused.
void agree_on_backend(const Ranks& ranks, const Options& options) {
  if (ranks.size == 1) return;
  int any_cuda = options.backend == Backend::cuda ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &any_cuda, 1, MPI_INT, MPI_MAX, ranks.comm), "MPI_Allreduce");
  std::optional<Error> error;
  if (any_cuda == 1 && options.backend == Backend::cpu) {
    error = UnusableInput("--backend auto finds no GPU for this rank and finds one for others; --backend cpu would do");
  }
  agree(ranks.comm, error);
}

/// Errors that leave here are the same on every rank.
ExitStatus run_together(const Program& program, int argc, const char* const* argv, const Ranks& ranks) {
  std::string text;
  // The same command line, but what --backend finds is a matter of each rank's machine.
  const auto options = agree_to_make(ranks.comm, [&] { return parse_options(program, argc, argv, ranks.size, text); });
  if (!options) {
    say(ranks, text);
    return ExitStatus::done;
  }
  agree_on_backend(ranks, *options);
  return Run(program, *options, ranks).train();
}

int run_rank(const Program& program, int argc, const char* const* argv, const Ranks& ranks) {
  try {
    agree_on_command_line(ranks, program.name, argc, argv);
    const ExitStatus status = run_together(program, argc, argv, ranks);
    if (status == ExitStatus::done && std::ferror(stdout) != 0) {
      print_error("standard output could not be written to");
      return static_cast<int>(ExitStatus::failed);
    }
    return static_cast<int>(status);
  } catch (const Error& error) {
    if (ranks.rank == 0) print_error(error.what());
    return static_cast<int>(error.status());
  } catch (const std::exception& error) {
    // Not one of ours (memory for a vector, say), so not one that the ranks agreed on.
    print_error(ranks.size == 1 ? error.what() : of_rank(ranks.rank, error.what()));
    abort_job(ExitStatus::failed);
  }
}

}  // namespace

int run(const Program& program, int argc, const char* const* argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of write(), which has a sentence
  if (program.single_process) {
    const int size = launched({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}).value_or(1);
    if (size > 1) {
      if (launched({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}).value_or(0) != 0) {
        // The launcher ends the others at the first that ends badly; rank 0 has something to say before that.
        std::this_thread::sleep_for(std::chrono::seconds(1));
      } else {
        print_error(
            fmt::format("{} is one process and was started as {}; start it without mpirun, and --as-world {} follows "
                        "the order of {} ranks",
                        program.name, size, size, size));
      }
      return static_cast<int>(ExitStatus::unusable);
    }
    return run_rank(program, argc, argv, {MPI_COMM_SELF, 0, 1});
  }
  char** arguments = const_cast<char**>(argv);  // MPI_Init takes it so, and leaves it alone
  const MpiProcess process(argc, arguments);
  return run_rank(program, argc, arguments, {MPI_COMM_WORLD, process.rank(), process.size()});
}

}  // namespace zero
