"""bench/serving/load.py against a small server: figures of a run, failures, arrivals, lengths, shared prefixes."""
import argparse
import asyncio
import contextlib
import io
import json
import pathlib
import random
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "serving"))

import load  # noqa: E402


class Server:
    """Streams as many events as a request wants; requests with more than `longest` prompt tokens get status 400."""

    def __init__(self, longest=10**6):
        self.longest, self.requests = longest, []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self.serve, "127.0.0.1", 0), self.loop)
        self.url = "http://127.0.0.1:%d" % started.result().sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET /v1/models"):
            writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"data": [{"id": "small"}]}')
        else:
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length"))
            body = json.loads(await reader.readexactly(length))
            self.requests.append(body)
            if len(body["prompt"]) > self.longest:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nprompt: too long")
            else:
                self.stream(writer, body)
        await writer.drain()
        writer.close()

    def stream(self, writer, body):
        count, prompt = body["max_tokens"], len(body["prompt"])
        events = [{"choices": [{"text": "a"}]} for _ in range(count)]
        events.append({"choices": [], "usage": {"completion_tokens": count, "prompt_tokens": prompt,
                                                "prompt_tokens_details": {"cached_tokens": prompt // 2}}})
        text = "".join("data: " + json.dumps(each, separators=(",", ":")) + "\n\n" for each in events) + "data: [DONE]\n\n"
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(text), 50):  # chunks that are no whole events
            piece = text[at : at + 50].encode()
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")


class Load(unittest.TestCase):
    def run_load(self, server, *words):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            file = pathlib.Path(folder) / "load.json"
            status = load.main(["--url", server.url, *words, "--json", str(file)])
            return status, json.loads(file.read_text())["rows"], out.getvalue(), err.getvalue()

    def test_closed_loop(self):
        server = Server()
        status, rows, table, _ = self.run_load(server, "--concurrency", "1,3", "--requests", "9", "--input", "10", "--output", "4:6")
        self.assertEqual(status, 0)
        self.assertEqual([row["load"] for row in rows], [1, 3])
        self.assertEqual(len(table.splitlines()), 4)
        self.assertEqual(len(server.requests), 18)
        self.assertEqual({body["model"] for body in server.requests}, {"small"})
        for row, bodies in zip(rows, (server.requests[:9], server.requests[9:])):
            self.assertEqual((row["requests"], row["failed"], row["goodput"]), (9, 0, 1))
            tokens = sum(body["max_tokens"] for body in bodies)
            self.assertAlmostEqual(row["output tokens a second"] * row["seconds"], tokens)
            self.assertAlmostEqual(row["cached prompt tokens"], 0.5)
            self.assertGreater(row["ttft p99"], 0)

    def test_open_loop_in_two_processes(self):
        status, rows, _, _ = self.run_load(Server(), "--rate", "200", "--requests", "40", "--processes", "2", "--output", "3")
        self.assertEqual((status, rows[0]["requests"], rows[0]["failed"]), (0, 40, 0))
        self.assertTrue(0.05 < rows[0]["seconds"] < 5)  # 40 arrivals at 200 a second

    def test_failures_are_counted_and_shown(self):
        status, rows, _, err = self.run_load(Server(longest=15), "--concurrency", "2", "--requests", "20", "--input", "10:20")
        self.assertEqual(status, 1)
        self.assertTrue(0 < rows[0]["failed"] < 20)
        self.assertIn("prompt: too long", err)
        self.assertLess(rows[0]["goodput"], 1)

    def test_shared_prefix_and_seeds(self):
        server = Server()
        self.run_load(server, "--concurrency", "1", "--requests", "4", "--input", "5", "--shared-prefix", "30")
        prompts = [body["prompt"] for body in server.requests]
        self.assertEqual({len(prompt) for prompt in prompts}, {35})
        self.assertEqual(len({tuple(prompt[:30]) for prompt in prompts}), 1)
        self.assertEqual(len({tuple(prompt[30:]) for prompt in prompts}), 4)
        self.run_load(server, "--concurrency", "1", "--requests", "4", "--input", "5", "--shared-prefix", "30")
        self.assertEqual([body["prompt"] for body in server.requests[4:]], prompts)

    def test_requests_for_batch(self):
        server = Server()
        words = ["--requests", "3", "--input", "5:9", "--output", "2:4", "--vocabulary", "20"]
        self.run_load(server, "--concurrency", "1", *words)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "requests.jsonl"
            self.assertEqual(load.main(["--requests-file", str(file), *words]), 0)
            lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual([line["prompt"] for line in lines], [body["prompt"] for body in server.requests])
        self.assertEqual({line["ignore_eos"] for line in lines}, {True})

    def test_lengths(self):
        chance = random.Random(1)
        self.assertEqual({load.length_of("7")(chance) for _ in range(9)}, {7})
        self.assertEqual({load.length_of("2:4")(chance) for _ in range(99)}, {2, 3, 4})
        lengths = sorted(load.length_of("lognormal:500:0.5")(chance) for _ in range(999))
        self.assertTrue(440 < lengths[499] < 560)
        for wrong in ("0", "5:2", "1:2:3", "lognormal:5", "x", "lognormal:0:1"):
            with self.assertRaises(argparse.ArgumentTypeError):
                load.length_of(wrong)

    def test_options(self):
        for words in (["--concurrency", "0"], ["--rate", "1", "--concurrency", "1"], ["--rate", "1", "--url", "ftp://a"],
                      ["--rate", "1", "--requests", "0"], []):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                load.parse(words)


if __name__ == "__main__":
    unittest.main()
