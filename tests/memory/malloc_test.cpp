// Every block of memory over 64 KiB is in the ledger, or is a listed library's: this program answers malloc itself and
// looks at who asks. Not built with sanitizers, which answer malloc themselves.
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/support/mpi_main.h"
#include "tests/support/stage_run.h"

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

constexpr std::size_t kSmall = 64 * 1024;
// Files whose large blocks are their own business: the products' library, MPI with its parts, and the loader.
constexpr const char* kListed[] = {"libmpi",  "libopen-", "mca_",     "libpmix", "libdnnl",
                                   "libgomp", "libhwloc", "libevent", "ld-linux"};

std::atomic<bool> watching{false};
std::atomic<int> offences{0};
thread_local bool inside = false;
char first_offence[1024];

bool listed(const char* file) {
  for (const char* name : kListed) {
    if (std::strstr(file, name) != nullptr) return true;
  }
  return false;
}

/// Walks from the allocator up to the first caller that is not the C or C++ library: whose block is it?
void look(std::size_t bytes) {
  if (bytes <= kSmall || !watching || inside) return;
  inside = true;
  void* frames[32];
  const int count = backtrace(frames, 32);
  bool ours = true;
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&look), &self);
  std::string path;
  for (int i = 1; i < count; ++i) {
    Dl_info info{};
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    if (listed(info.dli_fname)) {
      ours = false;
      break;
    }
    if (info.dli_fbase == self.dli_fbase && info.dli_sname != nullptr) path += std::string(" < ") + info.dli_sname;
  }
  if (ours && offences++ == 0) {
    std::snprintf(first_offence, sizeof first_offence, "%zu bytes%.900s", bytes, path.c_str());
  }
  inside = false;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) {
  look(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  look(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  look(bytes);
  return __libc_realloc(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  look(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  look(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  look(bytes);
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}

namespace zero::test {
namespace {

TEST(Memory, ABlockOfOursOutsideTheLedgerIsNoticed) {
  void* frames[4];
  backtrace(frames, 4);  // its first call loads a library
  watching = true;
  std::free(std::malloc(kSmall + 1));
  watching = false;
  EXPECT_EQ(offences.exchange(0), 1);
}

TEST(Memory, EveryLargeBlockOfEveryStageIsInTheLedgerOrAListedLibrarys) {
  std::vector<ProductKind> products = {ProductKind::canonical};
#ifdef ZERO_HAVE_DNNL
  products.push_back(ProductKind::library);
#endif
  for (const ProductKind product : products) {
    for (const TransportKind transport : {TransportKind::shared, TransportKind::messages}) {
      for (const Stage stage : {Stage::baseline, Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
        RunSetting setting;
        setting.stage = stage;
        setting.config = find_preset("tiny")->config;
        setting.data = ZERO_TEST_DATA "/../../docs/corpus.txt";
        setting.world = testing::world_size();
        setting.micro_steps = 2;
        setting.steps = 2;
        setting.products = product;
        setting.transport = transport;
        watching = true;
        run(setting, MPI_COMM_WORLD);
        watching = false;
        EXPECT_EQ(offences.exchange(0), 0) << setting.describe() << ": " << first_offence;
      }
    }
  }
}

TEST(Memory, EveryLargeBlockOfOffloadIsInTheLedgerOrAListedLibrarys) {
  for (const Tier parameters : {Tier::device, Tier::host, Tier::nvme}) {
    for (const Tier optimizer : {Tier::host, Tier::nvme}) {
      RunSetting setting;
      setting.stage = parameters == Tier::device ? Stage::gradients : Stage::parameters;
      setting.optimizer_tier = optimizer;
      setting.parameters_tier = parameters;
      setting.config = find_preset("tiny")->config;
      setting.data = ZERO_TEST_DATA "/../../docs/corpus.txt";
      setting.world = testing::world_size();
      setting.steps = 2;
      setting.dtype = Dtype::bf16;
      setting.offload_threads = 2;
      setting.tiles = optimizer == Tier::nvme ? 2 : 1;
      if (optimizer == Tier::host) setting.delay_after = 0;
      watching = true;
      run(setting, MPI_COMM_WORLD);
      watching = false;
      EXPECT_EQ(offences.exchange(0), 0) << setting.describe() << ": " << first_offence;
    }
  }
}

}  // namespace
}  // namespace zero::test
