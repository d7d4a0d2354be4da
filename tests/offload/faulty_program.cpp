// The offload program with everything in storage, on a disk that fails once, at one rank:
// faulty_program fails|is_short|flips_a_bit read|write AT RANK DIRECTORY OPTIONS. Everything but the disk is as it is.
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "common/train/run.h"
#include "offload/formula.h"
#include "offload/stage3.h"
#include "tests/support/faulty_file.h"

namespace zero::testing {
namespace {

Fault read_fault(const std::string& kind, const std::string& direction, const std::string& at) {
  Fault fault;
  fault.kind = kind == "fails"      ? Fault::Kind::fails
               : kind == "is_short" ? Fault::Kind::is_short
                                    : Fault::Kind::flips_a_bit;
  fault.of = direction == "read" ? Transfer::Kind::read : Transfer::Kind::write;
  fault.error = fault.of == Transfer::Kind::read ? EIO : ENOSPC;
  fault.at = std::stol(at);
  return fault;
}

}  // namespace
}  // namespace zero::testing

int main(int argc, char** argv) {
  using namespace zero;
  if (argc < 6) return 2;
  const testing::Fault fault = testing::read_fault(argv[1], argv[2], argv[3]);
  const int faulty_rank = std::stoi(argv[4]);
  const std::string directory = argv[5];

  Program program;
  program.name = "faulty";
  program.description = "Offload to a disk that fails.";
  program.make_trainer = [&](const Context& context) {
    const int rank = context.comm.rank();
    const OpenBlockFile sound = [&directory, rank](Index bytes) {
      return open_swap_file(directory, rank, bytes, offload::kSwapDepth);
    };
    offload::Settings settings;
    settings.stage = 3;
    settings.optimizer = settings.parameters = Tier::nvme;
    settings.open_file = rank == faulty_rank ? testing::with_fault(sound, fault) : sound;
    return std::make_unique<offload::stage3::Trainer>(context, settings);
  };
  program.formula = [](const formula::Setting& setting) {
    return offload::formula(setting, {3, offload::Place::nvme, offload::Place::nvme});
  };
  std::vector<const char*> options = {argv[0]};
  options.insert(options.end(), argv + 6, argv + argc);
  return run(program, static_cast<int>(options.size()), options.data());
}
