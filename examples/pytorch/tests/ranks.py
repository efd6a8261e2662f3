"""Processes for tests of process groups. They are started once and run the functions that the tests send them."""

import datetime
import multiprocessing
import os
import tempfile
import traceback

import torch
import torch.distributed as dist

_SECONDS = 300  # kernels may have to be compiled


class Ranks:
    """`count` ranks of a default group. With NCCL they share one GPU, which NCCL allows on different hosts only."""

    def __init__(self, count, backend):
        self.count, self.backend = count, backend
        self._pipes, self._processes = [], []
        self._folder = None

    def run(self, function, *args):
        """Runs function(device, *args) on every rank. Returns its results; raises if it fails on a rank."""
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((function, args))
        answers = [_answer(pipe) for pipe in self._pipes]
        failures = [f"rank {rank}:\n{failure}" for rank, (failure, _) in enumerate(answers) if failure]
        if failures:
            self.stop()  # the others may wait for it
            raise AssertionError("\n".join(failures))
        return [result for _, result in answers]

    def stop(self):
        for process in self._processes:
            process.kill()
            process.join()
        self._pipes, self._processes = [], []
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="imbrex-ranks-")
        for rank in range(self.count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, daemon=True,
                                      args=(rank, self.count, self.backend, self._folder.name, there))
            process.start()
            self._pipes.append(here)
            self._processes.append(process)


def _answer(pipe):
    try:
        return pipe.recv() if pipe.poll(_SECONDS) else (f"no answer within {_SECONDS} s", None)
    except EOFError:
        return "the process has ended", None


def _serve(rank, count, backend, folder, pipe):
    os.environ["NCCL_HOSTID"] = f"imbrex-rank-{rank}"
    torch.set_num_threads(1)
    device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=count,
                            timeout=datetime.timedelta(seconds=_SECONDS))
    while True:
        try:
            function, args = pipe.recv()
            torch.manual_seed(0)
            answer = None, function(device, *args)
        except BaseException:
            answer = traceback.format_exc(), None
        pipe.send(answer)
