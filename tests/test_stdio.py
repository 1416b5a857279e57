"""The real process over real pipes: what is on the wire, and what is left when it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue

import anyio
import pytest
from mcp import Client, StdioServerParameters
from stand_ins import SOURCE, kernel

ENTRY = Path(__file__).parent / "support" / "stand_in_server.py"
PATIENCE_S = 30
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Server:
    """A server process and a client of few words."""

    def __init__(self, home, *flags, **options):
        home.mkdir(exist_ok=True)
        self.home = home
        command = [sys.executable, str(ENTRY), "serve", "--home", str(home), "--root", str(home), *flags]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        self.lines = Queue()
        self.seen = []
        self._pumps = [
            threading.Thread(target=self._pump_out, daemon=True),
            threading.Thread(target=self._pump_err, daemon=True),
        ]
        self.log = b""
        for pump in self._pumps:
            pump.start()
        self._id = 0

    def greet(self):
        self.ask("initialize", **HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _pump_out(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _pump_err(self):
        for line in self.process.stderr:
            self.log += line

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method, token=None, **params):
        self._id += 1
        if token is not None:
            params["_meta"] = {"progressToken": token}
        self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    def next(self):
        """Return the next message; every line on the wire must be one."""
        try:
            line = self.lines.get(timeout=PATIENCE_S)
        except Empty:
            pytest.fail(f"nothing on the wire; log: {self.log.decode()}")
        if line is None:
            pytest.fail(f"the server ended; log: {self.log.decode()}")
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        self.seen.append(message)
        return message

    def answer(self, id_):
        while (message := self.next()).get("id") != id_:
            pass
        return message

    def ask(self, method, **params):
        return self.answer(self.request(method, **params))["result"]

    def call(self, tool, token=None, **arguments):
        return self.request("tools/call", token, name=tool, arguments=arguments)

    def called(self, tool, **arguments):
        result = self.answer(self.call(tool, **arguments))["result"]
        assert not result.get("isError"), result
        return result["structuredContent"]

    def until_progress(self, text):
        while (message := self.next()).get("method") != "notifications/progress" or text not in message[
            "params"
        ]["message"]:
            pass

    def child(self):
        return int((self.home / "child.pid").read_text())

    def wait(self):
        code = self.process.wait(PATIENCE_S)
        for pump in self._pumps:
            pump.join(PATIENCE_S)
        return code

    def rest_of_the_wire(self):
        lines = []
        while (line := self.lines.get(timeout=PATIENCE_S)) is not None:
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
    server = Server(home, *flags, **options)
    try:
        server.greet()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for the tests that leave it as it was."""
    with served(tmp_path_factory.mktemp("shared") / "home") as server:
        yield server
        assert server.process.poll() is None


def gone(pid):
    """Wait for the end of a process; a zombie has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def a_task(server):
    return server.called("register_task", source=SOURCE)["task_id"]


def with_a_child(server):
    """Start an evaluation whose worker sleeps, and return its request and the worker's pid."""
    request = server.call("compile_and_verify", token="t", task_id=a_task(server), kernel=kernel("child"))
    server.until_progress("running a child")
    return request, server.child()


def test_only_the_protocol_is_on_the_wire_whatever_prints(home):
    with served(home) as server:
        task_id = a_task(server)
        assert (
            server.called("compile_and_verify", task_id=task_id, kernel=kernel("noise"))["status"]
            == "correct"
        )
        server.process.stdin.close()
        assert server.wait() == 0
        assert server.rest_of_the_wire() == []
        for noise in (
            b"noise by print",
            b"noise on the old stream",
            b"noise on descriptor 1",
            b"noise of a child",
        ):
            assert noise in server.log


def test_a_client_that_leaves_leaves_nothing_behind(home):
    with served(home) as server:
        _, child = with_a_child(server)
        server.process.stdin.close()
        assert server.wait() == 0
        assert gone(child)
    with served(home) as server:
        assert server.called("list_tasks")["tasks"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server_and_its_workers(home, number):
    with served(home) as server:
        _, child = with_a_child(server)
        server.process.send_signal(number)
        assert server.wait() == 128 + number
        assert gone(child)


def test_a_signal_ends_a_call_from_the_command_line_and_its_workers(home):
    home.mkdir()
    command = [sys.executable, str(ENTRY), "call", "--home", str(home)]
    registered = subprocess.run(
        [*command, "register_task", json.dumps({"source": SOURCE})],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    payload = {"task_id": json.loads(registered.stdout)["task_id"], "kernel": kernel("child")}
    call = [*command, "--text", "compile_and_verify", json.dumps(payload)]
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        while b"running a child" not in process.stderr.readline():
            pass
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
        timer.cancel()
    assert gone(int((home / "child.pid").read_text()))


def test_a_client_that_stops_reading_ends_the_server_though_its_input_stays_open(home):
    home.mkdir()
    command = [sys.executable, str(ENTRY), "serve", "--home", str(home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        call = {"name": "register_task", "arguments": {"source": SOURCE}}
        for number, (method, params) in enumerate([("initialize", HELLO), ("tools/call", call)]):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        task_id = answer["result"]["structuredContent"]["task_id"]
        call = {"name": "compile_and_verify", "arguments": {"task_id": task_id, "kernel": kernel("child")}}
        params = {**call, "_meta": {"progressToken": "t"}}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        while b"running a child" not in process.stdout.readline():
            pass
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 3, "method": "ping"}\n')
        process.stdin.flush()
        assert process.wait() == 0
        assert gone(int((home / "child.pid").read_text()))
        timer.cancel()


def test_a_cancelled_request_gets_no_answer_and_frees_its_worker(home):
    with served(home, "--parallel", "1") as server:
        request, child = with_a_child(server)
        server.send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": request, "reason": "test"},
            }
        )
        assert gone(child)
        assert server.ask("ping") == {}
        (task,) = server.called("list_tasks")["tasks"]
        right = server.called("compile_and_verify", task_id=task["task_id"], kernel=kernel("correct"))
        assert right["status"] == "correct"
        assert not any(message.get("id") == request for message in server.seen)


@pytest.mark.parametrize("token", ["tok-1", 0])
def test_progress_carries_its_token_and_increases(shared, token):
    task_id = a_task(shared)
    shared.seen.clear()
    shared.answer(shared.call("compile_and_verify", token=token, task_id=task_id, kernel=kernel("slow 3")))
    progress = [one["params"] for one in shared.seen if one.get("method") == "notifications/progress"]
    assert {one["progressToken"] for one in progress} == {token}
    figures = [one["progress"] for one in progress]
    assert len(figures) >= 2
    assert figures == sorted(set(figures))
    shared.called("compile_and_verify", task_id=task_id, kernel=kernel("slow 2"))
    assert len([one for one in shared.seen if one.get("method") == "notifications/progress"]) == len(figures)


def test_a_job_of_a_killed_server_is_interrupted_and_can_be_asked_for_again(home):
    with served(home) as server:
        task_id = a_task(server)
        view = server.called("compile_and_verify", task_id=task_id, kernel=kernel("endless"), wait_seconds=0)
        assert view["status"] == "running"
        server.process.kill()
        server.wait()
    with served(home) as server:
        view = server.called("job_status", job_id=view["job_id"])
        assert view["status"] == "interrupted"
        (row,) = server.called("job_status")["jobs"]
        assert row["status"] == "interrupted"
        node_id = view["next_step"].partition('node_id="')[2].partition('"')[0]
        again = server.called("compile_and_verify", task_id=task_id, node_id=node_id, wait_seconds=0)
        assert server.called("job_status", job_id=again["job_id"], wait_seconds=0)["status"] == "running"


def test_a_job_of_a_client_that_left_is_interrupted(home):
    with served(home) as server:
        view = server.called(
            "compile_and_verify", task_id=a_task(server), kernel=kernel("child"), wait_seconds=0
        )
        server.process.stdin.close()
        assert server.wait() == 0
    with served(home) as server:
        assert server.called("job_status", job_id=view["job_id"])["status"] == "interrupted"


def test_two_servers_share_a_database_and_follow_and_cancel_each_others_jobs(home):
    with served(home) as one, served(home) as other:
        task_id = a_task(one)
        ended = one.called("compile_and_verify", task_id=task_id, kernel=kernel("slow 6"), wait_seconds=0)
        done = other.called("job_status", job_id=ended["job_id"])
        assert done["status"] == "done"
        assert done["result"]["status"] == "correct"
        endless = one.called("compile_and_verify", task_id=task_id, kernel=kernel("endless"), wait_seconds=0)
        assert other.called("job_status", job_id=endless["job_id"], wait_seconds=0)["status"] == "running"
        assert other.called("cancel_job", job_id=endless["job_id"])["status"] == "cancelled"
        assert one.called("job_status", job_id=endless["job_id"])["status"] == "cancelled"
        both = {row["job_id"] for row in other.called("job_status")["jobs"]}
        assert both == {ended["job_id"], endless["job_id"]}


def test_the_servers_memory_and_environment_are_closed_to_other_processes_of_its_user(shared):
    # The kernel gives these files to root once a process is not dumpable; a root of a test run sees the flag itself.
    shared.ask("tools/list")
    assert Path(f"/proc/{shared.process.pid}/environ").stat().st_uid == 0
    if os.geteuid() == 0:
        code = "import ctypes; from adaexplore_mcp.server import hide_memory as h; h()"
        code += "; raise SystemExit(ctypes.CDLL(None).prctl(3))"
        assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S, check=False).returncode == 0


def test_malformed_messages_leave_the_server_alive(shared):
    for line in (
        b"not json\n",
        b"[]\n",
        b"\xff\xfe\n",
        b'{"jsonrpc": "2.0", "id": 91, "method": "no/such"}\n',
    ):
        shared.process.stdin.write(line)
    shared.process.stdin.flush()
    wrong = shared.request("tools/call", name="get_device", arguments=[1])
    assert "error" in shared.answer(wrong)
    assert shared.called("get_device")["summary"]


def test_a_megabyte_of_source_goes_through(shared):
    task_id = a_task(shared)
    source = kernel("correct") + "#" * 1_000_000
    assert shared.called("compile_and_verify", task_id=task_id, kernel=source)["status"] == "correct"


def test_a_server_without_standard_error_serves(home):
    with served(home, preexec_fn=lambda: os.close(2)) as server:
        task_id = a_task(server)
        assert (
            server.called("compile_and_verify", task_id=task_id, kernel=kernel("noise"))["status"]
            == "correct"
        )


def test_a_server_without_standard_input_says_so_in_one_line(home):
    command = [sys.executable, str(ENTRY), "serve", "--home", str(home)]
    process = subprocess.run(
        command, capture_output=True, preexec_fn=lambda: os.close(0), timeout=PATIENCE_S, check=False
    )
    assert process.returncode == 2
    assert process.stderr == b"adaexplore-mcp: Standard input or output is closed. Connect both.\n"


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_sdks_own_client_is_served_in_both_eras(home, mode):
    home.mkdir()
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(ENTRY), "serve", "--home", str(home)]
    )
    with anyio.fail_after(60):
        async with Client(parameters, mode=mode) as client:
            result = await client.call_tool("register_task", {"source": SOURCE})
            task_id = result.structured_content["task_id"]
            outcome = await client.call_tool(
                "compile_and_verify", {"task_id": task_id, "kernel": kernel("correct")}
            )
            assert outcome.structured_content["status"] == "correct"
            unknown = await client.call_tool("compile_and_verfy", {})
            assert "Did you mean compile_and_verify?" in unknown.content[0].text
