#!/usr/bin/env python3
"""Load test of a server with OpenAI's API: time to first token, latency between tokens, goodput.

    imbrex serve model.gguf &
    python3 bench/serving/load.py --rate 8 --requests 400 --input 100:1024 --output 100:1024
    python3 bench/serving/load.py --concurrency 64 --requests 256 --input 1024 --output 256
    python3 bench/serving/load.py --rate 1,2,4,8,16 --requests 200 --json load.json --plot load.svg

--rate is an open loop: requests arrive at random (Poisson) at this rate, whether or not the server keeps up. --concurrency
is a closed loop: a request follows each one that ends. Several values, separated by commas, make one row each. Prompts are
random token ids for /v1/completions, so nothing is found in a prefix cache, unless --shared-prefix gives requests a common
beginning. The end of a text is ignored, so that each request gets its number of tokens. --requests-file writes the requests
for `imbrex batch` instead: the same work without HTTP.

Needs Python 3.9 and nothing else; --plot needs matplotlib. With many tokens a second, use more --processes: one handles
about 20,000 events a second.
"""

import argparse
import asyncio
import json
import math
import multiprocessing
import pathlib
import random
import sys
import time
import urllib.parse


# --- requests ------------------------------------------------------------------------------------------------------


def length_of(text):
    """A function that draws a length: "512", "100:1024" (uniform) or "lognormal:500:0.8" (median, sigma)."""
    parts = text.split(":")
    try:
        if parts[0] == "lognormal":
            median, sigma = float(parts[1]), float(parts[2])
            if median < 1 or sigma < 0:
                raise ValueError
            return lambda chance: max(1, round(chance.lognormvariate(math.log(median), sigma)))
        low, high = int(parts[0]), int(parts[-1])
        if len(parts) > 2 or not 1 <= low <= high:
            raise ValueError
        return lambda chance: chance.randint(low, high)
    except (ValueError, IndexError):
        raise argparse.ArgumentTypeError(f"{text}: a length is N, LOW:HIGH or lognormal:MEDIAN:SIGMA")


def numbers(text):
    values = [float(each) for each in text.split(",")]
    if any(value <= 0 for value in values):
        raise argparse.ArgumentTypeError(f"{text}: each value must be positive")
    return values


def prompts_of(options):
    """The bodies of all requests, the same for the same seed."""
    chance = random.Random(options.seed)
    prefix = [chance.randrange(options.vocabulary) for _ in range(options.shared_prefix)]
    bodies = []
    for number in range(options.requests):
        prompt = prefix + [chance.randrange(options.vocabulary) for _ in range(options.input(chance))]
        body = {
            "model": options.model,
            "prompt": prompt,
            "max_tokens": options.output(chance),
            "temperature": 0,
            "seed": number,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        bodies.append(json.dumps(body).encode())
    return bodies


BATCH_FIELDS = ("prompt", "max_tokens", "temperature", "seed", "ignore_eos")


def write_requests(path, bodies):
    with path.open("w") as file:
        for body in map(json.loads, bodies):
            file.write(json.dumps({field: body[field] for field in BATCH_FIELDS}) + "\n")


class Failure(Exception):
    """A request that was not served."""


async def read_chunks(reader):
    """The data of a response with Transfer-Encoding: chunked, piece by piece."""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if size == 0:
            await reader.readuntil(b"\r\n")
            return
        yield (await reader.readexactly(size + 2))[:-2]


async def send(options, body):
    """Sends one request. Returns (seconds of each event since the request, generated tokens, prompt tokens, cached)."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(options.host, options.port, limit=1 << 20)
    try:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {options.host}\r\nContent-Type: application/json\r\n"
        if options.api_key:
            head += f"Authorization: Bearer {options.api_key}\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        status = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if " 200 " not in status.split("\r\n")[0]:
            raise Failure(status.split("\r\n")[0] + " " + (await reader.read(2000)).decode("utf-8", "replace"))
        times, buffered, usage = [], b"", None
        async for piece in read_chunks(reader):
            buffered += piece
            *events, buffered = buffered.split(b"\n\n")
            now = time.perf_counter() - began
            for event in events:
                if b'"choices":[]' in event:
                    usage = json.loads(event[len(b"data: "):])["usage"]
                elif b'"error"' in event:
                    raise Failure(event.decode("utf-8", "replace"))
                elif event != b"data: [DONE]":
                    times.append(now)
        if usage is None or not times:
            raise Failure("the stream ended without usage")
        details = usage.get("prompt_tokens_details") or {}
        return times, usage["completion_tokens"], usage["prompt_tokens"], details.get("cached_tokens", 0)
    finally:
        writer.close()


# --- a run ---------------------------------------------------------------------------------------------------------


async def run_share(options, jobs, began):
    """Runs (arrival, body) jobs of one process; arrivals of None wait for a free place instead."""
    results, tasks = [], []

    async def one(arrival, body):
        if arrival is not None:
            await asyncio.sleep(max(0, began + arrival - time.time()))
        start = time.time() - began
        try:
            results.append((start, *await asyncio.wait_for(send(options, body), options.timeout)))
        except (Failure, OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError) as failure:
            results.append((start, str(failure) or type(failure).__name__))

    if options.places:
        waiting = list(reversed(jobs))

        async def worker():
            while waiting:
                await one(*waiting.pop())

        tasks = [worker() for _ in range(options.places)]
    else:
        tasks = [one(*job) for job in jobs]
    await asyncio.sleep(max(0, began - time.time()))
    await asyncio.gather(*tasks)
    return results


def process_main(options, jobs, began, queue):
    queue.put(asyncio.run(run_share(options, jobs, began)))


def run(options, bodies, rate, concurrency):
    chance = random.Random(options.seed + 1)
    arrivals, at = [], 0.0
    for _ in bodies:
        if rate:
            at += chance.expovariate(rate)
        arrivals.append(at if rate else None)
    began = time.time() + 0.5
    queue = multiprocessing.Queue()
    shares = min(options.processes, concurrency or len(bodies))
    processes = []
    for share in range(shares):
        options.places = concurrency // shares + (share < concurrency % shares) if concurrency else 0
        jobs = list(zip(arrivals, bodies))[share::shares]
        processes.append(multiprocessing.Process(target=process_main, args=(options, jobs, began, queue)))
        processes[-1].start()
    results = [one for _ in processes for one in queue.get()]
    for process in processes:
        process.join()
    return results


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def summary(options, results):
    """The figures of a run, times in milliseconds."""
    served = [one for one in results if len(one) > 2]
    failed = [one[1] for one in results if len(one) == 2]
    first = [one[1][0] * 1e3 for one in served]
    gaps = [(b - a) * 1e3 for one in served for a, b in zip(one[1], one[1][1:])]
    seconds = max((one[0] + one[1][-1] for one in served), default=0) - min((one[0] for one in served), default=0)
    good = sum(
        one[1][0] * 1e3 <= options.slo_ttft
        and (one[1][-1] - one[1][0]) * 1e3 <= options.slo_itl * max(len(one[1]) - 1, 1)
        for one in served
    )
    prompt = sum(one[3] for one in served)
    return {
        "requests": len(results),
        "failed": len(failed),
        "first failure": failed[0] if failed else None,
        "seconds": seconds,
        "requests a second": len(served) / seconds if seconds else 0,
        "output tokens a second": sum(one[2] for one in served) / seconds if seconds else 0,
        "prompt tokens a second": prompt / seconds if seconds else 0,
        "cached prompt tokens": sum(one[4] for one in served) / prompt if prompt else 0,
        "ttft p50": percentile(first, 0.5),
        "ttft p90": percentile(first, 0.9),
        "ttft p99": percentile(first, 0.99),
        "itl p50": percentile(gaps, 0.5),
        "itl p90": percentile(gaps, 0.9),
        "itl p99": percentile(gaps, 0.99),
        "goodput": good / len(results) if results else 0,
    }


COLUMNS = {
    "requests a second": "{:.2f}",
    "output tokens a second": "{:.0f}",
    "ttft p50": "{:.0f}",
    "ttft p90": "{:.0f}",
    "ttft p99": "{:.0f}",
    "itl p50": "{:.1f}",
    "itl p90": "{:.1f}",
    "itl p99": "{:.1f}",
    "goodput": "{:.0%}",
    "failed": "{}",
}


def plot(rows, name, path):
    """Latencies, throughput and goodput over the load."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    pyplot.rcParams["svg.hashsalt"] = "imbrex"
    figure, panels = pyplot.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
    load = [row["load"] for row in rows]
    colours = {"p50": "#1f6fb2", "p90": "#c77d1e", "p99": "#8e4fb0"}
    for share, colour in colours.items():
        panels[0].plot(load, [row[f"ttft {share}"] for row in rows], marker="o", label=share, color=colour)
        panels[1].plot(load, [row[f"itl {share}"] for row in rows], marker="o", label=share, color=colour)
    panels[2].plot(load, [row["output tokens a second"] for row in rows], marker="o", color="#2e9e6b")
    panels[3].plot(load, [100 * row["goodput"] for row in rows], marker="o", color="#2e9e6b")
    titles = ("time to first token, ms", "inter-token latency, ms", "output tokens a second", "goodput, % of requests")
    for axes, title in zip(panels, titles):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(name, fontsize=9)
        axes.set_ylim(0, 105 if title.startswith("goodput") else None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.4, color="#dddddd")
    panels[0].legend(fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server (%(default)s)")
    parser.add_argument("--model", default="", help="name in the requests; by default the first of /v1/models")
    parser.add_argument("--api-key", default="")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--rate", type=numbers, default=[], help="requests a second; several values make several rows")
    load.add_argument("--concurrency", type=numbers, default=[], help="requests at once")
    load.add_argument("--requests-file", type=pathlib.Path, help="writes the requests for `imbrex batch` and ends")
    parser.add_argument("--requests", type=int, default=200, help="of each row (%(default)s)")
    parser.add_argument("--input", type=length_of, default=length_of("512"), help="prompt tokens (512)")
    parser.add_argument("--output", type=length_of, default=length_of("128"), help="generated tokens (128)")
    parser.add_argument("--shared-prefix", type=int, default=0, help="tokens that all prompts begin with (%(default)s)")
    parser.add_argument("--vocabulary", type=int, default=256, help="prompts have ids below this (%(default)s)")
    parser.add_argument("--slo-ttft", type=float, default=1000, help="ms to the first token, for goodput (%(default)s)")
    parser.add_argument("--slo-itl", type=float, default=50, help="mean ms between tokens, for goodput (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="of the client (%(default)s)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of a request (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="writes the figures")
    parser.add_argument("--plot", type=pathlib.Path, help="writes a chart of the rows (SVG or PNG)")
    options = parser.parse_args(words)
    url = urllib.parse.urlsplit(options.url)
    if url.scheme != "http" or not url.hostname:
        parser.error(f"--url: {options.url}; http://HOST:PORT is allowed")
    for name in ("requests", "processes", "vocabulary"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: {getattr(options, name)}; must be at least 1")
    options.host, options.port = url.hostname, url.port or 80
    return options


async def first_model(options):
    reader, writer = await asyncio.open_connection(options.host, options.port)
    key = f"Authorization: Bearer {options.api_key}\r\n" if options.api_key else ""
    writer.write(f"GET /v1/models HTTP/1.1\r\nHost: {options.host}\r\n{key}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["data"][0]["id"]


def main(words):
    options = parse(words)
    if options.requests_file:
        options.seed += 1  # those of the first row
        write_requests(options.requests_file, prompts_of(options))
        return 0
    if not options.model:
        options.model = asyncio.run(first_model(options))
    loads = options.rate or options.concurrency
    name = "requests a second" if options.rate else "concurrent requests"
    rows = []
    print("| " + " | ".join([f"load, {name}", *COLUMNS]) + " |")
    print("| " + " | ".join(["---"] * (len(COLUMNS) + 1)) + " |")
    for load in loads:
        options.seed += 1  # another row has other prompts
        results = run(options, prompts_of(options), load if options.rate else 0, 0 if options.rate else int(load))
        row = {"load": load, **summary(options, results)}
        rows.append(row)
        print(f"| {load:g} | " + " | ".join(form.format(row[key]) for key, form in COLUMNS.items()) + " |", flush=True)
        if row["failed"]:
            print(f"first failure: {row['first failure']}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps({"load": name, "rows": rows}, indent=1) + "\n")
    if options.plot:
        plot(rows, name, options.plot)
    return 1 if any(row["failed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
