"""A run of training in the reference: one micro-batch in a step, AdamW after each.

Between the model and the optimizer a gradient is a leaf, then the step's averaged gradient; and the optimizer's
parameters (the master weights) are not in every precision those that the model reads. The loop keeps these four apart.
With one leaf in a step the first two are the same, already stored as the averaged gradient is; and without a rounding
(`store` is gpt2.exact) the last two are. In 16-bit training the model reads the master weights rounded, and master
weights, momentum and variance are never rounded.
"""

from dataclasses import dataclass, field

import adamw
import gpt2


@dataclass
class Trajectory:
    losses: list = field(default_factory=list)
    grad_norms: list = field(default_factory=list)  # before clipping
    first_gradients: dict = None  # of step 1, before clipping
    parameters: dict = None  # as the model reads them; the rest too is what stands after the last step
    master: dict = None
    momentum: dict = None
    variance: dict = None


def train(config, initial, tokens, targets, options, store=gpt2.exact):
    """Runs options.steps steps from the master weights `initial`. tokens and targets: integers, (steps, B, T)."""
    result = Trajectory()
    master = initial
    parameters = {name: store(value) for name, value in master.items()}
    optimizer = adamw.AdamW(options, master)
    for step in range(options.steps):
        loss, leaf = gpt2.loss_and_gradients(config, parameters, tokens[step], targets[step], store)
        gradients = leaf
        if step == 0:
            result.first_gradients = gradients
        result.losses.append(float(loss))
        result.grad_norms.append(adamw.global_norm(gradients))
        master = optimizer.step(master, gradients)
        parameters = {name: store(value) for name, value in master.items()}
    result.parameters, result.master = parameters, master
    result.momentum, result.variance = optimizer.momentum, optimizer.variance
    return result
