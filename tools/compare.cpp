// compare: runs the baseline and the stages, and says in one table whether they are equal, and what each holds and
// sends.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "common/base/error.h"
#include "tools/compare_largest.h"
#include "tools/compare_options.h"
#include "tools/compare_report.h"
#include "tools/compare_run.h"
#include "tools/output_file.h"
#include "tools/run_setting.h"

namespace zero::tools {
namespace {

namespace fs = std::filesystem;

/// The folder of --out, or a temporary one that goes when compare ends.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& out) : temporary_(out.empty()) {
    if (temporary_) {
      std::string pattern = (fs::temp_directory_path() / "zero-compare-XXXXXX").string();
      if (mkdtemp(pattern.data()) == nullptr)
        throw ResourceFailure(fmt::format("no temporary folder could be made at {}", pattern));
      path_ = pattern;
      return;
    }
    std::error_code error;
    fs::create_directories(out, error);
    if (error || !fs::is_directory(out) || access(out.c_str(), W_OK) != 0) {
      throw UnusableInput(
          fmt::format("--out {} is not a folder that can be written; another one would do", harmless(out)));
    }
    path_ = out;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (temporary_) fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  bool temporary_;
  std::string path_;
};

Summary run_and_read(const CompareOptions& options, const WorkFolder& folder, std::size_t index) {
  const Job& job = options.jobs.all[index];
  const std::string file = folder.path() + "/" + job.name + "/summary.json";
  std::error_code ignored;
  fs::remove(file, ignored);  // an earlier run's is not this one's
  run_job(job, options.ranks, folder.path(), options.limit_seconds, index + 1, options.jobs.all.size());
  try {
    return read_summary(file, job.single_process() ? 1 : options.ranks);
  } catch (const UnusableInput& error) {
    throw UnusableInput(fmt::format("{} ended with status 0 but {}; docs/summary.md says what a program has to write",
                                    harmless(job.name, 60), error.what()));
  }
}

Report compare(const CompareOptions& options, const WorkFolder& folder) {
  Report report;
  report.ranks = options.ranks;
  report.notes = options.jobs.notes;
  std::vector<Summary> summaries;
  for (std::size_t i = 0; i < options.jobs.all.size(); ++i) summaries.push_back(run_and_read(options, folder, i));
  const Summary& reference = summaries[0];
  report.setting = setting_of(reference.options, reference.options, options.ranks);
  if (const auto model = reference.options.find("model"); model != reference.options.end() && model->is_string())
    report.model = *model;
  report.steps = static_cast<Index>(reference.losses.size());
  for (const Summary& summary : summaries) {  // what only some programs offer
    if (!summary.options.contains("prefetch")) continue;
    const formula::Setting own = setting_of(summary.options, reference.options, options.ranks);
    report.setting.prefetch = own.prefetch;
    report.setting.reshard_after_forward = own.reshard_after_forward;
    report.setting.shard_group = own.shard_group;
    break;
  }
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    report.rows.push_back(judge(options.jobs.all[i], summaries[i], options.jobs.all[0].name, reference, options.ranks));
  }
  return report;
}

LargestReport largest(const CompareOptions& options, const WorkFolder& folder) {
  LargestReport report{options.ranks, *options.largest, {}, options.jobs.notes};
  for (const Job& job : options.jobs.all) {
    const std::size_t number = report.rows.size() + 1;
    report.rows.push_back(find_largest(job, report.largest, [&](Index layers) {
      return train_capped(job, layers, options.ranks, folder.path(), options.limit_seconds, number,
                          options.jobs.all.size());
    }));
  }
  return report;
}

void plot(const std::string& program_folder, const WorkFolder& folder, const std::string& json,
          const std::string& file) {
  const std::string input = folder.path() + "/compare-plot.json", log = folder.path() + "/compare-plot.log";
  OutputFile("--plot", input).write(json);
  int status = 127;
  for (const char* python : {"/usr/bin/python3", "python3"}) {
    status = run_quietly({python, program_folder + "/plot_compare.py", input, file}, log, 120);
    if (status == 0) return;
    if (status != 127 && status != 4) break;  // this Python has matplotlib
  }
  fmt::print(stderr, "note: {} was not drawn: {}\n", harmless(file),
             status == 127 ? "there is no python3"
             : status == 4 ? "Python has no matplotlib; the package python3-matplotlib has it"
                           : "plot_compare.py failed");
}

/// Under a launcher there would be as many comparisons as ranks, whose programs could not start ranks of their own.
void refuse_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || std::string_view(rank) == "0") {
    throw UnusableInput("compare was started by mpirun and starts mpirun itself; compare -n N without mpirun would do");
  }
  // mpirun ends the others at the first that ends badly; rank 0 has something to say before that.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::exit(static_cast<int>(ExitStatus::unusable));
}

int run(int argc, char** argv) {
  refuse_launcher();
  const std::string program_folder = fs::read_symlink("/proc/self/exe").parent_path().string();
  std::string text;
  const std::optional<CompareOptions> options = parse_compare_options(argc, argv, program_folder, text);
  if (!options) {
    fmt::print("{}", text);
    return 0;
  }
  const WorkFolder folder(options->out);
  OutputFile json("--json", options->json), markdown("--markdown", options->markdown), csv("--csv", options->csv);
  OutputFile picture("--plot", options->plot);
  watch_signals();
  if (options->largest) {
    const LargestReport report = largest(*options, folder);
    fmt::print("{}", largest_text(report));
    std::fflush(stdout);
    json.write(largest_json(report));
    markdown.write(largest_markdown(report));
    csv.write(largest_csv(report));
    return static_cast<int>(report.right() ? ExitStatus::done : ExitStatus::differs);
  }
  const Report report = compare(*options, folder);
  fmt::print("{}", report_text(report));
  std::fflush(stdout);
  json.write(report_json(report));
  markdown.write(report_markdown(report));
  csv.write(report_csv(report));
  if (picture.wanted()) plot(program_folder, folder, report_json(report), options->plot);
  return static_cast<int>(report.right() ? ExitStatus::done : ExitStatus::differs);
}

}  // namespace
}  // namespace zero::tools

int main(int argc, char** argv) {
  using namespace zero;
  try {
    return tools::run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.status());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(ExitStatus::failed);
  }
}
