#!/usr/bin/env python3
"""The comparison checks itself: it accepts the reference run in float32, and finds each of a list of usual mistakes.

In 16-bit training these are a rounding too few or too many, in a model so small that the tolerances of fp32 apply.
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


def write_dump(directory, config=CONFIG, options=OPTIONS, precision="fp32"):
    """Trains in float32 arithmetic and writes what a program would."""
    directory = pathlib.Path(directory)
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, config.vocab, (options.steps, BATCH, config.context + 1))
    initial = initial_model(config)
    store = compare_dump.PRECISIONS[precision]
    run = training.train(config, initial, tokens[..., :-1], tokens[..., 1:], options, store)
    last = gpt2.loss_and_gradients(config, run.parameters, tokens[-1, :, :-1], tokens[-1, :, 1:], store)[1]
    parts = {
        "initial": initial,
        "gradient": run.first_gradients,
        "last_gradient": last,
        "final": run.master,
        "parameters": run.parameters,
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
        "precision": precision,
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


def judge(directory, *arguments):
    """The comparison's exit status, and all it printed."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        status = compare_dump.main([str(directory), *arguments])
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

    def one_row_off(*arguments):
        loss, gradients = backward(*arguments)
        tokens = arguments[2]
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


def rounding_mistakes():
    """The same in 16-bit training: functions that do not round what they store, and states that are rounded."""

    def unrounded(function):
        def replacement(*arguments, **named):
            return function(*(gpt2.exact if a is gpt2.bf16 else a for a in arguments), **named)

        return replacement

    def rounded_step(optimizer, parameters, gradients):
        return {name: gpt2.bf16(p) for name, p in step(optimizer, parameters, gradients).items()}

    def rounded_moments(optimizer, parameters, gradients):
        updated = step(optimizer, parameters, gradients)
        optimizer.momentum = {name: gpt2.bf16(m) for name, m in optimizer.momentum.items()}
        return updated

    def clipped_in_place(gradients):
        norm = global_norm(gradients)
        for name, g in gradients.items():
            gradients[name] = gpt2.bf16(g * adamw.clip_factor(norm, OPTIONS.clip))
        return norm

    step, global_norm = adamw.AdamW.step, adamw.global_norm
    layers = ["linear", "layer_norm", "gelu", "attention", "cross_entropy"]
    backward = [f"{layer}_backward" for layer in layers]
    functions = [*layers[:-1], *backward, "loss_and_gradients"]  # the loss itself is not stored in 16 bits
    not_rounding = [(f"no rounding in {f}", "gradient of", gpt2, f, unrounded(getattr(gpt2, f))) for f in functions]
    return not_rounding + [
        ("the master weights are rounded", "median of block 0 attention.qkv.weight", adamw.AdamW, "step", rounded_step),
        ("the momentum is rounded", "momentum of", adamw.AdamW, "step", rounded_moments),
        ("the gradient is clipped where it is stored", "gradient of", adamw, "global_norm", clipped_in_place),
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

    def expect(what, directory, status, said="", arguments=()):
        got, text = judge(directory, *arguments)
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
        bf16 = {"precision": "bf16", "options": once}
        strict = ("--tolerances", "fp32")
        expect("the reference in bf16", fresh(precision="bf16"), 0)
        expect("the reference in bf16, one step", fresh(**bf16), 0, arguments=strict)
        for what, said, module, attribute, replacement in rounding_mistakes():
            with mock.patch.object(module, attribute, replacement):
                directory = fresh(**bf16)
            expect(what, directory, 1, f"error: {said}", strict)
        directory = fresh(precision="bf16")
        edit(directory, "final_norm.weight", "parameters", scaled(1 + 2.0**-8))
        expect("a copy that is not the rounded master", directory, 1, "error: rounding of final_norm.weight")
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
        print("comparison: accepts the reference in float32 and in bf16 and finds every mistake it was given")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
