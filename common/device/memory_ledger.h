#pragma once
/// \file
/// The memory ledger: every byte a rank holds, by tier and category, with its peak, under the tier's cap.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/types.h"

namespace zero {

/// Where a buffer lives.
enum class Tier { device, host, nvme };
inline constexpr int kTiers = 3;

/// What a buffer holds. The first three are the *model states* of the ZeRO paper (section 3.1).
enum class Category {
  parameters,
  gradients,
  optimizer,
  gradient_in_flight,
  gathered,
  buckets,
  partial_sums,
  activations,
  offload_buffers,
  workspace,
};
inline constexpr int kCategories = 10;

/// The names used in `summary.json`.
std::string_view name(Tier tier);
std::string_view name(Category category);

/// Counts bytes; allocates nothing. One per rank, used by one thread.
class MemoryLedger {
 public:
  /// Sets the cap of a tier in bytes (none by default). Throws ResourceFailure when more is held already.
  void set_cap(Tier tier, std::optional<Index> bytes);
  [[nodiscard]] std::optional<Index> cap(Tier tier) const;

  /// Books `bytes`. Throws ResourceFailure when the tier's cap would be passed: one sentence with what was asked for,
  /// what is held by category, and the advice to ask `plan` what fits; then nothing is booked.
  void add(Tier tier, Category category, Index bytes);
  void remove(Tier tier, Category category, Index bytes);

  /// Peaks start again at what is held now: what was held before a run began is no part of it.
  void restart_peaks();

  [[nodiscard]] Index current(Tier tier, Category category) const;
  [[nodiscard]] Index peak(Tier tier, Category category) const;
  [[nodiscard]] Index current(Tier tier) const;  ///< over all categories
  [[nodiscard]] Index peak(Tier tier) const;     ///< the largest sum over all categories held at one time

  /// What a tier holds, for error sentences: "500.0 MiB of 512.0 MiB held on the device (parameters 400.0 MiB, ...)".
  [[nodiscard]] std::string held(Tier tier) const;

 private:
  struct Count {
    Index current = 0;
    Index peak = 0;
  };
  std::array<std::array<Count, kCategories>, kTiers> counts_{};
  std::array<Count, kTiers> totals_{};
  std::array<std::optional<Index>, kTiers> caps_{};
};

}  // namespace zero
