"""GPT-2's loss and the gradient of every parameter, in NumPy, written from the mathematics.

Pre-norm blocks, learned positions, GELU in the tanh form, causal softmax attention scaled by 1/sqrt(head size), biases
everywhere but in the head, which is the token table again; mean cross-entropy over the B*T positions.
Radford et al. 2019 (GPT-2); Hendrycks and Gimpel 2016 (GELU, the tanh form); Ba et al. 2016 (layer norm).

Letters: B sequences, T positions, C width, H heads, D = C/H head size, V vocabulary. Everything is computed in the
floating-point type of the parameters: float64 makes it a reference, float32 shows what rounding alone does. The caller
decides what the parameters were rounded to before, and what happens to a gradient after (see training.py).

Each layer is a pair of functions: f(inputs) returns the output and what its backward needs; f_backward(gradient of the
loss with respect to the output, what was kept) returns the gradients with respect to the inputs.

16-bit training stores activations and their gradients in 16 bits, so `store` stands wherever a program of that kind
writes one to memory: it is `exact` (nothing happens) or `bf16` (round to nearest, ties to even). Arithmetic is never
rounded, only what is stored: the output of every product, of a bias added to it, and of every layer. Statistics of the
layer norms and row losses are not stored in 16 bits.
"""

import math
from dataclasses import dataclass

import numpy as np

NORM_EPSILON = 1e-5


def exact(x):
    return x


def bf16(x):
    """The nearest number with 8 significant bits and the range of float32, ties to even; in the type of x."""
    _, exponent = np.frexp(x)
    step = np.maximum(exponent - 8, -133)  # of the last place; -133: gradual underflow
    with np.errstate(over="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(x, -step)), step)
    infinity = np.copysign(np.array(np.inf, dtype=x.dtype), x)
    return np.where(np.abs(rounded) >= 2.0**128, infinity, rounded)  # a NaN is not above, and stays


@dataclass(frozen=True)
class Config:
    layers: int
    heads: int
    width: int
    context: int
    vocab: int


def shapes(config):
    """The parameters' names and shapes, in the order of the units. A matrix of a linear layer is (outputs, inputs)."""
    width = config.width
    result = {
        "embedding.token.weight": (config.vocab, width),
        "embedding.position.weight": (config.context, width),
        "final_norm.weight": (width,),
        "final_norm.bias": (width,),
    }
    for layer in range(config.layers):
        block = {
            "norm1.weight": (width,),
            "norm1.bias": (width,),
            "attention.qkv.weight": (3 * width, width),  # rows: all of q, all of k, all of v; head after head in each
            "attention.qkv.bias": (3 * width,),
            "attention.projection.weight": (width, width),
            "attention.projection.bias": (width,),
            "norm2.weight": (width,),
            "norm2.bias": (width,),
            "mlp.expand.weight": (4 * width, width),
            "mlp.expand.bias": (4 * width,),
            "mlp.project.weight": (width, 4 * width),
            "mlp.project.bias": (width,),
        }
        result.update({f"block {layer} {name}": shape for name, shape in block.items()})
    return result


def linear(x, weight, bias, store, residual=None):
    """y = x W^T + b over the last axis, or with a residual y = residual + (x W^T + b)."""
    product = store(x @ weight.T)
    return store(product + bias if residual is None else residual + (product + bias)), (x, weight)


def linear_backward(dy, kept, store):
    """The residual's gradient is dy and left to the caller."""
    x, weight = kept
    rows_dy, rows_x = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return store(dy @ weight), store(rows_dy.T @ rows_x), store(rows_dy.sum(axis=0))


def layer_norm(x, weight, bias, store):
    """y = (x - mean) / sqrt(variance + epsilon) * w + b, mean and (biased) variance over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    reciprocal = 1.0 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + NORM_EPSILON)
    normal = centred * reciprocal
    return store(normal * weight + bias), (normal, reciprocal, weight)


def layer_norm_backward(dy, kept, store, residual_path=0.0):
    """With n = (x - mean) r: dx = r (dn - mean(dn) - n mean(dn n)); mean and variance depend on x, hence two terms.

    `residual_path`: what reaches x beside the norm, added to dx before it is stored."""
    normal, reciprocal, weight = kept
    dn = dy * weight
    dx = reciprocal * (dn - dn.mean(axis=-1, keepdims=True) - normal * (dn * normal).mean(axis=-1, keepdims=True))
    leading = tuple(range(dy.ndim - 1))
    return store(residual_path + dx), store((dy * normal).sum(axis=leading)), store(dy.sum(axis=leading))


GELU_SCALE = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715


def gelu(x, store):
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    tanh = np.tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x))
    return store(0.5 * x * (1.0 + tanh)), (x, tanh)


def gelu_backward(dy, kept, store):
    x, tanh = kept
    inner = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x)
    return store(dy * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner))


def split_heads(x, heads):
    """(B, T, C) to (B, H, T, D)."""
    batch, positions, width = x.shape
    return x.reshape(batch, positions, heads, width // heads).transpose(0, 2, 1, 3)


def join_heads(x):
    """(B, H, T, D) to (B, T, C)."""
    batch, heads, positions, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, positions, heads * size)


def attention(qkv, heads, store):
    """softmax(q k^T / sqrt(D)) v in each head, over itself and earlier positions. (B, T, 3C) to (B, T, C).

    The scores are stored before they are scaled."""
    q, k, v = (split_heads(part, heads) for part in np.split(qkv, 3, axis=-1))
    scale = 1.0 / math.sqrt(q.shape[-1])
    positions = q.shape[-2]
    scores = store(q @ k.transpose(0, 1, 3, 2)) * scale  # (B, H, T, T)
    allowed = np.tril(np.ones((positions, positions), dtype=bool))
    scores = np.where(allowed, scores, np.array(-np.inf, dtype=scores.dtype))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))  # the diagonal is allowed, so no row is empty
    weights = store(weights / weights.sum(axis=-1, keepdims=True))
    return join_heads(store(weights @ v)), (q, k, v, weights, scale)


def attention_backward(dy, kept, store):
    q, k, v, weights, scale = kept
    dy = split_heads(dy, q.shape[1])
    dv = store(weights.transpose(0, 1, 3, 2) @ dy)
    dweights = store(dy @ v.transpose(0, 1, 3, 2))
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))  # through the softmax
    dscores = store(dscores * scale)
    dq = store(dscores @ k)
    dk = store(dscores.transpose(0, 1, 3, 2) @ q)
    return np.concatenate([join_heads(dq), join_heads(dk), join_heads(dv)], axis=-1)


def block(x, p, heads, store):
    """One transformer block. `p` maps the names inside the block to arrays."""
    normal1, kept_norm1 = layer_norm(x, p["norm1.weight"], p["norm1.bias"], store)
    qkv, kept_qkv = linear(normal1, p["attention.qkv.weight"], p["attention.qkv.bias"], store)
    mixed, kept_attention = attention(qkv, heads, store)
    projection = p["attention.projection.weight"], p["attention.projection.bias"]
    middle, kept_projection = linear(mixed, *projection, store, residual=x)
    normal2, kept_norm2 = layer_norm(middle, p["norm2.weight"], p["norm2.bias"], store)
    expanded, kept_expand = linear(normal2, p["mlp.expand.weight"], p["mlp.expand.bias"], store)
    active, kept_gelu = gelu(expanded, store)
    out, kept_project = linear(active, p["mlp.project.weight"], p["mlp.project.bias"], store, residual=middle)
    kept = (kept_norm1, kept_qkv, kept_attention, kept_projection, kept_norm2, kept_expand, kept_gelu, kept_project)
    return out, kept


def block_backward(dy, kept, store):
    """Returns the gradient of the block's input, and those of its parameters by name."""
    kept_norm1, kept_qkv, kept_attention, kept_projection, kept_norm2, kept_expand, kept_gelu, kept_project = kept
    g = {}
    dactive, g["mlp.project.weight"], g["mlp.project.bias"] = linear_backward(dy, kept_project, store)
    dexpanded = gelu_backward(dactive, kept_gelu, store)
    dnormal2, g["mlp.expand.weight"], g["mlp.expand.bias"] = linear_backward(dexpanded, kept_expand, store)
    dmiddle, g["norm2.weight"], g["norm2.bias"] = layer_norm_backward(dnormal2, kept_norm2, store, residual_path=dy)
    dmixed, g["attention.projection.weight"], g["attention.projection.bias"] = linear_backward(
        dmiddle, kept_projection, store
    )
    dqkv = attention_backward(dmixed, kept_attention, store)
    dnormal1, g["attention.qkv.weight"], g["attention.qkv.bias"] = linear_backward(dqkv, kept_qkv, store)
    dx, g["norm1.weight"], g["norm1.bias"] = layer_norm_backward(dnormal1, kept_norm1, store, residual_path=dmiddle)
    return dx, g


def cross_entropy(logits, targets):
    """Mean over the positions of -log softmax(logits)[target]. logits (B, T, V), targets (B, T)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    log_probabilities = shifted - log_sum
    chosen = np.take_along_axis(log_probabilities, targets[..., None], axis=-1)
    return -chosen.mean(), (log_probabilities, targets)


def cross_entropy_backward(kept, store):
    log_probabilities, targets = kept
    dlogits = np.exp(log_probabilities)
    chosen = np.take_along_axis(dlogits, targets[..., None], axis=-1)
    np.put_along_axis(dlogits, targets[..., None], chosen - 1.0, axis=-1)
    return store(dlogits / targets.size)


def _forward(config, parameters, tokens, targets, store):
    table = parameters["embedding.token.weight"]
    x = store(table[tokens] + parameters["embedding.position.weight"][: tokens.shape[1]])  # (B, T, C)
    kept_blocks = []
    for layer in range(config.layers):
        prefix = f"block {layer} "
        inside = {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}
        x, kept = block(x, inside, config.heads, store)
        kept_blocks.append(kept)
    final, kept_norm = layer_norm(x, parameters["final_norm.weight"], parameters["final_norm.bias"], store)
    logits = store(final @ table.T)  # the tied head, without a bias
    value, kept_loss = cross_entropy(logits, targets)
    return value, (kept_blocks, kept_norm, final, kept_loss)


def loss(config, parameters, tokens, targets, store=exact):
    """The mean loss in nats. tokens and targets are integers of shape (B, T), T at most the context."""
    return _forward(config, parameters, tokens, targets, store)[0]


def loss_and_gradients(config, parameters, tokens, targets, store=exact):
    """The mean loss, and its gradient with respect to every parameter, by name. The parameters are given as stored."""
    value, (kept_blocks, kept_norm, final, kept_loss) = _forward(config, parameters, tokens, targets, store)
    table = parameters["embedding.token.weight"]
    gradients = {}

    dlogits = cross_entropy_backward(kept_loss, store)  # (B, T, V)
    dtable = dlogits.reshape(-1, config.vocab).T @ final.reshape(-1, config.width)  # the head's part
    dx, gradients["final_norm.weight"], gradients["final_norm.bias"] = layer_norm_backward(
        store(dlogits @ table), kept_norm, store
    )
    for layer in reversed(range(config.layers)):
        dx, inside = block_backward(dx, kept_blocks[layer], store)
        gradients.update({f"block {layer} {name}": gradient for name, gradient in inside.items()})

    np.add.at(dtable, tokens, dx)  # the embedding's part: the same token may stand at many positions
    gradients["embedding.token.weight"] = store(dtable)  # both parts as one
    dpositions = np.zeros_like(parameters["embedding.position.weight"])
    dpositions[: tokens.shape[1]] = dx.sum(axis=0)
    gradients["embedding.position.weight"] = store(dpositions)
    return value, {name: gradients[name] for name in shapes(config)}
