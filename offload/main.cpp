#include <fmt/format.h>

#include <memory>
#include <optional>

#include "common/base/error.h"
#include "common/train/option_types.h"
#include "common/train/run.h"
#include "offload/formula.h"
#include "offload/settings.h"
#include "offload/stage2.h"
#include "offload/stage3.h"

namespace zero::offload {
namespace {

const std::vector<Choice<int>> kStages = {{"2", 2}, {"3", 3}};
const std::vector<Choice<Tier>> kTiers = {{"none", Tier::device}, {"host", Tier::host}, {"nvme", Tier::nvme}};

/// The program's own options, as they are given.
struct Given {
  int stage = 0;  ///< 0: by what is offloaded
  Settings settings;
  std::string nvme_path;
};

bool uses_nvme(const Settings& settings) {
  return settings.optimizer == Tier::nvme || settings.parameters == Tier::nvme;
}

void add_options(CLI::App& app, Options& options, Given& given) {
  const char* group = option_group::kMemory;
  add_value(app, "--stage", {group, "2|3", "the ZeRO stage below", "2; 3 when parameters are offloaded"},
            [&given](const std::string& value) {
              given.stage = kStages[read_choice("--stage", value, names(kStages))].value;
            });
  add_value(
      app, "--offload-optimizer",
      {group, "host|nvme", "where fp32 weights, momentum, variance and the gradient's slice live", "host"},
      [&given](const std::string& value) {
        if (value == "none") {
          throw UnusableInput(
              "--offload-optimizer none leaves the optimizer on the device, as stage2_gradients and stage3_params "
              "do; host or nvme would do");
        }
        const std::vector<Choice<Tier>> tiers(kTiers.begin() + 1, kTiers.end());
        given.settings.optimizer = tiers[read_choice("--offload-optimizer", value, names(tiers))].value;
      });
  add_choice(app, "--offload-params", given.settings.parameters, kTiers,
             {group, "none|host|nvme", "where the slices of the parameters live (stage 3)", ""});
  add_value(app, "--nvme-path", {group, "DIR", "a directory on the device that nvme stands for", ""},
            [&given](const std::string& value) {
              if (value.empty()) throw UnusableInput("--nvme-path '' is not a directory");
              given.nvme_path = value;
            });
  add_gather_options(app, options);
  add_delay_options(app, options);
  add_tile_option(app, options);
  add_offered_elsewhere(app, "--as-world", "baseline");
  add_offered_elsewhere(app, "--shard-group", "stage3_params");
}

/// What depends on several options.
void check(const Options& options, Given& given) {
  Settings& settings = given.settings;
  settings.threads = options.threads;
  if (given.stage == 0) given.stage = settings.parameters == Tier::device ? 2 : 3;
  settings.stage = given.stage;
  if (settings.stage == 2 && settings.parameters != Tier::device) {
    throw UnusableInput(
        fmt::format("--offload-params {} needs slices of parameters, and --stage 2 keeps all of them on every device; "
                    "--stage 3 would do",
                    name_of(kTiers, settings.parameters)));
  }
  if (uses_nvme(settings) && given.nvme_path.empty()) {
    throw UnusableInput("nvme needs a directory for the swap files; --nvme-path DIR names one");
  }
  if (!uses_nvme(settings) && !given.nvme_path.empty()) {
    throw UnusableInput(fmt::format(
        "--nvme-path {} has no meaning without --offload-optimizer nvme or --offload-params nvme", given.nvme_path));
  }
  if (options.delayed_update && settings.optimizer == Tier::nvme) {
    throw UnusableInput("--delayed-update needs the optimizer in host memory; --offload-optimizer host would do");
  }
}

Place place(Tier tier) { return tier == Tier::device ? Place::device : tier == Tier::host ? Place::host : Place::nvme; }

}  // namespace
}  // namespace zero::offload

int main(int argc, char** argv) {
  using namespace zero;
  offload::Given given;
  std::optional<SwapDirectoryLock> lock;  // rank 0 keeps other runs out of the directory
  Program program;
  program.name = "offload";
  program.description =
      "ZeRO-Offload and ZeRO-Infinity: stage 2 or 3 with the optimizer, and with stage 3 the parameters, too, in host "
      "memory or in files. AdamW runs on the host: gradients go down, new parameters come up.";
  program.offers_accumulation = false;
  program.why_no_local_first = "local-first sums whole gradients on each rank, which this program does not keep";
  program.add_options = [&](CLI::App& app, Options& options) { offload::add_options(app, options, given); };
  program.check = [&](Options& options, Index /*world*/) { offload::check(options, given); };
  program.own_options = [&] {
    return nlohmann::json{{"stage", given.stage},
                          {"offload-optimizer", name_of(offload::kTiers, given.settings.optimizer)},
                          {"offload-params", name_of(offload::kTiers, given.settings.parameters)},
                          {"nvme-path", given.nvme_path.empty() ? nullptr : nlohmann::json(given.nvme_path)}};
  };
  program.plan_rows = [&] {
    std::vector<std::pair<std::string, std::string>> rows = {
        {"offload", fmt::format("stage {}, optimizer in {}, parameters {}", given.stage,
                                name_of(offload::kTiers, given.settings.optimizer),
                                given.settings.parameters == Tier::device
                                    ? "on the device"
                                    : fmt::format("in {}", name_of(offload::kTiers, given.settings.parameters)))}};
    return rows;
  };
  program.claim = [&] {
    if (offload::uses_nvme(given.settings)) lock.emplace(given.nvme_path);
  };
  program.make_trainer = [&](const Context& context) -> std::unique_ptr<Trainer> {
    if (offload::uses_nvme(given.settings)) {
      const int rank = context.comm.rank();
      given.settings.open_file = [&given, rank](Index bytes) {
        return open_swap_file(given.nvme_path, rank, bytes, offload::kSwapDepth);
      };
    }
    if (given.stage == 2) return std::make_unique<offload::stage2::Trainer>(context, given.settings);
    return std::make_unique<offload::stage3::Trainer>(context, given.settings);
  };
  program.formula = [&](const formula::Setting& setting) {
    return offload::formula(
        setting, {given.stage, offload::place(given.settings.optimizer), offload::place(given.settings.parameters)});
  };
  return run(program, argc, argv);
}
