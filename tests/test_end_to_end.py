"""The installed command with everything behind it: real verdicts over real pipes, and nothing left afterwards."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from itertools import pairwise

import anyio
import pytest
import served as support
from mcp import Client, StdioServerParameters
from processes import all_gone, children, eventually, everything, place, soon, working_in
from served import COMMAND, PATIENCE_S, TASK, beginnings, endless, environment, kernel, nothing_left, served

from adaexplore_mcp.evaluation.scratch import YOUNG_S, ScratchFolder

KILLED_S = 2.0
"""How soon after the end of a killed server its processes must be gone."""
SLOW = kernel(before="time.sleep(0.2)")
"""Right, and takes more than a second: every candidate is called at least six times."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for the tests that leave it as it was; it judges one candidate at a time."""
    home = tmp_path_factory.mktemp("served") / "home"
    with served(home, "--parallel", "1") as server:
        yield server
        server.process.stdin.close()
        assert server.wait() == 0
        assert server.rest_of_the_wire() == []
    nothing_left(home)


@pytest.fixture(scope="module")
def task_id(server):
    return server.task()


# --- verdicts --------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_kernel_is_judged_in_both_eras_of_the_protocol(home, mode):
    home.mkdir()
    scratch = home.parent / "scratch"
    arguments = ["serve", "--home", str(home), "--scratch", str(scratch), "--parallel", "1"]
    parameters = StdioServerParameters(
        command=str(COMMAND), args=arguments, env=environment(home), cwd=str(home)
    )
    told = []

    async def hear(progress, total, message):
        told.append(progress)

    async def verdict(source, **options):
        result = await client.call_tool(
            "compile_and_verify", {"task_id": task_id, "kernel": source, **options}, progress_callback=hear
        )
        assert not result.is_error, result.content
        return result

    with anyio.fail_after(PATIENCE_S):
        async with Client(parameters, mode=mode) as client:
            for tool in (await client.list_tools()).tools:
                assert tool.input_schema["type"] == "object"
                assert len(tool.description.encode()) < 2048
            task = (await client.call_tool("register_task", TASK)).structured_content
            task_id = task["task_id"]
            assert [one["shape"] for one in task["workloads"][0]["inputs"]] == [[96], [96]]

            right = await verdict(kernel(), response_format="detailed")
            outcome = right.structured_content
            assert (outcome["status"], outcome["stage"]) == ("correct", "done")
            assert outcome["compiled"][0]["kernel"] == "add_kernel"
            assert outcome["compiled"][0]["registers"] > 0
            assert outcome["facts"]["launches"] == {"add_kernel": 1}
            assert outcome["scope"]["target"] == "sm_90"
            assert outcome["receipt_id"]
            assert outcome["receipt_id"] in right.content[0].text
            assert len(told) >= 2
            assert told == sorted(set(told))

            wrong = await verdict(kernel("tl.where(o == 70, x - y, x + y)"))
            outcome = wrong.structured_content
            assert (outcome["status"], outcome["check"]) == ("incorrect", "values")
            assert outcome["evidence"]["index"] == [70]
            assert "incorrect" in wrong.content[0].text

            # The call ends when its client gives up, and with it what runs for it.
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(verdict, endless())
                    running = await anyio.to_thread.run_sync(beginnings, scratch)
                    scope.cancel()
            await soon(
                lambda: not any(process.alive for process in running), lambda: "the candidate still runs"
            )
            assert (await verdict(kernel("y + x"))).structured_content["status"] == "correct"
    nothing_left(home)


def test_a_synthetic_task_is_drawn_attempted_and_learned_from(server):
    task = server.called("adapt_on_task", agent="a")
    while task.get("status") == "running":
        task = server.called("job_status", job_id=task["job_id"], wait_seconds=30)
        task = task.get("result", task)
    attempt = {"agent": "a", "attempt_id": task["attempt_id"]}
    wrong = textwrap.dedent("""
        import torch, triton
        import triton.language as tl

        @triton.jit
        def kernel(x_ptr, BLOCK: tl.constexpr):
            o = tl.arange(0, BLOCK)
            tl.store(x_ptr + o, tl.tanh(tl.load(x_ptr + o)))

        class ModelNew(torch.nn.Module):
            def forward(self, x, *others):
                kernel[(1,)](x, BLOCK=1)
                return x
    """)
    failed = server.called("adapt_on_task", kernel=wrong, **attempt)
    assert (failed["status"], failed["lesson_wanted"]) == ("compile_error", True)
    lesson = "You cannot call a function that the language module of Triton does not define."
    assert server.called("adapt_on_task", lesson=lesson, **attempt)["rule"]["rule_id"]
    itself = task["text"].replace("class Model(", "class ModelNew(")
    right = server.called("adapt_on_task", kernel=itself, **attempt)
    assert right["status"] == "correct"
    assert "Torch did all the work" in right["next_step"]
    following = server.called("adapt_on_task", agent="a")
    assert following["operators"] != task["operators"]
    report = server.called("adapt_on_task", report=True)
    assert (report["tasks_taken"], report["tasks_tried"], report["lessons"]) == (2, 1, 1)
    assert report["operators_known"] > 200


def test_a_kernel_is_profiled_against_another(server, task_id):
    other = server.called("compile_and_verify", task_id=task_id, kernel=kernel())["candidate_id"]
    twice = kernel("tl.load(x_ptr + o + 0 * tl.program_id(0), mask=o < n) + y")
    profile = server.called("profile_kernel", task_id=task_id, kernel=twice, against=other)
    assert profile["against"] == other
    assert profile["differences"]
    assert "No counter was read" in profile["notes"][0]
    itself = server.called("profile_kernel", task_id=task_id, node_id=other, against=f"node:{other}")
    assert itself["differences"] == ["Nothing in their compiled code and launches differs."]
    assert "no baseline 'own'" in server.refused(
        "profile_kernel", task_id=task_id, kernel=twice, against="own"
    )
    said = server.refused("profile_kernel", task_id=task_id, kernel=twice, against="cand_unknown")
    assert "There is no candidate 'cand_unknown'" in said


def test_the_same_kernel_is_answered_from_its_receipt_unless_it_is_to_be_judged_anew(server, task_id):
    asked = {"task_id": task_id, "kernel": kernel("x + y + 0")}
    first, second = (server.called("compile_and_verify", **asked) for _ in range(2))
    assert (first["status"], first.get("answered_from_receipt")) == ("correct", None)
    assert (second["status"], second["answered_from_receipt"]) == ("correct", True)
    assert second["receipt_id"] == first["receipt_id"]
    assert f"Answered from receipt {first['receipt_id']}" in second["summary"]
    anew = server.called("compile_and_verify", again=True, **asked)
    assert (anew["status"], anew.get("answered_from_receipt")) == ("correct", None)
    assert anew["receipt_id"] != first["receipt_id"]
    elsewhere = server.called("compile_and_verify", target="sm_80", **asked)
    assert elsewhere.get("answered_from_receipt") is None


def test_a_request_that_is_wrong_starts_no_worker(home):
    with served(home) as server:
        said = server.refused("compile_and_verfy", task_id="task_1", kernel=kernel())
        assert "'compile_and_verfy'" in said
        assert "Did you mean compile_and_verify?" in said
        said = server.refused("compile_and_verify", reference="class Model: ...")
        assert "candidate" in said
        assert "task_id" in said
        assert "No candidate was given" in server.refused("compile_and_verify", task_id="task_1")
        assert "There is no task 'task_1'" in server.refused(
            "compile_and_verify", task_id="task_1", kernel=kernel()
        )
        assert server.called("list_tasks")["tasks"]
        assert children(server.process.pid) == []
        assert not server.scratch.exists()


# --- the wire --------------------------------------------------------------------------------------------

NOISE = """
import ctypes
import os
import sys


def noise(where):
    print("noise by print", where, flush=True)
    sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "result": {}}\\n')
    sys.__stdout__.write("noise on the first stream\\n")
    print("noise on standard error", file=sys.stderr)
    os.write(1, b"noise on descriptor 1\\n")
    os.write(2, b"noise on descriptor 2\\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"noise of a library")
    libc.fflush(None)
"""
CHILD = """
if (child := os.fork()) == 0:
    os.write(1, b"noise of a child\\n")
    os._exit(0)
os.waitpid(child, 0)
"""


def test_only_the_protocol_is_on_the_wire_whatever_a_task_or_a_candidate_prints(server):
    source = TASK["source"].replace("    return", "    noise('in the task')\n    return")
    noisy = server.called("register_task", **TASK | {"source": f"{NOISE}\nnoise('at import'){CHILD}{source}"})
    sent = len(server.seen)
    loud = kernel(before="noise('in a call')", loading=NOISE + "noise('at import')")
    view = server.called(
        "compile_and_verify", task_id=noisy["task_id"], kernel=loud, response_format="detailed"
    )
    assert view["status"] == "correct"
    kept = {one["kind"]: one["artifact_id"] for one in view["artifacts"]}
    said = server.called("read_artifact", artifact_id=kept["stdout"])["text"]
    for one in (
        "noise by print in a call",
        "noise on the first stream",
        "noise on descriptor 1",
        "noise of a library",
    ):
        assert one in said
    parent = kernel(before=textwrap.indent(CHILD, "    ").strip())
    assert server.status(parent, task_id=noisy["task_id"]) == "rejected"
    assert server.ask("ping") == {}
    # Nothing between the three answers, not even what looks like the protocol.
    assert len(server.seen) == sent + 4


# --- jobs ------------------------------------------------------------------------------------------------


def test_an_evaluation_that_outlasts_its_call_becomes_a_job_that_is_followed_to_its_result(server, task_id):
    view = server.called("compile_and_verify", task_id=task_id, kernel=SLOW, wait_seconds=0)
    assert view["status"] == "running"
    job_id = view["job_id"]
    assert job_id in view["next_step"]
    row = next(row for row in server.called("job_status")["jobs"] if row["job_id"] == job_id)
    assert row["status"] == "running"
    done = server.content(server.call("job_status", token=0, job_id=job_id))
    assert (done["status"], done["tool"]) == ("done", "compile_and_verify")
    assert done["result"]["status"] == "correct"
    assert done["result"]["receipt_id"]
    told = server.told(0)
    assert len(told) >= 2
    assert all(one["progress"] < other["progress"] for one, other in pairwise(told))
    assert any(one["message"].startswith("running") for one in told)


def test_a_cancelled_job_frees_everything_it_held(server, task_id):
    view = server.called("compile_and_verify", task_id=task_id, kernel=endless(), wait_seconds=0)
    running = beginnings(server.scratch)
    places = {place(process) for process in running}
    assert server.called("cancel_job", job_id=view["job_id"])["status"] == "cancelled"
    all_gone(running)
    eventually(lambda: not any(map(os.path.exists, places)), lambda: f"still there: {places}")
    # There is one place to be judged in.
    assert server.status(kernel(), task_id=task_id) == "correct"
    after = server.called("job_status", job_id=view["job_id"])
    assert after["status"] == "cancelled"
    assert "Nothing to cancel" in server.called("cancel_job", job_id=view["job_id"])["summary"]


def test_a_cancelled_request_gets_no_answer_and_frees_everything_it_held(server, task_id):
    jobs = server.called("job_status").get("jobs", [])
    request = server.call("compile_and_verify", task_id=task_id, kernel=endless())
    running = beginnings(server.scratch)
    places = {place(process) for process in running}
    server.cancel(request)
    all_gone(running)
    eventually(lambda: not any(map(os.path.exists, places)), lambda: f"still there: {places}")
    assert server.status(kernel(), task_id=task_id) == "correct"
    assert not any(message.get("id") == request for message in server.seen)
    assert server.called("job_status").get("jobs", []) == jobs


def test_two_servers_on_one_home_judge_side_by_side_and_follow_each_others_jobs(server, task_id):
    with served(server.home, "--parallel", "8") as other:
        # Eight first compilations of one kernel at once, and a ninth in the other server.
        fresh = kernel("(x + y) * 1.0")
        ninth = server.call("compile_and_verify", task_id=task_id, kernel=fresh)
        calls = [other.call("compile_and_verify", task_id=task_id, kernel=fresh) for _ in range(8)]
        verdicts = [server.content(ninth), *(other.content(call) for call in calls)]
        assert [verdict["status"] for verdict in verdicts] == ["correct"] * 9
        (candidate,) = {verdict["candidate_id"] for verdict in verdicts}
        assert server.called("compile_and_verify", task_id=task_id, node_id=candidate)["status"] == "correct"

        slow = server.called("compile_and_verify", task_id=task_id, kernel=SLOW, wait_seconds=0)
        assert other.called("job_status", job_id=slow["job_id"])["result"]["status"] == "correct"

        held = server.called("compile_and_verify", task_id=task_id, kernel=endless(), wait_seconds=0)
        running = beginnings(server.scratch)
        assert other.called("cancel_job", job_id=held["job_id"])["status"] == "cancelled"
        all_gone(running)

        # One that is left by its client while it works leaves nothing, and the other goes on.
        other.call("compile_and_verify", task_id=task_id, kernel=endless("left"))
        running = beginnings(server.scratch, "left")
        ours = other.every_process()
        assert set(running) <= set(ours)
        other.process.stdin.close()
        assert other.wait() == 0
        all_gone(ours)
        folders = f"{other.process.pid}-*"
        eventually(lambda: not list(server.scratch.glob(folders)), lambda: f"{folders} is still there")
    assert server.status(kernel(), task_id=task_id) == "correct"


# --- the end of a server ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_an_evaluation_leaves_no_process_lock_or_folder(home, number):
    with served(home) as server:
        ours = server.busy()
        server.process.send_signal(number)
        assert server.wait() == 128 + number
        all_gone(ours)
        nothing_left(home)


def test_a_client_that_is_killed_during_an_evaluation_leaves_no_process_lock_or_folder(home):
    command = [sys.executable, support.__file__, str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        try:
            pid = int(client.stdout.readline())
            server = next(process for process in everything() if process.pid == pid)
            ours = working_in(home.parent / "scratch")
            assert server in ours
            assert len(ours) > 5
        finally:
            client.kill()
    all_gone(ours)
    nothing_left(home)


def test_a_killed_server_leaves_no_process_and_what_it_ran_can_be_asked_for_again(home):
    with served(home) as server:
        task_id = server.task()
        view = server.called("compile_and_verify", task_id=task_id, kernel=endless(), wait_seconds=0)
        running = beginnings(server.scratch)
        ours = server.every_process()
        assert set(running) <= set(ours)
        server.process.kill()
        server.wait()
        all_gone(ours, KILLED_S)
        nothing_left(home)  # the supervisor saw to that

    with served(home) as server:
        status = server.called("job_status", job_id=view["job_id"])
        assert status["status"] == "interrupted"
        node_id = status["next_step"].partition('node_id="')[2].partition('"')[0]
        again = server.called("compile_and_verify", task_id=task_id, node_id=node_id, timeout_seconds=1)
        assert again["status"] == "timeout"

        # Without a supervisor nobody removes the folder, but no process outlives its server even so.
        ours = server.busy()
        (supervisor,) = children(server.process.pid)
        os.kill(supervisor.pid, signal.SIGKILL)
        server.process.kill()
        server.wait()
        all_gone(ours, KILLED_S)
    (left,) = server.scratch.iterdir()
    # As if it had happened a while ago: a folder that was only just made may still get its lock.
    then = left.stat().st_mtime - 2 * YOUNG_S
    os.utime(left, (then, then))
    ScratchFolder(server.scratch).close()  # as the next server makes its own
    nothing_left(home)


# --- the command line ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(server):
    """Call a tool by the command line, in a process of its own beside the server, from another folder."""

    def call(tool, payload, *flags, code):
        settings = ["--home", server.home, "--scratch", server.scratch]
        process = subprocess.run(
            [*map(str, [COMMAND, "call", *settings, *flags, tool, json.dumps(payload)])],
            cwd=server.home.parent,
            env=environment(server.home),
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert process.returncode == code, process.stderr.decode()
        assert process.stdout.count(b"\n") == 1
        return json.loads(process.stdout), process.stderr.decode()

    return call


def test_a_right_candidate_from_a_file_need_not_be_utf_8_and_ends_with_code_0(call, task_id, tmp_path):
    file = tmp_path / "candidate.py"
    loud = kernel(before="noise('in a call')", loading=NOISE)
    file.write_bytes(b"# coding: latin-1\n# caf\xe9\n" + loud.encode())
    answer, log = call("compile_and_verify", {"task_id": task_id}, "--kernel-file", file, code=0)
    assert answer["status"] == "correct"
    assert log == ""


@pytest.fixture(scope="module")
def no_text(call, task_id, tmp_path_factory):
    """What is said of a candidate that is no text at all."""
    file = tmp_path_factory.mktemp("candidates") / "candidate.py"
    file.write_bytes(bytes(range(256)) * 4)
    return call("compile_and_verify", {"task_id": task_id}, "--kernel-file", file, code=1)


def test_a_candidate_from_a_file_may_be_any_bytes_and_ends_with_code_1(server, no_text):
    answer, _ = no_text
    assert (answer["status"], answer["stage"]) == ("compile_error", "load")
    again = server.called("compile_and_verify", task_id=answer["task_id"], node_id=answer["candidate_id"])
    assert again["error"] == answer["error"]


def test_a_candidate_that_never_reached_the_judge_leaves_no_complaint_behind(no_text):
    _, log = no_text
    assert log == ""


def test_a_job_without_a_verdict_ends_with_code_3(call, server, task_id):
    view = server.called("compile_and_verify", task_id=task_id, kernel=endless("held"), wait_seconds=0)
    running = beginnings(server.scratch, "held")
    answer, _ = call("cancel_job", {"job_id": view["job_id"]}, code=3)
    assert answer["status"] == "cancelled"
    all_gone(running)


def test_a_bad_request_on_the_command_line_is_told_as_json_and_in_one_line(call):
    answer, log = call("compile_and_verify", {"task_id": "task_1", "kernel": "k"}, code=2)
    assert "There is no task 'task_1'" in answer["error"]
    assert log.count("\n") == 1
    assert log.startswith("adaexplore-mcp: ")


def doctor(home, *flags):
    settings = ["--home", home, "--scratch", home.parent / "scratch", "--root", home]
    return subprocess.run(
        [*map(str, [COMMAND, "doctor", *settings, *flags])],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_the_doctor_compiles_and_runs_a_real_kernel_and_leaves_nothing(home):
    home.mkdir()
    process = doctor(home)
    assert process.returncode == 0, process.stdout
    assert process.stderr == ""
    lines = process.stdout.splitlines()
    names = {line[6:].split("  ")[0]: line.split()[0] for line in lines if not line.startswith(" ")}
    assert names["compile and run"] == "ok"
    assert {"worker interpreter", "torch", "triton", "gpu", "isolation", "database", "roots"} <= set(names)
    nothing_left(home)


def test_the_doctor_says_what_to_do_about_an_interpreter_without_torch(home, tmp_path):
    home.mkdir()
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    process = doctor(home, "--worker-python", bare)
    assert process.returncode == 1
    failures = [line for line in process.stdout.splitlines() if line.startswith("fail")]
    assert any(str(bare) in failure for failure in failures)
    assert "--worker-python" in process.stdout
    nothing_left(home)
