// What a rank holds: the parts that all stages have in common.
#include <bit>
#include <cstdint>

#include "common/formula/formula.h"

namespace zero::formula {
namespace {

constexpr Index kFloat = 4;  // bytes

// Scratch memory of one thread's own products: 384 columns of the right operand and 32 rows of the left, 384 deep.
constexpr Index kPackedElements = (384 + 32) * 384;

Index at(const Formula& formula, const char* category) {
  const auto found = formula.memory.find(category);
  return found == formula.memory.end() ? 0 : found->second;
}

Index activations(const Setting& s) {
  const Index C = s.width, R = s.micro_batch * s.context;
  const Index norm = R * C + 2 * R;  // its output, means and inverse deviations
  const Index attention =
      3 * R * C + s.micro_batch * s.heads * s.context * s.context + R * C;  // qkv, probabilities, output
  const Index middle = R * C;               // the residual stream between the two halves
  const Index mlp = 4 * R * C + 4 * R * C;  // before and after GELU
  const Index block = norm + attention + middle + norm + mlp;
  const Index residual = (s.layers + 1) * R * C;
  const Index head = norm + R * s.vocab + R;  // final norm, logits, losses
  const Index tokens = 2 * R;                 // int32: inputs and targets
  return kFloat * (s.layers * block + residual + head + tokens);
}

Index workspace(const Setting& s) {
  const Index C = s.width, R = s.micro_batch * s.context;
  const Index gradients = R * C + R * C + 4 * R * C + s.context * s.context;  // d_residual, d_narrow, d_wide, d_scores
  const Index packed = s.library_products ? 0 : s.threads * kPackedElements;
  return kFloat * (gradients + packed);
}

}  // namespace

Index parameter_bytes(const Setting& s) { return s.bf16 ? 2 : 4; }
Index gradient_bytes(const Setting& s) { return s.bf16 ? 2 : 4; }
Index optimizer_bytes(const Setting& s) { return s.bf16 ? 4 + 4 + 4 : 4 + 4; }
Index floor_log2(Index value) { return std::bit_width(static_cast<std::uint64_t>(value)) - 1; }
Index slice_of(Index bytes, const Setting& s) { return divide_up(bytes, s.world); }

Index model_states(const Formula& formula) {
  return at(formula, "parameters") + at(formula, "gradients") + at(formula, "optimizer");
}

Index total_memory(const Formula& formula) {
  Index sum = 0;
  for (const auto& [category, bytes] : formula.memory) sum += bytes;
  return sum;
}

Index total_sent(const Formula& formula) {
  Index sum = 0;
  for (const auto& [purpose, sent] : formula.communication) sum += sent.bytes;
  return sum;
}

std::map<std::string, Index> common_memory(const Setting& s) {
  if (s.bare_parameters > 0) return {};
  std::map<std::string, Index> memory = {{"activations", activations(s)}, {"workspace", workspace(s)}};
  if (s.world > 1) memory["buckets"] = bucket_memory(s);
  return memory;
}

Index partial_sums(const Setting& s) {
  const Index all = kFloat * padded_parameters(s);
  if (s.micro_steps == 1) return 0;
  return s.local_first ? all : floor_log2(s.micro_steps) * slice_of(all, s);
}

}  // namespace zero::formula
