"""Thousands of short requests to one server: chats, completions, streams that are read or left, errors. Memory, file
descriptors and threads stay as they were after the first tenth, and no block of the KV cache is lost.

    python3 soak.py <imbrex> <model>            the environment variable IMBREX_SOAK_REQUESTS says how many; usually 300
"""

import http.client
import json
import os
import random
import threading

from served import Server, run_tests, soon

CLIENTS = 4
CONTEXT = 128
MOST_GROWTH_KB = 8 * 1024  # of the resident memory after the first tenth
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ella", "Max"]}}, "required": ["name"]}


def body_of(kind, chance):
    text = "It was the first day of " + chance.choice(["spring", "winter", "school", "May"]) + ". " * chance.randrange(8)
    tokens = chance.randrange(1, 8)
    if kind in ("chat", "chat stream"):
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": tokens,
                                        "stream": kind == "chat stream"}, 200
    if kind == "schema":
        return "/v1/completions", {"prompt": text, "max_tokens": 20, "response_format": {
            "type": "json_schema", "json_schema": {"name": f"n{chance.randrange(200)}", "schema": SCHEMA}}}, 200
    if kind in ("left", "stream"):
        return "/v1/completions", {"prompt": text, "max_tokens": 60 if kind == "left" else tokens, "stream": True}, 200
    if kind == "several":
        return "/v1/completions", {"prompt": [text, "It"], "n": 2, "max_tokens": tokens, "logprobs": 2}, 200
    if kind == "refused":
        return "/v1/completions", {"prompt": text, "temperature": 9}, 400
    if kind == "too long":
        return "/v1/completions", {"prompt": [1] * CONTEXT}, 400
    if kind == "tokens":
        return "/tokenize", {"content": text}, 200
    return "/v1/completions", {"prompt": text, "max_tokens": tokens}, 200


KINDS = ["chat", "chat stream", "schema", "left", "stream", "several", "refused", "too long", "tokens", "text"]


def client(server, seed, count, wrong):
    chance = random.Random(seed)
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    for _ in range(count):
        kind = chance.choice(KINDS)
        path, body, status = body_of(kind, chance)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != status:
                wrong.append((kind, response.status, response.read()[:200]))
            elif kind == "left":
                response.read(20)
                connection.close()
            else:
                response.read()
        except (OSError, http.client.HTTPException) as failure:
            wrong.append((kind, repr(failure)))
            connection.close()
    connection.close()


class Resources:
    """Of a process that waits for requests."""

    def __init__(self, process):
        folder = f"/proc/{process.pid}"
        with open(f"{folder}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        self.resident_kb = int(fields["VmRSS"].split()[0])
        self.threads = int(fields["Threads"])
        self.files = len(os.listdir(f"{folder}/fd"))

    def __repr__(self):
        return f"{self.resident_kb / 1024:.1f} MB resident, {self.threads} threads, {self.files} files"


def round_of_requests(server, number, count, wrong):
    clients = [threading.Thread(target=client, args=(server, number * CLIENTS + i, count // CLIENTS, wrong))
               for i in range(CLIENTS)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert not wrong, wrong[:5]
    assert soon(lambda: server.metric("sequences") == 0)


def soak(program, model):
    requests = int(os.environ.get("IMBREX_SOAK_REQUESTS", "300"))
    # The KV cache, eight blocks, holds one sequence of full length: at the end it must be free.
    with Server(program, model, "--sequences", "8", "--context", str(CONTEXT), "--memory", "460k") as server:
        at_start = Resources(server.process)
        wrong, seen = [], []
        for tenth in range(10):
            round_of_requests(server, tenth, requests // 10, wrong)
            seen.append(Resources(server.process))
        first, last = seen[0], seen[-1]
        print(f"{requests} requests: {at_start} at the start, {first} after a tenth, {last} at the end", flush=True)
        assert last.resident_kb <= first.resident_kb + MOST_GROWTH_KB, seen
        assert last.threads <= first.threads + CLIENTS + 1, seen
        assert soon(lambda: Resources(server.process).files <= at_start.files + 1, 15), (seen, Resources(server.process))
        model_length = server.request("GET", "/v1/models")[2]["data"][0]["max_model_len"]
        status, reply = server.post("/v1/completions", prompt=[5] * (model_length - 4), max_tokens=4, ignore_eos=True)
        assert status == 200 and reply["usage"]["total_tokens"] == model_length, reply


if __name__ == "__main__":
    run_tests([soak])
