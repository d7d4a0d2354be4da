#include "common/optim/adamw.h"

#include <cmath>
#include <numbers>

namespace zero {

namespace {

/// cos(pi x) for x in [0, 1] by its Taylor series: only products and sums, so the same bits on every machine, which
/// std::cos does not promise. Error below 1e-15.
double cosine_of_half_turns(double x) {
  const double angle = std::numbers::pi * std::fmin(x, 1.0 - x);  // in [0, pi / 2]
  const double square = angle * angle;
  double sum = 1;
  for (int n = 24; n >= 2; n -= 2) sum = 1 - sum * square / (n * (n - 1));
  return x <= 0.5 ? sum : -sum;
}

/// base^exponent by repeated squaring, for the same reason.
double power(double base, Index exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

double learning_rate(const AdamWOptions& options, Index t) {
  if (t <= options.warmup) return options.learning_rate * static_cast<double>(t) / static_cast<double>(options.warmup);
  if (options.schedule == Schedule::constant) return options.learning_rate;
  const Index span = options.steps - options.warmup;
  const double progress = span > 0 ? static_cast<double>(t - options.warmup) / static_cast<double>(span) : 1.0;
  const double cosine = 0.5 * (1.0 + cosine_of_half_turns(std::fmin(progress, 1.0)));
  return options.min_learning_rate + cosine * (options.learning_rate - options.min_learning_rate);
}

AdamWStep adamw_step(const AdamWOptions& options, Index t, Index update, float clip_factor) {
  AdamWStep step;
  step.learning_rate = static_cast<float>(learning_rate(options, t));
  step.beta1 = static_cast<float>(options.beta1);
  step.beta2 = static_cast<float>(options.beta2);
  step.epsilon = static_cast<float>(options.epsilon);
  step.weight_decay = static_cast<float>(options.weight_decay);
  // Of the betas that the update really uses, so that the first step's averages are exactly the gradient's.
  step.bias_correction1 = static_cast<float>(1.0 - power(step.beta1, update));
  step.bias_correction2 = static_cast<float>(1.0 - power(step.beta2, update));
  step.clip_factor = clip_factor;
  return step;
}

void adamw_update(Kernels& kernels, const FlatUnit& unit, Index begin, Array parameters, Array master, Array momentum,
                  Array variance, ConstArray gradients, const AdamWStep& step) {
  AdamWStep no_decay = step;
  no_decay.weight_decay = 0;
  for (const TensorPart& part : unit.parts(begin, parameters.size)) {
    const auto of = [&](auto view) { return view.part(part.flat_begin - begin, part.size); };
    const bool rounds = master.size > 0;
    kernels.adamw(of(rounds ? master : parameters), of(momentum), of(variance), of(gradients),
                  rounds ? of(parameters) : Array{.dtype = Dtype::bf16}, part.tensor->decays ? step : no_decay);
  }
}

bool GradientNorm::finite() const { return std::isfinite(value); }

GradientNorm gradient_norm(const OrderFreeSum& squares, double clip) {
  GradientNorm norm;
  norm.value = std::sqrt(squares.value());
  if (clip > 0 && norm.value > clip && norm.finite()) norm.clip_factor = static_cast<float>(clip / norm.value);
  return norm;
}

}  // namespace zero
