#include "common/device/cpu_isa.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "common/base/error.h"

namespace zero {

std::string_view name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::generic: return "generic";
    case CpuIsa::avx2: return "AVX2";
    case CpuIsa::avx512: return "AVX-512";
  }
  return "";
}

bool available(CpuIsa isa) {
  if (isa == CpuIsa::generic) return true;
#ifdef ZERO_HAVE_X86_ISAS
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (isa == CpuIsa::avx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
  return false;
#endif
}

CpuIsa cpu_isa() {
  struct Choice {
    std::string_view value;
    CpuIsa isa;
  };
  constexpr std::array<Choice, 3> kChoices = {
      {{"avx512", CpuIsa::avx512}, {"avx2", CpuIsa::avx2}, {"generic", CpuIsa::generic}}};
  const char* asked = std::getenv("ZERO_CPU_ISA");
  for (const Choice& choice : kChoices) {
    if (asked == nullptr) {
      if (available(choice.isa)) return choice.isa;
    } else if (asked == choice.value) {
      if (available(choice.isa)) return choice.isa;
      throw UnusableInput(
          fmt::format("ZERO_CPU_ISA={} asks for {} code, which this processor or build "
                      "does not have; unset it or use generic",
                      asked, name(choice.isa)));
    }
  }
  throw UnusableInput(fmt::format("ZERO_CPU_ISA={} is unknown; it can be generic, avx2 or avx512", asked));
}

}  // namespace zero
