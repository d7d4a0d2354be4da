#include "tools/compare_jobs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/program_options.h"
#include "tools/table.h"

namespace zero::tools {
namespace {

bool is_flag(std::string_view option) {
  return std::find(kProgramFlags.begin(), kProgramFlags.end(), option.substr(2)) != kProgramFlags.end();
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

/// The option for which `stage` would end with other bits than the baseline does with it; empty when there is none.
std::string needs_what_it_lacks(const Stage& stage, const Arguments& arguments) {
  if (arguments.has("--delayed-update") && !stage.delays_updates) return "--delayed-update";
  if (arguments.value("--tile").value_or("1") != "1" && !stage.tiles_products) return "--tile";
  if (arguments.value("--accumulation") == "local-first" && !stage.local_first) return "--accumulation local-first";
  return "";
}

/// The ways to run `offload` that the options ask for: one where they name it, else the usual ones.
std::vector<const Stage*> offload_stages(const Arguments& arguments, bool every_tier) {
  if (arguments.has("--stage") || arguments.has("--offload-optimizer") || arguments.has("--offload-params")) {
    const std::string stage = arguments.value("--stage").value_or(""),
                      optimizer = arguments.value("--offload-optimizer").value_or("host"),
                      parameters = arguments.value("--offload-params").value_or("none");
    const Stage* one = offload_stage(stage, optimizer, parameters);
    if (one != nullptr) return {one};
    throw UnusableInput(fmt::format(
        "offload has no --stage {} with --offload-optimizer {} and --offload-params {}; --stage 3 "
        "--offload-optimizer host --offload-params host would do",
        stage.empty() ? "by default" : harmless(stage, 40), harmless(optimizer, 40), harmless(parameters, 40)));
  }
  std::vector<std::string_view> labels = {"offload-2-host", "offload-3-host-host"};
  if (every_tier) labels.insert(labels.begin() + 1, "offload-3-host");
  if (arguments.has("--nvme-path")) {
    if (arguments.has("--delayed-update")) {
      labels.emplace_back("offload-3-host-nvme");  // the optimizer has to be in host memory
    } else {
      labels.insert(labels.end(), {"offload-2-nvme", "offload-3-nvme-nvme"});
    }
  }
  std::vector<const Stage*> all;
  for (const std::string_view label : labels) all.push_back(stage_of_label(label));
  return all;
}

std::vector<const Stage*> by_default(const Arguments& arguments, bool largest, std::vector<std::string>& notes) {
  std::vector<const Stage*> candidates, all;
  for (const Stage& stage : stages()) {
    if (!stage.offload) candidates.push_back(&stage);
  }
  for (const Stage* stage : offload_stages(arguments, largest)) candidates.push_back(stage);
  std::string left_out, option;
  for (const Stage* stage : candidates) {
    const std::string lacks = needs_what_it_lacks(*stage, arguments);
    if (lacks.empty()) {
      all.push_back(stage);
    } else {
      left_out += (left_out.empty() ? "" : ", ") + stage->name();
      option = lacks;
    }
  }
  if (!left_out.empty())
    notes.push_back(fmt::format("left out, since they have no {} and other bits without it: {}", option, left_out));
  return all;
}

std::vector<const Stage*> by_name(const std::string& list, const Arguments& arguments, bool largest) {
  std::vector<const Stage*> all;
  for (const std::string& name : split(list)) {
    const Stage* stage = stage_named(name);
    if (stage == nullptr) {
      std::string known;
      for (const Stage& each : stages()) {
        if (!each.offload) known += each.program + ", ";
      }
      throw UnusableInput(
          fmt::format("--programs '{}' is not known; these would do: {}0 to 3, offload, and one way to run it such as "
                      "{}; --with runs any other",
                      harmless(name, 40), known, stage_of_program("offload")->label));
    }
    if (name == stage->program && stage->offload) {
      for (const Stage* each : offload_stages(arguments, largest)) all.push_back(each);
    } else {
      all.push_back(stage);
    }
  }
  for (const Stage* stage : all) {
    const std::string lacks = needs_what_it_lacks(*stage, arguments);
    if (lacks.empty()) continue;
    throw UnusableInput(fmt::format("{} has no {}, without which its bits are not those of the others; {} would do",
                                    stage->name(), lacks,
                                    lacks.starts_with("--acc") ? "baseline, 0 and 1" : "baseline and offload-2-host"));
  }
  return all;
}

void check_program(const std::string& path, const std::string& remedy) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (!std::filesystem::is_regular_file(status)) {
    throw UnusableInput(fmt::format("{} {}; {}", harmless(path),
                                    std::filesystem::is_directory(status) ? "is a directory"
                                    : std::filesystem::exists(status)     ? "is not a file"
                                                                          : "does not exist",
                                    remedy));
  }
  if (access(path.c_str(), X_OK) != 0)
    throw UnusableInput(fmt::format("{} is not a program; {}", harmless(path), remedy));
}

/// Without what `stage` does not offer.
Arguments offered_by(const Stage& stage, Arguments arguments) {
  const auto without = [&](const auto& options) {
    for (const std::string_view option : options) arguments.remove(fmt::format("--{}", option));
  };
  if (!stage.gathers_parameters) without(kGatherOptions);
  if (!stage.sharding_groups) without(kGroupOptions);
  if (!stage.single_process && !stage.offload) without(kReorderOptions);
  if (!stage.offload) without(kOffloadOptions);
  return arguments;
}

/// `stage`: whose name the program has, if any. With `chosen` it is run in the way of that stage.
Job make_job(const JobRequest& request, const std::vector<Job>& others, const std::string& path, const Stage* stage,
             bool chosen) {
  Job job;
  job.name = chosen ? stage->name() : std::filesystem::path(path).filename().string();
  job.path = std::filesystem::absolute(path).string();
  job.expected = stage;
  job.chosen = chosen;
  Arguments arguments(request.passed_on);
  if (stage != nullptr) arguments = offered_by(*stage, std::move(arguments));
  std::vector<std::string> first;
  if (chosen && stage->offload) {
    for (const char* option : {"--stage", "--offload-optimizer", "--offload-params"}) arguments.remove(option);
    if (!uses_nvme(*stage)) arguments.remove("--nvme-path");
    if (uses_nvme(*stage) && !arguments.has("--nvme-path")) {
      throw UnusableInput(fmt::format("{} needs a directory for its files; --nvme-path DIR names one", stage->label));
    }
    first = offload_arguments(*stage);
  }
  if (job.single_process()) first = {"--as-world", std::to_string(request.ranks)};
  job.arguments = std::move(first);
  job.arguments.insert(job.arguments.end(), arguments.all().begin(), arguments.all().end());
  const auto taken = [&](const std::string& name) {
    return std::any_of(others.begin(), others.end(), [&](const Job& other) { return other.name == name; });
  };
  const std::string base = job.name;
  for (int i = 2; taken(job.name); ++i) job.name = fmt::format("{}-{}", base, i);
  return job;
}

}  // namespace

bool Arguments::has(std::string_view option) const { return value(option).has_value(); }

std::optional<std::string> Arguments::value(std::string_view option) const {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i] == option) return is_flag(option) || i + 1 == all_.size() ? "" : all_[i + 1];
    if (all_[i].starts_with(option) && all_[i][option.size()] == '=') return all_[i].substr(option.size() + 1);
  }
  return std::nullopt;
}

void Arguments::remove(const std::string& option) {
  for (std::size_t i = 0; i < all_.size();) {
    const bool apart = all_[i] == option;
    if (!apart && !all_[i].starts_with(option + "=")) {
      ++i;
      continue;
    }
    const std::size_t count = apart && !is_flag(option) ? 2 : 1;
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i),
               all_.begin() + static_cast<std::ptrdiff_t>(std::min(i + count, all_.size())));
  }
}

Jobs make_jobs(const JobRequest& request) {
  Jobs jobs;
  const Arguments arguments(request.passed_on);
  std::vector<const Stage*> chosen = request.programs ? by_name(*request.programs, arguments, request.largest)
                                                      : by_default(arguments, request.largest, jobs.notes);
  // The baseline, where it runs, is what the others are compared with.
  std::stable_partition(chosen.begin(), chosen.end(), [](const Stage* stage) { return stage->single_process; });
  for (const Stage* stage : chosen) {
    const std::string path = request.folder + "/" + stage->program;
    check_program(path, "the target `programs` builds it");
    jobs.all.push_back(make_job(request, jobs.all, path, stage, true));
  }
  for (const std::string& path : request.with) {
    check_program(path, "--with takes the path of an executable");
    const Stage* stage = stage_of_program(std::filesystem::path(path).filename().string());
    jobs.all.push_back(make_job(request, jobs.all, path, stage, stage != nullptr && !stage->offload));
  }
  return jobs;
}

}  // namespace zero::tools
