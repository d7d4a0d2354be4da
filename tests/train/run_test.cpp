// The loop around a step, with a trainer that computes nothing, as a program of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "common/train/options.h"
#include "common/train/run.h"
#include "tests/support/scratch.h"
#include "tests/train/fake_trainer.h"

namespace zero {
namespace {

using testing::Behavior;
using testing::behavior;
using testing::Scratch;

struct Ending {
  int status = 0;
  std::string out;
  std::string err;
};

class RunTest : public ::testing::Test {
 protected:
  RunTest() : data_(scratch_.write("data.txt", std::string(5000, '#'))) { behavior = {}; }

  Ending run(const std::vector<std::string>& more, const formula::Formula& extra = {}) {
    Program program;
    program.name = "fake";
    program.description = "A fake program.";
    program.single_process = true;
    program.add_options = [](CLI::App& app, Options& options) { add_as_world_option(app, options); };
    program.make_trainer = [](const Context& context) { return std::make_unique<testing::FakeTrainer>(context); };
    program.formula = [&extra](const formula::Setting& setting) {
      formula::Formula formula = testing::fake_formula(setting);
      for (const auto& [category, bytes] : extra.memory) formula.memory[category] += bytes;
      return formula;
    };
    std::vector<std::string> arguments = {"fake",    "--layers", "1",         "--heads", "1",      "--width", "11",
                                          "--vocab", "61",       "--context", "20",      "--data", data_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    Ending ending;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    ending.status = zero::run(program, static_cast<int>(argv.size()), argv.data());
    ending.out = ::testing::internal::GetCapturedStdout();
    ending.err = ::testing::internal::GetCapturedStderr();
    return ending;
  }

  Ending run_into(const std::string& directory, std::vector<std::string> more) {
    more.insert(more.end(), {"--out", scratch_.path(directory)});
    return run(more);
  }

  nlohmann::json summary(const std::string& directory) {
    return nlohmann::json::parse(scratch_.read(directory + "/summary.json"));
  }

  std::vector<nlohmann::json> metrics(const std::string& directory) {
    std::vector<nlohmann::json> lines;
    std::istringstream text(scratch_.read(directory + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  Scratch scratch_;
  std::string data_;
};

/// One line, "error: ...".
void expect_one_error(const Ending& ending, int status, const std::string& words) {
  EXPECT_EQ(ending.status, status) << ending.err;
  EXPECT_EQ(ending.err.rfind("error: ", 0), 0U) << ending.err;
  EXPECT_EQ(std::count(ending.err.begin(), ending.err.end(), '\n'), 1) << ending.err;
  EXPECT_NE(ending.err.find(words), std::string::npos) << ending.err;
}

TEST_F(RunTest, PrintsThePlanThenAStepALineThenDigestsAndTheComparison) {
  const Ending ending = run({"--steps", "4"});
  EXPECT_EQ(ending.status, 0);
  EXPECT_EQ(ending.err, "");
  std::size_t at = 0;
  for (const char* words :
       {"plan\n", "program       fake", "1 layer, 1 head, width 11, context 20, vocabulary 61", "N = 1",
        "8 sequences = micro-batch 8 x 1 rank x k = 1; 160 tokens", "5,000 tokens", "memory of each rank, by formula",
        "total", "sent by each rank", "nothing", "step", "loss", "5.000000", "1.250000", "digest parameters ",
        "digest master     ", "digest momentum   ", "digest variance   ", "memory: held = formula in every category"}) {
    const std::size_t found = ending.out.find(words, at);
    ASSERT_NE(found, std::string::npos) << "'" << words << "' after character " << at << " of:\n" << ending.out;
    at = found;
  }
}

TEST_F(RunTest, ByteCountsThatDifferFromTheFormulaAreNamed) {
  formula::Formula extra;
  extra.memory["optimizer"] = 4;
  const Ending ending = run({}, extra);
  EXPECT_EQ(ending.status, 0);
  EXPECT_NE(ending.out.find("memory: rank 0 held "), std::string::npos) << ending.out;
  EXPECT_EQ(ending.out.find("held = formula"), std::string::npos) << ending.out;
}

TEST_F(RunTest, WritesTheSummaryOfTheContract) {
  ASSERT_EQ(run_into("out", {"--steps", "3", "--micro-batch", "2", "--global-batch", "4"}).status, 0);
  const nlohmann::json s = summary("out");
  EXPECT_EQ(s["schema"], 1);
  EXPECT_EQ(s["executable"], "fake");
  EXPECT_EQ(s["world"], 1);
  EXPECT_EQ(s["options"]["global-batch"], 4);
  EXPECT_EQ(s["options"]["as-world"], 1);
  EXPECT_EQ(s["parameters"], (61 + 20 + 2) * 11 + 12 * 121 + 13 * 11);
  EXPECT_GE(s["padded_parameters"], s["parameters"]);
  EXPECT_EQ(s["losses"], (nlohmann::json{5.0, 2.5, 5.0 / 3}));
  EXPECT_EQ(s["grad_norms"].size(), 3U);
  for (const char* kind : {"parameters", "master", "momentum", "variance"}) {
    EXPECT_EQ(s["digest"][kind].get<std::string>().size(), 32U) << kind;
  }
  EXPECT_EQ(s["digest"]["master"], s["digest"]["parameters"]);
  EXPECT_NE(s["digest"]["momentum"], s["digest"]["variance"]);
  const nlohmann::json& parameters = s["memory"]["ranks"][0]["tiers"]["device"]["categories"]["parameters"];
  EXPECT_EQ(parameters["peak"], s["padded_parameters"].get<Index>() * 4);
  EXPECT_EQ(parameters["formula"], parameters["peak"]);
  EXPECT_GT(s["memory"]["ranks"][0]["process_peak"], 1'000'000);
  EXPECT_EQ(s["communication"]["ranks"].size(), 1U);
  EXPECT_EQ(s["seconds"]["total"].size(), 3U);
  EXPECT_GT(s["tokens_per_second"], 0);
}

TEST_F(RunTest, MetricsHaveALineAStepWithDigestsWhenAskedFor) {
  ASSERT_EQ(run_into("every", {"--steps", "5", "--digest-every", "2"}).status, 0);
  const std::vector<nlohmann::json> lines = metrics("every");
  ASSERT_EQ(lines.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i]["loss"], summary("every")["losses"][i]);
    EXPECT_EQ(lines[i].contains("digest"), i == 1 || i == 3 || i == 4) << i;
  }
  EXPECT_EQ(lines[4]["digest"], summary("every")["digest"]);
  EXPECT_NE(lines[3]["digest"], lines[4]["digest"]);

  ASSERT_EQ(run_into("last", {"--steps", "3"}).status, 0);
  EXPECT_FALSE(metrics("last")[1].contains("digest"));
  EXPECT_TRUE(metrics("last")[2].contains("digest"));
}

TEST_F(RunTest, EndsAtTheFirstStepThatIsNotFinite) {
  behavior.not_finite_at = 3;
  const Ending ending = run_into("out", {"--steps", "1000"});
  expect_one_error(ending, 1,
                   "step 3: the gradient norm is inf; first in block 0 mlp.expand.weight; the step was not taken; a "
                   "lower --lr may help");
  EXPECT_EQ(metrics("out").size(), 3U);
  EXPECT_EQ(metrics("out")[2]["verdict"], "not finite");
  EXPECT_EQ(summary("out")["grad_norms"], (nlohmann::json{0.1, 0.1, "inf"}));
}

TEST_F(RunTest, SkipsAStepThatIsNotFiniteAndSaysSo) {
  behavior.not_finite_at = 3;
  const Ending ending = run_into("out", {"--steps", "5", "--on-nonfinite", "skip"});
  EXPECT_EQ(ending.status, 0);
  EXPECT_EQ(ending.err, "");
  EXPECT_NE(ending.out.find("not finite"), std::string::npos) << ending.out;
  EXPECT_NE(ending.out.find("first in block 0 mlp.expand.weight; 1 step not taken"), std::string::npos) << ending.out;
  EXPECT_NE(ending.out.find("skipped: 1 of 5 steps not taken"), std::string::npos) << ending.out;
  ASSERT_EQ(metrics("out").size(), 5U);
  EXPECT_EQ(metrics("out")[2]["verdict"], "not finite");
  EXPECT_EQ(metrics("out")[2]["not_finite"], "block 0 mlp.expand.weight");
  EXPECT_EQ(metrics("out")[2]["steps_not_taken"], 1);
  EXPECT_EQ(metrics("out")[3]["verdict"], "ok");
  EXPECT_EQ(summary("out")["steps_not_taken"], 1);

  behavior.not_finite_at = 5;
  expect_one_error(run({"--steps", "5", "--on-nonfinite", "skip"}), 1, "step 5: the gradient norm is inf");
}

TEST_F(RunTest, EvaluatesAsOftenAsAskedAndAfterTheLastStep) {
  // 5,000 tokens: 500 are held out, 24 sequences of 20 tokens and their targets, whose losses are 0 to 23.
  const Ending ending = run_into("out", {"--steps", "5", "--eval-every", "2", "--micro-batch", "5"});
  EXPECT_EQ(ending.status, 0) << ending.err;
  EXPECT_NE(ending.out.find("24 sequences of the data's last tenth are held out, 24 of them"), std::string::npos);
  EXPECT_NE(ending.out.find("held out 11.500000"), std::string::npos) << ending.out;
  ASSERT_EQ(metrics("out").size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(metrics("out")[i].contains("held_out_loss"), i == 1 || i == 3 || i == 4) << i;
  }
  EXPECT_EQ(metrics("out")[4]["held_out_loss"], 11.5);

  data_ = scratch_.write("long.txt", std::string(20'000, '#'));  // 99 sequences, of which 64 are evaluated
  ASSERT_EQ(run_into("long", {"--steps", "1", "--eval-every", "9"}).status, 0);
  EXPECT_EQ(metrics("long")[0]["held_out_loss"], 31.5);
}

TEST_F(RunTest, AFailureInAStepEndsWithItsStatusAndNoSummary) {
  scratch_.write("stale", "");
  ASSERT_EQ(run_into("out", {"--steps", "2"}).status, 0);
  ASSERT_TRUE(scratch_.has("out/summary.json"));
  behavior.fails_at = 2;
  expect_one_error(run_into("out", {"--steps", "5"}), 3, "the fake device broke");
  EXPECT_FALSE(scratch_.has("out/summary.json")) << "the summary of the run before must not be taken for this one's";
  EXPECT_EQ(metrics("out").size(), 1U);
}

TEST_F(RunTest, RefusalsLeaveNothingBehind) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& words) {
    const Ending ending = run_into("new", more);
    expect_one_error(ending, 2, words);
    EXPECT_EQ(ending.out, "");
    EXPECT_FALSE(scratch_.has("new"));
  };
  refused({"--steps", "0"}, "--steps 0 ");
  refused({"--nonsense"}, "--nonsense is not an option");
  refused({"--global-batch", "10", "--micro-batch", "4"}, "12 would do");
  data_ = scratch_.path("missing.txt");
  refused({}, "missing.txt cannot be opened");
  data_ = scratch_.write("short.txt", "####");
  refused({}, "short.txt has 4 tokens");
  data_ = scratch_.write("high.txt", std::string(5000, 'z'));
  refused({}, "holds the byte 122 at position 0; it must be below --vocab 61");
}

TEST_F(RunTest, AnOutputThatCannotBeWrittenToIsRefusedBeforeAnyStep) {
  const Ending ending = run({"--out", data_});
  expect_one_error(ending, 2, "is not a directory");
  EXPECT_EQ(ending.out, "");
  expect_one_error(run({"--out", "/proc/nowhere"}), 2, "cannot be written to");
}

TEST_F(RunTest, ACapEndsTheRunNamingWhatIsHeld) { expect_one_error(run({"--device-memory", "1KiB"}), 3, "held"); }

TEST_F(RunTest, HelpIsPrintedAndNothingRuns) {
  const Ending ending = run({"--help"});
  EXPECT_EQ(ending.status, 0);
  EXPECT_NE(ending.out.find("Usage: build/bin/fake"), std::string::npos);
  EXPECT_EQ(ending.out.find("plan\n"), std::string::npos);
}

TEST_F(RunTest, ASingleProcessRefusesToBeStartedAsSeveral) {
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  const Ending ending = run({});
  unsetenv("OMPI_COMM_WORLD_SIZE");
  expect_one_error(ending, 2, "fake is one process and was started as 3");
}

TEST_F(RunTest, VerifyPassesWhenEveryByteIsTheBaselines) {
  const Ending ending = run({"--verify", "--steps", "3"});
  EXPECT_EQ(ending.status, 0) << ending.err;
  EXPECT_NE(ending.out.find("verify: the same bytes as the unsharded baseline after each of 3 steps"),
            std::string::npos);
}

TEST_F(RunTest, VerifyNamesTheFirstDifferenceAndWritesNoSummary) {
  behavior.one_bit_off_at = 2;
  const Ending ending = run_into("out", {"--verify", "--steps", "9"});
  expect_one_error(ending, 1, "step 2: momentum of block 0 ");
  EXPECT_NE(ending.err.find("element 37, is "), std::string::npos) << ending.err;
  EXPECT_FALSE(scratch_.has("out/summary.json"));

  behavior = {};
  behavior.loss_off_at = 1;
  expect_one_error(run({"--verify"}), 1, "step 1: the loss is 5.000000000001 and 5 in the baseline");
}

TEST_F(RunTest, PaddingThatIsNotZeroIsFoundOut) {
  behavior.dirty_padding = true;
  expect_one_error(run({"--steps", "2"}), 1, "are not zero in the padding");
}

TEST_F(RunTest, StateThatIsNotShownIsFoundOut) {
  behavior.hides_a_unit = true;
  expect_one_error(run({"--steps", "2"}), 1, "and the model has");
}

}  // namespace
}  // namespace zero
