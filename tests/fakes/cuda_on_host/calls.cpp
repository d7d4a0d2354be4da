#include "tests/fakes/cuda_on_host/calls.h"

#include <map>
#include <thread>
#include <utility>

#include "tests/fakes/cuda_on_host/control.h"

namespace cuda_on_host {
namespace {

auto& next_failures = *new std::map<std::string, cudaError_t>;  // never destroyed
cudaError_t last_error = cudaSuccess;

struct Named {
  cudaError_t error;
  const char *name, *text;
};
constexpr Named kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const Named& named(cudaError_t error) {
  static constexpr Named kOther = {cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  for (const Named& each : kErrors) {
    if (each.error == error) return each;
  }
  return kOther;
}

}  // namespace

void fail_next(const std::string& call, cudaError_t error) { next_failures[call] = error; }

cudaError_t enter(const char* call) {
  static const std::thread::id first = std::this_thread::get_id();
  if (std::this_thread::get_id() != first) {
    throw Fault(std::string(call) + ": called from a second thread; this backend calls CUDA from one");
  }
  if (next_failures.empty()) return cudaSuccess;
  const auto found = next_failures.find(call);
  if (found == next_failures.end()) return cudaSuccess;
  const cudaError_t error = found->second;
  next_failures.erase(found);
  return error;
}

cudaError_t leave(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace cuda_on_host

const char* cudaGetErrorName(cudaError_t error) { return cuda_on_host::named(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return cuda_on_host::named(error).text; }
cudaError_t cudaGetLastError() { return std::exchange(cuda_on_host::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return cuda_on_host::last_error; }
