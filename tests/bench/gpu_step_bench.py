"""A training step on one GPU: gpt2 in bf16 with library products, as tokens per second and as model flops utilisation:

  MFU = tokens/s * (6 P + 12 L T C) / peak

P parameters, L layers, T tokens of context, C width: 6 P is two flops for each parameter in forward and four in backward,
12 L T C the products of attention. --peak is the GPU's dense bf16 rate; by default an H200's, 989.5 TFLOP/s.

Beside it stands PyTorch's step of the same model and batch, where a PyTorch with CUDA is installed (gpu_torch_step.py).
A time is the median of the steps after three to warm up. Status 1 when a run broke.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from programs import SOURCE, Broken, median, run_program

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 12, 12, 768, 1024, 50257  # --model gpt2
WARM_UP = 3


def interpreter_with_torch():
    """One whose PyTorch sees a GPU: this one, the first on the path, or the system's."""
    question = "import numpy, torch, sys; sys.exit(not torch.cuda.is_available())"
    for python in dict.fromkeys([sys.executable, shutil.which("python3"), "/usr/bin/python3"]):
        if python and subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0:
            return python
    return None


def torch_step(python, micro_batch, steps):
    shape = {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "context": CONTEXT, "vocab": VOCAB}
    command = [python, str(Path(__file__).with_name("gpu_torch_step.py")), "--data", str(SOURCE / "docs/corpus.txt")]
    for name, value in {**shape, "micro-batch": micro_batch, "steps": steps}.items():
        command += ["--" + name, str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Broken(f"gpu_torch_step.py: status {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with the CUDA backend")
    parser.add_argument("--peak", type=float, default=989.5, help="TFLOP/s of the GPU, bf16, dense (default %(default)s)")
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences in a step (default %(default)s)")
    parser.add_argument("--steps", type=int, default=13, help="the first three warm up (default %(default)s)")
    options = parser.parse_args()

    def report(name, seconds, parameters):
        """A line of one way to compute the step; its time."""
        step = median(seconds[WARM_UP:])
        rate = options.micro_batch * CONTEXT / step
        utilisation = rate * (6 * parameters + 12 * LAYERS * CONTEXT * WIDTH) / (options.peak * 1e12)
        print(f"{name}: {1e3 * step:.1f} ms a step, {rate:.0f} tokens/s, MFU {utilisation:.3f}", flush=True)
        return step

    try:
        arguments = ["--model", "gpt2", "--precision", "bf16", "--products", "library", "--backend", "cuda"]
        arguments += ["--micro-batch", str(options.micro_batch), "--steps", str(options.steps)]
        ours = run_program(options.build, "stage0_ddp", 1, arguments)
        count = ours["parameters"]
        print(f"gpt2 in bf16, one rank, micro-batch {options.micro_batch} of {CONTEXT} tokens; MFU = tokens/s * "
              f"(6 P + 12 L T C) / peak, P = {count}, L = {LAYERS}, T = {CONTEXT}, C = {WIDTH}, peak = {options.peak} "
              "TFLOP/s")
        step = report("stage0_ddp, library products", ours["seconds"]["total"], count)
        python = interpreter_with_torch()
        if python is None:
            print("PyTorch with CUDA is not installed: nothing is compared with it")
            return 0
        peer = torch_step(python, options.micro_batch, options.steps)
        other = report(f"PyTorch {peer['version']}, autocast, fused attention and AdamW", peer["seconds"], count)
        print(f"our step over PyTorch's: {step / other:.3f}")
    except (Broken, subprocess.TimeoutExpired) as error:
        print(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
