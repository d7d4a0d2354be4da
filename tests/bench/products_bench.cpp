// The products of a training step, shape by shape: canonical, library, and the libraries called directly, in fp32 and
// in bf16, measured in turn in one run on one thread. Prints one line of JSON for each ratio. Times of a shape are
// medians, weighted with how often a step computes it.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/device/cpu_isa.h"
#include "common/device/products_factory.h"
#include "common/device/scalar_math.h"
#include "tests/bench/timing.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef ZERO_HAVE_DNNL
#include <dnnl.hpp>
#endif

namespace {

using zero::Index;
using zero::bench::cpu_clock;
using zero::bench::median;

struct Shape {
  double count;  // in a step
  Index m, n, k;
  bool a_transposed, b_transposed;
  Index ld_a, ld_b, ld_out;
};

// Forward x W^T, data gradient dy W, weight gradient dy^T x of `count` linear layers.
void add_linear(std::vector<Shape>& step, double count, Index rows, Index out, Index in) {
  step.push_back({count, rows, out, in, false, true, in, in, out});
  step.push_back({count, rows, in, out, false, false, out, in, in});
  step.push_back({count, out, in, rows, true, false, out, in, in});
}

std::vector<Shape> step_of(Index batch, Index t, Index c, Index heads, Index vocabulary, Index layers) {
  std::vector<Shape> step;
  const auto count = static_cast<double>(layers);
  const Index rows = batch * t;
  add_linear(step, count, rows, 3 * c, c);
  add_linear(step, count, rows, c, c);
  add_linear(step, count, rows, 4 * c, c);
  add_linear(step, count, rows, c, 4 * c);
  add_linear(step, 1, rows, vocabulary, c);
  const Index width = c / heads;
  const double all_heads = count * static_cast<double>(batch * heads);
  step.push_back({all_heads, t, t, width, false, true, 3 * c, 3 * c, t});   // Q K^T
  step.push_back({all_heads, t, width, t, false, false, t, 3 * c, c});      // P V
  step.push_back({all_heads, t, t, width, false, true, c, 3 * c, t});       // dO V^T
  step.push_back({all_heads, t, width, t, true, false, t, c, 3 * c});       // P^T dO
  step.push_back({all_heads, t, width, t, false, false, t, 3 * c, 3 * c});  // dS K
  step.push_back({all_heads, t, width, t, true, false, t, 3 * c, 3 * c});   // dS^T Q
  return step;
}

volatile float sink;

#if defined(__x86_64__)
constexpr int kChains = 16;  // independent fma chains: more than latency times units, all in registers
constexpr int kLinks = 40000;

__attribute__((target("avx512f"))) double fma_rate_avx512() {
  __m512 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 x = _mm512_set1_ps(0.5F);
  const double begin = cpu_clock();
  for (int i = 0; i < kLinks; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_fmadd_ps(sum[c], x, x);
  }
  const double rate = 2.0 * 16 * kChains * kLinks / (cpu_clock() - begin);
  for (const __m512& s : sum) {
    float lanes[16];
    _mm512_storeu_ps(lanes, s);
    sink = lanes[0];
  }
  return rate;
}

__attribute__((target("avx2,fma"))) double fma_rate_avx2() {
  constexpr int kFew = 12;  // of 16 registers
  __m256 sum[kFew];
  for (int c = 0; c < kFew; ++c) sum[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 x = _mm256_set1_ps(0.5F);
  const double begin = cpu_clock();
  for (int i = 0; i < kLinks; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kFew; ++c) sum[c] = _mm256_fmadd_ps(sum[c], x, x);
  }
  const double rate = 2.0 * 8 * kFew * kLinks / (cpu_clock() - begin);
  for (const __m256& s : sum) sink = _mm256_cvtss_f32(s);
  return rate;
}

// Flops per second of fma on registers; 0 where this program has no such loop.
double fma_rate() {
  double rate = 0;
  if (zero::available(zero::CpuIsa::avx2)) rate = std::max(rate, fma_rate_avx2());
  if (zero::available(zero::CpuIsa::avx512)) rate = std::max(rate, fma_rate_avx512());
  return rate;
}
#else
double fma_rate() { return 0; }
#endif

// cblas_sgemm of an OpenBLAS on this machine, loaded here only: the product itself does not use it.
using Cblas = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int ld_a,
                       const float* b, int ld_b, float beta, float* out, int ld_out);

Cblas load_openblas() {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  if (void* set_threads = dlsym(library, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(set_threads)(1);
  }
  return reinterpret_cast<Cblas>(dlsym(library, "cblas_sgemm"));
}

class Bench {
 public:
  Bench() : canonical_(zero::make_canonical_products(1)), openblas_(load_openblas()) {
    workspace_.resize(static_cast<std::size_t>(canonical_->workspace_elements()));
    canonical_->set_workspace({workspace_.data(), canonical_->workspace_elements()});
#ifdef ZERO_HAVE_DNNL
    library_ = zero::make_library_products(1);
    library_workspace_.resize(static_cast<std::size_t>(library_->workspace_elements()));
    library_->set_workspace({library_workspace_.data(), library_->workspace_elements()});
#endif
  }

  void run(const std::string& preset, const std::vector<Shape>& step) {
    double canonical = 0, library = 0, best = 0, flops = 0;
    std::vector<double> rates;
    for (const Shape& shape : step) {
      const Times t = measure(shape, rates);
      canonical += shape.count * t.canonical;
      library += shape.count * t.library;
      best += shape.count * std::min(t.onednn, t.openblas);
      flops += shape.count * 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
    }
    const double peak = median(rates);
    if (library_) {
      print(preset, "canonical_over_library", library / canonical, 0.80);
      print(preset, "library_over_best_called_directly", best / library, 0.95);
      if (peak > 0) print(preset, "library_over_fma_peak", flops / library / peak, 0.85);
    }
    std::fprintf(stderr, "%s: Gflop/s of a step: canonical %.1f, library %.1f, best of libraries %.1f, fma %.1f\n",
                 preset.c_str(), flops / canonical * 1e-9, flops / library * 1e-9, flops / best * 1e-9, peak * 1e-9);
  }

  // bf16 in and out.
  void run_bf16(const std::string& preset, const std::vector<Shape>& step) {
    double canonical = 0, canonical_fp32 = 0, library = 0, onednn = 0, flops = 0;
    for (const Shape& shape : step) {
      const Bf16Times t = measure_bf16(shape);
      canonical += shape.count * t.canonical;
      canonical_fp32 += shape.count * t.canonical_fp32;
      library += shape.count * t.library;
      onednn += shape.count * t.onednn;
      flops += shape.count * 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
    }
    // Without bf16 instructions the library goes through fp32, and oneDNN's own bf16 is no measure.
    const bool native = library_ && library_->bf16_description().find(" by ") != std::string::npos;
    if (native) print(preset, "library_bf16_over_called_directly", onednn / library, 0.9);
    std::fprintf(stderr, "%s: Gflop/s of a step in bf16: canonical %.1f (in fp32 %.1f, ratio %.3f)", preset.c_str(),
                 flops / canonical * 1e-9, flops / canonical_fp32 * 1e-9, canonical_fp32 / canonical);
    if (library_)
      std::fprintf(stderr, ", library %.1f (%s)", flops / library * 1e-9, library_->bf16_description().c_str());
    if (native) std::fprintf(stderr, ", oneDNN called directly %.1f", flops / onednn * 1e-9);
    std::fprintf(stderr, "\n");
  }

 private:
  struct Times {
    double canonical, library, onednn, openblas;
  };

  static void print(const std::string& preset, const char* ratio, double value, double bar) {
    zero::bench::print_ratio("products/" + preset + "/" + ratio, value, bar, zero::bench::Better::higher);
  }

  std::vector<float> random(Index rows, Index ld) {
    std::vector<float> values(static_cast<std::size_t>(rows * ld));
    for (float& x : values) x = static_cast<float>(bits_() >> 8) * 0x1p-24F - 0.5F;
    return values;
  }

  struct Bf16Times {
    double canonical, canonical_fp32, library, onednn;
  };

  // Median seconds of each way, in turn in every round; unreachably many of an empty one.
  static std::vector<double> take_turns(const std::vector<std::function<void()>>& ways, double flops,
                                        const std::function<void()>& after_round) {
    const int repetitions = std::max(1, static_cast<int>(1e8 / flops));
    const int rounds = flops > 5e9 ? 5 : 21;
    std::vector<std::vector<double>> times(ways.size());
    for (const auto& way : ways) {
      if (way) way();
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t w = 0; w < ways.size(); ++w) {
        const double begin = cpu_clock();
        for (int r = 0; r < repetitions && ways[w]; ++r) ways[w]();
        times[w].push_back(ways[w] ? (cpu_clock() - begin) / repetitions : 1e30);
      }
      after_round();
    }
    std::vector<double> medians;
    for (const std::vector<double>& of_way : times) medians.push_back(median(of_way));
    return medians;
  }

  // Seconds per product, each alternative in turn in every round.
  Times measure(const Shape& s, std::vector<double>& rates) {
    const std::vector<float> a = random(s.a_transposed ? s.k : s.m, s.ld_a);
    const std::vector<float> b = random(s.b_transposed ? s.n : s.k, s.ld_b);
    std::vector<float> out(static_cast<std::size_t>(s.m * s.ld_out));
    const auto view = [](const std::vector<float>& v) {
      return zero::ConstArray{v.data(), static_cast<Index>(v.size())};
    };
    const auto with = [&](zero::Products& products) {
      products.multiply({out.data(), static_cast<Index>(out.size())}, s.ld_out, {view(a), s.ld_a, s.a_transposed},
                        {view(b), s.ld_b, s.b_transposed}, s.m, s.n, s.k);
    };
    std::vector<std::function<void()>> ways = {[&] { with(*canonical_); }, {}, {}, {}};
    if (library_) ways[1] = [&] { with(*library_); };
#ifdef ZERO_HAVE_DNNL
    ways[2] = [&] {
      dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0F, a.data(), s.ld_a,
                 b.data(), s.ld_b, 0.0F, out.data(), s.ld_out);
    };
#endif
    if (openblas_ != nullptr) {
      ways[3] = [&] {
        openblas_(101, s.a_transposed ? 112 : 111, s.b_transposed ? 112 : 111, static_cast<int>(s.m),
                  static_cast<int>(s.n), static_cast<int>(s.k), 1.0F, a.data(), static_cast<int>(s.ld_a), b.data(),
                  static_cast<int>(s.ld_b), 0.0F, out.data(), static_cast<int>(s.ld_out));
      };
    }
    const std::vector<double> times =
        take_turns(ways, 2.0 * static_cast<double>(s.m * s.n * s.k), [&] { rates.push_back(fma_rate()); });
    return {times[0], times[1], times[2], times[3]};
  }

  static std::vector<zero::Bf16> rounded(const std::vector<float>& values) {
    std::vector<zero::Bf16> result;
    result.reserve(values.size());
    for (const float x : values) result.push_back(zero::from_float<zero::Bf16>(x));
    return result;
  }

  Bf16Times measure_bf16(const Shape& s) {
    const std::vector<float> a = random(s.a_transposed ? s.k : s.m, s.ld_a);
    const std::vector<float> b = random(s.b_transposed ? s.n : s.k, s.ld_b);
    std::vector<float> out(static_cast<std::size_t>(s.m * s.ld_out));
    std::vector<zero::Bf16> half_a = rounded(a), half_b = rounded(b), half_out(out.size());
    const auto with = [&](zero::Products& products) {
      const auto half = [](std::vector<zero::Bf16>& v) {
        return zero::Array{v.data(), static_cast<Index>(v.size()), zero::Dtype::bf16};
      };
      products.multiply(half(half_out), s.ld_out, {half(half_a), s.ld_a, s.a_transposed},
                        {half(half_b), s.ld_b, s.b_transposed}, s.m, s.n, s.k);
    };
    const auto in_fp32 = [&] {
      const auto view = [](const std::vector<float>& v) {
        return zero::ConstArray{v.data(), static_cast<Index>(v.size())};
      };
      canonical_->multiply({out.data(), static_cast<Index>(out.size())}, s.ld_out, {view(a), s.ld_a, s.a_transposed},
                           {view(b), s.ld_b, s.b_transposed}, s.m, s.n, s.k);
    };
    std::vector<std::function<void()>> ways = {[&] { with(*canonical_); }, in_fp32, {}, {}};
    if (library_) ways[2] = [&] { with(*library_); };
#ifdef ZERO_HAVE_DNNL
    using dnnl::memory;
    const auto matrix = [&](std::vector<zero::Bf16>& v, Index rows, Index columns, Index ld, bool transposed) {
      const memory::desc layout{
          {rows, columns}, memory::data_type::bf16, transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
      return memory(layout, engine_, v.data());
    };
    memory left = matrix(half_a, s.m, s.k, s.ld_a, s.a_transposed);
    memory right = matrix(half_b, s.k, s.n, s.ld_b, s.b_transposed);
    memory product = matrix(half_out, s.m, s.n, s.ld_out, false);
    dnnl::matmul direct;
    if (library_->bf16_description().find(" by ") != std::string::npos) {
#if DNNL_VERSION_MAJOR >= 3
      direct = dnnl::matmul({engine_, left.get_desc(), right.get_desc(), product.get_desc()});
#else
      direct = dnnl::matmul({{left.get_desc(), right.get_desc(), product.get_desc()}, engine_});
#endif
      ways[3] = [&] {
        direct.execute(stream_, {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, product}});
        stream_.wait();
      };
    }
#endif
    const std::vector<double> times = take_turns(ways, 2.0 * static_cast<double>(s.m * s.n * s.k), [] {});
    if (print_shapes_) {
      const double flops = 2e-9 * static_cast<double>(s.m * s.n * s.k);
      std::fprintf(stderr,
                   "  %6ld x %6ld x %6ld %d%d: bf16 %6.1f fp32 %6.1f (%.3f) library %6.1f direct %6.1f (%.3f)\n", s.m,
                   s.n, s.k, s.a_transposed, s.b_transposed, flops / times[0], flops / times[1], times[1] / times[0],
                   flops / times[2], flops / times[3], times[3] / times[2]);
    }
    return {times[0], times[1], times[2], times[3]};
  }

  std::unique_ptr<zero::Products> canonical_, library_;
  std::vector<float> workspace_, library_workspace_;
#ifdef ZERO_HAVE_DNNL
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
#endif
  bool print_shapes_ = std::getenv("SHAPES") != nullptr;
  Cblas openblas_;
  std::mt19937 bits_{7};
};

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  const auto run = [&](const std::string& preset, const std::vector<Shape>& step) {
    bench.run(preset, step);
    bench.run_bf16(preset, step);
  };
  run("tiny", step_of(8, 128, 128, 4, 256, 4));
  if (argc > 1 && std::string_view(argv[1]) == "--quick") return 0;
  run("small", step_of(4, 256, 384, 6, 256, 6));
  run("gpt2", step_of(1, 256, 768, 12, 50257, 12));
  return 0;
}
