#include "common/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>

#include "common/base/error.h"
#include "common/device/cuda/cuda_products.h"

namespace zero {
namespace {

using cuda::check;

constexpr Index kPage = 4096;

/// A copy of so many bytes from pageable memory may wait for what was queued before it.
constexpr Index kStagedAtOnce = Index{64} << 10;

std::size_t size(Index bytes) { return static_cast<std::size_t>(bytes); }

int select_gpu(int ordinal) {
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  return ordinal;
}

/// What is freed stays in the pool: the threshold above which it goes back to the driver, at any time that somebody
/// waits, is 0 otherwise.
void keep_freed_memory(int ordinal) {
  cudaMemPool_t pool = nullptr;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "cudaDeviceGetDefaultMemPool");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most), "cudaMemPoolSetAttribute");
}

void give_back_freed_memory(int ordinal) {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "cudaDeviceGetDefaultMemPool");
  check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
}

/// nullptr where the runtime has no memory left; any other error is thrown.
void* memory_or_none(void* memory, cudaError_t status, const char* call) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // so that nobody finds it who looks for another
    return nullptr;
  }
  check(status, call);
  return memory;
}

}  // namespace

CudaDevice::CudaDevice(ProductKind products, int local_rank)
    : gpus_(cuda::count_devices()), ordinal_(select_gpu(local_rank % gpus_)), host_kernels_(cpu_isa()) {
  keep_freed_memory(ordinal_);
  const cuda::PresentStream stream(queues_, queue_);
  results_ = allocate_uninitialized(Category::workspace, CudaKernels::scratch_bytes() / size_of(Dtype::fp32));
  kernels_ = std::make_unique<CudaKernels>(stream, results_.array().data);
  products_ = products == ProductKind::canonical ? make_cuda_canonical_products(stream) : make_cublas_products(stream);
  if (const Index elements = products_->workspace_elements(); elements > 0) {
    workspace_ = allocate_uninitialized(Category::workspace, elements);
    products_->set_workspace(workspace_.array());
  }
}

CudaDevice::~CudaDevice() {
  products_.reset();  // before what they were lent
  kernels_.reset();
  workspace_.reset();
  results_.reset();
  try {
    queues_.synchronize(Queue::compute);
    give_back_freed_memory(ordinal_);
  } catch (const std::exception&) {  // nobody is left who would want to know
  }
}

std::string CudaDevice::description() const {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
  return fmt::format("cuda: {}, compute capability {}.{}, GPU {} of {}", properties.name, properties.major,
                     properties.minor, ordinal_, gpus_);
}

std::string CudaDevice::bus_id() const {
  std::array<char, 32> id = {};
  check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), ordinal_), "cudaDeviceGetPCIBusId");
  return id.data();
}

void CudaDevice::follow_compute() {
  if (queue_ != Queue::compute) queues_.wait(queue_, queues_.mark(Queue::compute));
}

void* CudaDevice::acquire(Tier tier, Category /*category*/, Index bytes) {
  if (tier == Tier::nvme)
    throw UnusableInput("the CUDA device has no nvme tier; keep the buffer on the device or the host");
  if (tier == Tier::host) return acquire_pinned(bytes);
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, size(bytes), queues_.stream(Queue::compute));
  memory = memory_or_none(memory, status, "cudaMallocAsync");
  if (memory == nullptr) return nullptr;
  blocks_[static_cast<const std::byte*>(memory)] = {bytes, Tier::device, memory};
  follow_compute();
  return memory;
}

void* CudaDevice::acquire_pinned(Index bytes) {
  void* allocated = nullptr;
  const cudaError_t status = cudaHostAlloc(&allocated, size(bytes + kPage), cudaHostAllocDefault);
  allocated = memory_or_none(allocated, status, "cudaHostAlloc");
  if (allocated == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(allocated);
  std::byte* const memory = static_cast<std::byte*>(allocated) + (kPage - static_cast<Index>(address % kPage)) % kPage;
  blocks_[memory] = {bytes, Tier::host, allocated};
  return memory;
}

// In destructors, so that errors are left to whoever waits for the device next.
void CudaDevice::release(Tier tier, void* memory, Index /*bytes*/) {
  if (tier == Tier::host) return release_pinned(memory);
  blocks_.erase(static_cast<const std::byte*>(memory));
  cudaFreeAsync(memory, queues_.stream(Queue::compute));
}

void CudaDevice::release_pinned(void* memory) {
  const auto block = blocks_.find(static_cast<const std::byte*>(memory));
  void* const allocated = block->second.allocated;
  blocks_.erase(block);
  try {
    queues_.synchronize(Queue::copies);  // one may still read or write it
  } catch (const std::exception&) {
    return;  // a run that ends: it may be in use for as long as the process is there
  }
  cudaFreeHost(allocated);
}

void CudaDevice::fill_zero(Tier tier, void* memory, Index bytes) {
  if (tier == Tier::host) {
    std::memset(memory, 0, size(bytes));
    return;
  }
  check(cudaMemsetAsync(memory, 0, size(bytes), queues_.stream(Queue::compute)), "cudaMemsetAsync");
  follow_compute();
}

const CudaDevice::Block* CudaDevice::block_at(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return nullptr;
  --block;
  return at < block->first + block->second.bytes ? &block->second : nullptr;
}

void CudaDevice::copy_now(void* out, const void* in, Index bytes) {
  // From pageable memory to the device: the runtime has taken the bytes when the call returns. For that, or to bring
  // bytes to pageable memory, it may wait for what was queued before, and asks nobody meanwhile (watch.h): so that is
  // waited for here.
  const Block* const to = block_at(out);
  const bool taken = to != nullptr && to->tier == Tier::device && block_at(in) == nullptr;
  if (!taken || bytes > kStagedAtOnce) queues_.synchronize(queue_);
  queue_copy(out, in, bytes);
  if (!taken) queues_.synchronize(queue_);
}

void CudaDevice::queue_copy(void* out, const void* in, Index bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(out, in, size(bytes), cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
}

std::optional<std::string> why_no_cuda() {
  try {
    cuda::count_devices();
    return std::nullopt;
  } catch (const UnusableInput& reason) {
    return reason.what();
  }
}

std::unique_ptr<Device> make_cuda_device(ProductKind products, int local_rank) {
  return std::make_unique<CudaDevice>(products, local_rank);
}

}  // namespace zero
