#include "tests/fakes/nccl_over_mpi/operation.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "common/device/scalar_math.h"
#include "tests/fakes/cuda_on_host/control.h"
#include "tests/fakes/cuda_on_host/memory.h"

namespace nccl_over_mpi {

using cuda_on_host::Fault;
using cuda_on_host::kPoison;
using cuda_on_host::Readiness;

Operation::Operation(const char* name, Kind kind, ncclDataType_t type, ncclComm* comm, cudaStream_t stream, Region from,
                     Region to, std::vector<Message> out, std::vector<Message> in)
    : name_(name),
      kind_(kind),
      type_(type),
      comm_(comm),
      stream_(stream),
      from_(from),
      to_(to),
      out_(std::move(out)),
      in_(std::move(in)) {
  ++comm_->queued;
}

Operation::~Operation() {
  --comm_->queued;
  if (requests_.empty()) return;
  // Aborted: MPI may still write there.
  static auto& left = *new std::vector<std::vector<Posted>>;
  left.push_back(std::move(sent_));
  left.push_back(std::move(arriving_));
}

void Operation::check(int code, const char* call) const {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  MPI_Error_string(code, text, &size);
  throw Fault(name_ + ": the ranks do not agree: " + call + ": " + text);
}

void Operation::take_bytes() {
  if (from_.bytes > 0) cuda_on_host::require_there(from_.begin, from_.bytes, name_);
  if (to_.bytes > 0) cuda_on_host::require_there(to_.begin, to_.bytes, name_);
  for (const Message& message : out_) {
    Posted& posted = sent_.emplace_back(Posted{message.peer, Bytes(sizeof(Header) + message.bytes)});
    const Header header = {kind_, type_, message.bytes};
    std::memcpy(posted.bytes.data(), &header, sizeof header);
    if (message.bytes > 0) {
      std::memcpy(posted.bytes.data() + sizeof header, from_.begin + message.begin, message.bytes);
    }
  }
}

void Operation::poison_target() {
  if (to_.bytes > 0) std::memset(to_.begin, kPoison, to_.bytes);
}

void Operation::watch_source() { source_.assign(from_.begin, from_.begin + from_.bytes); }

void Operation::start() {
  const int tag = kind_ == Kind::point_to_point ? 0 : 1;
  for (const Message& message : in_) {
    Posted& posted = arriving_.emplace_back(Posted{message.peer, Bytes(sizeof(Header) + message.bytes)});
    if (posted.bytes.size() > INT_MAX) throw Fault(name_ + ": more bytes than the fake sends at once");
    check(MPI_Irecv(posted.bytes.data(), static_cast<int>(posted.bytes.size()), MPI_BYTE, posted.peer, tag, comm_->mpi,
                    &requests_.emplace_back()),
          "MPI_Irecv");
  }
  for (const Posted& posted : sent_) {
    check(MPI_Isend(posted.bytes.data(), static_cast<int>(posted.bytes.size()), MPI_BYTE, posted.peer, tag, comm_->mpi,
                    &requests_.emplace_back()),
          "MPI_Isend");
  }
}

Readiness Operation::readiness() {
  if (comm_->aborted) return Readiness::now;
  if (hangs_) return Readiness::never;
  if (requests_.empty()) return Readiness::now;
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (done == 0) return Readiness::later;
  requests_.clear();
  return Readiness::now;
}

Bytes Operation::received() const {
  Bytes all;
  for (const Posted& posted : arriving_) {
    Header header = {};
    std::memcpy(&header, posted.bytes.data(), sizeof header);
    const std::size_t expected = posted.bytes.size() - sizeof header;
    if (header.kind != kind_ || header.type != type_ || header.bytes != expected) {
      throw Fault(name_ + ": the ranks do not agree: rank " + std::to_string(posted.peer) + " sends " +
                  std::to_string(header.bytes) + " bytes of another operation or size than the " +
                  std::to_string(expected) + " that rank " + std::to_string(comm_->rank) + " expects");
    }
    all.insert(all.end(), posted.bytes.begin() + sizeof header, posted.bytes.end());
  }
  return all;
}

void Operation::finish() {
  if (comm_->aborted) return;
  if (from_.bytes > 0) cuda_on_host::require_there(from_.begin, from_.bytes, name_ + " before it ended");
  if (to_.bytes > 0) cuda_on_host::require_there(to_.begin, to_.bytes, name_ + " before it ended");
  if (!std::equal(source_.begin(), source_.end(), from_.begin)) {
    throw Fault(name_ + ": what it sends was written before it ended");
  }
  if (!std::all_of(to_.begin, to_.begin + to_.bytes, [](unsigned char byte) { return byte == kPoison; })) {
    throw Fault(name_ + ": where it receives was written before it ended");
  }
  Bytes result = received();
  if (kind_ == Kind::reduce_scatter || kind_ == Kind::all_reduce) result = sum(result, arriving_.size(), type_);
  if (!result.empty()) std::memcpy(to_.begin, result.data(), result.size());
}

std::size_t Operation::bytes_to_others() const {
  std::size_t bytes = 0;
  for (const Message& message : out_) bytes += message.peer == comm_->rank ? 0 : message.bytes;
  return bytes;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32: return 4;
    case ncclBfloat16: return 2;
    case ncclUint8: return 1;
    default: return 0;
  }
}

namespace {

/// out[i] = the terms' element i added in order, each sum rounded to the type, as hops of a ring round it.
template <class T, class Add>
Bytes sum_of(const Bytes& arrays, std::size_t terms, Add add) {
  Bytes result(arrays.size() / terms);
  for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
    T total, term;
    std::memcpy(&total, arrays.data() + at, sizeof(T));
    for (std::size_t t = 1; t < terms; ++t) {
      std::memcpy(&term, arrays.data() + t * result.size() + at, sizeof(T));
      total = add(total, term);
    }
    std::memcpy(result.data() + at, &total, sizeof(T));
  }
  return result;
}

}  // namespace

Bytes sum(const Bytes& arrays, std::size_t terms, ncclDataType_t type) {
  if (type == ncclFloat32) return sum_of<float>(arrays, terms, [](float a, float b) { return a + b; });
  if (type == ncclBfloat16) {
    return sum_of<zero::Bf16>(arrays, terms, [](zero::Bf16 a, zero::Bf16 b) {
      return zero::from_float<zero::Bf16>(zero::to_float(a) + zero::to_float(b));
    });
  }
  return sum_of<unsigned char>(arrays, terms,
                               [](unsigned char a, unsigned char b) { return static_cast<unsigned char>(a + b); });
}

}  // namespace nccl_over_mpi
