// What one update does to every element that a rank keeps, by the formula of AdamW in double precision: in every stage,
// on both sides of every boundary between slices, and after steps that were not taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/support/mpi_main.h"
#include "tests/support/stage_run.h"

namespace zero::test {
namespace {

using StageRun = Run;  // in a test, Run is GoogleTest's

int world() { return testing::world_size(); }
int rank() { return testing::world_rank(); }

RunSetting odd_shape(Stage stage) {  // a remainder on 2, 3 and 5 ranks
  RunSetting setting;
  setting.stage = stage;
  setting.config = {.layers = 2, .heads = 1, .width = 11, .context = 20, .vocab = 61};
  setting.data = ZERO_TEST_DATA "/bytes_below_61.txt";
  setting.world = world();
  return setting;
}

/// All stages, in fp32 and bf16; stage 3 also in groups, and everything in more collectives and units.
std::vector<RunSetting> settings() {
  std::vector<RunSetting> all;
  for (const Stage stage : {Stage::baseline, Stage::ddp, Stage::optimizer, Stage::gradients, Stage::parameters}) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      all.push_back(odd_shape(stage));
      all.back().dtype = dtype;
    }
    all.push_back(odd_shape(stage));
    all.back().wrap = 2;
    all.back().bucket_bytes = 500;
  }
  if (world() % 2 == 0) {
    all.push_back(odd_shape(Stage::parameters));
    all.back().shard_group = 2;
  }
  return all;
}

/// The documented set (README: decay on matrices only; the two embedding tables are matrices).
bool is_matrix(const std::string& name) { return name.ends_with(".weight") && name.find("norm") == std::string::npos; }

float element(ConstArray values, Index i) {
  if (values.dtype == Dtype::fp32) return static_cast<const float*>(values.data)[i];
  std::uint16_t half = 0;
  std::memcpy(&half, static_cast<const std::byte*>(values.data) + 2 * i, sizeof half);
  const std::uint32_t bits = std::uint32_t{half} << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Element {
  std::string tensor;
  bool inside_a_cut_tensor = false;  ///< the tensor's first element is not in this rank's slice, or its last is not
  std::map<StateKind, float> values;

  friend bool operator==(const Element&, const Element&) = default;
  /// What the optimizer updates: the master weight where there is one.
  [[nodiscard]] double weight() const {
    const auto master = values.find(StateKind::master);
    return double{master != values.end() ? master->second : values.at(StateKind::parameters)};
  }
  [[nodiscard]] double value(StateKind kind) const { return double{values.at(kind)}; }
};
using State = std::map<std::pair<Index, Index>, Element>;  // by number of the tensor, and index in it

/// The elements whose optimizer state this rank keeps.
State state(const Trainer& trainer) {
  State all;
  trainer.visit_state([&](StateKind kind, const UnitView& view) {
    for (const TensorPart& part : trainer.units()[view.unit].parts(view.begin, view.values.size)) {
      for (Index i = 0; i < part.size; ++i) {
        Element& e = all[{part.tensor->id, part.tensor_begin + i}];
        e.tensor = part.tensor->name;
        if (kind == StateKind::momentum) e.inside_a_cut_tensor = part.size < part.tensor->size;
        e.values[kind] = element(view.values, part.flat_begin - view.begin + i);
      }
    }
  });
  std::erase_if(all, [](const auto& entry) { return !entry.second.values.contains(StateKind::momentum); });
  return all;
}

Index over_all_ranks(Index mine) {
  long long value = mine;
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  return value;
}

/// The ranks together keep every element: once, or once for each copy.
void expect_complete(StageRun& run, const State& mine) {
  Index elements = 0;
  for (const FlatUnit& unit : run.trainer().units()) elements += unit.elements();
  const Index kept = over_all_ranks(std::ssize(mine));
  EXPECT_GE(kept, elements);
  EXPECT_EQ(kept % elements, 0);
}

/// A weight on the last rank is not a number while this lives.
class Poison {
 public:
  explicit Poison(StageRun& run) {
    run.trainer().visit_state([&](StateKind kind, const UnitView& view) {
      if (kind != StateKind::parameters || view.unit != 1 || rank() + 1 < world()) return;
      weight_ = {const_cast<void*>(view.values.data), 1, view.values.dtype};
    });
    if (weight_.size == 0) return;
    std::memcpy(&before_, weight_.data, static_cast<std::size_t>(weight_.bytes()));
    std::memset(weight_.data, 0xff, static_cast<std::size_t>(weight_.bytes()));
  }
  ~Poison() {
    if (weight_.size > 0) std::memcpy(weight_.data, &before_, static_cast<std::size_t>(weight_.bytes()));
  }
  Poison(const Poison&) = delete;
  Poison& operator=(const Poison&) = delete;

 private:
  Array weight_{};
  std::uint32_t before_ = 0;
};

TEST(Update, IsAdamWWithDecoupledDecayAndCountsOnlyTheUpdatesThatWereTaken) {
  for (const RunSetting& setting : settings()) {
    SCOPED_TRACE(setting.describe());
    StageRun run(setting, MPI_COMM_WORLD);
    const AdamWOptions& o = run.context().optimizer;
    ASSERT_GT(o.weight_decay, 0);
    State before = state(run.trainer());
    expect_complete(run, before);
    Index update = 0;
    for (Index t = 1; t <= 5; ++t) {
      const bool poisoned = (t == 2 || t == 3) && setting.stage != Stage::baseline;
      StepResult result;
      if (poisoned) {
        const Poison poison(run);
        result = run.trainer().train_step(t);
      } else {
        result = run.trainer().train_step(t);
      }
      const State after = state(run.trainer());
      if (poisoned) {
        EXPECT_EQ(result.verdict, Verdict::not_finite);
        EXPECT_EQ(result.not_finite, "the gradient of embedding.token.weight");
        ASSERT_TRUE(after == before) << "step " << t << " was not taken and changed a state";
        continue;
      }
      ASSERT_NE(result.verdict, Verdict::not_finite);
      ++update;
      Index wrong = 0;
      for (const auto& [key, now] : after) {
        const double p = before.at(key).weight();
        const double m = now.value(StateKind::momentum) / (1 - std::pow(o.beta1, update));
        const double v = now.value(StateKind::variance) / (1 - std::pow(o.beta2, update));
        const double decay = is_matrix(now.tensor) ? o.weight_decay : 0;
        const double expected = p - o.learning_rate * (m / (std::sqrt(v) + o.epsilon) + decay * p);
        const double rounding = 2e-7 * std::abs(p) + 4e-6 * o.learning_rate;
        if (std::abs(now.weight() - expected) <= rounding || ++wrong > 3) continue;
        ADD_FAILURE() << "step " << t << ", " << now.tensor << " element " << key.second << ": from " << p << " to "
                      << now.weight() << ", not " << expected;
      }
      EXPECT_EQ(wrong, 0);
      before = after;
    }
  }
}

TEST(Update, WithoutAGradientShrinksTheMatricesAndNothingElse) {
  for (RunSetting setting : settings()) {
    SCOPED_TRACE(setting.describe());
    setting.clip = 1e-30;  // what it leaves of a gradient moves no weight
    setting.learning_rate = 1;
    StageRun run(setting, MPI_COMM_WORLD);
    const double decay = run.context().optimizer.weight_decay;
    State before = state(run.trainer());
    expect_complete(run, before);
    Index cut = 0;
    for (Index t = 1; t <= 3; ++t) {
      ASSERT_EQ(run.trainer().train_step(t).verdict, Verdict::clipped);
      const State after = state(run.trainer());
      Index wrong = 0;
      for (const auto& [key, now] : after) {
        const double p = before.at(key).weight();
        const double expected = is_matrix(now.tensor) ? p * (1 - decay) : p;
        cut += now.inside_a_cut_tensor ? 1 : 0;
        const double rounding = is_matrix(now.tensor) ? 2e-7 * std::abs(p) + 1e-20 : 1e-20;
        if (std::abs(now.weight() - expected) <= rounding || ++wrong > 3) continue;
        ADD_FAILURE() << "step " << t << ", " << now.tensor << " element " << key.second << ": from " << p << " to "
                      << now.weight() << ", not " << expected;
      }
      EXPECT_EQ(wrong, 0);
      before = after;
    }
    const bool sharded = setting.stage != Stage::baseline && setting.stage != Stage::ddp && world() > 1;
    EXPECT_EQ(over_all_ranks(cut) > 0, sharded) << "boundaries between slices lie inside tensors";
  }
}

TEST(Judge, AllRanksNameTheFirstTensorWhoseGradientIsNotFiniteWhoeverKeepsIt) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    RunSetting setting = odd_shape(Stage::gradients);
    setting.dtype = dtype;
    StageRun run(setting, MPI_COMM_WORLD);
    const std::vector<FlatUnit>& units = run.trainer().units();
    std::vector<Buffer> slices;
    for (Index u = 0; u < std::ssize(units); ++u) {
      slices.push_back(run.context().device.allocate(Category::gradients, units[u].slice_size(), dtype));
    }
    // The bits of NaN, infinity and minus infinity, of which bf16 are the upper half.
    const auto plant = [&](Index unit, Index tensor, Index element, std::uint32_t bits) {
      const Index at = units[unit].offset(tensor) + element - units[unit].slice_begin(rank());
      if (at < 0 || at >= units[unit].slice_size()) return;
      const Array one = slices[unit].array().part(at, 1);
      const std::uint32_t value = dtype == Dtype::bf16 ? bits >> 16U : bits;
      std::memcpy(one.data, &value, static_cast<std::size_t>(one.bytes()));
    };
    const double inf = std::numeric_limits<double>::infinity();
    const auto judged = [&](double loss) {
      GradientScan scan(run.context().device.kernels());
      for (Index u = 0; u < std::ssize(units); ++u) {
        scan.add(units[u], units[u].slice_begin(rank()), slices[u].array());
      }
      return judge(run.context(), loss, {inf, 1}, units, scan.end().first_not_finite);
    };
    for (Index u = 0; u < std::ssize(units); ++u) {
      for (Index i = 0; i < std::ssize(units[u].tensors()); ++i) {
        const TensorSpec& tensor = units[u].tensors()[i];
        for (const std::uint32_t bits : {0x7fc00000U, 0x7f800000U, 0xff800000U}) {
          plant(u, i, tensor.size - 1, bits);
          const StepResult result = judged(2.5);
          EXPECT_EQ(result.verdict, Verdict::not_finite);
          EXPECT_EQ(result.not_finite, "the gradient of " + tensor.name);
        }
        plant(u, i, tensor.size - 1, 0);
      }
    }
    plant(2, 0, 0, 0x7fc00000U);
    plant(1, 3, 0, 0x7f800000U);
    EXPECT_EQ(judged(2.5).not_finite, "the gradient of " + units[1].tensors()[3].name) << "the first of two";
    plant(2, 0, 0, 0);
    plant(1, 3, 0, 0);
    EXPECT_EQ(judged(std::nan("")).not_finite, "the loss");
  }
}

}  // namespace
}  // namespace zero::test
