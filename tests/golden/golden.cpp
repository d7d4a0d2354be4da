#include "tests/golden/golden.h"

#include <fmt/format.h>

#include <fstream>

#include "common/base/error.h"

namespace zero::test {

std::vector<Golden> golden_runs() {
  RunSetting odd;
  odd.config = {.layers = 2, .heads = 1, .width = 11, .context = 20, .vocab = 61};
  odd.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  odd.steps = 10;
  odd.micro_steps = 8;
  RunSetting tiny;
  tiny.config = find_preset("tiny")->config;
  tiny.data = ZERO_TEST_DATA "/../../docs/corpus.txt";
  tiny.steps = 3;
  tiny.micro_steps = 8;
  RunSetting odd_bf16 = odd;
  odd_bf16.dtype = Dtype::bf16;
  RunSetting tiny_bf16 = tiny;
  tiny_bf16.dtype = Dtype::bf16;
  return {{"odd", odd}, {"tiny", tiny}, {"odd-bf16", odd_bf16}, {"tiny-bf16", tiny_bf16}};
}

std::string golden_line(const std::string& name, const StepRecord& last) {
  std::string line = fmt::format("{} loss {:a} norm {:a}", name, last.loss, last.norm);
  for (const StateKind kind : {StateKind::parameters, StateKind::master, StateKind::momentum, StateKind::variance}) {
    line += fmt::format(" {} {}", zero::name(kind), to_hex(last.digests[static_cast<std::size_t>(kind)]));
  }
  return line;
}

std::vector<std::string> golden_lines() {
  const std::string path = ZERO_TEST_DATA "/../golden/golden.txt";
  std::ifstream file(path);
  if (!file) throw UnusableInput(path + " cannot be read");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

}  // namespace zero::test
