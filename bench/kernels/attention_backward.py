"""Attention backward against PyTorch SDPA (cuDNN, FlashAttention-2).

    cmake --preset release && cmake --build build/release --target bench_kernels_attention_backward_library
    python3 bench/kernels/attention_backward.py --json attention_backward.json
    python3 bench/kernels/attention_backward.py --points 'd128_causal_*'

The sm_80-class kernels are measured on any GPU from a library that has only PTX for sm_80, which the driver compiles:

    nvcc -shared -Xcompiler=-fPIC -O3 -DNDEBUG -DIMBREX_DEVICE_ALONE -std=c++20 --expt-relaxed-constexpr -Iinclude \
        -isystem CUTLASS/include -gencode arch=compute_80,code=compute_80 -cudart static \
        bench/kernels/attention_backward_library.cu -o libsm_80.so
    python3 bench/kernels/attention_backward.py --sm-80-library libsm_80.so --points '*_1024,*_4096,*_16384' \
        --json attention_backward_sm_80.json

Tensors are bf16 [batch, sequence, head, head_dim], random normal; batch * sequence = 16384, heads * head_dim = 2048.
TFLOP/s count 10 * batch * heads * sequence^2 * head_dim, half of that if causal: 2.5 times the forward pass. At each
point all contestants are interleaved in one run, each as a CUDA graph; medians. The time of Imbrex includes its
preprocess and postprocess kernels. Before timing, gradients are compared with float64 on small problems of odd sizes,
and at each point with cuDNN. A result that differs is printed as WRONG and makes the exit status nonzero.
"""

import argparse
import ctypes
import math
import pathlib
import sys

from attention import LENGTHS, Point
from attention_turns import (
    CUDNN,
    FLASH_2,
    Report,
    clocks,
    device_or_exit,
    matching,
    repeats_for,
    take_turns,
    usual_library,
    write_json,
)

OURS = "Imbrex"
DETERMINISTIC = "Imbrex, deterministic"
SM_80 = "Imbrex, sm_80"
HEAD_DIMS = (128, 64, 96, 256)
DETERMINISTIC_HEAD_DIMS = (64, 128)
LARGEST_ERROR = 0.01
GRADIENTS = ("dQ", "dK", "dV")


def gradients_in_float64(torch, q, k, v, d_out, causal, scale):
    """O, the base-2 LSE and the gradients, in the layouts of the kernel. Queries without keys have a probability of 0."""
    by_head = [one.transpose(1, 2).double() for one in (q, k, v, d_out)]
    group = q.shape[2] // k.shape[2]
    q, k, v, d_out = by_head[0], *(one.repeat_interleave(group, dim=1) for one in by_head[1:3]), by_head[3]
    scores = q @ k.transpose(2, 3) * scale
    if causal:
        queries, keys = scores.shape[2:]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        scores.masked_fill_(~seen, -math.inf)
    p = torch.softmax(scores, dim=3).nan_to_num()
    out = p @ v
    d_s = p * (d_out @ v.transpose(2, 3) - (d_out * out).sum(3, keepdim=True)) * scale
    gradients = d_s @ k, d_s.transpose(2, 3) @ q, p.transpose(2, 3) @ d_out
    summed = [gradients[0], *(one.unflatten(1, (-1, group)).sum(2) for one in gradients[1:])]
    lse2 = torch.logsumexp(scores, dim=3) * math.log2(math.e)
    return out.transpose(1, 2), lse2, [one.transpose(1, 2) for one in summed]


class Library:
    """The functions of attention_backward_library.cu."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        self._backward = library.imbrex_attention_backward
        self._backward.restype = ctypes.c_int
        sizes = [ctypes.c_int] * 8
        self._backward.argtypes = [
            ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, *sizes, ctypes.c_float, ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p]  # fmt: skip
        self._last_error = library.imbrex_attention_backward_last_error
        self._last_error.restype = ctypes.c_char_p

    def _call(self, tensors, lse2, causal, deterministic, scale, workspace, size, stream):
        q, k = tensors[:2]
        pointers = (ctypes.c_void_p * 8)(*(tensor.data_ptr() for tensor in tensors))
        sizes = [q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3], int(causal), int(deterministic)]
        status = self._backward(pointers, lse2.data_ptr(), *sizes, scale, workspace, ctypes.byref(size), stream)
        if status != 0:
            raise RuntimeError(self._last_error().decode())

    def prepared(self, torch, q, k, v, out, d_out, lse2, causal, scale, deterministic=False):
        """A function that launches the backward pass and returns dQ, dK, dV."""
        gradients = [torch.full_like(one, math.nan) for one in (q, k, v)]
        tensors = [q, k, v, out, d_out, *gradients]
        size = ctypes.c_int64(0)
        self._call(tensors, lse2, causal, deterministic, scale, None, size, None)
        workspace = torch.full((max(1, size.value),), 255, dtype=torch.uint8, device=q.device)

        def run():
            stream = torch.cuda.current_stream().cuda_stream
            self._call(tensors, lse2, causal, deterministic, scale, workspace.data_ptr(), size, stream)
            return gradients

        return run


class Bench:
    """Checks and measurements."""

    def __init__(self, torch, library, sm_80_library, rounds, seconds):
        self.torch, self.library, self.sm_80_library = torch, library, sm_80_library
        self.rounds, self.seconds = rounds, seconds
        self.faults = 0
        torch.manual_seed(1)

    def _random(self, *shape):
        return self.torch.randn(*shape, device="cuda").to(self.torch.bfloat16)

    def _judge(self, name, where, found, wanted):
        largest = max(one.norm().item() for one in wanted)  # a gradient may be zero
        errors = [((a.to(b.dtype) - b).norm() / max(b.norm().item(), 1e-3 * largest)).item() for a, b in zip(found, wanted)]
        if not all(error <= LARGEST_ERROR for error in errors):
            self.faults += 1
            listed = ", ".join(f"{title} {error:.2g}" for title, error in zip(GRADIENTS, errors))
            print(f"WRONG: {name}, {where}: relative error {listed}", flush=True)
        return max(errors)

    def check_small(self):
        """Against float64, with lengths that no tile divides, and GQA."""
        worst = 0.0
        shapes = ((2, 4, 2, 333, 450), (1, 3, 1, 1, 1), (1, 2, 2, 640, 640), (2, 2, 1, 513, 200))
        for head_dim in HEAD_DIMS:
            for batch, heads, kv_heads, queries, keys in shapes:
                q, d_out = (self._random(batch, queries, heads, head_dim) for _ in range(2))
                k, v = (self._random(batch, keys, kv_heads, head_dim) for _ in range(2))
                for causal in (False, True):
                    right, lse2, wanted = gradients_in_float64(self.torch, q, k, v, d_out, causal, head_dim**-0.5)
                    run = self.library.prepared(self.torch, q, k, v, right.to(q.dtype).contiguous(), d_out,
                                                lse2.float().contiguous(), causal, head_dim**-0.5)  # fmt: skip
                    where = f"{batch} x {queries} x {keys}, {heads}/{kv_heads} heads, {head_dim}, causal {causal}"
                    worst = max(worst, self._judge(OURS, where, run(), wanted))
        print(f"small problems: max relative error {worst:.2g}", flush=True)

    def _peers(self, q, k, v, d_out, causal, notes):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        inputs = [one.detach().requires_grad_() for one in (q, k, v)]
        able = {}
        for name, backend in {CUDNN: SDPBackend.CUDNN_ATTENTION, FLASH_2: SDPBackend.FLASH_ATTENTION}.items():
            try:
                with sdpa_kernel(backend):
                    out = attend(*(one.transpose(1, 2) for one in inputs), is_causal=causal)

                def run(out=out):
                    return self.torch.autograd.grad(out, inputs, d_out.transpose(1, 2), retain_graph=True)

                run()
                able[name] = run
            except RuntimeError as fault:
                notes.append(f"{name} is skipped: {str(fault).splitlines()[0]}")
        return able

    def measure(self, point):
        torch, notes = self.torch, []
        shape = (point.batch, point.length, point.heads, point.head_dim)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            q, k, v, d_out = (self._random(*shape) for _ in range(4))
            by_head = [one.transpose(1, 2) for one in (q, k, v)]
            made = torch.ops.aten._scaled_dot_product_flash_attention(*by_head, 0.0, point.causal, False)
            out, lse2 = made[0].transpose(1, 2).contiguous(), (made[1] * math.log2(math.e)).contiguous()
            contestants = self._peers(q, k, v, d_out, point.causal, notes)
            expected = [one.clone() for one in contestants[CUDNN]()] if CUDNN in contestants else None
            ours = {OURS: (self.library, False)}
            if point.head_dim in DETERMINISTIC_HEAD_DIMS:
                ours[DETERMINISTIC] = self.library, True
            if self.sm_80_library is not None:
                ours[SM_80] = self.sm_80_library, False
            for name, (library, deterministic) in ours.items():
                contestants[name] = library.prepared(
                    torch, q, k, v, out, d_out, lse2, point.causal, point.head_dim**-0.5, deterministic
                )
                if expected is not None:
                    difference = self._judge(name, point.name, contestants[name](), expected)
                    notes.append(f"{name} differs from {CUDNN} by {difference:.2g}")
            repeats = repeats_for(2.5 * point.flop)
            milliseconds, rounds = take_turns(
                torch, contestants, dict.fromkeys(contestants, repeats), stream, notes, self.rounds, self.seconds
            )
            notes.append(f"{rounds} rounds of {repeats}")
        return milliseconds, notes


def reports_of(points, bench):
    reports = []
    for head_dim, causal in dict.fromkeys((point.head_dim, point.causal) for point in points):
        report = Report(f"attention backward, bf16, head_dim {head_dim}, {'causal' if causal else 'full'}", "TFLOP/s")
        for point in points:
            if (point.head_dim, point.causal) == (head_dim, causal):
                milliseconds, notes = bench.measure(point)
                report.add(point.problem, {name: 2.5 * point.flop / ms * 1e-9 for name, ms in milliseconds.items()})
                report.notes += [f"{point.problem}: {note}" for note in notes]
        report.notes.append("clocks: " + clocks())
        print(report.text(), flush=True)
        reports.append(report)
    return reports


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=usual_library("attention_backward_library"))
    parser.add_argument("--sm-80-library", type=pathlib.Path, help="a library with PTX for sm_80 only, see above")
    parser.add_argument("--json", metavar="FILE", help="output file")
    parser.add_argument("--points", metavar="NAMES", default="*", help="such as d128_causal_4096,d64_*")
    parser.add_argument("--rounds", type=int, default=40, help="at most, at each point (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="at most, at each point (%(default)s)")
    given = parser.parse_args()
    points = [Point(head_dim, causal, length) for head_dim in HEAD_DIMS for causal in (False, True) for length in LENGTHS]
    names = matching([point.name for point in points], given.points, "--points")
    torch = device_or_exit()
    sm_80_library = Library(given.sm_80_library) if given.sm_80_library else None
    bench = Bench(torch, Library(given.library), sm_80_library, given.rounds, given.seconds)
    bench.check_small()
    reports = reports_of([point for point in points if point.name in names], bench)
    if given.json:
        write_json(reports, given.json)
    sys.exit(1 if bench.faults else 0)


if __name__ == "__main__":
    main()
