#include "tests/fakes/cuda_on_host/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

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

/// Who resumed the fiber that runs.
struct Resumer {
  ucontext_t context;
  const void* bottom = nullptr;
  std::size_t size = 0;
};
Resumer resumer;
Fiber* running = nullptr;

}  // namespace

struct Fiber::Stack {
  ucontext_t context;
  void* memory;
  void* sanitizer = nullptr;
  const std::size_t guard = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

  Stack() : memory(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, guard, PROT_NONE);  // a stack that grows too far ends the program
    getcontext(&context);
    context.uc_stack.ss_sp = bottom();
    context.uc_stack.ss_size = size();
    context.uc_link = nullptr;
    makecontext(&context, Fiber::run, 0);
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
  swapcontext(&resumer.context, &stack_->context);
  if (kAddressSanitizer) __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
  running = nullptr;
}

Fiber& Fiber::current() { return *running; }

void Fiber::pause() {
  Fiber& self = *running;
  if (kAddressSanitizer) __sanitizer_start_switch_fiber(&self.stack_->sanitizer, resumer.bottom, resumer.size);
  swapcontext(&self.stack_->context, &resumer.context);
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
