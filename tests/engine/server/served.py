"""Starts `imbrex serve` for a test, and talks to it with the standard library alone."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time


# A chat template for any vocabulary, of a model that writes calls in <tool_call> tags.
TOOL_TEMPLATE = """{%- for message in messages %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}</tool_call>{% endfor %}
{% endfor %}"""


class Server:
    """A server on a free port, as a context manager; it must end in order."""

    def __init__(self, program, model, *options, environment=None):
        command = [program, "serve", model, "--port", "0", "--threads", "1", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        line = ""
        for line in self.process.stderr:
            if match := re.search(r"is served at http://([\d.]+):(\d+)", line):
                self.host, self.port = match[1], int(match[2])
                return
        raise RuntimeError(f"the server did not start: {line}")

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None):
        """Status, headers and body (parsed if it is JSON)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return response.status, response.headers, json.loads(text) if is_json and text else text.decode()

    def post(self, path, **body):
        status, _, reply = self.request("POST", path, body)
        return status, reply

    def stream(self, path, **body):
        """The events of a stream, parsed; "[DONE]" as it is."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("POST", path, json.dumps({"stream": True, **body}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        for line in response:
            line = line.decode().strip()
            if line.startswith("data: "):
                yield line[6:] if line == "data: [DONE]" else json.loads(line[6:])
        connection.close()

    def metric(self, name):
        _, _, text = self.request("GET", "/metrics")
        return float(re.search(rf"^imbrex_{re.escape(name)} (.*)$", text, re.MULTILINE)[1])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        rest = self.process.stderr.read()
        assert self.process.wait(60) == 0, (self.process.returncode, rest)
        return rest

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            if self.process.poll() is None:
                self.terminate()
            self.wait()
        else:
            self.process.kill()
            print(self.process.stderr.read(), file=sys.stderr)


def soon(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def run_tests(tests):
    """Runs functions of (program, model) and prints what fails; ends the process."""
    program, model = sys.argv[1], sys.argv[2]
    said = subprocess.run([program, "serve", model, "--host", "nowhere.invalid"], capture_output=True, text=True).stderr
    if "built without it" in said:
        print("skipped: this program was built without an HTTP library")
        sys.exit(77)
    failed = 0
    for test in tests:
        began = time.monotonic()
        try:
            test(program, model)
            print(f"passed {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception:  # the next tests still say something
            import traceback
            traceback.print_exc()
            print(f"FAILED {test.__name__}", flush=True)
            failed += 1
    sys.exit(1 if failed else 0)
