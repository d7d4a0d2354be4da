#include "common/train/machine.h"

#include <sys/resource.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace zero {

std::optional<int> launched(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const char* text = std::getenv(variable);
    if (text == nullptr) continue;
    const std::string_view value = text;
    int number = 0;
    if (std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc()) return number;
  }
  return std::nullopt;
}

Index ranks_here() {
  return launched({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"}).value_or(1);
}

std::optional<Index> machine_memory() {
  std::ifstream file("/proc/meminfo");
  Index total = 0;
  std::string rest;
  for (std::string name; file >> name; std::getline(file, rest)) {
    Index kilobytes = 0;
    if (!(file >> kilobytes)) break;
    if (name == "MemTotal:" || name == "SwapTotal:") total += kilobytes * 1024;
  }
  return total > 0 ? std::optional(total) : std::nullopt;
}

Index process_peak() {
  // VmHWM starts with the program; getrusage() would count what ran in this process before exec as well.
  std::ifstream file("/proc/self/status");
  std::string rest;
  for (std::string name; file >> name; std::getline(file, rest)) {
    Index kilobytes = 0;
    if (name == "VmHWM:" && file >> kilobytes) return kilobytes * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Index{usage.ru_maxrss} * 1024;
}

}  // namespace zero
