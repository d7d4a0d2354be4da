#include "tools/surprises.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/table.h"

namespace zero::tools {
namespace {

const Row* find(const std::vector<Row>& rows, std::string_view label) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const Row& row) { return row.stage != nullptr && row.stage->label == label; });
  return found == rows.end() ? nullptr : &*found;
}

/// Whether stage 3 has more than one sharding group.
bool grouped(const formula::Setting& s) { return s.shard_group > 0 && s.shard_group < s.world; }

double ratio(Index a, Index b) { return static_cast<double>(a) / static_cast<double>(b); }

void add_memory(std::vector<std::string>& all, const std::vector<Row>& rows, const formula::Setting& s) {
  const auto same = [&](const Row& row) { return row.activations() == rows[0].activations(); };
  if (rows.size() > 1 && rows[0].activations() > 0 && std::all_of(rows.begin(), rows.end(), same)) {
    all.push_back(
        fmt::format("activations stay {} in every stage: ZeRO shards the model states, and every rank still "
                    "runs a micro-batch of its own; --micro-batch, --context and --checkpoint-activations change them",
                    in_words(rows[0].activations())));
  }
  const Row* one = find(rows, "1");
  const Row* zero = find(rows, "0");
  if (one != nullptr && zero != nullptr && s.world > 1) {
    const Index sharded = formula::optimizer_bytes(s);
    const Index all_bytes = sharded + formula::gradient_bytes(s) + formula::parameter_bytes(s);
    all.push_back(
        fmt::format("stage 1 is {} smaller and not {}x: it shards only the optimizer's {} of {} bytes a "
                    "parameter, so that it stays below {} whatever the number of ranks",
                    times_smaller(zero->model_states(), one->model_states()), s.world, sharded, all_bytes,
                    times_smaller(all_bytes, all_bytes - sharded)));
  }
  if (const Row* three = find(rows, "3"); three != nullptr && three->held("gathered") > 0) {
    all.push_back(
        fmt::format("stage 3 holds {} of gathered parameters beside its slices: the unit in use and those of {} ahead "
                    "(--prefetch, --wrap), which do not shrink with the number of ranks",
                    in_words(three->held("gathered")), counted(s.prefetch, "use")));
  }
  if (zero != nullptr && zero->held("buckets") > zero->model_states() / 4) {
    all.push_back(
        fmt::format("buckets are {} a rank whatever the model: the room in which ranks meet, and the parts that "
                    "are summed in it",
                    in_words(zero->held("buckets"))));
  }
  const Row* baseline = find(rows, "baseline");
  if (baseline != nullptr && s.world > 1 && baseline->held("partial_sums") > 0) {
    all.push_back(
        fmt::format("the baseline holds {} of partial sums: one process adds the gradients of {} in the order "
                    "in which those ranks add them",
                    in_words(baseline->held("partial_sums")), counted(s.world, "rank")));
  }
  if (const Row* three = find(rows, "3"); three != nullptr && grouped(s)) {
    all.push_back(
        fmt::format("stage 3 shards its states over the {} of a group and not over all {}, as --shard-group says: they "
                    "take {} times what they would take in one group",
                    counted(s.shard_group, "rank"), counted(s.world, "rank"), s.world / s.shard_group));
  }
  if (s.bare_parameters == 0) {
    formula::Setting one_group = s;
    one_group.shard_group = 0;
    const Index psi = formula::parameters(s), padded = formula::padded_parameters(one_group);
    if (padded - psi > psi / 100) {
      all.push_back(
          fmt::format("padding adds {:.1f} %: {} parameters are laid out as {} elements, so that every tensor and "
                      "each of {} starts at a multiple of 32",
                      100 * ratio(padded - psi, psi), psi, padded, counted(s.world, "slice")));
    }
  }
}

void add_traffic(std::vector<std::string>& all, const std::vector<Row>& rows, const formula::Setting& s) {
  const Row* zero = find(rows, "0");
  const Row* one = find(rows, "1");
  const Row* two = find(rows, "2");
  const Row* three = find(rows, "3");
  const auto main_part = [](const Row& row) {
    return row.sent_per_step() - (row.sent.count("scalars") ? row.sent.at("scalars") : 0);
  };
  if (zero != nullptr && one != nullptr && main_part(*zero) > 0 && main_part(*zero) == main_part(*one)) {
    all.push_back(
        "stage 1 sends what stage 0 sends: an all-reduce is a reduce-scatter and an all-gather, and stage 1 "
        "steps in between (the norm's accumulators are the few bytes more)");
  }
  const Row* before = two != nullptr ? two : one;
  if (three != nullptr && before != nullptr && main_part(*before) > 0 && main_part(*three) > 0) {
    const double times = ratio(main_part(*three), main_part(*before));
    const Index parameters = three->sent.count("parameters") ? three->sent.at("parameters") : 0;
    const Index whole = before->sent.count("parameters") ? before->sent.at("parameters") : 0;
    if (grouped(s)) {
      const Index across = three->sent.count("gradients_across") ? three->sent.at("gradients_across") : 0;
      all.push_back(
          fmt::format("of what stage 3 sends, {} stay inside its groups of {}, and {} go across groups: fp32 sums of "
                      "a rank's slices, to the rank with the same slices in every other group, every micro-step",
                      in_words(main_part(*three) - across), counted(s.shard_group, "rank"), in_words(across)));
    } else if (times > 1.005 && whole > 0) {
      all.push_back(
          fmt::format("stage 3 sends {:.2f} times what stage {} sends: every micro-step gathers parameters for "
                      "the forward and again for the backward pass, {:.2f} times all of them in a step, where "
                      "stage {} gathers them once, after the step",
                      times, before->stage->label, ratio(parameters, whole), before->stage->label));
    }
  }
  if (s.world == 1 && rows.size() > 1)
    all.push_back("with one rank nothing is sharded and nothing is sent: a slice is the whole");
}

/// What a GPU needs and a CPU does not.
void add_gpu(std::vector<std::string>& all, const std::vector<Row>& rows, const formula::Setting& s) {
  if (!s.gpu || s.bare_parameters > 0) return;
  const Row* zero = find(rows, "0");
  formula::Setting canonical = s, cpu = s;
  canonical.library_products = false;
  cpu.gpu = false;
  const Index cublas = formula::common(s).memory.at("workspace") - formula::common(canonical).memory.at("workspace");
  if (zero != nullptr && cublas > zero->model_states() / 4) {
    all.push_back(fmt::format("{} of a rank's workspace are what cuBLAS works in, whatever the model and the stage",
                              in_words(cublas)));
  }
  Index least = 0, most = 0;
  for (const Row& row : rows) {
    const Index staging = row.held(Row::key("host", "buckets"));
    if (staging > 0) least = least == 0 ? staging : std::min(least, staging);
    most = std::max(most, staging);
  }
  if (most > 0) {
    all.push_back(fmt::format(
        "with its GPU a rank holds {} of host memory, whatever the stage: staging for what ranks exchange by way of "
        "the host, which is losses and parts of the norm, and all else where ranks share a GPU{}",
        in_words(least), most > least ? fmt::format("; with the sharding groups of stage 3 {}", in_words(most)) : ""));
  }
  const auto two_units = [&](const Row& row) {
    return row.stage != nullptr &&
           row.held("gradient_in_flight") > formula_row(*row.stage, cpu).held("gradient_in_flight");
  };
  if (const auto row = std::find_if(rows.begin(), rows.end(), two_units); row != rows.end()) {
    all.push_back(
        fmt::format("{} holds {} of whole gradients, those of two units in a row: on a GPU one is reduced or copied "
                    "away while the next one is computed",
                    row->stage->name(), in_words(row->held("gradient_in_flight"))));
  }
}

/// What leaves the device, and what that costs.
void add_offload(std::vector<std::string>& all, const std::vector<Row>& rows, const formula::Setting& s) {
  const auto places = [](const Row& row, const std::string& category) {
    Index bytes = 0;
    for (const std::string_view tier : kLowerTiers) bytes += row.held(Row::key(tier, category));
    return bytes;
  };
  const auto moves_slices = [&](const Row& row) {  // as ZeRO-Offload: parameters stay, the new ones come up once
    return row.stage != nullptr && row.stage->offload && row.stage->offload->parameters == offload::Place::device;
  };
  const auto first = std::find_if(rows.begin(), rows.end(), moves_slices);
  if (first != rows.end() && first->moved_in("down") > 0) {
    all.push_back(fmt::format(
        "{} keeps {} of the model states on the device and {} below it; for that each step takes {} of gradients down "
        "and {} of new parameters up, over all ranks {} bytes a parameter, however many ranks there are",
        first->program, in_words(first->model_states()),
        in_words(places(*first, "parameters") + places(*first, "gradients") + places(*first, "optimizer")),
        in_words(first->moved_in("down")), in_words(first->moved_in("up")),
        formula::gradient_bytes(s) + formula::parameter_bytes(s)));
  }
  const auto brings_up = [](const Row& row) {
    return row.stage != nullptr && row.stage->offload && row.stage->offload->parameters != offload::Place::device;
  };
  const auto gathers = std::find_if(rows.begin(), rows.end(), brings_up);
  if (gathers != rows.end() && gathers->moved_in("down") > 0 && gathers->moved_in("up") > gathers->moved_in("down")) {
    all.push_back(fmt::format(
        "{} has no model states on the device; its slices come up for every gather, {:.2f} times what goes down",
        gathers->program, ratio(gathers->moved_in("up"), gathers->moved_in("down"))));
  }
}

}  // namespace

Index Row::held(const std::string& category) const {
  const auto found = memory.find(category);
  return found == memory.end() ? 0 : found->second;
}

Index Row::model_states() const { return held("parameters") + held("gradients") + held("optimizer"); }

Index Row::buffers() const { return total("device") - model_states() - activations(); }

std::string Row::key(std::string_view tier, const std::string& category) {
  return tier == "device" ? category : fmt::format("{} {}", tier, category);
}

Index Row::total(std::string_view tier) const {
  Index sum = 0;
  for (const auto& [category, bytes] : memory) {
    const std::size_t space = category.find(' ');
    const std::string_view of = space == std::string::npos ? "device" : std::string_view(category).substr(0, space);
    if (of == tier) sum += bytes;
  }
  return sum;
}

Index Row::moved_in(const std::string& direction) const {
  const auto found = moved.find(direction);
  return found == moved.end() ? 0 : found->second;
}

bool any_offload(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) {
    return !row.moved.empty() || row.total("host") > 0 || row.total("nvme") > 0;
  });
}

Index Row::sent_per_step() const {
  Index sum = 0;
  for (const auto& [purpose, bytes] : sent) sum += bytes;
  return sum;
}

Row formula_row(const Stage& stage, const formula::Setting& setting) {
  const formula::Formula f = stage.formula(setting_for(stage, setting));
  Row row{stage.name(), &stage, f.memory, {}, f.offload};
  for (const auto& [category, bytes] : f.host_memory) row.memory[Row::key("host", category)] = bytes;
  for (const auto& [category, bytes] : f.nvme_memory) row.memory[Row::key("nvme", category)] = bytes;
  for (const auto& [purpose, sent] : f.communication) row.sent[purpose] = sent.bytes;
  if (setting.bare_parameters == 0) return row;
  // What is not about parameters has no meaning without a model.
  std::erase_if(row.memory, [](const auto& entry) {
    const std::string state = entry.first.substr(entry.first.find(' ') + 1);
    return state != "parameters" && state != "gradients" && state != "optimizer";
  });
  row.sent.erase("scalars");
  return row;
}

std::string times_smaller(Index reference, Index bytes) {
  if (bytes <= 0 || reference <= 0) return "-";
  const double times = ratio(reference, bytes);
  return times < 1e6 ? fmt::format("{:.2f}x", times) : fmt::format("{:.1e}x", times);
}

std::vector<std::string> surprises(const std::vector<Row>& rows, const formula::Setting& setting) {
  std::vector<std::string> all;
  if (rows.empty()) return all;
  add_memory(all, rows, setting);
  add_traffic(all, rows, setting);
  add_offload(all, rows, setting);
  add_gpu(all, rows, setting);
  return all;
}

}  // namespace zero::tools
