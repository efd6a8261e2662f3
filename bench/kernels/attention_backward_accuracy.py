"""Errors of attention gradients beside those of FlashAttention-2, cuDNN and the same formula in PyTorch, all in bf16.

    cmake --preset release && cmake --build build/release --target bench_kernels_attention_backward_library
    python3 bench/kernels/attention_backward_accuracy.py --json attention_backward_accuracy.json

Each kind (head_dim and feature) is a number of random problems: lengths that no tile divides, MHA and GQA, random normal
tensors [batch, sequence, head, head_dim]. The error is the RMS difference from gradients in float64, relative to their
RMS; over the problems of a kind, the root of the mean square. Imbrex may have at most --flash times FlashAttention-2's
error where that has the feature, and at most --formula times that of the bf16 formula. A kind that has more is printed as
WRONG and makes the exit status nonzero. The tolerance covers different roundings of finitely many numbers.
"""

import argparse
import ctypes
import math
import pathlib
import random
import sys
from typing import NamedTuple, Optional

from attention_backward import GRADIENTS, OURS, Library
from attention_turns import CUDNN, FLASH_2, Report, device_or_exit, matching, relative_difference, usual_library, write_json

FORMULA = "bf16 formula"
FEATURES = ("full", "causal", "window", "softcap", "bias")
HEAD_DIMS = {"full": (64, 96, 128, 256), "causal": (64, 96, 128, 256)}
FEATURE_HEAD_DIMS = (64, 128)


class Problem(NamedTuple):
    feature: str
    head_dim: int
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    window: int = 0
    cap: float = 0.0

    @property
    def scale(self):
        return self.head_dim**-0.5

    @property
    def sdpa_has_it(self):
        return self.feature in ("full", "causal")


def kinds():
    return [f"{head_dim}_{feature}" for feature in FEATURES for head_dim in HEAD_DIMS.get(feature, FEATURE_HEAD_DIMS)]


def random_problem(draw, feature, head_dim):
    """PyTorch aligns a causal mask with the first query and key, Imbrex with the last: equal lengths have one mask."""
    kv_heads = draw.choice((1, 2, 4))
    queries = draw.randint(65, 1100)
    keys = draw.randint(65, 1100) if feature in ("full", "bias") else queries
    return Problem(
        feature, head_dim, draw.randint(1, 3), kv_heads * draw.choice((1, 1, 2, 4)), kv_heads, queries, keys,
        window=draw.randint(16, 300) if feature == "window" else 0,
        cap=draw.choice((5.0, 15.0, 30.0)) if feature == "softcap" else 0.0,
    )  # fmt: skip


def formula(torch, problem, q, k, v, bias):
    """O and the scores of the inputs' precision, [batch, head, ...]; a bias has that precision, too."""
    group = problem.heads // problem.kv_heads
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    k, v = (one.repeat_interleave(group, dim=1) for one in (k, v))
    scores = q @ k.transpose(2, 3) * problem.scale
    if problem.cap > 0:
        scores = problem.cap * torch.tanh(scores / problem.cap)
    if bias is not None:
        scores = scores + bias
    if problem.feature in ("causal", "window", "softcap"):
        seen = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).tril()
        if problem.window > 0:
            seen &= seen.new_ones(seen.shape).triu(-problem.window)
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, dim=3) @ v, scores


class FeatureLibrary(Library):
    """Adds the features of attention_backward_library.cu."""

    def __init__(self, path):
        super().__init__(path)
        self._feature = ctypes.CDLL(str(path)).imbrex_attention_backward_feature
        self._feature.restype = ctypes.c_int
        self._feature.argtypes = [
            ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, *[ctypes.c_int] * 7, ctypes.c_float, ctypes.c_void_p,
            ctypes.c_void_p, ctypes.c_float, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p]  # fmt: skip

    def feature_gradients(self, torch, problem, q, k, v, out, d_out, lse2, bias):
        """dQ, dK, dV, and dBias if there is a bias."""
        gradients = [torch.full_like(one, math.nan) for one in (q, k, v)]
        tensors = [q, k, v, out, d_out, *gradients]
        pointers = (ctypes.c_void_p * 8)(*(tensor.data_ptr() for tensor in tensors))
        d_bias = None if bias is None else torch.zeros_like(bias)
        biases = [None if one is None else one.data_ptr() for one in (bias, d_bias)]
        size = ctypes.c_int64(0)

        def call(workspace):
            status = self._feature(
                pointers, lse2.data_ptr(), problem.batch, problem.heads, problem.kv_heads, problem.queries, problem.keys,
                problem.head_dim, problem.window, problem.cap, *biases, problem.scale, workspace, ctypes.byref(size),
                torch.cuda.current_stream().cuda_stream,
            )  # fmt: skip
            if status != 0:
                raise RuntimeError(self._last_error().decode())

        call(None)
        workspace = torch.full((max(1, size.value),), 255, dtype=torch.uint8, device=q.device)
        call(workspace.data_ptr())
        torch.cuda.synchronize()
        return gradients if bias is None else [*gradients, d_bias]


class Accuracy:
    def __init__(self, torch, library):
        self.torch, self.library, self.notes = torch, library, []

    def _sdpa(self, backend, problem, inputs, d_out):
        """Gradients by PyTorch SDPA, or None if this backend cannot."""
        from torch.nn.attention import sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        inputs = [one.detach().clone().requires_grad_() for one in inputs]
        try:
            with sdpa_kernel(backend):
                out = attend(
                    *(one.transpose(1, 2) for one in inputs), is_causal=problem.feature == "causal",
                    enable_gqa=problem.heads != problem.kv_heads,
                )  # fmt: skip
                return self.torch.autograd.grad(out, inputs, d_out.transpose(1, 2))
        except RuntimeError as fault:
            note = f"{backend}, {problem.head_dim}: {str(fault).splitlines()[0]}"
            if note not in self.notes:
                self.notes.append(note)
            return None

    def errors(self, problem):
        """A dictionary: contestant to the errors of its gradients."""
        from torch.nn.attention import SDPBackend

        torch = self.torch

        def normal(rows, heads):
            shape = (problem.batch, rows, heads, problem.head_dim)
            return torch.randn(*shape, device="cuda").to(torch.bfloat16)

        q, d_out = (normal(problem.queries, problem.heads) for _ in range(2))
        k, v = (normal(problem.keys, problem.kv_heads) for _ in range(2))
        bias = None
        if problem.feature == "bias":
            shape = (problem.batch, problem.heads, problem.queries, problem.keys)
            bias = torch.randn(*shape, device="cuda").to(torch.bfloat16)  # the same values in all precisions

        def by_formula(dtype):
            inputs = [one.to(dtype, copy=True).requires_grad_() for one in (q, k, v, bias) if one is not None]
            out, scores = formula(torch, problem, *inputs[:3], inputs[3] if bias is not None else None)
            gradients = torch.autograd.grad(out, inputs, d_out.to(dtype).transpose(1, 2))
            return out.detach(), scores.detach(), gradients

        out, scores, wanted = by_formula(torch.float64)
        lse2 = (torch.logsumexp(scores, dim=3) * math.log2(math.e)).float().contiguous()
        out = out.transpose(1, 2).to(torch.bfloat16).contiguous()
        del scores
        found = {}
        if problem.sdpa_has_it:
            found[FLASH_2] = self._sdpa(SDPBackend.FLASH_ATTENTION, problem, (q, k, v), d_out)
            found[CUDNN] = self._sdpa(SDPBackend.CUDNN_ATTENTION, problem, (q, k, v), d_out)
            run = self.library.prepared(
                torch, q, k, v, out, d_out, lse2, problem.feature == "causal", problem.scale
            )  # fmt: skip
            found[OURS] = run()
        else:
            found[OURS] = self.library.feature_gradients(
                torch, problem, q, k, v, out, d_out, lse2, None if bias is None else bias.float().contiguous()
            )
        found[FORMULA] = by_formula(torch.bfloat16)[2]
        torch.cuda.synchronize()
        return {
            name: [relative_difference(a, b) for a, b in zip(gradients, wanted)]
            for name, gradients in found.items()
            if gradients is not None
        }


def root_mean_square(numbers):
    return math.sqrt(sum(x * x for x in numbers) / len(numbers))


class Verdict(NamedTuple):
    limit: Optional[float]  # none without a peer
    kept: bool


def verdict(values, flash, times_formula):
    limits = [values[name] * times for name, times in ((FLASH_2, flash), (FORMULA, times_formula)) if name in values]
    limit = min(limits) if limits else None
    return Verdict(limit, limit is None or values[OURS] <= limit)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=usual_library("attention_backward_library"))
    parser.add_argument("--json", metavar="FILE", help="output file")
    parser.add_argument("--kinds", metavar="NAMES", default="*", help="such as 128_causal,64_*")
    parser.add_argument("--problems", type=int, default=12, help="of each kind (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flash", type=float, default=1.02, help="times FlashAttention-2's error (%(default)s)")
    parser.add_argument("--formula", type=float, default=2.0, help="times the bf16 formula's error (%(default)s)")
    given = parser.parse_args()
    names = matching(kinds(), given.kinds, "--kinds")
    torch = device_or_exit()
    torch.manual_seed(given.seed)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    draw = random.Random(given.seed)
    accuracy = Accuracy(torch, FeatureLibrary(given.library))
    report = Report("attention backward, relative error against float64", "1e-3")
    faults = 0
    for kind in names:
        head_dim, feature = kind.split("_")
        errors = {}
        for _ in range(given.problems):
            for name, found in accuracy.errors(random_problem(draw, feature, int(head_dim))).items():
                errors.setdefault(name, []).append(found)
        gradients = [*GRADIENTS, "dBias"] if feature == "bias" else GRADIENTS
        for number, gradient in enumerate(gradients):
            values = {
                name: 1e3 * root_mean_square([one[number] for one in found])
                for name, found in errors.items()
                if len(found) == given.problems  # a peer that cannot do all is left out
            }
            report.add(f"{head_dim}, {feature}, {gradient}", values)
            limit, kept = verdict(values, given.flash, given.formula)
            if not kept:
                faults += 1
                print(f"WRONG: {head_dim}, {feature}, {gradient}: {values[OURS]:.3f}e-3, allowed {limit:.3f}e-3", flush=True)
    report.notes = accuracy.notes
    print(report.text(), flush=True)
    if given.json:
        write_json([report], given.json)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
