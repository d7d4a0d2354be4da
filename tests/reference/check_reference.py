#!/usr/bin/env python3
"""The reference checks itself, in float64: exits with 1 and names the tensor or the formula that is wrong.

- the loss against a second, scalar formulation in plain loops (differences alone would bless a wrong forward);
- every element of every gradient against central differences;
- the rounding of 16-bit training against the bits, and that everything which it stores is rounded;
- the schedule, the clipping and AdamW against formulas worked by hand.
"""

import dataclasses
import math
import sys

import numpy as np

import adamw
import gpt2

# Odd sizes, and a head size (3) that is neither 1 nor the width, so that a swapped axis cannot hide.
CONFIG = gpt2.Config(layers=2, heads=2, width=6, context=5, vocab=61)
BATCH = 3


class Failure(Exception):
    pass


def require(condition, message):
    if not condition:
        raise Failure(message)


def close(value, expected, relative=1e-12):
    return abs(value - expected) <= relative * abs(expected)


def random_model(config, seed=1):
    """Far from GPT-2's initial values: attention must be far from uniform, no bias zero and no norm weight one."""
    rng = np.random.default_rng(seed)
    parameters = {}
    for name, shape in gpt2.shapes(config).items():
        value = rng.normal(0.0, 0.5, shape)
        parameters[name] = value + 1.0 if "norm" in name and name.endswith("weight") else value
    tokens = rng.integers(0, config.vocab, (BATCH, config.context))
    tokens[0, 3] = tokens[0, 1]  # a token twice in a sequence and once more in another: its row is a sum
    tokens[1, 2] = tokens[0, 1]
    targets = rng.integers(0, config.vocab, (BATCH, config.context))
    return parameters, tokens, targets


def loss_by_loops(config, p, tokens, targets):
    """The same loss, number by number: no array operation, no broadcasting, no transposition to get wrong."""
    width, size = config.width, config.width // config.heads

    def norm(x, name):
        mean = sum(x) / width
        variance = sum((e - mean) ** 2 for e in x) / width
        w, b = p[name + ".weight"], p[name + ".bias"]
        return [(x[i] - mean) / math.sqrt(variance + 1e-5) * w[i] + b[i] for i in range(width)]

    def linear(x, name):
        w, b = p[name + ".weight"], p[name + ".bias"]
        return [sum(w[o, i] * x[i] for i in range(len(x))) + b[o] for o in range(len(b))]

    total = 0.0
    for sequence, wanted in zip(tokens.tolist(), targets.tolist()):
        rows = [
            [p["embedding.token.weight"][token, i] + p["embedding.position.weight"][t, i] for i in range(width)]
            for t, token in enumerate(sequence)
        ]
        for layer in range(config.layers):
            name = f"block {layer} "
            qkv = [linear(norm(x, name + "norm1"), name + "attention.qkv") for x in rows]
            mixed = [[0.0] * width for _ in rows]
            for head in range(config.heads):
                first = head * size
                for t in range(len(rows)):
                    scores = [
                        sum(qkv[t][first + d] * qkv[s][width + first + d] for d in range(size)) / math.sqrt(size)
                        for s in range(t + 1)
                    ]
                    exponentials = [math.exp(score) for score in scores]
                    for d in range(size):
                        values = [qkv[s][2 * width + first + d] for s in range(t + 1)]
                        mixed[t][first + d] = sum(e * v for e, v in zip(exponentials, values)) / sum(exponentials)
            for t, x in enumerate(rows):
                projected = linear(mixed[t], name + "attention.projection")
                x = [a + b for a, b in zip(x, projected)]
                hidden = linear(norm(x, name + "norm2"), name + "mlp.expand")
                hidden = [h / (1.0 + math.exp(-2.0 * math.sqrt(2.0 / math.pi) * (h + 0.044715 * h**3))) for h in hidden]
                rows[t] = [a + b for a, b in zip(x, linear(hidden, name + "mlp.project"))]
        for x, target in zip(rows, wanted):
            x = norm(x, "final_norm")
            logits = [sum(row[i] * x[i] for i in range(width)) for row in p["embedding.token.weight"]]
            total += math.log(sum(math.exp(logit) for logit in logits)) - logits[target]
    return total / tokens.size


def check_forward():
    parameters, tokens, targets = random_model(CONFIG)
    value = gpt2.loss(CONFIG, parameters, tokens, targets)
    expected = loss_by_loops(CONFIG, parameters, tokens, targets)
    require(close(value, expected), f"the loss is {value!r}, number by number it is {expected!r}")

    # Known values: GELU (tanh form) at 1, and a model of zeros knows nothing.
    require(close(float(gpt2.gelu(np.float64(1.0), gpt2.exact)[0]), 0.8411919906082768), "gelu(1) is wrong")
    nothing = {name: np.zeros(shape) for name, shape in gpt2.shapes(CONFIG).items()}
    require(close(gpt2.loss(CONFIG, nothing, tokens, targets), math.log(CONFIG.vocab)), "no knowledge must cost log V")

    count = sum(math.prod(shape) for shape in gpt2.shapes(gpt2.Config(12, 12, 768, 1024, 50257)).values())
    require(count == 124439808, f"GPT-2 124M has 124,439,808 parameters, not {count}")


def check_gradients(config=CONFIG):
    """Central differences: with h = 1e-5 the cubic term is about 1e-10 and rounding 1e-16 / 1e-5 = 1e-11."""
    parameters, tokens, targets = random_model(config)
    _, gradients = gpt2.loss_and_gradients(config, parameters, tokens, targets)
    require(list(gradients) == list(gpt2.shapes(config)), "gradients and parameters have different names")
    h = 1e-5
    worst = 0.0
    # From the loss backwards: the first tensor that differs is then the nearest to the mistake.
    names = list(parameters)
    for name in names[3:1:-1] + names[:3:-1] + names[1::-1]:
        value = parameters[name]
        require(gradients[name].shape == value.shape, f"the gradient of {name} has shape {gradients[name].shape}")
        numeric = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            kept = value[index]
            value[index] = kept + h
            above = gpt2.loss(config, parameters, tokens, targets)
            value[index] = kept - h
            below = gpt2.loss(config, parameters, tokens, targets)
            value[index] = kept
            numeric[index] = (above - below) / (2.0 * h)
        excess = np.abs(gradients[name] - numeric) - 1e-9 - 1e-7 * np.abs(numeric)
        at = np.unravel_index(np.argmax(excess), excess.shape)
        require(
            excess[at] <= 0.0,  # false for NaN, as it should be
            f"the gradient of {name} at {tuple(int(i) for i in at)} is {gradients[name][at]!r},"
            f" by differences {numeric[at]!r}",
        )
        worst = max(worst, float(np.abs(gradients[name] - numeric).max()))
    return worst


def check_key_bias():
    """A key bias adds the same to all scores of a row, which the softmax takes away: its gradient is zero."""
    parameters, tokens, targets = random_model(CONFIG)
    _, gradients = gpt2.loss_and_gradients(CONFIG, parameters, tokens, targets)
    for layer in range(CONFIG.layers):
        name = f"block {layer} attention.qkv.bias"
        keys = gradients[name][CONFIG.width : 2 * CONFIG.width]
        require(np.abs(keys).max() < 1e-15, f"the gradient of {name} is not zero for the keys: {keys}")


def check_types():
    """In float32 nothing is promoted on the way, and the result is float32-near the one in float64."""
    parameters, tokens, targets = random_model(CONFIG)
    _, exact = gpt2.loss_and_gradients(CONFIG, parameters, tokens, targets)
    single = {name: value.astype(np.float32) for name, value in parameters.items()}
    value, gradients = gpt2.loss_and_gradients(CONFIG, single, tokens, targets)
    require(value.dtype == np.float32, f"the loss of a float32 model is {value.dtype}")
    options = adamw.Options(1e-3, "cosine", 2, 1e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 4)
    updated = adamw.AdamW(options, single).step(single, gradients)
    for name, gradient in gradients.items():
        require(gradient.dtype == np.float32, f"the gradient of {name} is {gradient.dtype} in a float32 model")
        require(updated[name].dtype == np.float32, f"{name} is {updated[name].dtype} after a step in float32")
        error = np.linalg.norm(gradient - exact[name]) / np.linalg.norm(exact[name])
        require(error < 1e-5, f"the gradient of {name} in float32 is {error:.1e} from the one in float64")


def check_rounding():
    """float32 holds a bf16 in its upper half: all of those stay, and what lies between two goes where the bits say."""
    upper = np.arange(0x7F7F, dtype=np.uint32)  # positive and finite, without the largest
    here, above = (upper << 16).view(np.float32), ((upper + 1) << 16).view(np.float32)
    even = np.where(upper % 2 == 0, here, above)
    middle = (here.astype(np.float64) + above) / 2
    double, single = (np.float64,), (np.float64, np.float32)
    for x, expected, dtypes, what in (
        (here, here, single, "a bf16"),
        (middle, even, single, "halfway between two"),
        (np.nextafter(middle, 0.0), here, double, "a little below halfway"),
        (np.nextafter(middle, np.inf), above, double, "a little above halfway"),
    ):
        for sign in (1.0, -1.0):
            for dtype in dtypes:
                given = (sign * x).astype(dtype)
                got = gpt2.bf16(given)
                wrong = got != sign * expected
                require(not wrong.any(), f"bf16: {what} is wrong at {given[wrong][:1]!r}")
                require(got.dtype == dtype, f"bf16 makes {got.dtype} of {given.dtype}")
    largest = float(np.uint32(0x7F7F0000).view(np.float32))
    limits = {largest: largest, largest * (1 + 2.0**-8): math.inf, 2.0**-134: 0.0, 1.5 * 2.0**-133: 2.0**-132}
    for x, expected in {**limits, math.inf: math.inf, -math.inf: -math.inf}.items():
        require(float(gpt2.bf16(np.float64(x))) == expected, f"bf16({x!r}) is not {expected!r}")
    require(np.isnan(gpt2.bf16(np.float64(math.nan))), "bf16 loses a NaN")


def check_storage():
    """Every gradient of 16-bit training is a bf16, near the one that nothing rounds."""
    parameters, tokens, targets = random_model(CONFIG)
    parameters = {name: gpt2.bf16(value) for name, value in parameters.items()}
    exact_loss, exact = gpt2.loss_and_gradients(CONFIG, parameters, tokens, targets)
    loss, gradients = gpt2.loss_and_gradients(CONFIG, parameters, tokens, targets, gpt2.bf16)
    require(loss != exact_loss, "16-bit training has the very loss of exact arithmetic")
    require(close(loss, exact_loss, 0.01), f"the loss is {loss!r}, without rounding {exact_loss!r}")
    for name, gradient in gradients.items():
        require(np.array_equal(gradient, gpt2.bf16(gradient)), f"the gradient of {name} is not rounded")
        error = np.linalg.norm(gradient - exact[name]) / np.linalg.norm(exact[name])
        require(0.0 < error < 0.05, f"the gradient of {name} in bf16 is {error:.1e} from the one without rounding")


def check_schedule():
    base = adamw.Options(1.0, "cosine", 4, 0.1, 0.9, 0.95, 1e-8, 0.0, 0.0, 12)
    expected = {1: 0.25, 2: 0.5, 4: 1.0, 6: 0.1 + 0.45 * (1 + math.sqrt(0.5)), 8: 0.55, 12: 0.1}
    for t, rate in expected.items():
        require(close(adamw.learning_rate(base, t), rate), f"cosine: the learning rate of step {t} is not {rate}")
    constant = dataclasses.replace(base, schedule="constant")
    for t, rate in {1: 0.25, 3: 0.75, 4: 1.0, 5: 1.0, 12: 1.0}.items():
        require(close(adamw.learning_rate(constant, t), rate), f"constant: the learning rate of step {t} is not {rate}")
    no_warmup = dataclasses.replace(base, warmup=0)
    require(close(adamw.learning_rate(no_warmup, 6), 0.55), "cosine without warm-up: wrong in the middle")
    require(close(adamw.learning_rate(no_warmup, 12), 0.1), "cosine without warm-up: does not end at min_lr")
    short = dataclasses.replace(base, steps=3)
    require(close(adamw.learning_rate(short, 3), 0.75), "a run shorter than its warm-up does not end within it")


def check_clip():
    gradients = {"a": np.array([3.0]), "b": np.array([[0.0], [4.0]])}
    norm = adamw.global_norm(gradients)
    require(norm == 5.0, f"the norm of (3, 0, 4) is {norm!r}")
    for clip, factor in ((0.0, 1.0), (2.0, 0.4), (5.0, 1.0), (10.0, 1.0)):
        require(close(adamw.clip_factor(norm, clip), factor), f"norm 5 clipped at {clip}: the factor is not {factor}")
    require(adamw.clip_factor(0.0, 1.0) == 1.0, "a norm of zero must not be divided by")
    large = {"a": np.array([3e19, 4e19], dtype=np.float32)}
    require(close(adamw.global_norm(large), 5e19, 1e-6), "the norm of a float32 tensor overflows")


def check_adamw():
    """Unrolled sums instead of the recurrence: m_t = (1 - b1) sum_i b1^(t-i) g_i, and so v_t with g_i^2."""
    steps = 5
    o = adamw.Options(0.01, "cosine", 2, 0.001, 0.8, 0.9, 1e-3, 0.3, 1.5, steps)
    start = {"matrix.weight": np.array([[2.0, -1.0]]), "norm.weight": np.array([1.5]), "matrix.bias": np.array([-0.5])}
    rng = np.random.default_rng(3)
    history = [{name: rng.normal(0.0, 1.0, p.shape) for name, p in start.items()} for _ in range(steps)]
    factors = []
    for gradients in history:
        squares = sum(float(e) ** 2 for g in gradients.values() for e in g.flat)
        factors.append(min(1.0, o.clip / math.sqrt(squares)))
    require(min(factors) < 1.0, "the check of AdamW must clip at least once")

    optimizer = adamw.AdamW(o, start)
    parameters = start
    for gradients in history:
        parameters = optimizer.step(parameters, gradients)

    for name, p in start.items():
        for index in np.ndindex(p.shape):
            g = [float(gradients[name][index]) * factor for gradients, factor in zip(history, factors)]
            value = float(p[index])
            for t in range(1, steps + 1):
                m = (1 - o.beta1) * sum(o.beta1 ** (t - i) * g[i - 1] for i in range(1, t + 1))
                v = (1 - o.beta2) * sum(o.beta2 ** (t - i) * g[i - 1] ** 2 for i in range(1, t + 1))
                rate = adamw.learning_rate(o, t)
                kept = 1.0 - rate * o.weight_decay if name == "matrix.weight" else 1.0
                value = kept * value - rate * (m / (1 - o.beta1**t)) / (math.sqrt(v / (1 - o.beta2**t)) + o.eps)
            for what, got, expected in (
                ("parameter", parameters[name][index], value),
                ("momentum", optimizer.momentum[name][index], m),
                ("variance", optimizer.variance[name][index], v),
            ):
                require(close(got, expected), f"AdamW: the {what} of {name}{index} is {got!r}, by hand {expected!r}")

    # The first step moves every element by the learning rate, whatever its gradient: m and sqrt(v) are then |g| alike.
    plain = adamw.Options(0.5, "constant", 0, 0.0, 0.9, 0.999, 0.0, 0.0, 0.0, 1)
    moved = adamw.AdamW(plain, {"x": np.zeros(3)}).step({"x": np.zeros(3)}, {"x": np.array([1e-3, -7.0, 2.0])})["x"]
    require(np.allclose(moved, [-0.5, 0.5, -0.5], rtol=1e-12), f"AdamW: the first step moves by {moved}, not by 0.5")

    matrices = ("embedding", "qkv.weight", "projection.weight", "expand.weight", "project.weight")
    for name, shape in gpt2.shapes(CONFIG).items():
        matrix = any(part in name for part in matrices)
        require(adamw.decays(name, shape) == matrix, f"weight decay of {name} should be {matrix}")


def main():
    try:
        check_forward()
        worst = check_gradients()
        check_gradients(gpt2.Config(layers=0, heads=1, width=5, context=5, vocab=7))
        check_key_bias()
        check_types()
        check_rounding()
        check_storage()
        check_schedule()
        check_clip()
        check_adamw()
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    count = len(gpt2.shapes(CONFIG))
    print(f"reference: the loss, {count} gradients (largest difference {worst:.1e}), rounding, AdamW: as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
