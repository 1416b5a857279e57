"""Searches whose servers are killed at any moment, and that several servers drive: nothing lost, nothing doubled."""

import json
import random
import signal
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from queue import Empty

import pytest
from search_stand_ins import kernel
from served import PATIENCE_S, Server, beginnings, endless, environment
from served import kernel as addition

from adaexplore_mcp.search import Node, Search, SearchSettings

ROOT = Path(__file__).parents[1]
ENTRY = ROOT / "tests/support/search_server.py"
TASK = {"source": "def f(x):\n    return 2 * x\n", "name": "double", "format": "function", "entry": "f"}


def started(home, delay_s="0.03"):
    env = {**environment(home), "PYTHONPATH": str(ROOT), "JUDGE_DELAY_S": delay_s}
    return Server(home, command=[sys.executable, ENTRY], env=env)


class EndedError(Exception):
    """The server was killed before it answered."""


def called(server, tool, **arguments):
    """Call a tool that must succeed, unless the server is killed meanwhile."""
    try:
        id_ = server.call(tool, **arguments)
    except BrokenPipeError as error:
        raise EndedError from error
    while True:
        try:
            line = server._lines.get(timeout=PATIENCE_S)
        except Empty:
            pytest.fail("no answer")
        if line is None:
            raise EndedError
        message = json.loads(line)
        if message.get("id") == id_:
            result = message["result"]
            assert not result.get("isError"), result
            return result["structuredContent"]


def rows_of(home, statement):
    with closing(sqlite3.connect(home / "adaexplore.db")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(statement)]


def tree_of(home):
    fields = "node, parent, kind, step, status, speedup, low, charged, roofline_share"
    return [
        Node(**{"id": row.pop("node"), **row, "charged": bool(row["charged"])})
        for row in rows_of(home, f"SELECT {fields} FROM nodes ORDER BY node")
    ]


def kernel_for(number):
    verdicts = ("correct 1.1", "incorrect", "correct 1.4", "compile_error", "correct 2.0", "timeout")
    return kernel(verdicts[number % 6], body=str(number))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_killed_at_any_moment_loses_and_doubles_nothing(home):
    chance = random.Random(7)
    server = started(home)
    task_id = server.called("register_task", **TASK)["task_id"]
    begun = server.called("search_step", task_id=task_id, preset="paper", seed=3, max_steps=30)
    run_id, acknowledged, number, kills = begun["run_id"], {}, 0, 0
    seen_open = begun["step_id"]
    while True:
        killer = threading.Timer(chance.uniform(0.0, 0.5), server.process.send_signal, [signal.SIGKILL])
        if kills < 15:
            killer.start()
        try:
            answer = called(server, "search_step", run_id=run_id)
            # What was open stays open, unless the kernel sent for it was taken up meanwhile.
            nodes = rows_of(home, "SELECT step FROM nodes")
            taken = {
                row["step_id"] for row in rows_of(home, "SELECT step_id FROM steps WHERE state = 'answered'")
            }
            assert answer.get("step_id", "") == seen_open or seen_open in taken
            assert len({row["step"] for row in nodes}) == len(nodes)
            while answer.get("step_id"):
                seen_open = answer["step_id"]
                number += 1
                answer = called(
                    server,
                    "search_step",
                    run_id=run_id,
                    step_id=seen_open,
                    kernel=kernel_for(number),
                    idea=f"{number}",
                )
                acknowledged[answer["node_id"]] = (answer["status"], number)
            break
        except EndedError:
            kills += 1
            killer.cancel()
            server.close()
            server = started(home)
    killer.cancel()
    final = called(server, "get_run", run_id=run_id)
    server.close()
    assert kills == 15
    assert (final["status"], final["stop_reason"], final["steps_done"]) == ("stopped", "budget", 30)
    kept = rows_of(home, "SELECT * FROM nodes ORDER BY node")
    assert len(kept) == 30
    assert {row["step"] for row in kept} == set(range(1, 31))
    for node_id, (status, number) in acknowledged.items():
        row = kept[int(node_id.rpartition("_")[2]) - 1]
        assert (row["status"], row["idea"]) == (status, str(number))
    # The tree is the one that a server that was never killed would have grown from the same outcomes.
    search = Search(SearchSettings.preset("paper", max_steps=30), 3)
    for node in tree_of(home):
        proposal = search.propose(node.step)
        assert (proposal.kind, proposal.parent) == (node.kind, node.parent)
        search.record(node)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_four_server_processes_share_one_run(home):
    servers = [started(home), started(home)]
    task_id = servers[0].called("register_task", **TASK)["task_id"]
    run_id = servers[0].called("search_step", task_id=task_id, max_steps=32, agent="agent0")["run_id"]
    told, problems = [], []

    def work(number):
        # A client each, as agents have: two with servers of their own beside the two there are.
        server = servers[number] if number < 2 else None
        own = server or started(home)
        try:
            count, name = 0, f"agent{number}"
            answer = called(own, "search_step", run_id=run_id, agent=name)
            while answer["status"] != "stopped" and not answer.get("stop_reason"):
                if not answer.get("step_id"):
                    time.sleep(0.1)
                    answer = called(own, "search_step", run_id=run_id, agent=name)
                    continue
                count += 1
                source = kernel(f"correct {1 + count / 9:.3f}", body=f"{number + 1}{count:03}")
                answer = called(
                    own, "search_step", run_id=run_id, step_id=answer["step_id"], kernel=source, agent=name
                )
                if answer.get("node_id"):
                    told.append(answer["node_id"])
        except BaseException as error:  # noqa: BLE001 - told to the test
            problems.append(error)
        finally:
            if server is None:
                own.close()

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    seen = [called(server, "get_run", run_id=run_id) for server in servers]
    for server in servers:
        server.close()
    assert problems == []
    assert len(told) == len(set(told)) == 32
    assert all(view["steps_done"] == 32 for view in seen)
    assert len({row["step"] for row in rows_of(home, "SELECT step FROM nodes")}) == 32


@pytest.mark.slow
def test_a_kernel_whose_server_was_killed_is_taken_up_uncharged(home):
    server = started(home, delay_s="60")
    task_id = server.called("register_task", **TASK)["task_id"]
    step = server.called("search_step", task_id=task_id, max_steps=5)
    server.call("search_step", run_id=step["run_id"], step_id=step["step_id"], kernel=kernel("correct 1.5"))
    deadline = time.monotonic() + PATIENCE_S
    while not rows_of(home, "SELECT 1 FROM steps WHERE claimed_at > 0"):
        assert time.monotonic() < deadline, (
            server.log,
            list(server._lines.queue),
            rows_of(home, "SELECT * FROM steps"),
        )
        time.sleep(0.02)
    server.process.kill()
    server.close()
    other = started(home)
    (kept,) = rows_of(home, "SELECT state, step_id FROM steps")
    assert kept == {"state": "submitted", "step_id": step["step_id"]}
    assert other.called("get_run", run_id=step["run_id"]).get("steps_done", 0) == 0
    answer = other.called("search_step", run_id=step["run_id"], step_id=step["step_id"])
    assert (answer["status"], answer["steps_left"]) == ("correct", 4)
    assert len(tree_of(home)) == 1
    other.close()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_real_judge_killed_with_its_server_leaves_the_step_to_another_kernel(home):
    env = {**environment(home), "PYTHONPATH": str(ROOT), "ADAEXPLORE_DEVICES": "none"}
    command = [sys.executable, "-m", "adaexplore_mcp"]
    server = Server(home, command=command, env=env)
    step = server.called("search_step", task_id=server.task(), max_steps=3)
    server.call("search_step", run_id=step["run_id"], step_id=step["step_id"], kernel=endless())
    beginnings(server.scratch)
    server.process.kill()
    server.close()
    other = Server(home, command=command, env=env)
    answer = other.called(
        "search_step", run_id=step["run_id"], step_id=step["step_id"], kernel=addition(), wait_seconds=45
    )
    assert (answer["status"], answer["steps_left"]) == ("correct", 2)
    assert [node.status for node in tree_of(home)] == ["correct"]
    other.close()
