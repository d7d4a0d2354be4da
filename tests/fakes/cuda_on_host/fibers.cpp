#include "tests/fakes/cuda_on_host/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csetjmp>
#include <cstddef>
#include <new>
#include <stdexcept>

#include "tests/fakes/cuda_on_host/control.h"

// AddressSanitizer is told of every change of stacks.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom, std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** bottom, std::size_t* size);
}

namespace cuda_on_host {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

/// A place to go on from. swapcontext() would save the signal mask too, by a system call; so it only enters a new
/// stack, from where _longjmp() goes on. AddressSanitizer takes a longjmp for one on the same stack and does without.
struct Place {
  ucontext_t context;
  jmp_buf jump;
  bool entered = false;  ///< `jump` is set
};

void change(Place& from, Place& to) {
  if (kAddressSanitizer) {
    swapcontext(&from.context, &to.context);
    return;
  }
  from.entered = true;
  if (_setjmp(from.jump) != 0) return;
  if (to.entered) _longjmp(to.jump, 1);
  setcontext(&to.context);
}

/// Who resumed the fiber that runs.
struct Resumer {
  Place place;
  const void* bottom = nullptr;
  std::size_t size = 0;
};
Resumer resumer;
Fiber* running = nullptr;

}  // namespace

struct Fiber::Stack {
  Place place;
  void* memory;
  void* sanitizer = nullptr;
  const std::size_t guard = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

  Stack() : memory(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, guard, PROT_NONE);  // a stack that grows too far ends the program
    getcontext(&place.context);
    place.context.uc_stack.ss_sp = bottom();
    place.context.uc_stack.ss_size = size();
    place.context.uc_link = nullptr;
    makecontext(&place.context, Fiber::run, 0);
  }
  ~Stack() { munmap(memory, kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  [[nodiscard]] void* bottom() const { return static_cast<std::byte*>(memory) + guard; }
  [[nodiscard]] std::size_t size() const { return kStackBytes - guard; }
};

Fiber::Fiber() : stack_(std::make_unique<Stack>()) {}
Fiber::~Fiber() = default;

void Fiber::start(const std::function<void()>& job) {
  if (!idle()) throw std::logic_error("a fiber was given a second job");
  job_ = &job;
}

void Fiber::resume() {
  running = this;
  void* saved = nullptr;
  if (kAddressSanitizer) __sanitizer_start_switch_fiber(&saved, stack_->bottom(), stack_->size());
  change(resumer.place, stack_->place);
  if (kAddressSanitizer) __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
  running = nullptr;
}

Fiber& Fiber::current() { return *running; }

void Fiber::pause() {
  Fiber& self = *running;
  if (kAddressSanitizer) __sanitizer_start_switch_fiber(&self.stack_->sanitizer, resumer.bottom, resumer.size);
  change(self.stack_->place, resumer.place);
  if (kAddressSanitizer) {
    __sanitizer_finish_switch_fiber(self.stack_->sanitizer, &resumer.bottom, &resumer.size);
  }
}

void Fiber::run() {
  if (kAddressSanitizer) __sanitizer_finish_switch_fiber(nullptr, &resumer.bottom, &resumer.size);
  while (true) {
    (*running->job_)();
    running->job_ = nullptr;
    pause();
  }
}

}  // namespace cuda_on_host
