// NCCL's calls. Operations are in operation.h, how ranks meet in bootstrap.h.
#include <nccl.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/cuda_on_host/arena.h"
#include "tests/fakes/cuda_on_host/memory.h"
#include "tests/fakes/cuda_on_host/streams.h"
#include "tests/fakes/nccl_over_mpi/bootstrap.h"
#include "tests/fakes/nccl_over_mpi/control.h"
#include "tests/fakes/nccl_over_mpi/operation.h"

namespace nccl_over_mpi {
namespace {

/// How long a call that queues waits for the other ranks to queue theirs, so that work is ready in the same order in
/// every run. Without them it returns all the same, as NCCL does.
constexpr auto kPatience = std::chrono::seconds(2);

auto& next_failures = *new std::map<std::string, ncclResult_t>;  // never destroyed
bool hangs = false;
ncclResult_t async_error = ncclSuccess;
Counts done;
std::string last_error;

/// Kept: their operations end without a result when their turn comes, and look there until then.
auto& aborted = *new std::vector<ncclComm_t>;

int depth = 0;  // of groups
ncclResult_t group_result = ncclSuccess;
auto& group = *new std::vector<std::shared_ptr<Operation>>;

ncclResult_t fail(ncclResult_t result, const std::string& why) {
  last_error = why;
  if (depth > 0) group_result = result;
  return result;
}

/// A call whose work is body().
template <class Body>
ncclResult_t answer(const char* call, Body body) {
  const auto found = next_failures.find(call);
  if (found == next_failures.end()) return body();
  const ncclResult_t result = found->second;
  next_failures.erase(found);
  return fail(result, std::string(call) + " fails because a test wants it to");
}

void wait_for_the_others(Operation& operation) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (operation.readiness() == cuda_on_host::Readiness::later && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

void queue(const std::vector<std::shared_ptr<Operation>>& operations) {
  bool reached = true;
  for (const auto& operation : operations) {
    reached = reached && cuda_on_host::try_run_all(operation->stream());
  }
  if (reached) {
    const cuda_on_host::Unlocked unlocked;
    cuda_on_host::settle();
    for (const auto& operation : operations) operation->take_bytes();
    for (const auto& operation : operations) operation->poison_target();
    for (const auto& operation : operations) operation->watch_source();
  }
  for (const auto& operation : operations) {
    if (reached) operation->start();
    if (!reached || std::exchange(hangs, false)) operation->never_end();  // behind what never ends is no end either
    ++done.operations;
    done.bytes_sent += operation->bytes_to_others();
  }
  for (const auto& operation : operations) {
    wait_for_the_others(*operation);
    cuda_on_host::queue(operation->stream(), {operation->name(), [operation] { operation->finish(); },
                                              [operation] { return operation->readiness(); }});
  }
}

/// One rank's part in a collective or in a message.
struct Request {
  const char* name;
  Kind kind;
  const void* from;
  std::size_t from_count;
  void* to;
  std::size_t to_count;
  ncclDataType_t type;
  ncclComm_t comm;
  cudaStream_t stream;
};

/// Why NCCL would not take it; or nothing.
std::string problem_of(const Request& request) {
  const auto of_gpu = [&](const void* memory, std::size_t count) {
    return count == 0 || cuda_on_host::owned(cuda_on_host::Tier::device, memory, count * size_of(request.type));
  };
  const std::string name = request.name;
  if (request.comm == nullptr || request.comm->aborted) return name + ": no communicator";
  if (size_of(request.type) == 0) return name + ": the fake has fp32, bf16 and bytes only";
  if (!cuda_on_host::usable(request.stream)) return name + ": no stream";
  if (!of_gpu(request.from, request.from_count)) return name + ": what it sends is no device memory";
  if (!of_gpu(request.to, request.to_count)) return name + ": where it receives is no device memory";
  return "";
}

ncclResult_t add(const Request& request, std::vector<Message> out, std::vector<Message> in) {
  return answer(request.name, [&] {
    if (const std::string problem = problem_of(request); !problem.empty()) return fail(ncclInvalidArgument, problem);
    const std::size_t size = size_of(request.type);
    const auto region = [size](const void* begin, std::size_t count) {
      return Region{static_cast<unsigned char*>(const_cast<void*>(begin)), count * size};
    };
    const auto operation = std::make_shared<Operation>(
        request.name, request.kind, request.type, request.comm, request.stream,
        region(request.from, request.from_count), region(request.to, request.to_count), std::move(out), std::move(in));
    if (depth > 0) {
      group.push_back(operation);
    } else {
      queue({operation});
    }
    return ncclSuccess;
  });
}

/// A message to or from each rank; `step` from one's place in the region to the next, 0: the same bytes.
std::vector<Message> with_each(ncclComm_t comm, std::size_t bytes, std::size_t step) {
  std::vector<Message> messages;
  for (int r = 0; comm != nullptr && r < comm->size; ++r) {
    messages.push_back({r, static_cast<std::size_t>(r) * step, bytes});
  }
  return messages;
}

std::size_t ranks_of(ncclComm_t comm) { return comm == nullptr ? 0 : static_cast<std::size_t>(comm->size); }

}  // namespace

void fail_next(const std::string& call, ncclResult_t result) { next_failures[call] = result; }
void hang_next() { hangs = true; }
void set_async_error(ncclResult_t result) { async_error = result; }
Counts counts() { return done; }

}  // namespace nccl_over_mpi

using namespace nccl_over_mpi;  // NOLINT: the calls stand for all of it

ncclResult_t ncclGetVersion(int* version) {
  return answer("ncclGetVersion", [&] {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return answer("ncclGetUniqueId", [&] {
    *id = make_id();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return answer("ncclCommInitRank", [&] {
    *comm = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks) return fail(ncclInvalidArgument, "no rank of a communicator");
    std::string problem;
    MPI_Comm mpi = meet(id, ranks, rank, problem);
    if (mpi == MPI_COMM_NULL) return fail(ncclInvalidUsage, problem);
    auto made = std::make_unique<ncclComm>();
    made->mpi = mpi;
    made->rank = rank;
    made->size = ranks;
    *comm = made.release();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return answer("ncclCommFinalize", [&] {
    return comm == nullptr || comm->queued > 0 ? fail(ncclInvalidUsage, "ncclCommFinalize: operations have not ended")
                                               : ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return answer("ncclCommDestroy", [&] {
    if (comm == nullptr) return ncclSuccess;
    if (comm->aborted) return fail(ncclInvalidUsage, "ncclCommDestroy: the communicator was aborted, which frees it");
    if (comm->queued > 0) return fail(ncclInvalidUsage, "ncclCommDestroy: operations have not ended");
    // Collective: a rank that fails alone does not wait for the others.
    if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm->mpi);
    delete comm;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return answer("ncclCommAbort", [&] {
    if (comm == nullptr) return fail(ncclInvalidArgument, "ncclCommAbort: no communicator");
    comm->aborted = true;
    aborted.push_back(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return answer("ncclCommGetAsyncError", [&] {
    if (comm == nullptr) return fail(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
    *error = async_error;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGroupStart() {
  return answer("ncclGroupStart", [] {
    if (depth++ == 0) group_result = ncclSuccess;
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group");
  return answer("ncclGroupEnd", [] {
    if (--depth > 0) return ncclSuccess;
    const auto operations = std::exchange(group, {});
    if (group_result == ncclSuccess) queue(operations);
    return group_result;
  });
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({"ncclSend", Kind::point_to_point, from, count, nullptr, 0, type, comm, stream},
             {{peer, 0, count * size_of(type)}}, {});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({"ncclRecv", Kind::point_to_point, nullptr, 0, to, count, type, comm, stream}, {},
             {{peer, 0, count * size_of(type)}});
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return fail(ncclInvalidArgument, "ncclAllReduce: the fake has sums only");
  const std::size_t bytes = count * size_of(type);
  return add({"ncclAllReduce", Kind::all_reduce, from, count, to, count, type, comm, stream}, with_each(comm, bytes, 0),
             with_each(comm, bytes, 0));
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count_of_rank, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return fail(ncclInvalidArgument, "ncclReduceScatter: the fake has sums only");
  const std::size_t bytes = count_of_rank * size_of(type);
  return add({"ncclReduceScatter", Kind::reduce_scatter, from, count_of_rank * ranks_of(comm), to, count_of_rank, type,
              comm, stream},
             with_each(comm, bytes, bytes), with_each(comm, bytes, 0));
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count_of_rank, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count_of_rank * size_of(type);
  return add(
      {"ncclAllGather", Kind::all_gather, from, count_of_rank, to, count_of_rank * ranks_of(comm), type, comm, stream},
      with_each(comm, bytes, 0), with_each(comm, bytes, bytes));
}
