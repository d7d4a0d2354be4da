#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/train/option_types.h"
#include "common/train/options.h"
#include "tools/program_options.h"

namespace zero {
namespace {

/// A program that offers everything.
Program program() {
  Program all;
  all.name = "program";
  all.description = "A program for tests.";
  all.add_options = [](CLI::App& app, Options& options) {
    add_gather_options(app, options);
    add_shard_group_option(app, options);
  };
  return all;
}

std::string help_;

std::optional<Options> parse(const std::vector<std::string>& arguments, int world = 1, const Program& of = program()) {
  std::vector<const char*> argv = {"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_options(of, static_cast<int>(argv.size()), argv.data(), world, help_);
}

/// The sentence of a refusal.
std::string refusal(const std::vector<std::string>& arguments, int world = 1, const Program& of = program()) {
  try {
    parse(arguments, world, of);
  } catch (const UnusableInput& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

void expect_words(const std::string& sentence, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(sentence.find(word), std::string::npos) << "'" << word << "' in: " << sentence;
  }
}

struct NumberOption {
  std::string name;
  bool zero_is_fine;
  std::string range;  ///< as the refusal says it
};

const std::vector<NumberOption> kNumbers = {
    {"--layers", false, "whole number from 1 to 10000"},
    {"--heads", false, "whole number from 1 to 10000"},
    {"--width", false, "whole number from 1 to 1000000"},
    {"--context", false, "whole number from 1 to 1000000"},
    {"--vocab", false, "whole number from 1 to 1000000"},
    {"--steps", false, "whole number from 1 to 1000000000"},
    {"--seed", true, "whole number from 0 to 9223372036854775807"},
    {"--micro-batch", false, "whole number from 1 to 1000000"},
    {"--global-batch", false, "whole number from 1 to 1000000000"},
    {"--dropout", true, "number from 0 and below 1"},
    {"--eval-every", true, "whole number from 0 to 1000000000"},
    {"--shard-group", false, "whole number from 1 to 1000000"},
    {"--lr", false, "number from 1e-30 to 1e+10"},
    {"--warmup", true, "whole number from 0 to 1000000000"},
    {"--min-lr", true, "number from 0 to 1e+10"},
    {"--beta1", true, "number from 0 and below 1"},
    {"--beta2", true, "number from 0 and below 1"},
    {"--eps", false, "number from 1e-30 to 1"},
    {"--weight-decay", true, "number from 0 to 1000"},
    {"--clip", true, "number from 0 to 1e+10"},
    {"--threads", false, "whole number from 1 to 1024"},
    {"--bucket", false, "size from 1 byte to"},
    {"--wrap", false, "whole number from 1 to 10000"},
    {"--timeout", false, "number from 0.1 to 1e+06"},
    {"--device-memory", false, "size from 1 byte to"},
    {"--host-memory", false, "size from 1 byte to"},
    {"--digest-every", true, "whole number from 0 to 1000000000"},
    {"--prefetch", true, "whole number from 0 to 10000"},
};

TEST(Options, EveryNumberIsRefusedOutsideItsRangeNamingOptionValueAndRange) {
  const std::vector<std::string> bad = {
      "-1",   "1e18", "99999999999999999999", "", "12abc", "nan", "inf", "-inf", "0x10", " 3", "3 ", "1,5", "--", "+3",
      "-0.5", "1e400"};
  for (const NumberOption& option : kNumbers) {
    for (const std::string& value : bad) {
      for (const std::vector<std::string>& arguments :
           {std::vector<std::string>{option.name, value}, {option.name + "=" + value, "--verify"}}) {
        expect_words(refusal(arguments), {option.name + " ", shown(value), option.range});
      }
    }
    if (option.zero_is_fine) {
      EXPECT_EQ(refusal({option.name, "0"}), "accepted") << option.name;
    } else {
      expect_words(refusal({option.name, "0"}), {option.name + " 0 ", option.range});
    }
  }
}

TEST(Options, WholeNumbersAreNotRoundedAndSignsAreNotDropped) {
  EXPECT_EQ(refusal({"--steps", "3.0"}), "--steps 3.0 is not a whole number from 1 to 1000000000");
  EXPECT_EQ(refusal({"--steps", "1e2"}), "--steps 1e2 is not a whole number from 1 to 1000000000");
  EXPECT_EQ(parse({"--seed", "9223372036854775807"})->seed, 9223372036854775807U);
  EXPECT_EQ(parse({"--lr", "2.5e-4"})->optimizer.learning_rate, 2.5e-4);
  EXPECT_EQ(parse({"--lr=1e10"})->optimizer.learning_rate, 1e10);
}

TEST(Options, SizesTakeUnits) {
  EXPECT_EQ(parse({"--bucket", "4MiB"})->bucket_bytes, 4 << 20);
  EXPECT_EQ(parse({"--bucket", "4000000000"})->bucket_bytes, 4'000'000'000) << "a bucket larger than the model is fine";
  EXPECT_EQ(parse({"--device-memory", "1.5GiB"})->device_memory, Index{3} << 29);
  EXPECT_EQ(parse({})->device_memory, std::nullopt);
  expect_words(refusal({"--bucket", "4MiBs"}), {"--bucket 4MiBs is not a size"});
}

TEST(Options, ValuesAreShownOnOneLineWhateverTheyHold) {
  EXPECT_EQ(shown("12abc"), "12abc");
  EXPECT_EQ(shown(""), "''");
  EXPECT_EQ(shown("a b"), "'a b'");
  EXPECT_EQ(shown("a\nb\x1b[31m"), "'a\\x0ab\\x1b[31m'");
  EXPECT_EQ(shown(std::string(1000, 'x')).size(), 63U);
}

TEST(Options, NamedValuesAreRefusedNamingTheOnesThereAre) {
  EXPECT_EQ(refusal({"--model", "huge"}),
            "--model huge is not one of tiny, small, gpt2, gpt2-medium, gpt2-large, gpt2-xl");
  EXPECT_EQ(refusal({"--lr-schedule", "linear"}), "--lr-schedule linear is not one of constant, cosine");
  EXPECT_EQ(refusal({"--products", ""}), "--products '' is not one of canonical, library");
  EXPECT_EQ(refusal({"--collectives", "Ring"}), "--collectives Ring is not one of canonical, native, ring");
  EXPECT_EQ(refusal({"--transport", "tcp"}), "--transport tcp is not one of auto, shared, messages, nccl");
  EXPECT_EQ(refusal({"--accumulation", "first"}), "--accumulation first is not one of ranks-first, local-first");
  EXPECT_EQ(refusal({"--reshard-after-forward", "yes"}), "--reshard-after-forward yes is not one of on, off");
  EXPECT_EQ(refusal({"--precision", "fp16"}), "--precision fp16 is not one of fp32, bf16");
  EXPECT_EQ(refusal({"--precision", "BF16"}), "--precision BF16 is not one of fp32, bf16");
  EXPECT_EQ(refusal({"--on-nonfinite", "maybe"}), "--on-nonfinite maybe is not one of stop, skip");
  EXPECT_EQ(refusal({"--backend", "rocm"}), "--backend rocm is not one of cpu, cuda, auto");
  if (const auto why = why_no_cuda()) {
    EXPECT_EQ(refusal({"--backend", "cuda"}), *why);
  }
  expect_words(refusal({"--data", ""}), {"--data '' is not the name of a file"});
  expect_words(refusal({"--out="}), {"--out '' is not the name of a directory"});
}

TEST(Options, ShardingGroupsAreSubtreesOfTheSum) {
  for (const char* fits : {"1", "2", "4", "12"}) EXPECT_EQ(refusal({"--shard-group", fits}, 12), "accepted") << fits;
  expect_words(refusal({"--shard-group", "3"}, 12),
               {"--shard-group 3 ", "power of two that divides 12 ranks", "2 would do"});
  expect_words(refusal({"--shard-group", "8"}, 12), {"--shard-group 8 ", "4 would do"});
  expect_words(refusal({"--shard-group", "24"}, 12), {"--shard-group 24 ", "4 would do"});
  const auto of = [](const char* size, int world) { return refusal({"--shard-group", size}, world); };
  expect_words(of("3", 4), {"--shard-group 3 ", "divides 4 ranks", "; 2 would do"});
  expect_words(of("5", 4), {"--shard-group 5 ", "; 4 would do"});
  expect_words(of("2", 3), {"--shard-group 2 ", "divides 3 ranks nor all of them", "; 1 would do"});
  expect_words(of("2", 1), {"--shard-group 2 ", "divides 1 rank nor", "; 1 would do"});
  expect_words(of("0", 4), {"--shard-group 0 is not a whole number from 1 to 1000000"});
  EXPECT_EQ(of("3", 3), "accepted") << "all ranks are one group";
}

TEST(Options, DropoutIsAShareBelowOne) {
  for (const char* bad : {"1", "1.5", "-0.1", "nan", "inf", "50%", "1e-1x"}) {
    EXPECT_EQ(refusal({"--dropout", bad}), "--dropout " + std::string(bad) + " is not a number from 0 and below 1");
  }
  for (const char* fine : {"0", "0.1", "0.999999", "1e-9"}) EXPECT_EQ(refusal({"--dropout", fine}), "accepted");
}

TEST(Options, MistakesOfTheCommandLineAreOneSentence) {
  EXPECT_EQ(refusal({"--stpes", "3"}), "--stpes is not an option of program; --steps is, and --help lists them");
  EXPECT_EQ(refusal({"--offload-optimizer", "host"}),
            "--offload-optimizer is not an option of program; --help lists them");
  EXPECT_EQ(refusal({"--as-world", "2"}), "--as-world is not an option of program; --help lists them");
  EXPECT_EQ(refusal({"--stpes", "3", "--sede", "4"}),
            "--stpes is not an option of program; --steps is, and --help lists them");
  EXPECT_EQ(refusal({"-n", "2"}), "-n is not an option of program; start ranks with tools/run -n N build/bin/program");
  EXPECT_EQ(refusal({"-n2"}), "-n2 is not an option of program; start ranks with tools/run -n N build/bin/program");
  EXPECT_EQ(refusal({"data.txt"}),
            "data.txt stands where an option is expected; every option of program begins with --");
  EXPECT_EQ(refusal({"--steps", "1", "--steps", "1"}), "--steps was given 2 times; once would do");
  EXPECT_EQ(refusal({"--steps"}), "--steps needs a value; --help says which");
  EXPECT_EQ(refusal({"--out", "--steps", "1"}), "--out needs a value; --help says which");
  EXPECT_EQ(refusal({"--steps", "1", "--data", "--sede"}), "--data needs a value; --help says which");
  EXPECT_EQ(parse({"--out=--steps"})->out, "--steps");
  EXPECT_EQ(refusal({"--steps=", "--verify"}), "--steps '' is not a whole number from 1 to 1000000000");
  EXPECT_EQ(refusal({"--verify=3"}), "--verify is a flag and takes no value");
}

TEST(Options, AnOptionOfAnotherProgramIsRefusedNamingThatProgram) {
  Program here = program();
  here.add_options = [](CLI::App& app, Options&) {
    add_offered_elsewhere(app, "--prefetch", "elsewhere");
    add_offered_elsewhere(app, "--as-world", "baseline");
  };
  const std::string sentence = "--prefetch is not an option of program; elsewhere offers it";
  EXPECT_EQ(refusal({"--prefetch", "2"}, 1, here), sentence);
  EXPECT_EQ(refusal({"--prefetch=2", "--steps", "1"}, 1, here), sentence);
  EXPECT_EQ(refusal({"--prefetch"}, 1, here), sentence);
  EXPECT_EQ(refusal({"--prefetch", "1", "--prefetch", "2"}, 1, here), sentence);
  EXPECT_EQ(refusal({"--as-world", "2"}, 1, here), "--as-world is not an option of program; baseline offers it");
  EXPECT_EQ(refusal({"--prefetc", "2"}, 1, here), "--prefetc is not an option of program; --help lists them");
  EXPECT_FALSE(to_json(*parse({}, 1, here)).contains("prefetch"));
  EXPECT_FALSE(parse({"--help"}, 1, here));
  EXPECT_EQ(help_.find("--prefetch"), std::string::npos);
}

TEST(Options, HeadsDivideTheWidth) {
  EXPECT_EQ(refusal({"--width", "11", "--heads", "2"}),
            "--heads 2 does not divide --width 11; 1 head or a width of 12 would do");
  expect_words(refusal({"--width", "11", "--heads", "12"}), {"--heads 12", "--width 11"});
  EXPECT_EQ(refusal({"--width", "11", "--heads", "11"}), "accepted");
}

TEST(Options, ModelsAndBatchesBeyondCountingAreRefused) {
  expect_words(refusal({"--width", "1000000", "--layers", "10000"}), {"--layers 10000", "--width 1000000"});
  expect_words(refusal({"--micro-batch", "1000000", "--context", "1000000"}), {"--micro-batch 1000000", "activations"});
  EXPECT_EQ(refusal({"--model", "gpt2-xl"}), "accepted");
}

TEST(Options, OneIdentityOfBatchesIsEnforced) {
  const auto batch = [](const std::vector<std::string>& arguments, int world) {
    const Options o = *parse(arguments, world);
    EXPECT_EQ(o.global_batch, o.micro_batch * o.micro_steps * world);
    return std::vector<Index>{o.micro_batch, o.global_batch, o.micro_steps};
  };
  EXPECT_EQ(batch({}, 3), (std::vector<Index>{8, 24, 1}));
  EXPECT_EQ(batch({"--model", "small"}, 2), (std::vector<Index>{4, 8, 1}));
  EXPECT_EQ(batch({"--micro-batch", "2"}, 3), (std::vector<Index>{2, 6, 1}));
  EXPECT_EQ(batch({"--global-batch", "48"}, 3), (std::vector<Index>{8, 48, 2}));
  EXPECT_EQ(batch({"--global-batch", "12", "--micro-batch", "1"}, 4), (std::vector<Index>{1, 12, 3}));
  EXPECT_EQ(refusal({"--global-batch", "10", "--micro-batch", "4"}, 3),
            "--global-batch 10 is not a multiple of --micro-batch 4 times 3 ranks; 12 would do");
  EXPECT_EQ(refusal({"--global-batch", "13", "--micro-batch", "4"}, 3),
            "--global-batch 13 is not a multiple of --micro-batch 4 times 3 ranks; 24 would do");
  EXPECT_EQ(refusal({"--global-batch", "4"}, 1),
            "--global-batch 4 is not a multiple of --micro-batch 8 times 1 rank; 8 would do");
}

TEST(Options, TheBaselineCountsBatchesForTheRanksItFollows) {
  Program baseline = program();
  baseline.single_process = true;
  baseline.add_options = [](CLI::App& app, Options& options) { add_as_world_option(app, options); };
  EXPECT_EQ(refusal({"-n", "2"}, 1, baseline),
            "-n is not an option of program; it is one process, and --as-world N follows the order of N ranks");
  const Options o = *parse({"--as-world", "3", "--micro-batch", "2", "--global-batch", "12"}, 1, baseline);
  EXPECT_EQ(o.micro_steps, 2);
  EXPECT_EQ(o.order_world(1), 3);
  EXPECT_EQ(refusal({"--as-world", "3", "--micro-batch", "2", "--global-batch", "8"}, 1, baseline),
            "--global-batch 8 is not a multiple of --micro-batch 2 times --as-world 3; 12 would do");
  for (const char* bad : {"0", "-1", "x", "1e18", ""}) {
    expect_words(refusal({"--as-world", bad}, 1, baseline), {"--as-world", "whole number from 1 to 4096"});
  }
}

TEST(Options, TheScheduleHasToMakeSense) {
  expect_words(refusal({"--min-lr", "1e-4"}), {"--min-lr 0.0001", "--lr-schedule constant"});
  expect_words(refusal({"--min-lr", "1", "--lr", "0.5", "--lr-schedule", "cosine"}), {"--min-lr 1", "--lr 0.5"});
  const Options o = *parse({"--lr-schedule", "cosine", "--steps", "50", "--warmup", "5", "--min-lr", "1e-5"});
  EXPECT_EQ(o.optimizer.steps, 50);
  EXPECT_EQ(o.optimizer.warmup, 5);
  EXPECT_EQ(o.optimizer.schedule, Schedule::cosine);
}

TEST(Options, AProgramSaysWhyItDoesNotAccumulateLocally) {
  Program sharded = program();
  sharded.offers_accumulation = false;
  sharded.why_no_local_first = "it keeps no full gradients";
  EXPECT_EQ(refusal({"--accumulation", "local-first"}, 1, sharded),
            "--accumulation local-first is not offered by program: it keeps no full gradients; ranks-first would do");
  EXPECT_EQ(refusal({"--accumulation", "ranks-first"}, 1, sharded), "accepted");
  EXPECT_EQ(refusal({"--accumulation", "local-first"}), "accepted");
}

TEST(Options, PresetsAreThoseOfTheContractAndTheirPartsCanBeOverridden) {
  struct Row {
    const char* name;
    ModelConfig config;
    Index micro_batch;
  };
  const std::vector<Row> rows = {{"tiny", {4, 4, 128, 128, 256}, 8},
                                 {"small", {6, 6, 384, 256, 256}, 4},
                                 {"gpt2", {12, 12, 768, 1024, 50257}, 1},
                                 {"gpt2-medium", {24, 16, 1024, 1024, 50257}, 1},
                                 {"gpt2-large", {36, 20, 1280, 1024, 50257}, 1},
                                 {"gpt2-xl", {48, 25, 1600, 1024, 50257}, 1}};
  EXPECT_EQ(model_presets().size(), rows.size());
  for (const Row& row : rows) {
    const Options o = *parse({"--model", row.name});
    EXPECT_EQ(o.config, row.config) << row.name;
    EXPECT_EQ(o.micro_batch, row.micro_batch) << row.name;
  }
  const Options o = *parse({"--vocab", "61", "--context", "20", "--width", "11", "--heads", "1", "--layers", "2"});
  EXPECT_EQ(o.config, (ModelConfig{2, 1, 11, 20, 61}));
}

TEST(Options, HelpGroupsEveryOptionWithItsDefaultWithin100Columns) {
  EXPECT_FALSE(parse({"--help"}));
  for (const char* group : {"Model and data\n", "Training\n", "Optimizer\n", "Arithmetic\n", "Communication\n",
                            "Memory and device\n", "Checking and output\n", "Examples\n", "Exit status"}) {
    EXPECT_NE(help_.find(group), std::string::npos) << group;
  }
  for (const NumberOption& option : kNumbers) EXPECT_NE(help_.find("  " + option.name + " "), std::string::npos);
  expect_words(help_, {"[20]", "[0.001]", "[the preset's]", "[one unit]", "[docs/corpus.txt]", "[canonical]", "[60]"});
  EXPECT_EQ(help_.find("--resume"), std::string::npos) << "what is not built is not offered";
  expect_words(help_, {"Usage: tools/run -n RANKS build/bin/program [OPTION...]"});
  std::string flat;  // without line breaks
  for (const char c : help_) {
    if (c != '\n' && (c != ' ' || !flat.ends_with(' '))) flat += c;
  }
  expect_words(flat, {"last tenth of the data (at most 64 sequences of it), which is then held out", "10 in a row"});
  std::size_t begin = 0;
  for (std::size_t end; (end = help_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 104U) << help_.substr(begin, end - begin);
  }
  EXPECT_FALSE(parse({"--version"}));
  EXPECT_EQ(help_.rfind("program ", 0), 0U) << help_;
}

TEST(Options, JsonHoldsTheEffectiveValuesOfTheOptionsThatAreOffered) {
  const nlohmann::json json = to_json(*parse({"--global-batch", "32", "--lr", "0.1", "--out", "x"}, 2));
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["width"], 128);
  EXPECT_EQ(json["micro-batch"], 8);
  EXPECT_EQ(json["global-batch"], 32);
  EXPECT_EQ(json["lr"], 0.1);
  EXPECT_EQ(json["bucket"], nullptr);
  EXPECT_EQ(json["device-memory"], nullptr);
  EXPECT_EQ(json["data"], "docs/corpus.txt");
  EXPECT_EQ(json["prefetch"], 1);
  EXPECT_EQ(json["reshard-after-forward"], "on");
  EXPECT_EQ(json["backend"], "cpu");
  EXPECT_EQ(json["verify"], false);
  EXPECT_FALSE(json.contains("as-world"));
}

TEST(Options, CompareKnowsTheOptionsOfAllPrograms) {
  Options options;
  CLI::App app;
  add_common_options(app, options);
  add_gather_options(app, options);
  add_shard_group_option(app, options);
  add_as_world_option(app, options);
  add_delay_options(app, options);
  add_tile_option(app, options);
  std::set<std::string> with_value, flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames()[0] == "help") continue;
    (option->get_items_expected_min() > 0 ? with_value : flags).insert(option->get_lnames()[0]);
  }
  EXPECT_EQ(with_value, std::set<std::string>(tools::kProgramOptions.begin(), tools::kProgramOptions.end()));
  EXPECT_EQ(flags, std::set<std::string>(tools::kProgramFlags.begin(), tools::kProgramFlags.end()));
}

TEST(Options, FormulasGetTheSameNumbers) {
  const Options o =
      *parse({"--model", "small", "--global-batch", "24", "--bucket", "1MiB", "--wrap", "2", "--collectives", "native",
              "--threads", "2", "--prefetch", "3", "--reshard-after-forward", "off"},
             2);
  const formula::Setting s = formula_setting(o, 2);
  EXPECT_EQ(s.layers, 6);
  EXPECT_EQ(s.heads, 6);
  EXPECT_EQ(s.width, 384);
  EXPECT_EQ(s.context, 256);
  EXPECT_EQ(s.vocab, 256);
  EXPECT_EQ(s.micro_batch, 4);
  EXPECT_EQ(s.world, 2);
  EXPECT_EQ(s.micro_steps, 3);
  EXPECT_EQ(s.bucket, 1 << 20);
  EXPECT_EQ(s.wrap, 2);
  EXPECT_TRUE(s.native);
  EXPECT_EQ(s.threads, 2);
  EXPECT_EQ(s.prefetch, 3);
  EXPECT_FALSE(s.reshard_after_forward);
}

}  // namespace
}  // namespace zero
