// What a rank holds: the parts that all stages have in common.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "common/formula/formula.h"

namespace zero::formula {
namespace {

constexpr Index kFloat = 4;  // bytes

// Scratch memory of one thread's own products: 384 columns of the right operand and 32 rows of the left, 384 deep, and
// 512 rows of 384 columns of outputs that are rounded in the end.
constexpr Index kPackedElements = (384 + 32) * 384 + 512 * 384;
// Of the library's, for bf16 through fp32: three blocks of 512 x 512.
constexpr Index kLibraryElements = 3 * 512 * 512;
// On a GPU: what kernels leave for the host, and the memory that cuBLAS works in.
constexpr Index kGpuResults = 21 * 8 + 3 * 4 + 4 + 16 + 8 + 8 + 8;
constexpr Index kCublas = Index{32} << 20;

Index at(const Formula& formula, const char* category) {
  const auto found = formula.memory.find(category);
  return found == formula.memory.end() ? 0 : found->second;
}

Index workspace(const Setting& s) {
  const Index C = s.width, R = s.micro_batch * s.context, scores = s.context * s.context;
  Index gradients = R * C + R * C + 4 * R * C + scores;  // of the residual stream, narrow, wide, of a head's scores
  gradients += 2 * C;                                    // of the final norm
  if (s.dropout) gradients += scores;                    // a head's probabilities after dropout
  // The tied table's gradient is added up in fp32, so many rows at a time, where it is not stored so.
  const Index token_rows = s.bf16 ? std::min<Index>(s.vocab, 1024) * C : 0;
  const Index tile_sums = s.tiles > 1 ? 2 * 4 * R * C : 0;  // an input's gradient, and what a tile adds to it
  const Index packed = s.library_products ? kLibraryElements : s.threads * kPackedElements;
  const Index products = s.gpu ? kGpuResults + (s.library_products ? kCublas : 0) : kFloat * packed;
  return parameter_bytes(s) * gradients + kFloat * (token_rows + tile_sums) + products;
}

}  // namespace

Index parameter_bytes(const Setting& s) { return s.bf16 ? 2 : 4; }
Index gradient_bytes(const Setting& s) { return s.bf16 ? 2 : 4; }
Index optimizer_bytes(const Setting& s) { return s.bf16 ? 4 + 4 + 4 : 4 + 4; }
Index floor_log2(Index value) { return std::bit_width(static_cast<std::uint64_t>(value)) - 1; }
Index slice_of(Index bytes, const Setting& s) { return divide_up(bytes, slices(s)); }

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

Activations activations(const Setting& s) {
  const Index C = s.width, R = s.micro_batch * s.context;
  const Index stored = parameter_bytes(s);             // activations are of the type of the parameters
  const Index norm = stored * R * C + kFloat * 2 * R;  // its output, and means and inverse deviations
  const Index attention =
      stored * (3 * R * C + s.micro_batch * s.heads * s.context * s.context + R * C);  // qkv, probabilities, output
  const Index middle = stored * R * C;                          // the residual stream between the two halves
  const Index mlp = stored * (4 * R * C + 4 * R * C);           // before and after GELU
  const Index head = norm + stored * R * s.vocab + kFloat * R;  // final norm, logits, losses
  const Index tokens = kFloat * 2 * R;                          // int32: inputs and targets
  Activations a;
  a.layers = s.layers;
  a.layer_input = stored * R * C;
  a.layer_rest = norm + attention + middle + norm + mlp;
  a.rests = s.checkpoint_activations ? std::min<Index>(1, s.layers) : s.layers;
  a.outside = stored * R * C + head + tokens;  // the last layer's output first
  return a;
}

Formula common(const Setting& s) {
  Formula f;
  if (s.bare_parameters > 0) return f;
  f.memory = {{"activations", activations(s).total()}, {"workspace", workspace(s)}};
  if (const Index buckets = bucket_memory(s); buckets > 0) f.memory["buckets"] = buckets;
  if (const Index buckets = host_bucket_memory(s); buckets > 0) f.host_memory["buckets"] = buckets;
  return f;
}

Index gradient_in_flight(const Setting& s, bool copied) {
  const std::vector<Index> units = padded_units(s);
  const bool beside = s.gpu && (slices(s) > 1 || copied);
  Index most = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    most = std::max(most, units[u] + (beside && u + 1 < units.size() ? units[u + 1] : 0));
  }
  return gradient_bytes(s) * most;
}

Index partial_sums(const Setting& s) {
  const Index all = kFloat * padded_parameters(s);
  if (s.micro_steps == 1) return 0;
  return s.local_first ? all : floor_log2(s.micro_steps) * slice_of(all, s);
}

}  // namespace zero::formula
