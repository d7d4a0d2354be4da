// Layers of the CUDA kernels in the shapes where rows, blocks of threads and tables end.
#include <gtest/gtest.h>

#include <stdexcept>

#include "common/device/cpu_kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/device/every_kernel.h"

namespace zero {
namespace {

using namespace test;  // NOLINT: a test of what is there

/// Runs `layers(kernels, place)`, which returns what was written, on the CPU and, in every order, on the GPU.
template <class Layers>
void expect_the_bits_of_the_cpu(const std::string& what, Layers layers) {
  CpuKernels cpu(CpuIsa::generic);
  OnHost host;
  const Outputs expected = layers(cpu, host);
  for (const Order order : kOrders) {
    Gpu gpu(order);
    const Outputs got = layers(gpu.kernels, gpu.place);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(bits(got[i]), bits(expected[i])) << what << ", " << name(order) << ", output " << i;
    }
  }
}

std::vector<std::int32_t> some_tokens(Index n, Index vocabulary, std::uint64_t stream) {
  std::vector<std::int32_t> tokens;
  for (Index i = 0; i < n; ++i) {
    const std::uint64_t random = random_bits(1, stream, static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<std::int32_t>(random % static_cast<std::uint64_t>(vocabulary)));
  }
  return tokens;
}

template <class T>
void expect_layernorms() {
  for (const Index rows : {1, 7, 8, 9, 17}) {
    for (const Index C : {1, 15, 40}) {
      for (const bool accumulate : {false, true}) {
        expect_the_bits_of_the_cpu(std::to_string(rows) + " x " + std::to_string(C), [&](Kernels& kernels,
                                                                                         auto& place) {
          const std::vector<T> in = stored<T>(values(rows * C, 1, 3.0F)), weight = stored<T>(values(C, 2)),
                               bias = stored<T>(values(C, 3));
          std::vector<T> out(in.size()), d = stored<T>(values(rows * C, 4)), d_weight(weight.size()),
                                         d_bias(weight.size());
          const std::vector<T> d_out = stored<T>(values(rows * C, 5));
          std::vector<float> mean(static_cast<std::size_t>(rows)), rstd(mean.size());
          kernels.layernorm_forward(place(out), place(mean), place(rstd), place(in), place(weight), place(bias), rows,
                                    C);
          kernels.layernorm_backward(place(d), accumulate, place(d_weight), place(d_bias), place(d_out), place(in),
                                     place(weight), place(mean), place(rstd), rows, C);
          std::vector<T> in_place = d_out;  // d_in may be d_out
          kernels.layernorm_backward(place(in_place), false, place(d_weight), place(d_bias), place(in_place), place(in),
                                     place(weight), place(mean), place(rstd), rows, C);
          place.finish();
          return Outputs{widened(out), mean, rstd, widened(d), widened(d_weight), widened(d_bias), widened(in_place)};
        });
      }
    }
  }
}

TEST(CudaLayers, LayernormOfAnyShapeHasTheBitsOfTheCpu) { expect_layernorms<float>(); }
TEST(CudaLayers, LayernormOfAnyShapeHasTheBitsOfTheCpuInBf16) { expect_layernorms<Bf16>(); }

template <class T>
void expect_softmaxes() {
  for (const Index context : {1, 3, 8, 17, 35}) {
    for (const Index count : {1, 3}) {
      expect_the_bits_of_the_cpu(std::to_string(context), [&](Kernels& kernels, auto& place) {
        const Index size = count * context * context;
        std::vector<T> scores = stored<T>(values(size, 1, 8.0F)), d = stored<T>(values(size, 2));
        for (std::size_t i = 0; i < scores.size(); ++i) {  // what stands above the diagonal is not read
          if (static_cast<Index>(i) % context > static_cast<Index>(i) / context % context) {
            scores[i] = d[i] = from_float<T>(__builtin_nanf(""));
          }
        }
        kernels.causal_softmax_forward(place(scores), 0.25F, count, context);
        kernels.causal_softmax_backward(place(d), place(scores), 0.25F, count, context);
        place.finish();
        return Outputs{widened(scores), widened(d)};
      });
    }
  }
}

TEST(CudaLayers, CausalSoftmaxOfAnyShapeHasTheBitsOfTheCpu) { expect_softmaxes<float>(); }
TEST(CudaLayers, CausalSoftmaxOfAnyShapeHasTheBitsOfTheCpuInBf16) { expect_softmaxes<Bf16>(); }

template <class T>
void expect_cross_entropies() {
  for (const auto& [rows, vocabulary] : {std::pair<Index, Index>{1, 1}, {3, 2}, {9, 65}, {2, 9001}}) {
    expect_the_bits_of_the_cpu(
        std::to_string(vocabulary), [rows = rows, V = vocabulary](Kernels& kernels, auto& place) {
          std::vector<T> logits = stored<T>(values(rows * V, 1, 20.0F));
          std::vector<float> losses(static_cast<std::size_t>(rows));
          std::vector<std::int32_t> targets = some_tokens(rows, V, 2);
          targets[0] = static_cast<std::int32_t>(V - 1);
          kernels.cross_entropy(place(losses), place(logits), place.indices(targets), 0.01F, rows, V);
          place.finish();
          return Outputs{losses, widened(logits)};
        });
  }
}

TEST(CudaLayers, CrossEntropyOfAnyShapeHasTheBitsOfTheCpu) { expect_cross_entropies<float>(); }
TEST(CudaLayers, CrossEntropyOfAnyShapeHasTheBitsOfTheCpuInBf16) { expect_cross_entropies<Bf16>(); }

template <class T>
void expect_embeddings() {
  constexpr Index B = 3, kContext = 13, kRows = B * kContext, kVocabulary = 11;  // most tokens come several times
  for (const Index C : {1, 33, 150}) {
    for (const auto& [first, count] : {std::pair<Index, Index>{0, kVocabulary}, {4, 3}, {10, 1}, {0, 0}}) {
      expect_the_bits_of_the_cpu(std::to_string(C), [&, first = first, count = count](Kernels& kernels, auto& place) {
        const std::vector<std::int32_t> tokens = some_tokens(kRows, kVocabulary, 1);
        const std::vector<T> table = stored<T>(values(kVocabulary * C, 2)),
                             positions = stored<T>(values(kContext * C, 3)), d = stored<T>(values(kRows * C, 4, 50.0F));
        std::vector<T> out(d.size()), d_positions(positions.size());
        std::vector<float> rows = values(count * C, 5);
        kernels.embedding_forward(place(out), place.indices(tokens), place(table), place(positions), B, kContext, C);
        kernels.token_table_backward(place(rows), first, place.indices(tokens), place(d), kRows, C);
        kernels.position_table_backward(place(d_positions), place(d), B, kContext, C);
        place.finish();
        return Outputs{widened(out), rows, widened(d_positions)};
      });
    }
  }
}

TEST(CudaLayers, EmbeddingsAndTheirGradientsHaveTheBitsOfTheCpu) { expect_embeddings<float>(); }
TEST(CudaLayers, EmbeddingsAndTheirGradientsHaveTheBitsOfTheCpuInBf16) { expect_embeddings<Bf16>(); }

TEST(CudaLayers, BiasesOfManyColumnsAndNoRowsHaveTheBitsOfTheCpu) {
  for (const Index rows : {0, 1, 5}) {
    expect_the_bits_of_the_cpu(std::to_string(rows), [&](Kernels& kernels, auto& place) {
      constexpr Index kColumns = 77;
      const std::vector<float> in = values(rows * kColumns, 1), bias = values(kColumns, 2);
      std::vector<float> sum = bias, pre = in, out = in, same = in;
      kernels.bias_backward(place(sum), place(in), rows, kColumns);
      kernels.bias_gelu_forward(place(out), place(pre), place(bias), rows, kColumns);
      kernels.add_bias_residual(place(same), place(same), place(bias), place(in), rows, kColumns);  // out is in
      place.finish();
      return Outputs{sum, pre, out, same};
    });
  }
}

TEST(CudaLayers, ATokenOutsideItsTableIsReportedAndTouchesNothing) {
  for (const std::int32_t wrong : {-1, 5, 1000000}) {
    Gpu gpu(Order::forward);
    const std::vector<std::int32_t> tokens = {1, wrong};
    const std::vector<float> table(10, 1.0F), positions(4, 2.0F);
    std::vector<float> out(4);
    gpu.kernels.embedding_forward(gpu.place(out), gpu.place.indices(tokens), gpu.place(table), gpu.place(positions), 1,
                                  2, 2);
    gpu.place.finish();
    EXPECT_EQ(out[0], 3.0F);
    EXPECT_TRUE(std::isnan(out[2]) && std::isnan(out[3]));
    EXPECT_THROW(gpu.kernels.check_indices(), std::logic_error);
    EXPECT_THROW(gpu.kernels.sum_in_order(gpu.place(table)), std::logic_error);
  }
}

TEST(CudaLayers, ATargetOutsideTheVocabularyIsReportedAndTouchesNothing) {
  for (const std::int32_t wrong : {-1, 3}) {
    Gpu gpu(Order::forward);
    const std::vector<std::int32_t> targets = {2, wrong};
    std::vector<float> losses(2), logits = values(6, 1);
    gpu.kernels.cross_entropy(gpu.place(losses), gpu.place(logits), gpu.place.indices(targets), 1.0F, 2, 3);
    gpu.place.finish();
    EXPECT_TRUE(std::isfinite(losses[0]) && std::isfinite(logits[2]));
    EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(logits[3]));
    EXPECT_THROW(gpu.kernels.check_indices(), std::logic_error);
  }
}

TEST(CudaLayers, ANegativeTokenOfAGradientIsReportedAndTouchesNothing) {
  Gpu gpu(Order::forward);
  const std::vector<std::int32_t> tokens = {0, -1};
  const std::vector<float> d(4, 1.0F);
  std::vector<float> rows(6, 1.0F);
  gpu.kernels.token_table_backward(gpu.place(rows), 0, gpu.place.indices(tokens), gpu.place(d), 2, 2);
  gpu.place.finish();
  EXPECT_EQ(rows, (std::vector<float>{2, 2, 1, 1, 1, 1}));
  EXPECT_THROW(gpu.kernels.check_indices(), std::logic_error);
}

TEST(CudaLayers, ViewsThatAreTooShortOrOfAnotherTypeAreRefused) {
  Gpu gpu(Order::forward);
  std::vector<float> five(5), six(6);
  std::vector<Bf16> half(6);
  EXPECT_THROW(gpu.kernels.copy(gpu.place(five), gpu.place(six)), std::logic_error);
  EXPECT_THROW(gpu.kernels.gelu_backward(gpu.place(six), gpu.place(half)), std::logic_error);
  EXPECT_THROW(gpu.kernels.add_bias(gpu.place(five), gpu.place(six), 2, 3), std::logic_error);
  EXPECT_THROW(gpu.kernels.fill({gpu.place(six).data, 6, Dtype::int32}, 1.0F), std::logic_error);
}

}  // namespace
}  // namespace zero
