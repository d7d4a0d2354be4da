#include "common/device/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/bytes.h"
#include "common/base/error.h"

namespace zero {
namespace {

std::size_t at(Tier tier) { return static_cast<std::size_t>(tier); }
std::size_t at(Category category) { return static_cast<std::size_t>(category); }

}  // namespace

std::string_view name(Tier tier) {
  switch (tier) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::nvme: return "nvme";
  }
  return "";
}

std::string_view name(Category category) {
  switch (category) {
    case Category::parameters: return "parameters";
    case Category::gradients: return "gradients";
    case Category::optimizer: return "optimizer";
    case Category::gradient_in_flight: return "gradient_in_flight";
    case Category::gathered: return "gathered";
    case Category::buckets: return "buckets";
    case Category::partial_sums: return "partial_sums";
    case Category::activations: return "activations";
    case Category::offload_buffers: return "offload_buffers";
    case Category::workspace: return "workspace";
  }
  return "";
}

void MemoryLedger::set_cap(Tier tier, std::optional<Index> bytes) {
  caps_[at(tier)] = bytes;
  if (bytes && current(tier) > *bytes) {
    throw ResourceFailure(fmt::format("a cap of {} is less than what every run needs: {}; ask plan what fits",
                                      format_bytes(*bytes), held(tier)));
  }
}

std::optional<Index> MemoryLedger::cap(Tier tier) const { return caps_[at(tier)]; }

std::string MemoryLedger::held(Tier tier) const {
  const std::optional<Index> limit = caps_[at(tier)];
  std::string text = format_bytes(current(tier));
  if (limit) text += fmt::format(" of {}", format_bytes(*limit));
  text += fmt::format(" held on the {}", name(tier));
  std::string separator = " (";
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (current(tier, category) == 0) continue;
    text += fmt::format("{}{} {}", separator, name(category), format_bytes(current(tier, category)));
    separator = ", ";
  }
  return separator == ", " ? text + ")" : text;
}

void MemoryLedger::add(Tier tier, Category category, Index bytes) {
  Count& total = totals_[at(tier)];
  const std::optional<Index> limit = caps_[at(tier)];
  if (limit && bytes > *limit - total.current) {
    throw ResourceFailure(
        fmt::format("asked for {} ({}) with {}; ask plan what fits", format_bytes(bytes), name(category), held(tier)));
  }
  for (Count* count : {&counts_[at(tier)][at(category)], &total}) {
    count->current += bytes;
    count->peak = std::max(count->peak, count->current);
  }
}

void MemoryLedger::remove(Tier tier, Category category, Index bytes) {
  counts_[at(tier)][at(category)].current -= bytes;
  totals_[at(tier)].current -= bytes;
}

void MemoryLedger::restart_peaks() {
  for (auto& tier : counts_) {
    for (Count& count : tier) count.peak = count.current;
  }
  for (Count& total : totals_) total.peak = total.current;
}

Index MemoryLedger::current(Tier tier, Category category) const { return counts_[at(tier)][at(category)].current; }
Index MemoryLedger::peak(Tier tier, Category category) const { return counts_[at(tier)][at(category)].peak; }
Index MemoryLedger::current(Tier tier) const { return totals_[at(tier)].current; }
Index MemoryLedger::peak(Tier tier) const { return totals_[at(tier)].peak; }

}  // namespace zero
