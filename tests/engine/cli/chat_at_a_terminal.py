"""imbrex chat at a pseudo-terminal: prompts, editing, history, Ctrl-C and Ctrl-D.

    python3 tests/engine/cli/chat_at_a_terminal.py build/release/examples/engine/imbrex examples/tales/model [--edits]

With --edits the program was built with libedit.
"""

import os
import pty
import select
import signal
import sys
import tempfile
import termios
import time

LEFT, UP = b"\x1b[D", b"\x1b[A"
TIMEOUT = 60


class Terminal:
    def __init__(self, arguments, environment, edits):
        self.edits = edits
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.environ.update(environment, TERM="xterm", LC_ALL="C.UTF-8")
            os.execv(arguments[0], arguments)
        self.seen = b""

    def wait_for(self, text, since=0):
        """Waits for the text after this place; returns the place behind it."""
        end = time.monotonic() + TIMEOUT
        while text not in self.seen[since:]:
            if not select.select([self.descriptor], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {text!r} after {since} in {self.seen!r}")
            try:
                more = os.read(self.descriptor, 4096)
            except OSError:  # the program has ended
                more = b""
            if not more:
                raise AssertionError(f"the program ended without {text!r} after {since} in {self.seen!r}")
            self.seen += more
        return self.seen.index(text, since) + len(text)

    def type(self, keys):
        # libedit writes the prompt before it takes the terminal out of its line mode.
        while self.edits and termios.tcgetattr(self.descriptor)[3] & termios.ICANON:
            time.sleep(0.01)
        for i in range(len(keys)):  # one by one, as a person does
            os.write(self.descriptor, keys[i : i + 1])

    def exit_code(self):
        end = time.monotonic() + TIMEOUT
        while select.select([self.descriptor], [], [], max(0, end - time.monotonic()))[0]:
            try:
                more = os.read(self.descriptor, 4096)
            except OSError:
                more = b""
            if not more:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self.seen += more
        raise AssertionError(f"the program does not end: {self.seen!r}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def conversation(program, model, edits, history):
    terminal = Terminal([program, "chat", model, "--temperature", "0", "-n", "5", "--device", "cpu"],
                        {"IMBREX_HISTORY": history}, edits)
    place = terminal.wait_for(b"> ")
    terminal.type(b"/hlp" + LEFT + LEFT + b"e\r" if edits else b"/help\r")
    place = terminal.wait_for(b"forgets the conversation", place)
    place = terminal.wait_for(b"> ", place)
    if edits:
        terminal.type(UP + b"\r")
        place = terminal.wait_for(b"forgets the conversation", place)
        place = terminal.wait_for(b"> ", place)
    terminal.type(b"It was \\\r")
    place = terminal.wait_for(b". ", place)
    terminal.type(b"a day\r")
    place = terminal.wait_for(b"\n> ", place)
    terminal.type(b"\x04")
    check(terminal.exit_code() == 0, "Ctrl-D ends the program with 0")


def interrupted(program, model, edits):
    terminal = Terminal([program, "chat", model, "--device", "cpu"], {}, edits)
    terminal.wait_for(b"> ")
    terminal.type(b"\x03")
    check(terminal.exit_code() in (130, -signal.SIGINT), "Ctrl-C at the prompt ends the program")


def main():
    program, model = os.path.abspath(sys.argv[1]), sys.argv[2]
    edits = "--edits" in sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        history = os.path.join(folder, "history")
        conversation(program, model, edits, history)
        if edits:
            with open(history) as file:
                check("/help" in file.read(), "the history is kept in a file")
        check(os.path.exists(history) == edits, "a history needs libedit")
    interrupted(program, model, edits)


main()
