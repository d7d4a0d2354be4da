#include "common/comm/cuda/nccl_comm.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/error.h"

namespace zero::cuda {
namespace {

const char* name_of(ncclResult_t status) {
  switch (status) {
    case ncclSuccess: return "ncclSuccess";
    case ncclUnhandledCudaError: return "ncclUnhandledCudaError";
    case ncclSystemError: return "ncclSystemError";
    case ncclInternalError: return "ncclInternalError";
    case ncclInvalidArgument: return "ncclInvalidArgument";
    case ncclInvalidUsage: return "ncclInvalidUsage";
    case ncclRemoteError: return "ncclRemoteError";
    case ncclInProgress: return "ncclInProgress";
    default: return "a result of a newer NCCL";
  }
}

/// What NCCL wrote for its log, as the end of a sentence: it may have several lines, or none.
std::string last_words() {
  const char* const words = ncclGetLastError(nullptr);
  std::string text = words == nullptr ? "" : words;
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(" .") + 1);
  return text.empty() ? text : "; " + text;
}

}  // namespace

std::string meaning(ncclResult_t status) { return fmt::format("{} ({})", ncclGetErrorString(status), name_of(status)); }

void check(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw ResourceFailure(fmt::format("{} failed: {}{}", call, meaning(status), last_words()));
}

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclComm::NcclComm(const ncclUniqueId& id, int size, int rank) {
  check(ncclCommInitRank(&comm_, size, id, rank), "ncclCommInitRank");
}

NcclComm::~NcclComm() {
  if (guard_.unwinding()) {
    abort();
  } else if (comm_ != nullptr) {
    ncclCommDestroy(comm_);
  }
}

ncclResult_t NcclComm::asynchronous_error() const {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &error);
  if (asked != ncclSuccess) return asked;
  return error == ncclInProgress ? ncclSuccess : error;
}

void NcclComm::abort() {
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace zero::cuda
