"""Two servers behind HAProxy or nginx, with the configurations of examples/engine/server/deploy: a conversation stays on its
replica; a replica is killed under load, and no request is lost that had not begun; it comes back and is used again.

    python3 tests/engine/server/replicas.py build/test/examples/engine/imbrex examples/tales/model

Exit status 77: neither proxy is installed.
"""

import http.client
import json
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "examples/engine/server/deploy"
SKIPPED = 77


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def wait_for(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


class Replica:
    def __init__(self, program, model, port):
        self.command = [program, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--sequences", "8"]
        self.port = port
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(lambda: get(self.port, "/health")[0] == 200, f"replica on port {self.port}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def prompt_tokens(self):
        """Tokens of all prompts so far: they grow with each request that comes here."""
        for line in get(self.port, "/metrics")[1].splitlines():
            if line.startswith("imbrex_prompt_tokens_total"):
                return float(line.split()[-1])
        raise AssertionError("no imbrex_prompt_tokens_total in /metrics")


class Proxy:
    """HAProxy or nginx with its configuration, on other ports."""

    def __init__(self, name, port, replicas, folder):
        file, command = {
            "haproxy": ("haproxy.cfg", ["haproxy", "-db", "-f"]),
            "nginx": ("nginx.conf", ["nginx", "-g", f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;", "-c"]),
        }[name]
        text = (DEPLOY / file).read_text()
        for old, new in ((8000, port), (8001, replicas[0].port), (8002, replicas[1].port)):
            assert f"127.0.0.1:{old}" in text
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        path = pathlib.Path(folder) / file
        path.write_text(text)
        self.process = subprocess.Popen([*command, str(path)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(lambda: get(port, "/health")[0] == 200, name)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def stream(port, conversation, tokens, on_first=lambda: None):
    """Returns (events, whether the stream ended properly); no events if the request failed."""
    body = json.dumps({"prompt": f"Once upon a time, {conversation}", "max_tokens": tokens, "stream": True,
                       "ignore_eos": True, "prompt_cache_key": conversation})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    events = 0
    try:
        connection.request("POST", "/v1/completions", body,
                           {"Content-Type": "application/json", "X-Conversation-Id": conversation})
        reply = connection.getresponse()
        if reply.status != 200:
            return 0, False
        for line in reply:
            if line == b"data: [DONE]\n":
                return events, True
            if line.startswith(b"data: "):
                events += 1
                if events == 1:
                    on_first()
        return events, False
    except (OSError, http.client.HTTPException):
        return events, False
    finally:
        connection.close()


def check_affinity(port, replicas):
    for conversation in ("Anna", "Ben", "Clara", "Dora", "Emil", "Fritz"):
        used = set()
        for _ in range(3):
            before = [each.prompt_tokens() for each in replicas]
            assert stream(port, conversation, 3)[1]
            after = [each.prompt_tokens() for each in replicas]
            used.add(tuple(b > a for a, b in zip(before, after)))
        assert len(used) == 1 and sum(next(iter(used))) == 1, f"{conversation}: {used}"


def check_kill_under_load(port, replicas):
    """Of 60 requests, those that have begun on the killed replica may end early; all others are complete."""
    results, lock, begun = [], threading.Lock(), threading.Semaphore(0)
    chance = random.Random(1)
    jobs = [(f"child {number}", chance.randint(60, 120)) for number in range(60)]

    def work():
        while True:
            with lock:
                if not jobs:
                    return
                conversation, tokens = jobs.pop()
            result = stream(port, conversation, tokens, begun.release)
            with lock:
                results.append(result)

    threads = [threading.Thread(target=work) for _ in range(24)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        begun.acquire()
    replicas[0].kill()
    for thread in threads:
        thread.join()
    lost = [events for events, complete in results if not complete and events == 0]
    cut = [events for events, complete in results if not complete and events > 0]
    assert len(results) == 60
    assert not lost, f"{len(lost)} requests were lost before their first token"
    assert 0 < len(cut) <= 8, f"{len(cut)} streams were cut; the killed replica ran 8 at most"
    return len(cut)


def check(name, program, model):
    ports = free_ports(3)
    replicas = [Replica(program, model, port) for port in ports[1:]]
    with tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(name, ports[0], replicas, folder)
        try:
            check_affinity(ports[0], replicas)
            cut = check_kill_under_load(ports[0], replicas)
            assert stream(ports[0], "after", 5)[1], "the other replica serves"
            replicas[0].start()

            def returns():
                before = replicas[0].prompt_tokens()
                for number in range(8):
                    assert stream(ports[0], f"again {number}", 2)[1]
                return replicas[0].prompt_tokens() > before

            wait_for(returns, f"{name}: the replica that came back is used")
            print(f"{name}: passed; {cut} streams were cut, none was lost before its first token")
        finally:
            proxy.stop()
            for each in replicas:
                each.kill()


def main(program, model):
    installed = [name for name in ("haproxy", "nginx") if shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/sbin:/bin")]
    if not installed:
        print("skipped: neither HAProxy nor nginx is installed")
        return SKIPPED
    for name in installed:
        check(name, program, model)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
