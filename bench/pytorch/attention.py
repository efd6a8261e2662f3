"""The operator imbrex_torch.attention beside launches from C++: overhead of a small call, and throughput of large ones.

    pip install ./examples/pytorch
    cmake --preset release && cmake --build build/release --target bench_pytorch_attention_library
    python3 bench/pytorch/attention.py --json pytorch_attention.json

The overhead is the time until the host has enqueued a call (1 x 128 x 1 x 128, bf16, causal), minus that of a launch in a
loop of C++: without gradient, and with it (forward and backward). The throughput is that of calls of the operator in a
loop of Python, outputs allocated by PyTorch, beside launches in a loop of C++ with outputs allocated once; batch * sequence =
16384, heads * head_dim = 2048. Both alternate; medians.
"""

import argparse
import ctypes
import math
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kernels"))
from attention_turns import Report, clocks, device_or_exit, write_json  # noqa: E402

CPP, PYTORCH = "C++", "PyTorch"


class Library:
    """attention_library.cu."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        self._time = self._library.imbrex_time_launches
        self._time.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, *[ctypes.c_int] * 7, ctypes.c_void_p,
                               ctypes.c_longlong, ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_double)] * 2]  # fmt: skip
        self._library.imbrex_last_error.restype = ctypes.c_char_p

    def time(self, torch, tensors, causal, with_backward, launches):
        q = tensors[0]
        lse2 = torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")
        workspace = torch.empty(256 + 8 * q.numel() + 64 * lse2.numel(), dtype=torch.uint8, device="cuda")
        pointers = (ctypes.c_void_p * 8)(*(one.data_ptr() for one in tensors))
        host, device = ctypes.c_double(), ctypes.c_double()
        aligned = (workspace.data_ptr() + 255) // 256 * 256
        status = self._time(pointers, lse2.data_ptr(), q.shape[0], q.shape[1], q.shape[2], q.shape[3], causal, with_backward,
                            launches, aligned, workspace.numel() - 256, torch.cuda.current_stream().cuda_stream,
                            ctypes.byref(host), ctypes.byref(device))  # fmt: skip
        if status != 0:
            raise RuntimeError(self._library.imbrex_last_error().decode())
        return host.value, device.value


def time_operator(torch, attention, tensors, causal, with_backward, calls):
    """Microseconds a call: until the host has enqueued it, and until the device is done."""
    q, k, v = (one.detach().requires_grad_(with_backward) for one in tensors[:3])
    d_out = tensors[4]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    started = time.perf_counter()
    for _ in range(calls):
        out = attention(q, k, v, causal=causal)
        if with_backward:
            torch.autograd.grad(out, (q, k, v), d_out)
    enqueued = time.perf_counter() - started
    end.record()
    end.synchronize()
    return enqueued * 1e6 / calls, begin.elapsed_time(end) * 1e3 / calls


def medians(torch, attention, library, shape, causal, with_backward, calls, rounds):
    """(host, device) microseconds of both contestants."""
    tensors = [torch.randn(shape, device="cuda").to(torch.bfloat16) for _ in range(8)]
    contestants = {
        CPP: lambda: library.time(torch, tensors, causal, with_backward, calls),
        PYTORCH: lambda: time_operator(torch, attention, tensors, causal, with_backward, calls),
    }
    times = {name: [] for name in contestants}
    for _ in range(rounds + 2):
        for name, run in contestants.items():
            times[name].append(run())
    return {name: [statistics.median(column) for column in zip(*taken[2:])] for name, taken in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--library", default=root / "build/release/bench/libbench_pytorch_attention_library.so")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch = device_or_exit()
    from imbrex_torch import attention

    library = Library(arguments.library)
    torch.manual_seed(1)
    overhead = Report("imbrex_torch.attention, host time of a small call", "us")
    for with_backward in (False, True):
        taken = medians(torch, attention, library, (1, 128, 1, 128), True, with_backward, 300, arguments.rounds)
        values = {name: host for name, (host, _) in taken.items()}
        overhead.add("forward and backward" if with_backward else "forward", values | {"overhead": values[PYTORCH] - values[CPP]})
    reports = [overhead]
    for causal in (False, True):
        report = Report(f"imbrex_torch.attention, bf16, head_dim 128, {'causal' if causal else 'full'}", "TFLOP/s")
        for length in (4096, 8192, 16384):
            shape = (16384 // length, length, 16, 128)
            for with_backward in (False, True):
                flop = (14 if with_backward else 4) * math.prod(shape) * length / (2 if causal else 1)
                taken = medians(torch, attention, library, shape, causal, with_backward, 8, arguments.rounds)
                name = f"{length}, forward and backward" if with_backward else f"{length}, forward"
                report.add(name, {one: flop / device / 1e6 for one, (_, device) in taken.items()})
        reports.append(report)
    reports[-1].notes.append(f"clocks after: {clocks()}")
    for report in reports:
        print(report.text())
    if arguments.json:
        write_json(reports, arguments.json)


if __name__ == "__main__":
    main()
