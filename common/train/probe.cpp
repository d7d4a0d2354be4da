#include "common/train/probe.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/error.h"
#include "common/comm/process.h"
#include "common/train/agreement.h"

namespace zero {

namespace {

/// The digest of some small products.
Digest probe(Device& device, Dtype dtype) {
  constexpr Index m = 37, n = 83, k = 129;  // odd, so that remainders of blocks are tried too
  const auto matrix = [&](Index elements) { return device.allocate(Category::workspace, elements, dtype); };
  const Buffer a = matrix(m * k), b = matrix(k * n), out = matrix(m * n);
  device.kernels().fill_normal(a.array(), 1, 0, 0, 1);
  device.kernels().fill_normal(b.array(), 1, 1, 0, 1);
  Digest digest;
  const auto multiply = [&](Matrix left, Matrix right) {
    device.products().multiply(out.array(), n, left, right, m, n, k);
    device.kernels().digest(digest, out.array(), 0, 0);
  };
  multiply({a.array(), k, false}, {b.array(), n, false});
  multiply({a.array(), m, true}, {b.array(), n, false});
  multiply({a.array(), k, false}, {b.array(), k, true});
  return digest;
}

}  // namespace

void probe_products(Device& device, Communicator& comm, Dtype dtype) {
  if (comm.size() == 1) return;
  Digest digest;
  agree(comm, error_of([&] { digest = probe(device, dtype); }));  // one rank's device may have no room for it
  const std::vector<Digest> digests = comm.gather(digest, Purpose::control, "probe of the products");
  std::vector<std::size_t> differ;
  for (std::size_t r = 1; r < digests.size(); ++r) {
    if (digests[r] != digests[0]) differ.push_back(r);
  }
  if (differ.empty()) return;
  throw UnusableInput(
      fmt::format("--products: {} products have other bits on rank {} than on rank 0; canonical ones on "
                  "all ranks would do",
                  device.products().description(), fmt::join(differ, ", ")));
}

}  // namespace zero
