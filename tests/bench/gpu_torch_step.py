"""The peer of gpu_step_bench.py: the same GPT-2 trained with PyTorch on one GPU, in bf16 by autocast, with PyTorch's own
fused attention and fused AdamW.

A step is what a step is there: load a batch, forward, backward, clipping at norm 1, AdamW, and the loss read by the host.
Prints one line of JSON: {"version": str, "seconds": [of each step], "losses": [of each step]}.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.nn import functional as F

import torch_ddp


def attention(self, x):
    batch, positions, width = x.shape
    q, k, v = (
        part.view(batch, positions, self.heads, width // self.heads).transpose(1, 2)
        for part in self.qkv(x).split(width, dim=2)
    )
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.projection(out.transpose(1, 2).reshape(x.shape))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["layers", "heads", "width", "context", "vocab", "micro-batch", "steps"]:
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--data", required=True, help="a text; bytes are tokens")
    return parser.parse_args()


def main():
    options = arguments()
    torch.manual_seed(1)
    torch_ddp.Block.attention = attention  # on a GPU the fastest way, where the CPU's is a product with a mask
    model = torch_ddp.Gpt2(options.layers, options.heads, options.width, options.context, options.vocab).cuda()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
        fused=True,
    )
    text = torch.from_numpy(np.fromfile(options.data, dtype=np.uint8).astype(np.int64))
    windows = np.random.default_rng(0)
    seconds, losses = [], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        starts = windows.integers(len(text) - options.context, size=options.micro_batch)
        tokens = torch.stack([text[s : s + options.context] for s in starts]).cuda()
        targets = torch.stack([text[s + 1 : s + 1 + options.context] for s in starts]).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"version": torch.__version__, "seconds": seconds, "losses": losses}))


if __name__ == "__main__":
    main()
