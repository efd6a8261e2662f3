"""The chat page of `imbrex serve` in headless Chromium, driven by the DevTools protocol:
python3 chat_page.py <imbrex> <model> [folder for screenshots]"""

import base64
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from served import Server, run_tests, soon

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
if CHROMIUM is None:
    print("skipped: there is no Chromium")
    sys.exit(77)
SCREENSHOTS = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None


class WebSocket:
    """As much of the protocol as a client of DevTools needs: unfragmented text."""

    def __init__(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        self.socket = socket.create_connection(host.split(":"), timeout=60)
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
                            "Sec-WebSocket-Version: 13\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        assert b"101" in self.file.readline()
        while self.file.readline().strip():
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = struct.pack("!BBQ", 0x81, 0x80 | 127, len(data))
        self.socket.sendall(length + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, second = self.file.read(2)
            length = second & 127
            if length >= 126:
                length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
            text += self.file.read(length)
            if first & 0x80:
                return text.decode()


class Page:
    """A page of a browser of its own."""

    def __init__(self, url, size="1100,760"):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.browser = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
             f"--window-size={size}", f"--user-data-dir={self.folder.name}", "--no-first-run", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = pathlib.Path(self.folder.name, "DevToolsActivePort")
        assert soon(lambda: port.exists() and len(port.read_text().split()) == 2, 60)
        address = f"http://127.0.0.1:{port.read_text().split()[0]}/json"
        tabs = json.load(urllib.request.urlopen(address))
        self.socket = WebSocket(next(tab for tab in tabs if tab["type"] == "page")["webSocketDebuggerUrl"])
        self.count = 0
        self.problems = []
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.open(url)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.getElementById('model')?.textContent")

    def call(self, method, **parameters):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(message["params"])
            if message.get("id") == self.count:
                assert "error" not in message, message
                return message["result"]

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, (condition, self.run("document.body.innerText"))
            time.sleep(0.02)

    def write(self, text):
        self.run("document.getElementById('input').focus()")
        self.call("Input.insertText", text=text)
        self.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
        self.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def screenshot(self, name):
        if SCREENSHOTS:
            image = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
            (SCREENSHOTS / f"{name}.png").write_bytes(image)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.kill()
        self.browser.wait()
        self.folder.cleanup()


BUSY = "document.getElementById('send').textContent === 'Stop'"
IDLE = "document.getElementById('send').textContent === 'Send'"
LAST = "document.querySelector('.message.assistant:last-child"
SETTING = "document.querySelector('#settings [name=%s]').value = '%s'"


def conversation(program, model):
    """Streaming, a second question, stop, settings, several conversations, and all of it after a reload."""
    with Server(program, model) as server, Page(server.url) as page:
        assert page.run("document.getElementById('model').textContent") == "model"
        page.click("#open-settings")
        for name, value in (("temperature", "0.5"), ("max_tokens", "120"), ("seed", "3")):
            page.run(SETTING % (name, value))
        page.screenshot("settings")
        page.click("#settings .primary")

        page.write("It was the first day of spring. Ella was on the bridge.")
        page.wait(BUSY)
        page.wait(f"{LAST} .body').textContent.length > 20")
        page.wait(IDLE)
        first = page.run(f"{LAST} .body').textContent")
        assert len(first) > 100, first
        assert "tokens/s" in page.run(f"{LAST} .speed').textContent")
        page.screenshot("answer")

        page.write("Max was at home.")
        page.wait(IDLE + " && document.querySelectorAll('.message').length === 4")

        # Stop frees the sequence.
        page.click("#open-settings")
        page.run(SETTING % ("max_tokens", "300"))
        page.click("#settings .primary")
        page.click("#new")
        page.write("It was")
        page.wait(f"{BUSY} && {LAST} .body').textContent.length > 5")
        page.click("#send")
        page.wait(IDLE)
        assert "stopped" in page.run(f"{LAST} .speed').textContent")
        assert soon(lambda: server.metric("sequences") == 0)

        page.open(server.url)
        page.wait("document.querySelectorAll('.entry').length === 2")
        page.click(".entry:last-child button")
        page.wait("document.querySelectorAll('.message').length === 4")
        assert page.run("document.querySelector('.message.assistant .body').textContent") == first
        page.screenshot("two_conversations")
        page.click(".entry:last-child button:last-child")
        page.wait("document.querySelectorAll('.entry').length === 1")
        assert not page.problems, page.problems


def markdown(program, model):
    """The markup of answers; no text becomes a script or a tag."""
    text = ("# Title\nSome **bold**, *slanted* and `code <b>`.\nSecond line\n\n- one\n  - inner\n- two\n\n1. first\n2. second\n\n"
            "```js\nlet x = `1` < 2; // **not bold**\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n"
            "[link](https://example.org/a_b) <script>alert(1)</script> [bad](javascript:alert(1)) 2*3*4")
    with Server(program, model) as server, Page(server.url) as page:
        html = page.run(f"markdown({json.dumps(text)})")
        for part in ("<h1>Title</h1>", "<strong>bold</strong>", "<em>slanted</em>", "<code>code &#60;b&#62;</code>",
                     "<br>Second line", "<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>",
                     "<ol><li>first</li><li>second</li></ol>", "let x = `1` &#60; 2; // **not bold**</code></pre>",
                     "<th>a</th><th>b</th>", "<td>1</td><td>2</td>", "<blockquote><p>quoted</p></blockquote>",
                     '<a href="https://example.org/a_b"', "2*3*4"):
            assert part in html, (part, html)
        assert "<script" not in html and 'href="javascript' not in html
        # A page with all of it, to look at.
        page.run(f"current.messages.push({{role: 'user', content: 'Show me *markup*'}}, {{role: 'assistant', "
                 f"reasoning: 'The user wants markup.', content: {json.dumps(text)}, tokens: 80, seconds: 2, first: 30}}); show()")
        page.screenshot("markdown")
        assert not page.problems, page.problems


def errors_and_small_screen(program, model):
    with Server(program, model, "--api-key", "secret", "--name", "tales") as server, Page(server.url, "420,720") as page:
        page.write("It was")
        page.wait(IDLE + " && document.querySelector('.error')")
        assert "API key" in page.run("document.querySelector('.error').textContent")
        page.screenshot("error")
        page.click("#toggle")
        page.screenshot("small_list")
        page.click("#open-settings")
        page.run(SETTING % ("key", "secret"))
        page.run(SETTING % ("max_tokens", "20"))
        page.click("#settings .primary")
        page.wait("document.getElementById('model').textContent === 'tales'")
        page.click("#toggle")
        page.run("[...document.querySelectorAll('.message.assistant button')].find(one => one.textContent === 'Again').click()")
        page.wait(IDLE + " && !document.querySelector('.error')")
        assert len(page.run(f"{LAST} .body').textContent")) > 5
        page.screenshot("small")


if __name__ == "__main__":
    run_tests([conversation, markdown, errors_and_small_screen])
