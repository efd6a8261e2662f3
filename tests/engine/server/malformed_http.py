"""Bytes that are not HTTP, or not quite: wrong lengths, broken chunks, huge headers, slow and silent clients, pipelining,
random damage. The server answers with an error, or closes the connection, and goes on: python3 malformed_http.py <imbrex> <model>"""

import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from served import Server, run_tests, soon

BODY = json.dumps({"prompt": "It was", "max_tokens": 2}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GOOD = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


def exchange(server, data, timeout=0.5):
    """What comes back, up to the body of the first reply; nothing if the server closes, or waits for more."""
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.settimeout(timeout)
        got = b""
        try:
            connection.sendall(data)
            while b"\r\n\r\n" not in got and (part := connection.recv(65536)):
                got += part
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            pass
        return got


def exchange_all(server, requests):
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda data: exchange(server, data), requests))


def is_well(server):
    status, reply = server.post("/v1/completions", prompt="It was", max_tokens=2)
    assert status == 200 and reply["usage"]["completion_tokens"] == 2
    assert soon(lambda: server.metric("sequences") == 0)


def statuses(reply):
    return [int(line.split()[1]) for line in reply.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def refused_or_closed(reply):
    assert all(400 <= status < 600 for status in statuses(reply)), reply[:300]


def malformed(program, model):
    huge = b"x" * 100_000
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    cases = [
        b"\r\n\r\n", b"\0" * 1000, b"GET\r\n\r\n", b"GET /v2 HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + huge + b" HTTP/1.1\r\n\r\n", b"GET /v2 HTTP/1.1\r\nX: " + huge + b"\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n" + b"X: 1\r\n" * 20_000 + b"\r\n", b"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n" + BODY, HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 1e3\r\n\r\n" + BODY, HEAD + b"Content-Length: %d\r\n\r\n" % (len(BODY) - 5) + BODY,
        HEAD + b"Content-Length: %d\r\n\r\n" % (len(BODY) + 50) + BODY,
        chunked + b"zz\r\n" + BODY + b"\r\n0\r\n\r\n", chunked + b"ffffffffffffffff\r\n" + BODY, chunked + b"5\r\n",
        chunked + b"-1\r\n\r\n", chunked + b"%x\r\n" % len(BODY) + BODY + b"no end",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
        HEAD.replace(b"application/json", b"multipart/form-data; boundary=") + b"Content-Length: 4\r\n\r\n----",
    ]
    with Server(program, model) as server:
        replies = exchange_all(server, cases)
        for reply in replies:
            refused_or_closed(reply)
        assert sum(bool(statuses(reply)) for reply in replies) >= len(cases) / 3, replies
        is_well(server)


def pipelined(program, model):
    """Requests in one packet: the first is answered; the HTTP library drops what it has read with it."""
    with Server(program, model) as server:
        got = exchange(server, GOOD * 3 + b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert statuses(got) in ([200], [200] * 2, [200] * 3, [200] * 3 + [404]), got
        is_well(server)


def slow(program, model):
    """Clients that send a byte now and then, or nothing, do not keep others from being served."""
    with Server(program, model) as server:
        silent = [socket.create_connection((server.host, server.port)) for _ in range(30)]
        for i, connection in enumerate(silent):
            connection.sendall(GOOD[:i * 4])
        got = []

        def drip():
            with socket.create_connection((server.host, server.port), timeout=20) as connection:
                for i in range(0, len(GOOD), 7):
                    connection.sendall(GOOD[i:i + 7])
                got.append(connection.recv(65536))

        dripping = threading.Thread(target=drip)
        dripping.start()
        is_well(server)
        dripping.join()
        assert statuses(got[0]) == [200], got
        for connection in silent:
            connection.close()
        is_well(server)


def damaged(chance):
    data = bytearray(GOOD)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            data[at:at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[at:at + chance.randrange(20)]
        elif kind == 2:
            data[at:at] = data[chance.randrange(len(data) + 1):][:40]
        else:
            data[at:at] = chance.choice([b"\r\n", b"\r\n\r\n", b"\0", b"Content-Length: 3\r\n",
                                         b"Transfer-Encoding: chunked\r\n"])
    return bytes(data)


def burst(program, model):
    """Many clients connect at once: more than the HTTP library lets wait."""
    with Server(program, model) as server, ThreadPoolExecutor(60) as pool:
        assert set(pool.map(lambda _: server.request("GET", "/health")[0], range(240))) == {200}


def random_damage(program, model):
    chance = random.Random(1)
    with Server(program, model) as server:
        replies = exchange_all(server, [damaged(chance) for _ in range(80)])
        assert any(200 in statuses(reply) for reply in replies) and any(400 in statuses(reply) for reply in replies)
        is_well(server)


if __name__ == "__main__":
    run_tests([malformed, pipelined, slow, burst, random_damage])
