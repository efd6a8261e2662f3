"""Trains and saves the tales model.

    python3 train.py --out model --steps 20000 --compile              # on a GPU, with 16 cores that generate tales
    python3 train.py --out /tmp/tiny --steps 20 --tiny --device cpu   # smoke test

The corpus is generated during training: other processes generate tales from seeds, and step s samples from the first
`--first-chunks` + s * `--chunks-a-step` chunks. A run of all steps depends only on its arguments, not on process timing
(`--seconds` ends it early, with a matching learning-rate schedule). Each row is one padded tale, so all steps have one shape and
need no mask. In the last part every other step uses weights rounded to int4 and updates the unrounded ones (quantization-aware
training), so that the model keeps its accuracy when it is quantised.
"""

import argparse
import math
import multiprocessing
import shutil
import time
from pathlib import Path

import numpy
import torch
from torch.nn import functional

from evaluate import matrices, quantise, rounded, tale_accuracy
from grammar import Grammar
from llama import Config, Llama, load, save
from tales import tales
from tokenizer import Tokenizer

TALES_OF_A_CHUNK = 1000
FIRST_SEED = 1_000_000
LENGTH = 256  # of a row; longer tales are dropped
tokenizer = grammar = None  # of a generator process


def start_maker(path):
    global tokenizer, grammar
    tokenizer, grammar = Tokenizer(path), Grammar()


def make_chunk(index):
    """Rows of length + 1 ids: BOS, a tale, EOS, padded with EOS."""
    rows = []
    for tale in tales(FIRST_SEED + index * TALES_OF_A_CHUNK, TALES_OF_A_CHUNK, grammar):
        ids = [tokenizer.begin, *tokenizer.encode(tale), tokenizer.end]
        if len(ids) <= LENGTH + 1:
            rows.append(ids + [tokenizer.end] * (LENGTH + 1 - len(ids)))
    return numpy.array(rows, numpy.int16)


class Corpus:
    """The tales received so far, on the device."""

    def __init__(self, pool, chunks, device, seed):
        self.chunks = pool.imap(make_chunk, range(chunks))
        self.device = device
        self.rows = torch.empty((0, LENGTH + 1), dtype=torch.int16, device=device)
        self.arrived = 0  # chunks
        self.waited = 0.0  # seconds
        self.random = torch.Generator(device=device).manual_seed(seed)

    def hold(self, chunks):
        """Waits for this number of chunks."""
        begun, new = time.monotonic(), []
        while self.arrived < chunks:
            new.append(next(self.chunks))
            self.arrived += 1
        if new:
            self.rows = torch.cat([self.rows, torch.from_numpy(numpy.concatenate(new)).to(self.device)])
        self.waited += time.monotonic() - begun

    def draw(self, count):
        return self.rows[torch.randint(len(self.rows), (count,), generator=self.random, device=self.device)].long()


def loss_of(model, rows, end):
    """Mean cross-entropy of the next token, without padding."""
    ids, targets = rows[:, :-1], rows[:, 1:]
    targets = torch.where(ids == end, -100, targets)
    return functional.cross_entropy(model(ids).flatten(0, 1).float(), targets.flatten(), ignore_index=-100)


class Rounding:
    """Runs a step with weights rounded to int4 and restores the exact ones before the update."""

    GROUP = 64  # divides every row, so groups do not cross matrices

    def __init__(self, model):
        self.weights = [weight.data for weight in matrices(model)]
        self.exact = [weight.clone() for weight in self.weights]

    def begin(self):
        torch._foreach_copy_(self.exact, self.weights)
        flat = torch.cat([weight.flatten() for weight in self.weights])
        parts = rounded(flat, "int4", self.GROUP).split([weight.numel() for weight in self.weights])
        torch._foreach_copy_(self.weights, [part.view_as(weight) for part, weight in zip(parts, self.weights)])

    def end(self):
        torch._foreach_copy_(self.weights, self.exact)


class Muon(torch.optim.Optimizer):
    """Muon, for matrices: the update is the momentum with all singular values near 1, by Newton-Schulz iteration. Matrices of
    equal shape are batched."""

    def __init__(self, matrices, lr=0.0, momentum=0.95, weight_decay=0.1):
        super().__init__([{"params": matrices, "lr": lr}], {})
        self.momentum, self.weight_decay = momentum, weight_decay
        self.of_shape = {}
        for matrix in matrices:
            self.of_shape.setdefault(matrix.shape, []).append(matrix)
        self.means = {shape: torch.zeros_like(torch.stack(same)) for shape, same in self.of_shape.items()}

    @torch.no_grad()
    def step(self):
        rate = self.param_groups[0]["lr"]
        for shape, same in self.of_shape.items():
            gradient, mean = torch.stack([matrix.grad for matrix in same]), self.means[shape]
            mean.lerp_(gradient, 1 - self.momentum)
            change = orthogonal(gradient.lerp(mean, self.momentum)) * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(same, 1 - rate * self.weight_decay)
            torch._foreach_add_(same, list(change.to(gradient.dtype).unbind()), alpha=-rate)


def orthogonal(stack):
    """Matrices with the same singular vectors, and singular values between about 0.7 and 1.2."""
    x = stack.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if tall else x


def schedule(progress, step, arguments):
    """Learning-rate factor: linear warm-up, then a cosine down to 0.01."""
    warm_up = min(1.0, (step + 1) / arguments.warm_up)
    return warm_up * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))


def parse_arguments():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="the folder of the model")
    arguments.add_argument("--tokenizer", type=Path, default=Path(__file__).with_name("model") / "tokenizer.json")
    arguments.add_argument("--start", type=Path, help="the folder of a model to go on from")
    arguments.add_argument("--steps", type=int, default=20000)
    arguments.add_argument("--seconds", type=float, default=1e9, help="end the training by then")
    arguments.add_argument("--rows", type=int, default=384, help="tales of a step")
    arguments.add_argument("--rate", type=float, default=2.5e-3, help="the highest learning rate of embedding and norms")
    arguments.add_argument("--matrix-rate", type=float, default=0.02, help="the highest learning rate of the matrices")
    arguments.add_argument("--warm-up", type=int, default=300, help="steps until then")
    arguments.add_argument("--round-from", type=float, default=0.7, help="when rounding to int4 begins; 1: never")
    arguments.add_argument("--first-chunks", type=int, default=64, help="chunks that the first step waits for")
    arguments.add_argument("--chunks-a-step", type=float, default=0.1, help="chunks more for each step")
    arguments.add_argument("--makers", type=int, default=max(1, multiprocessing.cpu_count() - 1))
    arguments.add_argument("--tales", type=int, default=1000, help="tales that are generated for the accuracy")
    arguments.add_argument("--report", type=int, default=1000, help="steps from one line of figures to the next")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--compile", action="store_true", help="compile the model: slow to begin, then quicker")
    arguments.add_argument("--tiny", action="store_true", help="a tiny model and tiny steps, to try the script")
    arguments = arguments.parse_args()
    if arguments.tiny:
        arguments.rows, arguments.first_chunks, arguments.tales, arguments.report = 8, 1, 4, 5
        arguments.warm_up, arguments.makers = 5, 1
    return arguments


def train(arguments, words, config, pool):
    device, begun = arguments.device, time.monotonic()
    torch.manual_seed(arguments.seed)
    model = load(arguments.start, device).train() if arguments.start else Llama(config, device)
    chunks = int(arguments.first_chunks + arguments.steps * arguments.chunks_a_step)
    corpus = Corpus(pool, chunks, device, arguments.seed)
    weights = matrices(model)
    others = [parameter for name, parameter in model.named_parameters() if not name.endswith("proj.weight")]
    optimizers = {
        Muon(weights): arguments.matrix_rate,
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0, fused=device != "cpu"): arguments.rate,
    }
    run = torch.compile(loss_of) if arguments.compile else loss_of
    rounding = Rounding(model)
    print(f"{sum(parameter.numel() for parameter in model.parameters())} parameters", flush=True)
    losses, ready = [], begun
    for step in range(arguments.steps):
        if step % 50 == 0:  # rarely: the copy synchronizes with the device
            corpus.hold(int(arguments.first_chunks + step * arguments.chunks_a_step))
        progress = max(step / arguments.steps, (time.monotonic() - ready) / (arguments.seconds - (ready - begun)))
        if progress >= 1:
            break
        for optimizer, rate in optimizers.items():
            optimizer.param_groups[0]["lr"] = rate * schedule(progress, step, arguments)
        rounds = progress >= arguments.round_from and step % 2 == 1
        if rounds:
            rounding.begin()
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
            loss = run(model, corpus.draw(arguments.rows), words.end)
        loss.backward()
        if rounds:
            rounding.end()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if step < 10:  # compilation is done then; the learning-rate clock starts
            ready = time.monotonic()
        if (step + 1) % arguments.report == 0:
            mean = torch.stack(losses[-arguments.report // 2 :]).mean().item()
            waited = f"{corpus.waited:.1f} s of them waiting for {corpus.arrived * TALES_OF_A_CHUNK} tales"
            print(f"step {step + 1}: loss {mean:.4f}, {time.monotonic() - begun:.1f} s, {waited}", flush=True)
    print(f"trained {len(losses)} steps in {time.monotonic() - begun:.0f} s", flush=True)
    return model


def main():
    arguments = parse_arguments()
    words = Tokenizer(arguments.tokenizer)
    config = Config(vocabulary=len(words.ids))
    if arguments.tiny:
        config = Config(vocabulary=len(words.ids), hidden=64, intermediate=64, layers=2, heads=2, kv_heads=1)
    makers = multiprocessing.get_context("fork").Pool(arguments.makers, start_maker, (arguments.tokenizer,))
    with makers as pool:
        model = train(arguments, words, config, pool)
    save(arguments.out, model, words.begin, words.end)
    if arguments.tokenizer.resolve() != (arguments.out / "tokenizer.json").resolve():
        shutil.copy(arguments.tokenizer, arguments.out / "tokenizer.json")
    for form, group in (("bf16", 0), ("e4m3", 0), ("int8", 0), ("int4", 32), ("int4", 64)):
        model = load(arguments.out, arguments.device)
        if form != "bf16":
            quantise(model, form, group)
        for temperature in (0.0, 0.8) if form == "bf16" else (0.8,):
            figures, tale = tale_accuracy(model, words, arguments.tales, temperature, arguments.seed)
            print(f"{form} {f'groups of {group}, ' if group else ''}temperature {temperature}: {figures}", flush=True)
            if form == "bf16":
                print(tale, flush=True)


if __name__ == "__main__":
    main()
