// Canonical products: a block of threads computes a tile of outputs; panels of both operands pass through its shared
// memory. Each output is one chain of fma in rising p in one thread's register from the first panel to the last: no
// split of p, so no order that depends on the tiles.
#include "common/device/cuda/cuda_products.h"
#include "common/device/cuda/grid.h"
#include "common/device/kernel_views.h"
#include "common/device/products_storage.h"

namespace zero {
namespace cuda {
namespace {

constexpr int kSide = 16;                 ///< threads along each side of a tile
constexpr int kOfThread = 4;              ///< outputs of a thread along each side, kSide apart
constexpr int kTile = kSide * kOfThread;  ///< outputs along each side
constexpr int kDepth = 16;                ///< of a panel
constexpr int kStride = kTile + 1;        ///< of a panel's rows: a column of it lies in different banks
constexpr int kThreads = kSide * kSide;
constexpr std::size_t kPanel = kDepth * kStride;

/// One operand: element p of line i is at data[i * line_step + p * step]; the lines of a are rows, those of b columns.
template <class T>
struct Lines {
  const T* data;
  Index line_step, step;
  Index count;
};

/// panel[p * kStride + i] = element p0 + p of line `begin` + i, in fp32, for p < depth; 0 past the last line. Threads
/// that stand beside each other read what lies beside each other.
template <class T>
__device__ inline void load_panel(float* panel, const Lines<T>& lines, Index begin, Index p0, int depth) {
  for (int q = static_cast<int>(threadIdx.x); q < kTile * kDepth; q += kThreads) {
    const int i = lines.step == 1 ? q / kDepth : q % kTile;
    const int p = lines.step == 1 ? q % kDepth : q / kTile;
    if (p >= depth) continue;
    const bool there = begin + i < lines.count;
    panel[p * kStride + i] = there ? to_float(lines.data[(begin + i) * lines.line_step + (p0 + p) * lines.step]) : 0.0F;
  }
}

template <class T, class Out>
__global__ void canonical_product(Out* out, Index ld_out, Lines<T> a, Lines<T> b, Index k, Index tiles_across) {
  float* const a_panel = shared_memory<float>();
  float* const b_panel = a_panel + kPanel;
  const Index i0 = Index{blockIdx.x} / tiles_across * kTile;
  const Index j0 = Index{blockIdx.x} % tiles_across * kTile;
  const int ti = static_cast<int>(threadIdx.x) / kSide;
  const int tj = static_cast<int>(threadIdx.x) % kSide;

  float sum[kOfThread][kOfThread] = {};
  for (Index p0 = 0; p0 < k; p0 += kDepth) {
    const int depth = k - p0 < kDepth ? static_cast<int>(k - p0) : kDepth;
    load_panel(a_panel, a, i0, p0, depth);
    load_panel(b_panel, b, j0, p0, depth);
    __syncthreads();
    for (int p = 0; p < depth; ++p) {  // no further: even a zero product may change a bit, that of -0
      for (int i = 0; i < kOfThread; ++i) {
        const float left = a_panel[p * kStride + ti + i * kSide];
        for (int j = 0; j < kOfThread; ++j) {
          sum[i][j] = __builtin_fmaf(left, b_panel[p * kStride + tj + j * kSide], sum[i][j]);
        }
      }
    }
    __syncthreads();  // the panels have been read
  }

  for (int i = 0; i < kOfThread; ++i) {
    for (int j = 0; j < kOfThread; ++j) {
      const Index row = i0 + ti + i * kSide;
      const Index column = j0 + tj + j * kSide;
      if (row < a.count && column < b.count) out[row * ld_out + column] = from_float<Out>(sum[i][j]);
    }
  }
}

template <class T>
Lines<T> rows_of(const Matrix& a, Index m) {
  const T* const data = elements<T>(a.data, 0);
  return a.transposed ? Lines<T>{data, 1, a.ld, m} : Lines<T>{data, a.ld, 1, m};
}

template <class T>
Lines<T> columns_of(const Matrix& b, Index n) {
  const T* const data = elements<T>(b.data, 0);
  return b.transposed ? Lines<T>{data, b.ld, 1, n} : Lines<T>{data, 1, b.ld, n};
}

class CanonicalProducts final : public Products {
 public:
  explicit CanonicalProducts(PresentStream stream) : stream_(stream) {}

  void multiply(Array out, Index ld_out, Matrix a, Matrix b, Index m, Index n, Index k) override {
    require_dtypes(out, a, b);
    const Index tiles_across = divide_up(n, kTile);
    const Grid grid = {.blocks = static_cast<unsigned>(divide_up(m, kTile) * tiles_across),
                       .threads = kThreads,
                       .shared_bytes = 2 * kPanel * sizeof(float)};
    with_type(a.data.dtype, [&]<class T>(T) {
      with_type(out.dtype, [&]<class Out>(Out) {
        launch("canonical_product", canonical_product<T, Out>, grid, stream_, elements<Out>(out, 0), ld_out,
               rows_of<T>(a, m), columns_of<T>(b, n), k, tiles_across);
      });
    });
  }

  [[nodiscard]] std::string description() const override { return "canonical"; }

 private:
  PresentStream stream_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Products> make_cuda_canonical_products(cuda::PresentStream stream) {
  return std::make_unique<cuda::CanonicalProducts>(stream);
}

}  // namespace zero
