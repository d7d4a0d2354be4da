#include "tests/exactness/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace zero::test {
namespace {

/// Some factors, in rising order, each with a value.
using Tuple = std::vector<std::pair<std::size_t, std::size_t>>;

/// Calls visit(tuple) for every tuple of `size` values of different factors that go together.
void for_each_tuple(const std::vector<std::size_t>& counts, std::size_t size, const Together& together, Tuple& tuple,
                    const std::function<void(const Tuple&)>& visit) {
  if (tuple.size() == size) {
    visit(tuple);
    return;
  }
  for (std::size_t f = tuple.empty() ? 0 : tuple.back().first + 1; f < counts.size(); ++f) {
    for (std::size_t v = 0; v < counts[f]; ++v) {
      const auto goes = [&](const auto& other) { return together(other.first, other.second, f, v); };
      if (!std::all_of(tuple.begin(), tuple.end(), goes)) continue;
      tuple.emplace_back(f, v);
      for_each_tuple(counts, size, together, tuple, visit);
      tuple.pop_back();
    }
  }
}

/// Calls visit(tuple) for every tuple that `added` makes with `size` - 1 of the values chosen so far.
void for_each_tuple_with(std::pair<std::size_t, std::size_t> added, const Tuple& chosen, std::size_t size,
                         const std::function<void(const Tuple&)>& visit) {
  Tuple tuple;
  const std::function<void(std::size_t)> extend = [&](std::size_t from) {
    if (tuple.size() + 1 == size) {
      Tuple whole = tuple;
      whole.push_back(added);
      std::sort(whole.begin(), whole.end());
      visit(whole);
      return;
    }
    for (std::size_t i = from; i < chosen.size(); ++i) {
      tuple.push_back(chosen[i]);
      extend(i + 1);
      tuple.pop_back();
    }
  };
  extend(0);
}

}  // namespace

std::vector<Row> covering_array(const std::vector<std::size_t>& counts, std::size_t strength,
                                const Together& together) {
  std::set<Tuple> unmet;
  Tuple scratch;
  for_each_tuple(counts, strength, together, scratch, [&](const Tuple& tuple) { unmet.insert(tuple); });

  std::vector<Row> rows;
  while (!unmet.empty()) {
    Tuple chosen = *unmet.begin();
    std::vector<std::size_t> order;  // factors that still need a value
    for (std::size_t f = 0; f < counts.size(); ++f) {
      const auto has = [f](const auto& value) { return value.first == f; };
      if (std::none_of(chosen.begin(), chosen.end(), has)) order.push_back(f);
    }
    for (const std::size_t f : order) {
      std::optional<std::size_t> best;
      std::size_t most = 0;
      for (std::size_t v = 0; v < counts[f]; ++v) {
        const auto goes = [&](const auto& other) { return together(other.first, other.second, f, v); };
        if (!std::all_of(chosen.begin(), chosen.end(), goes)) continue;
        std::size_t met = 0;
        for_each_tuple_with({f, v}, chosen, strength, [&](const Tuple& tuple) { met += unmet.count(tuple); });
        if (!best || met > most) best = v, most = met;
      }
      chosen.emplace_back(f, best.value());
    }
    std::sort(chosen.begin(), chosen.end());
    Row row;
    for (const auto& value : chosen) row.push_back(value.second);
    rows.push_back(row);
    for (std::size_t last = strength - 1; last < chosen.size(); ++last) {
      const Tuple before(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(last));
      for_each_tuple_with(chosen[last], before, strength, [&](const Tuple& tuple) { unmet.erase(tuple); });
    }
  }
  return rows;
}

const std::vector<Factor>& matrix_factors() {
  using S = RunSetting;
  const auto ranks = [](Index n) { return Factor::Value{std::to_string(n), [n](S& s) { s.world = n; }}; };
  const auto stage = [](Stage which) { return Factor::Value{name(which), [which](S& s) { s.stage = which; }}; };
  const auto stage3 = [](const S& s) { return s.stage == Stage::parameters; };
  const auto group = [](Index size) {
    return Factor::Value{"shard group " + std::to_string(size), [size](S& s) { s.shard_group = size; },
                         [](const S& s) { return s.stage == Stage::parameters && s.world % s.shard_group == 0; }};
  };
  const auto offload = [](Tier optimizer, Tier parameters, bool delayed = false, Index tiles = 1) {
    const bool both = parameters != Tier::device;
    return Factor::Value{
        fmt::format("optimizer on {}{}{}{}", name(optimizer),
                    both ? fmt::format(" and parameters on {}", name(parameters)) : "",
                    delayed ? ", update delayed" : "", tiles > 1 ? fmt::format(", {} tiles", tiles) : ""),
        [=](S& s) {
          s.optimizer_tier = optimizer, s.parameters_tier = parameters;
          s.tiles = tiles;
          if (delayed) s.delay_after = 1;
        },
        [=](const S& s) {
          const bool stage2 = s.stage == Stage::gradients && !both;
          if (tiles > 1 && (s.wrap > 1 || s.checkpoint_activations)) return false;
          return (stage2 || s.stage == Stage::parameters) && s.shard_group == 0;
        }};
  };
  static const std::vector<Factor> factors = {
      {"ranks", {ranks(1), ranks(2), ranks(3), ranks(4), ranks(5), ranks(7), ranks(8)}},
      {"stage", {stage(Stage::ddp), stage(Stage::optimizer), stage(Stage::gradients), stage(Stage::parameters)}},
      {"shard group", {{"one group", [](S&) {}}, group(1), group(2), group(4)}},
      {"offload",
       {{"no offload", [](S&) {}},
        offload(Tier::host, Tier::device),
        offload(Tier::nvme, Tier::device),
        offload(Tier::host, Tier::host),
        offload(Tier::host, Tier::nvme),
        offload(Tier::nvme, Tier::host),
        offload(Tier::nvme, Tier::nvme),
        offload(Tier::host, Tier::device, true),
        offload(Tier::host, Tier::nvme, true),
        offload(Tier::host, Tier::device, false, 2),
        offload(Tier::nvme, Tier::nvme, false, 3)}},
      {"prefetch",
       {{"prefetch 1", [](S&) {}},
        {"prefetch 0", [](S& s) { s.prefetch = 0; }, stage3},
        {"prefetch 2", [](S& s) { s.prefetch = 2; }, stage3},
        {"prefetch 100", [](S& s) { s.prefetch = 100; }, stage3}}},
      {"reshard", {{"reshard", [](S&) {}}, {"no reshard", [](S& s) { s.reshard_after_forward = false; }, stage3}}},
      {"accumulation",
       {{"ranks-first", [](S&) {}},
        {"local-first", [](S& s) { s.accumulation = Accumulation::local_first; },
         [](const S& s) { return s.stage == Stage::ddp || s.stage == Stage::optimizer; }}}},
      {"micro-steps",
       {{"k 1", [](S&) {}}, {"k 3", [](S& s) { s.micro_steps = 3; }}, {"k 4", [](S& s) { s.micro_steps = 4; }}}},
      {"precision", {{"fp32", [](S&) {}}, {"bf16", [](S& s) { s.dtype = Dtype::bf16; }}}},
      {"clip",
       {{"clip 1", [](S&) {}}, {"clip off", [](S& s) { s.clip = 0; }}, {"clip 0.01", [](S& s) { s.clip = 0.01; }}}},
      {"recompute", {{"keep", [](S&) {}}, {"recompute", [](S& s) { s.checkpoint_activations = true; }}}},
      {"dropout", {{"no dropout", [](S&) {}}, {"dropout 0.2", [](S& s) { s.dropout = 0.2; }}}},
      {"micro-batch", {{"micro-batch 1", [](S&) {}}, {"micro-batch 2", [](S& s) { s.micro_batch = 2; }}}},
      {"wrap", {{"wrap 1", [](S&) {}}, {"wrap 2", [](S& s) { s.wrap = 2; }}, {"wrap 3", [](S& s) { s.wrap = 3; }}}},
      {"bucket",
       {{"bucket of a unit", [](S&) {}},
        {"bucket of 1000 bytes", [](S& s) { s.bucket_bytes = s.config.width < 64 ? 1000 : 50000; }},
        {"bucket larger than the model", [](S& s) { s.bucket_bytes = Index{1} << 40; }}}},
      {"transport",
       {{"automatic", [](S&) {}},
        {"messages", [](S& s) { s.transport = TransportKind::messages; }},
        {"shared", [](S& s) { s.transport = TransportKind::shared; }}}},
#ifdef ZERO_HAVE_DNNL
      {"products",
       {{"canonical products", [](S&) {}}, {"library products", [](S& s) { s.products = ProductKind::library; }}}},
#endif
  };
  return factors;
}

bool matrix_together(std::size_t f, std::size_t v, std::size_t g, std::size_t w) {
  const std::vector<Factor>& factors = matrix_factors();
  const Factor::Value& a = factors[f].values[v];
  const Factor::Value& b = factors[g].values[w];
  // They go together when some number of ranks and some stage suit both.
  for (const Factor::Value& ranks : factors[0].values) {
    for (const Factor::Value& stage : factors[1].values) {
      RunSetting setting;
      for (const Factor::Value* value : {&ranks, &stage, &a, &b}) value->apply(setting);
      if ((!a.fits || a.fits(setting)) && (!b.fits || b.fits(setting))) return true;
    }
  }
  return false;
}

RunSetting matrix_setting(const Row& row, RunSetting shape) {
  for (std::size_t f = 0; f < row.size(); ++f) matrix_factors()[f].values[row[f]].apply(shape);
  return shape;
}

std::string matrix_names(const Row& row) {
  std::string text = "N ";
  for (std::size_t f = 0; f < row.size(); ++f) {
    text += (f == 0 ? "" : ", ") + matrix_factors()[f].values[row[f]].name;
  }
  return text;
}

}  // namespace zero::test
