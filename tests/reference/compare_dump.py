#!/usr/bin/env python3
"""Compares a run that a program dumped with the same run in the float64 reference, tensor by tensor.

    compare_dump.py DIR [--rows N] [--tolerances fp32|bf16]

DIR/manifest.json describes the run (model, precision, optimizer, losses, gradient norms) and names raw little-endian
files in DIR: the tokens and targets (int32, steps x B x T), and of each tensor (float32) the initial values, the
gradient of step 1 before clipping, the final values that the optimizer keeps (the master weights in 16-bit training),
the final parameters that the model reads, momentum, variance, and the gradient which the last step's batch has with the
final parameters. The reference starts from the same initial values, and for that last gradient from the same final
parameters.
Prints the worst tensors and ends with 0 (all within tolerance), 1 (not), or 2 (the dump cannot be used).

In every precision the parameters are the final values, stored in it, to the last bit.

The tolerances, for up to some 20 steps in fp32:

- Loss and gradients of step 1 are plain floating-point sums: 1e-6 relative, and 1e-5 relative in the norm of a tensor.
  A gradient that is zero in mathematics has no relative error; its norm must be below an absolute bound.
- Later losses and norms, and momentum and variance, which are (squared) averages of gradients, carry in addition what
  the earlier steps' differences in the parameters do: ten times as much, variance twice that since it is a square.
- A parameter moves by the learning rate times m/sqrt(v), which does not depend on the gradient's size. So the unit is
  the sum of the learning rates, and an element whose gradient is small against its rounding error gets a wrong
  direction whatever the program: a few elements of a tensor, by much. The median is blind to those few and shows a
  systematic mistake (a decay of 0.1 of GPT-2's matrices is worth 5e-4 to 1e-3 of the unit, so the tolerance is below
  that); the root mean square sees them, and is allowed ten times more. The parameters' own rounding is taken off first:
  one unit in the last place for each step, which for norm weights near 1 is more than the rest. The reference itself
  run in float32 is at 4e-5 and 6e-5 before that (`tiny`, 3 steps with one sequence, learning rate 6e-4).
- Elements whose gradient stays below what the tolerance of gradients allows as its error have no direction at all (key
  biases: zero in mathematics, since the softmax takes them away). They must only keep the bound of any Adam run.

In bf16 the reference rounds where a program does. Where both round the same number they agree to the last bit; but now
and then the number lies so near the middle between two bf16 that the last place of the arithmetic (fp32, here float64)
decides. The difference, 2^-8 of that number, moves what is computed from it across other middles, and after some layers
each row has roundings of its own. So two right programs differ by what rounding is worth, and a run is either far
nearer (a small model of few rows may have no such number at all, then the tolerances of fp32 apply to it, and show that
no rounding is out of place), or as far as any other: the reference in float32 is then as far from the one in float64 as
a program is (`tiny`, 16 sequences: 3.7e-3 both, in the tensor that is farthest). 2^-8 is the tolerance for a tensor's
gradient with given parameters. It is an average over the rows of the micro-batch, and the more they are the nearer it
is (2 sequences: 6e-3 both). The other tolerances are two to twelve times what such a run has in 4 steps.
"""

import argparse
import json
import math
import pathlib
import sys
from dataclasses import dataclass

import numpy as np

import adamw
import gpt2
import training

PRECISIONS = {"fp32": gpt2.exact, "bf16": gpt2.bf16}
ZERO = 1e-12  # a reference gradient with a norm below this is zero in mathematics
ZERO_BOUND = 1e-6  # then the norm must be below this


@dataclass(frozen=True)
class Tolerances:
    loss: float  # of step 1
    gradient: float  # of step 1, and of the final parameters
    norm: float  # of all gradients of step 1
    later_loss: float
    later_norm: float
    momentum: float
    variance: float
    median: float  # of the parameters' differences, in sums of learning rates
    mean_square: float

    def columns(self):
        return {
            "gradient": self.gradient,
            "last": self.gradient,
            "momentum": self.momentum,
            "variance": self.variance,
            "median": self.median,
            "rms": self.mean_square,
            "undirected": 1.0,
            "rounding": 0.0,
        }


TOLERANCES = {
    "fp32": Tolerances(
        loss=1e-6,
        gradient=1e-5,
        norm=1e-5,
        later_loss=1e-5,
        later_norm=1e-4,
        momentum=1e-4,
        variance=2e-4,
        median=2e-4,
        mean_square=2e-3,
    ),
    "bf16": Tolerances(
        loss=1e-5,
        gradient=2.0**-8,
        norm=5e-4,
        later_loss=1e-4,
        later_norm=5e-4,
        momentum=2.0**-6,
        variance=2.0**-6,
        median=4e-3,
        mean_square=1e-1,
    ),
}


class Unusable(Exception):
    pass


def read_array(directory, name, dtype, shape):
    path = directory / name
    try:
        data = np.fromfile(path, dtype=dtype)
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from error
    size = path.stat().st_size
    if size != math.prod(shape) * np.dtype(dtype).itemsize:
        raise Unusable(f"{path} has {size} bytes, not those of shape {tuple(shape)}")
    return data.reshape(shape)


class Dump:
    """A dump in memory: tensors as float64, tokens as int64."""

    def __init__(self, directory):
        directory = pathlib.Path(directory)
        try:
            manifest = json.loads((directory / "manifest.json").read_text())
        except (OSError, ValueError) as error:
            raise Unusable(f"{directory / 'manifest.json'} cannot be read: {error}") from error
        try:
            self._read(directory, manifest)
        except KeyError as error:
            raise Unusable(f"{directory / 'manifest.json'} lacks {error}") from error

    def _read(self, directory, manifest):
        self.config = gpt2.Config(*(int(manifest[key]) for key in ("layers", "heads", "width", "context", "vocab")))
        o = manifest["optimizer"]
        numbers = {key: float(o[key]) for key in ("lr", "min_lr", "beta1", "beta2", "eps", "weight_decay", "clip")}
        self.precision = manifest["precision"]
        if self.precision not in PRECISIONS:
            raise Unusable(f"the precision is {self.precision}, none of {', '.join(PRECISIONS)}")
        self.store = PRECISIONS[self.precision]
        self.options = adamw.Options(schedule=o["schedule"], warmup=int(o["warmup"]), steps=int(o["steps"]), **numbers)
        batch = (self.options.steps, int(manifest["micro_batch"]), self.config.context)
        self.tokens = read_array(directory, manifest["tokens"], "<i4", batch).astype(np.int64)
        self.targets = read_array(directory, manifest["targets"], "<i4", batch).astype(np.int64)
        for name, values in (("tokens", self.tokens), ("targets", self.targets)):
            if values.size and not 0 <= values.min() <= values.max() < self.config.vocab:
                raise Unusable(f"the {name} are not all in the vocabulary of {self.config.vocab}")
        self.losses = [float(value) for value in manifest["losses"]]
        self.grad_norms = [float(value) for value in manifest["grad_norms"]]
        if not len(self.losses) == len(self.grad_norms) == self.options.steps >= 1:
            raise Unusable(f"losses and grad_norms need a number for each of {self.options.steps} steps, at least one")

        expected = gpt2.shapes(self.config)
        given = {tensor["name"]: tuple(tensor["shape"]) for tensor in manifest["tensors"]}
        for name in expected.keys() | given.keys():
            if given.get(name) != expected.get(name):
                raise Unusable(f"{name} has shape {given.get(name)}, should have {expected.get(name)} (None: absent)")
        files = {tensor["name"]: tensor for tensor in manifest["tensors"]}
        for what in ("initial", "gradient", "last_gradient", "final", "parameters", "momentum", "variance"):
            read = {n: read_array(directory, files[n][what], "<f4", s).astype(np.float64) for n, s in expected.items()}
            setattr(self, what, read)


def relative(value, expected):
    return abs(value - expected) / abs(expected)


def tensor_error(value, expected, tolerance, power=1):
    """The relative error in the norm. For a reference of zero, the norm in units that put ZERO_BOUND at `tolerance`."""
    norm, difference = np.linalg.norm(expected), np.linalg.norm(value - expected)
    if norm < ZERO**power:
        return float(difference / ZERO_BOUND**power * tolerance)
    return float(difference / norm)


def rate_sum(options):
    return sum(adamw.learning_rate(options, t) for t in range(1, options.steps + 1))


def farthest_apart(options):
    """How far apart two Adam runs can take one element: twice sum of lr |m|/sqrt(v), that by Cauchy and Schwarz."""
    if options.beta2 == 0.0:
        return math.inf  # the variance forgets what the momentum still holds
    total = 0.0
    for t in range(1, options.steps + 1):
        weights = (1 - options.beta1) / (1 - options.beta1**t), (1 - options.beta2) / (1 - options.beta2**t)
        squares = sum((weights[0] * options.beta1**i) ** 2 / (weights[1] * options.beta2**i) for i in range(t))
        total += adamw.learning_rate(options, t) * math.sqrt(squares)
    return 2.0 * total


def parameter_errors(value, expected, variance, options, gradient_error):
    """(median and root mean square over the elements with a direction, the worst of the others against its bound)."""
    rounding = options.steps * 2.0**-23 * np.abs(expected)
    difference = np.abs(value - expected)
    difference = np.where(difference <= rounding, 0.0, difference - rounding)  # keeps NaN
    typical = np.sqrt(variance / (1.0 - options.beta2**options.steps))  # size of an element's gradient
    directed = typical > max(gradient_error * math.sqrt(np.square(typical).mean()), ZERO)
    # With a learning rate of zero nothing may move: any difference is then far above any tolerance.
    moved = difference[directed] / (rate_sum(options) or ZERO)
    others = difference[~directed] / (farthest_apart(options) or ZERO)
    median, mean_square = (np.median(moved), np.sqrt(np.square(moved).mean())) if moved.size else (0.0, 0.0)
    return float(median), float(mean_square), float(others.max()) if others.size else 0.0


def compare(dump, tolerances):
    """Returns (scalars, tensors): lists of (name, {column: error}, {column: tolerance})."""
    reference = training.train(dump.config, dump.initial, dump.tokens, dump.targets, dump.options, dump.store)
    last_batch = dump.tokens[-1], dump.targets[-1]
    _, last_gradients = gpt2.loss_and_gradients(dump.config, dump.parameters, *last_batch, dump.store)
    scalars = []
    for what, got, expected, first, later in (
        ("loss", dump.losses, reference.losses, tolerances.loss, tolerances.later_loss),
        ("gradient norm", dump.grad_norms, reference.grad_norms, tolerances.norm, tolerances.later_norm),
    ):
        errors = [relative(a, b) for a, b in zip(got, expected)]
        for step, error in enumerate(errors, 1):
            scalars.append((f"{what} of step {step}", error, first if step == 1 else later))
    tensors = []
    for name in gpt2.shapes(dump.config):
        median, mean_square, undirected = parameter_errors(
            dump.final[name], reference.master[name], reference.variance[name], dump.options, tolerances.gradient
        )
        errors = {
            "gradient": tensor_error(dump.gradient[name], reference.first_gradients[name], tolerances.gradient),
            "last": tensor_error(dump.last_gradient[name], last_gradients[name], tolerances.gradient),
            "momentum": tensor_error(dump.momentum[name], reference.momentum[name], tolerances.momentum),
            "variance": tensor_error(dump.variance[name], reference.variance[name], tolerances.variance, power=2),
            "median": median,
            "rms": mean_square,
            "undirected": undirected,
            "rounding": float(np.max(np.abs(dump.parameters[name] - dump.store(dump.final[name])))),
        }
        tensors.append((name, errors))
    return scalars, tensors


def severity(error, tolerance):
    """Of its tolerance; what is not a number is infinitely wrong, and so is any error where none is tolerated."""
    if error != error or (tolerance == 0.0 and error > 0.0):
        return math.inf
    return error / tolerance if tolerance > 0.0 else 0.0


def report(scalars, tensors, columns, rows):
    """Prints the table and the excesses; returns whether there are none."""
    worst = sorted(tensors, key=lambda t: -max(severity(e, columns[c]) for c, e in t[1].items()))
    width = max(len("tolerance"), *(len(name) for name, _ in worst[:rows]))
    print(f"{'tensor':{width}}" + "".join(f"{column:>12}" for column in columns))
    print(f"{'tolerance':{width}}" + "".join(f"{tolerance:12.1e}" for tolerance in columns.values()))
    for name, errors in worst[:rows]:
        print(f"{name:{width}}" + "".join(f"{errors[column]:12.1e}" for column in columns))
    if len(worst) > rows:
        print(f"({len(worst) - rows} more tensors, all nearer to the reference)")
    for what in ("loss", "gradient norm"):
        of_kind = [s for s in scalars if s[0].startswith(what)]
        for name, error, tolerance in of_kind[:1] + sorted(of_kind[1:], key=lambda s: -severity(s[1], s[2]))[:1]:
            print(f"{name}: {error:.1e}, tolerance {tolerance:.1e}")

    excesses = [(name, error, tolerance) for name, error, tolerance in scalars if severity(error, tolerance) > 1.0]
    for name, errors in tensors:
        excesses += [(f"{c} of {name}", e, columns[c]) for c, e in errors.items() if severity(e, columns[c]) > 1.0]
    sys.stdout.flush()
    for name, error, tolerance in excesses:
        print(f"error: {name} differs from the reference by {error:.2e}, tolerance {tolerance:.1e}", file=sys.stderr)
    return not excesses


def main(arguments):
    parser = argparse.ArgumentParser(description="Compares a dumped run with the float64 reference.")
    parser.add_argument("directory")
    parser.add_argument("--rows", type=int, default=10, help="tensors in the table, the worst first (default 10)")
    parser.add_argument("--tolerances", choices=TOLERANCES, help="default: those of the dump's precision")
    options = parser.parse_args(arguments)
    try:
        dump = Dump(options.directory)
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    tolerances = TOLERANCES[options.tolerances or dump.precision]
    scalars, tensors = compare(dump, tolerances)
    return 0 if report(scalars, tensors, tolerances.columns(), max(1, options.rows)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
