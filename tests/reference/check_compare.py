#!/usr/bin/env python3
"""The comparison checks itself: it accepts the reference run in float32, and finds each of a list of usual mistakes.

Each mistake is made while the dump is written, and must be called by its name: exits with 1 and says which was missed.
"""

import contextlib
import dataclasses
import io
import json
import math
import pathlib
import sys
import tempfile
from unittest import mock

import numpy as np

import adamw
import compare_dump
import gpt2
import training

CONFIG = gpt2.Config(layers=2, heads=2, width=6, context=5, vocab=61)
OPTIONS = adamw.Options(1e-3, "cosine", 2, 1e-4, 0.9, 0.95, 1e-8, 0.1, 0.5, 5)
BATCH = 3


def initial_model(config):
    """GPT-2's own initial values, as a program has them: float32."""
    rng = np.random.default_rng(1)
    parameters = {}
    for name, shape in gpt2.shapes(config).items():
        value = np.zeros(shape)
        if len(shape) == 2:
            residual = name.endswith(("projection.weight", "project.weight"))
            value = rng.normal(0.0, 0.02 / math.sqrt(2 * config.layers) if residual else 0.02, shape)
        elif name.endswith("weight"):
            value = np.ones(shape)
        parameters[name] = value.astype(np.float32)
    return parameters


def write_dump(directory, config=CONFIG, options=OPTIONS):
    """Trains in float32 and writes what a program would."""
    directory = pathlib.Path(directory)
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, config.vocab, (options.steps, BATCH, config.context + 1))
    initial = initial_model(config)
    run = training.train(config, initial, tokens[..., :-1], tokens[..., 1:], options)
    parts = {
        "initial": initial,
        "gradient": run.first_gradients,
        "final": run.parameters,
        "momentum": run.momentum,
        "variance": run.variance,
    }
    tensors = []
    for number, (name, shape) in enumerate(gpt2.shapes(config).items()):
        tensors.append({"name": name, "shape": list(shape)})
        for part, values in parts.items():
            tensors[-1][part] = f"{number}.{part}.f32"
            np.ascontiguousarray(values[name]).astype("<f4").tofile(directory / tensors[-1][part])
    for part, values in (("tokens", tokens[..., :-1]), ("targets", tokens[..., 1:])):
        np.ascontiguousarray(values).astype("<i4").tofile(directory / f"{part}.i32")
    manifest = {
        **dataclasses.asdict(config),
        "micro_batch": BATCH,
        "tokens": "tokens.i32",
        "targets": "targets.i32",
        "losses": run.losses,
        "grad_norms": run.grad_norms,
        "optimizer": dataclasses.asdict(options),
        "tensors": tensors,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def judge(directory):
    """The comparison's exit status, and all it printed."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        status = compare_dump.main([str(directory)])
    return status, text.getvalue()


def edit(directory, name, part, change):
    """Changes one file of a tensor in a dump."""
    manifest = json.loads((directory / "manifest.json").read_text())
    path = directory / next(t[part] for t in manifest["tensors"] if t["name"] == name)
    values = np.fromfile(path, "<f4")
    change(values)
    values.tofile(path)


def scaled(factor):
    def change(values):
        values *= np.float32(factor)

    return change


def not_a_number(values):
    values[-1] = np.nan


def training_mistakes():
    """(what, what the comparison must say, the function of the reference to replace, its replacement)."""
    rate, factor = adamw.learning_rate, adamw.clip_factor
    gelu, backward = gpt2.gelu_backward, gpt2.loss_and_gradients
    tied = "embedding.token.weight"
    expand = "block 0 mlp.expand"

    def one_row_off(config, parameters, tokens, targets):
        loss, gradients = backward(config, parameters, tokens, targets)
        gradients[tied][tokens[0, 0]] *= 1.001
        return loss, gradients

    return [
        ("nothing decays", "median of block 0 attention.qkv.weight", adamw, "decays", lambda *_: False),
        ("everything decays", "median of block 1 norm2.weight", adamw, "decays", lambda *_: True),
        ("no clipping", "variance of final_norm.bias", adamw, "clip_factor", lambda *_: 1.0),
        ("clipping twice", "momentum of final_norm.bias", adamw, "clip_factor", lambda *a: factor(*a) ** 2),
        ("schedule one step late", f"median of {expand}.weight", adamw, "learning_rate", lambda o, t: rate(o, t - 1)),
        ("the GELU's slope", f"gradient of {expand}.bias", gpt2, "gelu_backward", lambda *a: gelu(*a) * 1.0001),
        ("another norm epsilon", "loss of step 1", gpt2, "NORM_EPSILON", 1e-6),
        ("one row of the tied table", f"gradient of {tied}", gpt2, "loss_and_gradients", one_row_off),
    ]


def file_mistakes():
    last = "block 1 mlp.project.bias"
    return [
        ("a gradient off by 2e-5", f"gradient of {last}", lambda d: edit(d, last, "gradient", scaled(1 + 2e-5))),
        ("a variance off by 3e-4", f"variance of {last}", lambda d: edit(d, last, "variance", scaled(1 + 3e-4))),
        ("a final value that is no number", f"rms of {last}", lambda d: edit(d, last, "final", not_a_number)),
    ]


def main():
    failures = []

    def expect(what, directory, status, said=""):
        got, text = judge(directory)
        if got != status or said not in text:
            failures.append(f"{what}: status {got}, expected {status} with {said!r} in:\n{text}")

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def fresh(**options):
            directory = root / str(len(list(root.iterdir())))
            directory.mkdir()
            return write_dump(directory, **options)

        expect("the reference in float32", fresh(), 0)
        # Width 1: a layer norm of one number is zero, so nearly all gradients are. One step, for the few others are
        # differences of nearly equal numbers that float32 follows no further.
        once = dataclasses.replace(OPTIONS, steps=1)
        expect("a width of one, one step", fresh(config=gpt2.Config(1, 1, 1, 1, 3), options=once), 0)
        expect("no blocks", fresh(config=gpt2.Config(0, 1, 4, 3, 7)), 0)
        expect("a learning rate of zero", fresh(options=dataclasses.replace(OPTIONS, lr=0.0, min_lr=0.0)), 0)
        for what, said, module, attribute, replacement in training_mistakes():
            with mock.patch.object(module, attribute, replacement):
                directory = fresh()
            expect(what, directory, 1, f"error: {said}")
        for what, said, mistake in file_mistakes():
            directory = fresh()
            mistake(directory)
            expect(what, directory, 1, f"error: {said}")
        short = fresh()
        (short / "0.final.f32").write_bytes((short / "0.final.f32").read_bytes()[:-4])
        expect("a file cut short", short, 2, "0.final.f32 has")
        absent = fresh()
        manifest = json.loads((absent / "manifest.json").read_text())
        manifest["tensors"].pop()
        (absent / "manifest.json").write_text(json.dumps(manifest))
        expect("a tensor left out", absent, 2, "block 1 mlp.project.bias has shape None")
        expect("no dump", root / "none", 2, "manifest.json cannot be read")

    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    if not failures:
        print("comparison: accepts the reference in float32 and finds every mistake it was given")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
