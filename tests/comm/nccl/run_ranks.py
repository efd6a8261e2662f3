"""Starts a program as several ranks that share the GPU of this machine, and checks the exit code and output of each.

    run_ranks.py --ranks 4 [--limit 60] [--expect WHO=CODES[:PATTERN]]... [--stays RANK] program [arguments...]

Each process gets torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK (0 for all), MASTER_ADDR and MASTER_PORT. NCCL
rejects two ranks on one GPU. A distinct NCCL_HOSTID makes each rank look like a separate machine, connected by sockets.

A rank must return 0 unless --expect says otherwise: --expect 2=9 or --expect 'others=3:step 3 with rank' (exit codes,
separated by commas, and a pattern for the output; `others` are all ranks not named). --stays names a rank that hangs:
it must outlast all others and is then ended. After the limit, in seconds, the remaining ranks are ended and the test
fails.

Returns 0, or 1 with messages that say what failed, or 77 if a rank returns 77 (no GPU).
"""

import argparse
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


def is_free(port):
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_port():
    """A free port whose successor is free too, below the ephemeral range."""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        if is_free(port) and is_free(port + 1):
            return port
    sys.exit("no two consecutive free ports")


class Expectation:
    def __init__(self, text="0"):
        codes, _, self.pattern = text.partition(":")
        self.codes = [int(code) for code in codes.split(",")]

    def breaches(self, rank, code, output):
        if code not in self.codes:
            yield f"rank {rank} returned {code}, not {' or '.join(map(str, self.codes))}"
        if self.pattern and not re.search(self.pattern, output):
            yield f"rank {rank} did not print '{self.pattern}'"


class Rank:
    def __init__(self, rank, ranks, port, command):
        self.rank = rank
        self.output = tempfile.TemporaryFile()
        environment = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_RANK="0",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            NCCL_HOSTID=f"imbrex-rank-{rank}",
        )
        self.process = subprocess.Popen(command, env=environment, stdout=self.output, stderr=subprocess.STDOUT)

    def text(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--expect", action="append", default=[], metavar="WHO=CODES[:PATTERN]")
    parser.add_argument("--stays", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()

    expected = {}
    for one in given.expect:
        who, _, what = one.partition("=")
        expected[who] = Expectation(what)
    others = expected.get("others", Expectation())

    begin = time.monotonic()
    port = choose_port()
    started = []
    breaches = []
    try:
        for rank in range(given.ranks):
            started.append(Rank(rank, given.ranks, port, given.command))
        awaited = [one for one in started if one.rank != given.stays]
        for one in awaited:
            try:
                one.process.wait(max(0.0, given.limit - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                breaches.append(f"rank {one.rank} was not done within {given.limit:g} s")
        if given.stays is not None and started[given.stays].process.poll() is not None:
            breaches.append(f"rank {given.stays} did not stay until the others had ended")
        seconds = time.monotonic() - begin
    finally:
        left = [one for one in started if one.process.poll() is None]
        for one in left:
            one.process.kill()
            one.process.wait()

    for one in started:
        ending = "was ended" if one in left else f"returned {one.process.returncode}"
        for line in [*one.text().splitlines(), ending]:
            print(f"[rank {one.rank}] {line}")
        if one not in left:
            expectation = expected.get(str(one.rank), others)
            breaches += expectation.breaches(one.rank, one.process.returncode, one.text())
    if any(one.process.returncode == SKIPPED for one in started):
        print("skipped: no GPU")
        return SKIPPED
    print("\n".join(breaches) or f"{given.ranks} ranks ended as expected after {seconds:.1f} s")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
