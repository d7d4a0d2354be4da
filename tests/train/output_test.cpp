#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/train/history.h"
#include "common/train/progress.h"
#include "common/train/report.h"
#include "common/train/summary.h"
#include "tests/support/scratch.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using testing::Scratch;

/// Files can't grow beyond so many bytes while this lives: a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

std::vector<std::string> files(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string refusal(const std::string& path) {
  try {
    OutputDirectory::check(path);
    const OutputDirectory out(path);
  } catch (const UnusableInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Numbers, ReadBackToTheSameBits) {
  const double least = std::numeric_limits<double>::denorm_min();
  for (const double value : {0.1, 1.0 / 3, 5.581088178092614, 1e300, 1e-300, least, -0.0, 4.0, std::nextafter(1.0, 2.0),
                             std::numeric_limits<double>::max()}) {
    const std::string text = nlohmann::json{{"x", number(value)}}.dump();
    const double back = nlohmann::json::parse(text)["x"].get<double>();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(back), std::bit_cast<std::uint64_t>(value)) << text;
  }
}

TEST(Numbers, ThatAreNotFiniteAreStrings) {
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(number(std::nan("")), "nan");
  EXPECT_EQ(number(-std::nan("")), "nan");
}

TEST(Summary, IsWrittenWholeAndLeavesNoTemporaryFile) {
  const Scratch scratch;
  write_atomically(scratch.path("summary.json"), "first");
  write_atomically(scratch.path("summary.json"), "second");
  EXPECT_EQ(scratch.read("summary.json"), "second");
  EXPECT_EQ(files(scratch.path()), (std::vector<std::string>{"summary.json"}));
}

TEST(Summary, IsReplacedByANewFileSoThatAReaderNeverSeesHalfOfIt) {
  const Scratch scratch;
  write_atomically(scratch.path("summary.json"), "first");
  const std::string reader = scratch.path("reader");
  fs::create_hard_link(scratch.path("summary.json"), reader);
  write_atomically(scratch.path("summary.json"), "second");
  EXPECT_EQ(scratch.read("reader"), "first");
}

TEST(Summary, OnAFullDiskIsAsBeforeAndTheFailureIsASentence) {
  const Scratch scratch;
  write_atomically(scratch.path("summary.json"), "first");
  {
    const FullDisk full(1000);
    try {
      write_atomically(scratch.path("summary.json"), std::string(100'000, 'x'));
      FAIL() << "written";
    } catch (const ResourceFailure& error) {
      EXPECT_NE(std::string(error.what()).find("summary.json cannot be written: "), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(scratch.read("summary.json"), "first");
  EXPECT_EQ(files(scratch.path()), (std::vector<std::string>{"summary.json"}));
}

TEST(OutputDirectory, IsMadeWithItsParents) {
  const Scratch scratch;
  EXPECT_EQ(refusal(scratch.path("a/b/c")), "accepted");
  EXPECT_EQ(files(scratch.path("a/b/c")), (std::vector<std::string>{"metrics.jsonl"}));
}

TEST(OutputDirectory, CheckingMakesNothing) {
  const Scratch scratch;
  OutputDirectory::check(scratch.path("a/b"));
  EXPECT_TRUE(files(scratch.path()).empty());
}

TEST(OutputDirectory, ThatCannotBeWrittenToIsRefused) {
  const Scratch scratch;
  scratch.write("file", "contents");
  EXPECT_NE(refusal(scratch.path("file")).find("is not a directory"), std::string::npos);
  EXPECT_NE(refusal(scratch.path("file/below")).find("cannot be written to: Not a directory"), std::string::npos);
  EXPECT_NE(refusal("/proc/nowhere/out").find("cannot be written to"), std::string::npos);
  EXPECT_NE(refusal(scratch.path(std::string(300, 'x'))).find("cannot be written to"), std::string::npos);
  EXPECT_EQ(scratch.read("file"), "contents");
  if (geteuid() != 0) {  // root may write anywhere
    fs::create_directory(scratch.path("locked"));
    chmod(scratch.path("locked").c_str(), 0500);
    EXPECT_NE(refusal(scratch.path("locked")).find("Permission denied"), std::string::npos);
  }
}

TEST(OutputDirectory, AnOldSummaryDoesNotSurviveTheStartOfANewRun) {
  const Scratch scratch;
  scratch.write("summary.json", "old");
  scratch.write("metrics.jsonl", "old\n");
  OutputDirectory::check(scratch.path());
  EXPECT_TRUE(scratch.has("summary.json")) << "a run that is refused later leaves it alone";
  OutputDirectory out(scratch.path());
  EXPECT_FALSE(scratch.has("summary.json"));
  out.append_metrics({{"step", 1}});
  EXPECT_EQ(scratch.read("metrics.jsonl"), "{\"step\":1}\n");
}

TEST(OutputDirectory, WhatIsNotARegularFileIsRefusedWithoutWaiting) {
  for (const char* name : {"metrics.jsonl", "summary.json", "summary.json.tmp"}) {
    const Scratch scratch;
    ASSERT_EQ(mkfifo(scratch.path(name).c_str(), 0600), 0);
    EXPECT_NE(refusal(scratch.path()).find("not a regular file"), std::string::npos) << name;
  }
}

TEST(OutputDirectory, MetricsAreThereAsSoonAsTheyAreAppended) {
  const Scratch scratch;
  OutputDirectory out(scratch.path());
  for (int step = 1; step <= 3; ++step) {
    out.append_metrics({{"step", step}});
    const std::string text = scratch.read("metrics.jsonl");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), step);
  }
}

TEST(OutputDirectory, AFullDiskIsASentence) {
  const Scratch scratch;
  OutputDirectory out(scratch.path());
  const FullDisk full(0);
  EXPECT_THROW(out.append_metrics({{"step", 1}}), ResourceFailure);
}

TEST(OutputDirectory, NamesThatAreNotUtf8DoNotSpoilTheSummary) {
  const Scratch scratch;
  OutputDirectory out(scratch.path());
  out.write_summary({{"out", "caf\xe9"}});
  EXPECT_TRUE(nlohmann::json::parse(scratch.read("summary.json")).contains("out"));
}

TEST(History, NamesAreThoseOfTheContract) {
  History history;
  StepResult result;
  result.loss = 2.5;
  result.norm.value = std::numeric_limits<double>::infinity();
  const StepSeconds seconds{0.5, 0.125, 0.25};
  history.add(result, seconds);
  history.add(result, seconds);
  nlohmann::json summary;
  history.write(summary, 100);
  EXPECT_EQ(summary["losses"], (nlohmann::json{2.5, 2.5}));
  EXPECT_EQ(summary["grad_norms"], (nlohmann::json{"inf", "inf"}));
  EXPECT_EQ(summary["tokens_per_second"], 200.0);
  EXPECT_EQ(summary["seconds"]["total"], (nlohmann::json{0.5, 0.5}));
  EXPECT_EQ(summary["seconds"]["compute"], (nlohmann::json{0.125, 0.125}));
  EXPECT_EQ(summary["seconds"]["communication_exposed"], (nlohmann::json{0.125, 0.125}));
  EXPECT_EQ(summary["seconds"]["optimizer"], (nlohmann::json{0.25, 0.25}));
  EXPECT_EQ(summary["seconds"]["offload"], (nlohmann::json{0.0, 0.0}));
}

TEST(History, AStepThatIsNotFiniteIsToldInOneSentence) {
  StepResult result;
  result.loss = 2;
  result.norm.value = std::numeric_limits<double>::infinity();
  result.not_finite = "block 2 attention.qkv.weight";
  EXPECT_EQ(not_finite_sentence(3, result),
            "step 3: the gradient norm is inf; first in block 2 attention.qkv.weight; the step was not taken; a lower "
            "--lr may help");
  result.loss = -std::nan("");
  result.not_finite = "the loss";
  EXPECT_EQ(not_finite_sentence(4, result), "step 4: the loss is nan; the step was not taken; a lower --lr may help");
  EXPECT_EQ(not_finite_sentence(4, result, 3),
            "step 4: the loss is nan; 3 steps in a row were not taken; a lower --lr may help");
}

TEST(History, CountsTheStepsThatWereNotTakenAndHowManyOfThemAreTheLatest) {
  History history;
  StepResult taken, not_taken;
  not_taken.verdict = Verdict::not_finite;
  std::vector<std::pair<Index, Index>> counts;
  for (const StepResult& result : {not_taken, taken, not_taken, not_taken, taken, not_taken}) {
    history.add(result, {});
    counts.emplace_back(history.not_taken(), history.not_taken_in_a_row());
  }
  EXPECT_EQ(counts, (std::vector<std::pair<Index, Index>>{{1, 1}, {1, 0}, {2, 1}, {3, 2}, {3, 0}, {4, 1}}));
  nlohmann::json summary;
  history.write(summary, 1);
  EXPECT_EQ(summary["steps_not_taken"], 4);
}

TEST(StepTable, ShowsEveryStepOfAShortRunAndAboutAHundredOfALongOne) {
  for (const Index steps : {1, 20, 100, 101, 999, 12'345, 1'000'000}) {
    const StepTable table(steps, 1);
    Index lines = 0;
    for (Index t = 1; t <= steps; ++t) lines += table.shows(t, Verdict::ok) ? 1 : 0;
    EXPECT_GE(lines, std::min<Index>(steps, 40)) << steps;
    EXPECT_LE(lines, 102) << steps;
    EXPECT_TRUE(table.shows(1, Verdict::ok) && table.shows(steps, Verdict::ok));
    EXPECT_EQ(table.head().find("one step in") != std::string::npos, lines < steps);
  }
  EXPECT_TRUE(StepTable(1'000'000, 1).shows(7, Verdict::not_finite));
}

TEST(StepTable, ColumnsStandUnderTheirHeads) {
  StepTable table(20, 1024);
  const std::string head = table.head();
  EXPECT_EQ(table.line(7, {}, 1e-3, 0.1).size(), head.size() - 1);
  StepResult broken;
  broken.loss = -std::nan("");
  broken.verdict = Verdict::not_finite;
  EXPECT_EQ(table.line(8, broken, 1e-3, 0.1).find("-nan"), std::string::npos);
}

TEST(StepTable, SaysTheTimeLeftOfALongRun) {
  StepTable table(1000, 1024);
  EXPECT_NE(table.line(1, {}, 1e-3, 5).find("1h 23m left"), std::string::npos);
  EXPECT_EQ(StepTable(3, 1024).line(1, {}, 1e-3, 5).find("left"), std::string::npos);
  EXPECT_EQ(format_duration(200), "3m 20s");
  EXPECT_EQ(format_duration(12), "12s");
}

/// A report of two ranks that hold and send what the formula says.
Report exact_report() {
  Report report;
  report.formula.memory = {{"parameters", 4096}, {"buckets", 100}};
  report.formula.communication = {{"gradients", {"reduce_scatter", 512, 5}}};
  report.ranks.resize(2);
  for (RankReport& rank : report.ranks) {
    RankReport::TierReport& device = rank.tiers[static_cast<std::size_t>(Tier::device)];
    device.peak = 4196;
    device.current[static_cast<std::size_t>(Category::parameters)] = 4096;
    device.category_peak[static_cast<std::size_t>(Category::parameters)] = 4096;
    device.category_peak[static_cast<std::size_t>(Category::buckets)] = 100;
    rank.sent[static_cast<std::size_t>(Purpose::gradients)] = 512;
    rank.calls[static_cast<std::size_t>(Purpose::gradients)] = 5;
    rank.sent[static_cast<std::size_t>(Purpose::control)] = 99;
  }
  report.collectives[static_cast<std::size_t>(Purpose::gradients)] = "reduce_scatter";
  return report;
}

TEST(Report, OneLineWhenEverythingIsAsTheFormulaSays) {
  const Report report = exact_report();
  EXPECT_EQ(report.memory_lines(),
            (std::vector<std::string>{"memory: held = formula in every category, on every rank"}));
  EXPECT_EQ(report.communication_lines().size(), 1U);
  EXPECT_NO_THROW(report.check_steady());
}

TEST(Report, NamesRankCategoryAndBytesOfEveryDifference) {
  Report report = exact_report();
  report.ranks[1].tiers[0].category_peak[static_cast<std::size_t>(Category::parameters)] = 8192;
  report.ranks[1].tiers[0].category_peak[static_cast<std::size_t>(Category::gathered)] = 7;
  report.formula.memory["workspace"] = 3;
  EXPECT_EQ(
      report.memory_lines(),
      (std::vector<std::string>{
          "memory: rank 0 held 0 bytes of workspace on device, and the formula says 3 bytes",
          "memory: rank 1 held 8.0 KiB (8192 bytes) of parameters on device, and the formula says 4.0 KiB (4096 bytes)",
          "memory: rank 1 held 7 bytes of gathered on device, and the formula says 0 bytes",
          "memory: rank 1 held 0 bytes of workspace on device, and the formula says 3 bytes"}));
  report.ranks[0].sent[static_cast<std::size_t>(Purpose::gradients)] = 513;
  report.ranks[1].calls[static_cast<std::size_t>(Purpose::gradients)] = 6;
  EXPECT_EQ(
      report.communication_lines(),
      (std::vector<std::string>{"sent: rank 0 sent 513 bytes of gradients in a step, and the formula says 512 bytes",
                                "sent: rank 1 took 6 collectives for gradients in a step, and the formula says 5"}));
}

TEST(Report, StepsThatSendDifferentlyAreAnError) {
  Report report = exact_report();
  report.ranks[1].traffic_change = 4;
  EXPECT_THROW(report.check_steady(), ResultFailure);
}

TEST(Report, JsonHasTheNamesOfTheContract) {
  Report report = exact_report();
  report.ranks[0].tiers[0].cap = 5000;
  const nlohmann::json memory = report.memory_json();
  ASSERT_EQ(memory["ranks"].size(), 2U);
  const nlohmann::json& device = memory["ranks"][0]["tiers"]["device"];
  EXPECT_EQ(memory["ranks"][0]["rank"], 0);
  EXPECT_EQ(device["cap"], 5000);
  EXPECT_EQ(device["peak"], 4196);
  EXPECT_EQ(device["categories"]["parameters"], (nlohmann::json{{"formula", 4096}, {"current", 4096}, {"peak", 4096}}));
  EXPECT_EQ(device["categories"]["buckets"], (nlohmann::json{{"formula", 100}, {"current", 0}, {"peak", 100}}));
  EXPECT_EQ(device["categories"].size(), 2U);
  EXPECT_EQ(memory["ranks"][0]["tiers"].size(), 1U) << "tiers that are not used are absent";
  EXPECT_EQ(memory["ranks"][1]["tiers"]["device"]["cap"], nullptr);

  const nlohmann::json sent = report.communication_json()["ranks"][1];
  EXPECT_EQ(sent["gradients"],
            (nlohmann::json{{"collective", "reduce_scatter"}, {"formula", 512}, {"sent", 512}, {"calls", 5}}));
  EXPECT_FALSE(sent.contains("control"));
  report.counts_bytes = false;
  EXPECT_EQ(report.communication_json()["ranks"][1]["gradients"]["sent"], nullptr);
}

}  // namespace
}  // namespace zero
