"""The installed command as a process of its own, a client of few words, and a look at what both leave behind.

Run as a program it is such a client, for tests that kill one: `python served.py HOME` starts a server, asks it to judge
a candidate that never ends, says so, and waits.
"""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue

import processes
import pytest

COMMAND = Path(sys.executable).with_name("adaexplore-mcp")
PATIENCE_S = 90.0
"""Workers import torch and triton when they start: seconds on an idle machine, many more on a busy one."""
WHILE_S = 1000
"""How long a candidate that never ends sleeps."""

ERAS = ("2025-11-25", "2026-07-28")
MODERN = {
    "io.modelcontextprotocol/protocolVersion": ERAS[1],
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

TASK = {
    "format": "function",
    "entry": "add",
    "name": "addition",
    "source": """
import torch

N = 96


def add(x, y):
    return x + y


def make_inputs(workload, device, seed):
    torch.manual_seed(seed)
    return [torch.randn(N, device=device), torch.randn(N, device=device)]
""",
}


def kernel(expression="x + y", *, before="pass", loading="pass"):
    """Return the source of a candidate of the task.

    Args:
        expression: What its kernel computes of x and y.
        before: Statement run in every call, on the host.
        loading: Statement run at import.
    """
    return f"""
import os, sys, time
import torch
import triton
import triton.language as tl

{loading}


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    y = tl.load(y_ptr + o, mask=o < n, other=0.0)
    tl.store(z_ptr + o, {expression}, mask=o < n)


def add(x, y):
    {before}
    n = x.numel()
    z = torch.empty_like(x)
    add_kernel[(triton.cdiv(n, 64),)](x, y, z, n, BLOCK=64)
    return z
"""


def endless(mark="begun"):
    """Return a candidate that writes a file into its own folder and then sleeps."""
    return kernel(before=f"open({mark!r}, 'w').close(); time.sleep({WHILE_S})")


def beginnings(scratch, mark="begun"):
    """Wait until both processes of an endless candidate have begun and return them.

    One runs its numbers, the other its compilation.
    """
    marks = processes.eventually(
        lambda: len(found := list(scratch.glob(f"*/*/{mark}"))) == 2 and found,
        lambda: f"no two candidates have begun in {scratch}",
        PATIENCE_S,
    )
    places = {str(file.parent) for file in marks}
    running = [process for process in processes.everything() if processes.place(process) in places]
    assert len(running) >= 2
    return running


def environment(home):
    """Return the little that a desktop host gives a server."""
    return {"PATH": os.environ["PATH"], "HOME": str(home.parent), "LANG": "C.UTF-8"}


class Server:
    """A server process and its client.

    Args:
        home: Folder of the database; scratch folders lie beside it, in `scratch`.
        flags: Further flags.
        era: Version of the protocol to speak.
        command: What to start, up to the subcommand.
        options: For the process.
    """

    def __init__(self, home, *flags, era=ERAS[0], command=(COMMAND,), **options):
        home.mkdir(exist_ok=True)
        self.home = home
        self.scratch = home.parent / "scratch"
        self._modern = era == ERAS[1]
        self._id = 0
        self.seen = []
        self.log = b""
        arguments = [*command, "serve", "--home", home, "--scratch", self.scratch, "--root", home, *flags]
        self.process = subprocess.Popen(
            [*map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **{"env": environment(home), "cwd": home, **options},
        )
        self._lines = Queue()
        self._pumps = [
            threading.Thread(target=pump, daemon=True) for pump in (self._pump_out, self._pump_err)
        ]
        for pump in self._pumps:
            pump.start()
        if not self._modern:
            self.ask(
                "initialize", protocolVersion=era, capabilities={}, clientInfo={"name": "t", "version": "1"}
            )
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _pump_out(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _pump_err(self):
        for line in self.process.stderr:
            self.log += line

    # --- what a client does

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method, token=None, **params):
        self._id += 1
        meta = MODERN if self._modern else {}
        if token is not None:
            meta = {**meta, "progressToken": token}
        if meta:
            params["_meta"] = meta
        self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    def next(self):
        """Return the next message; every line on the wire must be one."""
        try:
            line = self._lines.get(timeout=PATIENCE_S)
        except Empty:
            pytest.fail(f"nothing on the wire; log: {self.log.decode()}")
        if line is None:
            pytest.fail(f"the server ended; log: {self.log.decode()}")
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        assert message.keys() & {"result", "error", "method"}
        self.seen.append(message)
        return message

    def answer(self, id_):
        """Wait for the answer to a request; answers may come in any order."""
        for message in self.seen:
            if message.get("id") == id_:
                return message
        while (message := self.next()).get("id") != id_:
            pass
        return message

    def ask(self, method, **params):
        return self.answer(self.request(method, **params))["result"]

    def call(self, tool, token=None, **arguments):
        """Call a tool without waiting and return the id of the request."""
        return self.request("tools/call", token, name=tool, arguments=arguments)

    def content(self, id_):
        """Wait for a call that must succeed and return its structured content."""
        result = self.answer(id_)["result"]
        assert not result.get("isError"), result
        return result["structuredContent"]

    def called(self, tool, **arguments):
        return self.content(self.call(tool, **arguments))

    def refused(self, tool, **arguments):
        """Return the text with which a call is refused."""
        result = self.answer(self.call(tool, **arguments))["result"]
        assert result["isError"], result
        return result["content"][0]["text"]

    def cancel(self, id_):
        params = {"requestId": id_, "reason": "test"}
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def task(self):
        """Register the task and return its id."""
        return self.called("register_task", **TASK)["task_id"]

    def status(self, source, **arguments):
        """Return the status of a candidate."""
        return self.called("compile_and_verify", kernel=source, **arguments)["status"]

    def told(self, token):
        """Return the progress notifications seen with a token."""
        told = [one["params"] for one in self.seen if one.get("method") == "notifications/progress"]
        return [one for one in told if one["progressToken"] == token]

    # --- what becomes of it

    def busy(self):
        """Let an endless candidate run while its call waits; return the process of the server and all below it."""
        self.call("compile_and_verify", task_id=self.task(), kernel=endless())
        running = beginnings(self.scratch)
        every = self.every_process()
        assert set(running) <= set(every)
        return every

    def every_process(self):
        own = [process for process in processes.everything() if process.pid == self.process.pid]
        assert own
        return [*own, *processes.descendants(self.process.pid)]

    def wait(self):
        code = self.process.wait(PATIENCE_S)
        for pump in self._pumps:
            pump.join(PATIENCE_S)
        return code

    def rest_of_the_wire(self):
        """Return what a server that has ended had still written."""
        lines = []
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            lines.append(line)
        return lines

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def served(home, *flags, **options):
    """Serve for as long as the context lasts; afterwards the server is killed if it has not ended."""
    server = Server(home, *flags, **options)
    try:
        yield server
    finally:
        server.close()


def nothing_left(home):
    """Wait until no process works for a home, its scratch folders are gone, and its database is whole and unlocked."""
    scratch = home.parent / "scratch"
    processes.eventually(
        lambda: not processes.working_in(scratch),
        lambda: "still there:\n" + processes.described(processes.working_in(scratch)),
    )
    processes.eventually(
        lambda: not list(scratch.glob("*")), lambda: f"still there: {list(scratch.rglob('*'))}"
    )
    unlocked(home)


def unlocked(home):
    """Check that nobody holds the database, and that it is whole."""
    with closing(sqlite3.connect(home / "adaexplore.db", timeout=0)) as database:
        # Leaving the write-ahead log needs the file for itself: this fails while any other connection is open.
        assert database.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def main(home):
    """Be a client whose server is busy, until somebody kills it."""
    server = Server(home)
    server.busy()
    sys.stdout.write(f"{server.process.pid}\n")
    sys.stdout.flush()
    time.sleep(WHILE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
