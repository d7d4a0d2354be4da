"""A run of training in the reference: one micro-batch in a step, AdamW after each.

Between the model and the optimizer a gradient is a leaf, then the step's averaged gradient; and the optimizer's
parameters (the master weights) are not in every precision those that the model reads. The loop keeps these four apart,
although they are pairwise the same here: one leaf in a step, and one floating-point type throughout.
"""

from dataclasses import dataclass, field

import adamw
import gpt2


@dataclass
class Trajectory:
    losses: list = field(default_factory=list)
    grad_norms: list = field(default_factory=list)  # before clipping
    first_gradients: dict = None  # of step 1, before clipping
    parameters: dict = None  # the rest is what stands after the last step
    momentum: dict = None
    variance: dict = None


def train(config, initial, tokens, targets, options):
    """Runs options.steps steps from the parameters `initial`. tokens and targets: integers, (steps, B, T)."""
    result = Trajectory()
    master = initial
    parameters = master
    optimizer = adamw.AdamW(options, master)
    for step in range(options.steps):
        loss, leaf = gpt2.loss_and_gradients(config, parameters, tokens[step], targets[step])
        gradients = leaf
        if step == 0:
            result.first_gradients = gradients
        result.losses.append(float(loss))
        result.grad_norms.append(adamw.global_norm(gradients))
        master = optimizer.step(master, gradients)
        parameters = master
    result.parameters = parameters
    result.momentum, result.variance = optimizer.momentum, optimizer.variance
    return result
