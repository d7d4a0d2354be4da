#include "common/train/digests.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "common/base/error.h"
#include "common/comm/process.h"

namespace zero {
namespace {

/// What a rank keeps of one kind of state.
struct Share {
  Digest digest;
  Index elements = 0;  ///< without gaps and padding
};
using Shares = std::array<Share, kStateKinds>;

/// Whether all elements have zero bits.
bool all_zero(Device& device, ConstArray values) {
  std::array<unsigned char, 1024> bytes;  // NOLINT: written before it is read
  const Index most = std::ssize(bytes) / size_of(values.dtype);
  for (Index begin = 0; begin < values.size; begin += most) {
    const ConstArray some = values.part(begin, std::min(most, values.size - begin));
    device.download(bytes.data(), some);
    if (!std::all_of(bytes.data(), bytes.data() + some.bytes(), [](unsigned char b) { return b == 0; })) return false;
  }
  return true;
}

void check_gap(StateKind kind, const FlatUnit& unit, const UnitView& view, Index begin, Index end, Device& device) {
  if (all_zero(device, view.values.part(begin - view.begin, end - begin))) return;
  throw ResultFailure(fmt::format("the {} of unit '{}' are not zero in the padding at elements {} to {}", name(kind),
                                  unit.name(), begin, end - 1));
}

void add_view(Share& share, StateKind kind, const FlatUnit& unit, const UnitView& view, Device& device) {
  const Index end = view.begin + view.values.size;
  Kernels& kernels = device.kernels_of(view.tier);
  Index reached = view.begin;
  for (const TensorPart& part : unit.parts(view.begin, view.values.size)) {
    check_gap(kind, unit, view, reached, part.flat_begin, device);
    kernels.digest(share.digest, view.values.part(part.flat_begin - view.begin, part.size), part.tensor->id,
                   part.tensor_begin);
    share.elements += part.size;
    reached = part.flat_begin + part.size;
  }
  check_gap(kind, unit, view, reached, end, device);
}

/// The digest of a whole kind from all ranks' shares; an empty one when nobody keeps any.
std::optional<Digest> total(StateKind kind, const std::vector<Shares>& ranks, Index elements) {
  const auto share = [&](std::size_t rank) { return ranks[rank][static_cast<std::size_t>(kind)]; };
  Digest sum;
  Index shown = 0;
  bool replicated = true;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    sum.add(share(r).digest);
    shown += share(r).elements;
    replicated = replicated && share(r).elements == elements;
  }
  if (shown == 0) return std::nullopt;
  if (replicated) {
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      if (share(r).digest == share(0).digest) continue;
      throw ResultFailure(
          fmt::format("the {} of rank {} differ from those of rank 0, and should be a copy", name(kind), r));
    }
    return share(0).digest;
  }
  if (shown == elements) return sum;
  throw ResultFailure(
      fmt::format("the ranks keep {} elements of {}, and the model has {}", shown, name(kind), elements));
}

}  // namespace

StateDigests digest_state(const Trainer& trainer, Device& device, Communicator& world, Communicator& group) {
  Shares mine;
  std::optional<Error> error;
  try {
    trainer.visit_state([&](StateKind kind, const UnitView& view) {
      add_view(mine[static_cast<std::size_t>(kind)], kind, trainer.units()[view.unit], view, device);
    });
  } catch (const Error& caught) {
    error = caught;
  }
  agree(world, error);

  Index elements = 0;
  for (const FlatUnit& unit : trainer.units()) elements += unit.elements();
  const std::vector<Shares> ranks = group.gather(mine, Purpose::control, "digests");
  StateDigests digests;
  for (int i = 0; i < kStateKinds; ++i) {
    const auto kind = static_cast<StateKind>(i);
    const std::optional<Digest> digest = total(kind, ranks, elements);
    if (digest) {
      digests[i] = *digest;
    } else if (kind == StateKind::master) {
      digests[i] = digests[static_cast<std::size_t>(StateKind::parameters)];
    } else {
      throw ResultFailure(fmt::format("no rank keeps any {}", name(kind)));
    }
  }
  const std::vector<StateDigests> all = world.gather(digests, Purpose::control, "digests of the groups");
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0])
      throw ResultFailure(fmt::format("the state of rank {}'s group differs from that of rank 0's", r));
  }
  return digests;
}

nlohmann::json to_json(const StateDigests& digests) {
  nlohmann::json all;
  for (int i = 0; i < kStateKinds; ++i) all[std::string(name(static_cast<StateKind>(i)))] = to_hex(digests[i]);
  return all;
}

}  // namespace zero
