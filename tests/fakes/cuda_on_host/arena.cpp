#include "tests/fakes/cuda_on_host/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/fakes/cuda_on_host/asan.h"

namespace cuda_on_host {
namespace {

int unlocked = 0;

/// Address ranges begin at this in their lower half. Beside the upper half of an old address (what is left in the
/// padding of a struct), a small integer then looks like no address that was handed out, nor a float of a size that
/// scalars have, before half a GiB was.
constexpr std::uintptr_t kLowerHalf = std::uintptr_t{1} << 28;
constexpr std::size_t kReserved = std::size_t{8} << 30;

/// Whole huge pages are locked and unlocked, where the kernel has them: a hundredth of the time.
constexpr std::size_t kPage = std::size_t{2} << 20;

struct sigaction previous;

/// Ends the program where host code touches device memory; all else goes to who was asked before.
void at_fault(int signal, siginfo_t* info, void* context) {
  if (device_arena().has(info->si_addr)) {
    char line[128];
    const int size = std::snprintf(line, sizeof line, "host code touched device memory at %p\n", info->si_addr);
    if (write(STDERR_FILENO, line, static_cast<std::size_t>(size)) < 0) std::abort();
    std::abort();
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  std::signal(signal, SIG_DFL);  // and the instruction faults again
}

void watch_host_code() {
  struct sigaction action = {};
  action.sa_sigaction = at_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous);
}

}  // namespace

Arena::Arena(bool locked) : locked_(locked) {
  reserved_ = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved_ == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<unsigned char*>(reserved_);
  begin_ = first + (kLowerHalf - reinterpret_cast<std::uintptr_t>(first)) % (std::uintptr_t{1} << 32);
  madvise(begin_, kBytes, MADV_DONTDUMP);
  madvise(begin_, kBytes, MADV_HUGEPAGE);
  if (locked_) {
    watch_host_code();
  } else {
    mprotect(begin_, kBytes, PROT_READ | PROT_WRITE);
  }
}

Arena::~Arena() { munmap(reserved_, kReserved); }

unsigned char* Arena::take(std::size_t bytes) {
  if (bytes > kBytes - taken_) return nullptr;
  unsigned char* const taken = begin_ + taken_;
  taken_ += bytes;
  ASAN_POISON_MEMORY_REGION(taken, bytes);
  if (locked_ && unlocked > 0) protect(PROT_READ | PROT_WRITE);
  return taken;
}

bool Arena::has(const void* address) const {
  const auto* const at = static_cast<const unsigned char*>(address);
  return at >= begin_ && at < begin_ + taken_;
}

void Arena::protect(int protection) const {
  const std::size_t used = (taken_ + kPage - 1) / kPage * kPage;
  if (used > 0 && mprotect(begin_, used, protection) != 0) {
    std::perror("mprotect of the fake's device memory");
    std::abort();
  }
}

Unlocked::Unlocked() {
  if (unlocked++ == 0) device_arena().protect(PROT_READ | PROT_WRITE);
}

Unlocked::~Unlocked() {
  if (--unlocked == 0) device_arena().protect(PROT_NONE);
}

// Never destroyed: buffers with static lifetime are freed late.
Arena& device_arena() {
  static Arena& arena = *new Arena(true);
  return arena;
}

Arena& pinned_arena() {
  static Arena& arena = *new Arena(false);
  return arena;
}

}  // namespace cuda_on_host
