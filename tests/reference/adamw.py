"""AdamW with decoupled weight decay, bias correction, clipping by the global norm, and its learning-rate schedules.

Kingma and Ba 2015, algorithm 1 (Adam); Loshchilov and Hutter 2019, algorithm 2 (the decay beside the gradient, scaled
by the learning rate of the step). With the learning rate a of step t and the clipped gradient g:

    m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
    p = p - a (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay p)
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Options:
    lr: float
    schedule: str  # "constant" or "cosine"
    warmup: int
    min_lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip: float  # 0: off
    steps: int


def learning_rate(options, t):
    """The learning rate of step t = 1, 2, ..., steps.

    Both schedules rise in a line, lr * t / warmup, and are at lr at t = warmup. Then `constant` stays, and `cosine`
    falls along half a cosine, to be at min_lr at t = steps.
    """
    if options.schedule not in ("constant", "cosine"):
        raise ValueError(f"unknown schedule {options.schedule!r}")
    if t <= options.warmup:
        return options.lr * t / options.warmup
    if options.schedule == "constant":
        return options.lr
    progress = (t - options.warmup) / (options.steps - options.warmup)
    return options.min_lr + 0.5 * (options.lr - options.min_lr) * (1.0 + math.cos(math.pi * progress))


def global_norm(gradients):
    """The Euclidean norm of all gradients together, in double whatever their type."""
    return math.sqrt(sum(float(np.square(g.astype(np.float64)).sum()) for g in gradients.values()))


def clip_factor(norm, clip):
    return clip / norm if 0 < clip < norm else 1.0


def decays(name, shape):
    """Matrices decay (the embedding tables too); biases and norms do not."""
    return name.endswith("weight") and len(shape) == 2


class AdamW:
    """Momentum and variance of every tensor, zeros at first, in the tensors' own type."""

    def __init__(self, options, parameters):
        self.options = options
        self.t = 0
        self.momentum = {name: np.zeros_like(p) for name, p in parameters.items()}
        self.variance = {name: np.zeros_like(p) for name, p in parameters.items()}

    def step(self, parameters, gradients):
        """Takes the gradients before clipping; returns the new parameters and leaves the given ones alone."""
        o = self.options
        self.t += 1
        rate = learning_rate(o, self.t)
        factor = clip_factor(global_norm(gradients), o.clip)
        updated = {}
        for name, p in parameters.items():
            g = gradients[name] * factor
            m = self.momentum[name] = o.beta1 * self.momentum[name] + (1.0 - o.beta1) * g
            v = self.variance[name] = o.beta2 * self.variance[name] + (1.0 - o.beta2) * g * g
            direction = m / (1.0 - o.beta1**self.t) / (np.sqrt(v / (1.0 - o.beta2**self.t)) + o.eps)
            decay = o.weight_decay if decays(name, p.shape) else 0.0
            updated[name] = p - rate * (direction + decay * p)
        return updated
