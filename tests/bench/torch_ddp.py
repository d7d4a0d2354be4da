"""The peer of step_bench.py: the same GPT-2 trained with PyTorch's DistributedDataParallel on the CPU, over gloo.

One process is one rank; step_bench.py starts them, pins them and sets the environment.
Rank 0 prints one line of JSON: {"seconds": [of each step], "losses": [its own, of each step]}.

A step here is what a step is there: load a batch, forward, backward with the averaging of gradients, clipping at norm
1, AdamW. PyTorch's is spared two small things: it neither averages the loss nor checks that it is finite.
"""

import argparse
import json
import math
import sys
import time

import numpy as np
import torch
import torch.distributed
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.norm1 = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.projection = torch.nn.Linear(width, width)
        self.norm2 = torch.nn.LayerNorm(width)
        self.expand = torch.nn.Linear(width, 4 * width)
        self.project = torch.nn.Linear(4 * width, width)
        mask = torch.full((context, context), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def attention(self, x):
        batch, positions, width = x.shape
        size = width // self.heads
        q, k, v = (
            part.view(batch, positions, self.heads, size).transpose(1, 2).reshape(-1, positions, size)
            for part in self.qkv(x).split(width, dim=2)
        )
        # One call scales and masks: it is faster than a product, a scaling and a masked_fill.
        scores = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(size))
        out = torch.bmm(F.softmax(scores, dim=-1), v)
        return self.projection(out.view(batch, self.heads, positions, size).transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.project(F.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.token = torch.nn.Embedding(vocab, width)
        self.position = torch.nn.Parameter(torch.empty(context, width))
        self.blocks = torch.nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("projection.weight", "project.weight"))
                torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
            elif name.endswith("bias"):
                torch.nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)  # the head is the token table
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["rank", "world", "layers", "heads", "width", "context", "vocab", "micro-batch", "steps"]:
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--rendezvous", required=True, help="a file that does not exist yet, the same on all ranks")
    parser.add_argument("--data", required=True, help="a text; bytes are tokens")
    parser.add_argument("--autocast", action="store_true", help="forward and backward in bf16 where PyTorch does so")
    parser.add_argument("--foreach", action="store_true", help="AdamW and clipping over lists of tensors")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{options.rendezvous}", rank=options.rank, world_size=options.world
    )
    model = DistributedDataParallel(
        Gpt2(options.layers, options.heads, options.width, options.context, options.vocab),
        gradient_as_bucket_view=True,
        broadcast_buffers=False,
        static_graph=True,
    )
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
        foreach=options.foreach,
    )
    text = torch.from_numpy(np.fromfile(options.data, dtype=np.uint8).astype(np.int64))
    windows = np.random.default_rng(options.rank)

    seconds, losses = [], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        starts = windows.integers(len(text) - options.context, size=options.micro_batch)
        tokens = torch.stack([text[s : s + options.context] for s in starts])
        targets = torch.stack([text[s + 1 : s + 1 + options.context] for s in starts])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.autocast):
            loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()  # in place: gradients are views of DDP's buckets
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    if options.rank == 0:
        print(json.dumps({"seconds": seconds, "losses": losses}))
    sys.stdout.flush()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
