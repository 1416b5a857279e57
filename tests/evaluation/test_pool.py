"""Workers that are killed, missing or less confined than elsewhere: verdicts are the same, and nothing is left."""

import base64
import contextlib
import os
import select
import signal
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from bench import HONEST, MEMORY_BYTES, Bench, misbehaving, nobody_layer, together, with_layers
from processes import children, descendants, described, everything, soon, working_in

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation.channel import Channel
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scratch import remove_tree
from adaexplore_mcp.evaluation.session import SessionEndedError
from adaexplore_mcp.evaluation.wire import Connection

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless")]

ENDLESS_S = 1.0


# --- workers that are lost -------------------------------------------------------------------------------


async def killed(*processes):
    """End processes as the kernel does when memory is short."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    await soon(lambda: not any(process.alive for process in processes), lambda: described(processes))


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_warm_parent_or_the_judge_killed_between_two_verdicts_is_replaced(bench, position):
    await bench.honest()
    assert len(bench.lasting) == 3
    await killed(bench.lasting[position])
    await bench.honest()


async def test_all_long_lived_workers_killed_at_once_are_replaced(bench):
    await killed(*bench.lasting)
    await bench.honest()


async def test_spare_sessions_that_were_killed_while_they_waited_are_replaced(bench):
    before = set(bench.folders)
    await killed(*bench.spares)
    try:
        await bench.honest()
    finally:
        for folder in before:
            remove_tree(folder)  # see the next test


async def test_the_folder_of_a_session_that_was_killed_is_removed(bench):
    before = set(bench.folders)
    assert before
    await killed(*bench.spares)
    await bench.honest()
    try:
        await soon(lambda: not before & set(bench.folders), lambda: str(before & set(bench.folders)))
    finally:
        for folder in before:
            remove_tree(folder)


async def test_a_message_is_sent_whole_although_its_sender_is_cancelled():
    channel, theirs = await Channel.pair("a peer")
    other = Connection(theirs)
    long = "x" * 2_000_000  # more than the socket holds
    received = []

    async def read():
        received.append(await anyio.to_thread.run_sync(other.receive))

    async with anyio.create_task_group() as reading:
        async with anyio.create_task_group() as sending:
            sending.start_soon(channel.send, {"text": long}, [0])
            await soon(lambda: not writable(channel), lambda: "the socket never filled")
            sending.cancel_scope.cancel()
            reading.start_soon(read)
        await channel.send({"number": 2})
        await soon(lambda: len(received) == 1, lambda: "no message")
        reading.start_soon(read)
    assert [message for message, _ in received] == [{"text": long}, {"number": 2}]
    for _, descriptors in received:
        for descriptor in descriptors:
            os.close(descriptor)
    await channel.close()
    other.close()


def writable(channel):
    return bool(select.select([], [channel._socket], [], 0)[1])


async def test_two_sessions_that_end_at_once_leave_one_spare(bench, monkeypatch):
    opened = []
    real = bench.pool._open

    async def counted(role, parent, readable, gpu):
        session = await real(role, parent, readable, gpu)
        opened.append(session)
        return session

    inside, over = [anyio.Event(), anyio.Event()], anyio.Event()

    async def use(here):
        async with bench.pool.session("candidate", "interpret"):
            here.set()
            await over.wait()

    async def end():
        for here in inside:
            await here.wait()
        monkeypatch.setattr(bench.pool, "_open", counted)
        over.set()

    try:
        await together(*[partial(use, here) for here in inside], end)
        assert len(opened) <= 1
    finally:
        spare = bench.pool._spares["candidate", ""][0][0]
        for session in opened:
            if session is not spare:
                await session.end()


QUESTION = {"op": "inspect", "source": base64.b64encode(b"import os\n").decode()}


async def test_a_session_that_is_paused_answers_when_it_is_resumed(bench):
    answered = []

    async def ask():
        answered.append(await session.request(QUESTION, timeout_s=30))

    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        await session.pause()
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.sleep(0.3)
            assert answered == []
            await session.resume()
        assert len(answered) == 1
        await session.pause()
        await session.pause()  # once is enough, and twice is no fault
        await session.resume()
        await session.request(QUESTION, timeout_s=30)


async def test_a_request_begun_while_its_session_is_paused_has_all_its_time_afterwards(bench):
    answered = []

    async def ask():
        answered.append(await session.request(QUESTION, timeout_s=2))

    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        await session.pause()
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.sleep(1)
            await session.pause()
            await anyio.sleep(1.5)
            await session.resume()
        assert len(answered) == 1


async def test_a_large_request_waits_for_its_session_however_long_that_is_paused(bench, monkeypatch):
    monkeypatch.setattr("adaexplore_mcp.evaluation.channel.SEND_S", 0.2)
    large = base64.b64encode(b"import os\n" * 60_000).decode()  # more than its sockets hold
    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        await session.pause()
        async with anyio.create_task_group() as group:
            group.start_soon(partial(session.request, {**QUESTION, "source": large}, timeout_s=30))
            await anyio.sleep(1)
            await session.resume()


async def test_the_time_of_a_request_stands_still_from_the_moment_its_session_is_to_be_paused(
    bench, monkeypatch
):
    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        receive = session._control.receive

        async def late():
            answer = await receive()
            await anyio.sleep(1)
            return answer

        monkeypatch.setattr(session._control, "receive", late)
        async with anyio.create_task_group() as group:
            group.start_soon(session.pause)
            await anyio.sleep(0.2)  # it is stopped, which is not known yet
            group.start_soon(partial(session.request, QUESTION, timeout_s=0.5))
            await anyio.sleep(1.2)
            await session.resume()


async def test_a_session_that_we_have_ended_is_lost_through_no_fault_of_its_own(bench):
    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        await session.end()
        with pytest.raises(WorkerLostError):
            await session.pause()


async def test_a_judge_lost_in_the_middle_of_a_comparison_is_not_asked_again(bench, monkeypatch):
    """It overwrites outputs that passed: they would be taken for unwritten."""
    asked = []

    async def lost(channel, body, descriptors):
        asked.append(body["op"])
        raise WorkerLostError("gone")

    with monkeypatch.context() as patched:
        patched.setattr("adaexplore_mcp.evaluation.pool._asked", lost)
        for op in ("compare", "digest"):
            with pytest.raises(WorkerLostError, match="gave no answer"):
                await bench.pool.judge({"op": op}, [])
    assert asked == ["compare", "digest", "digest"]
    await bench.honest()


async def test_a_session_whose_watcher_is_gone_is_lost_through_no_fault_of_its_own(bench):
    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        (confined,) = working_in(session._folder)
        os.kill(everything()[confined], signal.SIGKILL)  # its watcher
        for _ in range(2):
            with pytest.raises(WorkerLostError):
                await session.pause()


async def test_a_session_whose_watcher_does_not_answer_is_lost_through_no_fault_of_its_own(
    bench, monkeypatch
):
    for limit in ("STEER_S", "END_S"):
        monkeypatch.setattr(f"adaexplore_mcp.evaluation.session.{limit}", 0.2)
    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        (confined,) = working_in(session._folder)
        watcher = everything()[confined]
        os.kill(watcher, signal.SIGSTOP)
        try:
            with pytest.raises(WorkerLostError, match="did not pause"):
                await session.pause()
        finally:
            os.kill(watcher, signal.SIGCONT)


async def test_a_paused_session_ends_when_it_is_told_to(bench):
    async with bench.pool.session("candidate", "interpret") as session:
        await session.pause()
        with anyio.fail_after(3):
            assert (await session.end()).signal == "SIGKILL"
        with pytest.raises(WorkerLostError):
            await session.resume()


async def test_a_session_whose_process_ended_says_so_when_it_is_to_pause(bench):
    async with bench.pool.session("candidate", "interpret") as session:
        await session.request(QUESTION, timeout_s=30)
        await killed(*working_in(session._folder))
        with pytest.raises(SessionEndedError) as ended:
            await steered(session)
        assert ended.value.report.signal == "SIGKILL"


async def steered(session):
    """Pause and resume it, until it is found to have ended."""
    for _ in range(100):
        await session.pause()
        await session.resume()
        await anyio.sleep(0.02)


SLOW = misbehaving("time.sleep(0.1)")


class Reached:
    """Progress of a verification: an event for each stage that a test waits for."""

    def __init__(self, stage):
        self.stage = stage
        self.event = anyio.Event()

    def __call__(self, stage):
        if stage.startswith(self.stage):
            self.event.set()


# Verdicts that end at once lose a spare session: see test_two_sessions_that_end_at_once_leave_one_spare.
side_by_side = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


async def interrupted(bench, sources, victims):
    """Kill workers while some candidates are called; return what became of those."""
    reached = [Reached("running call") for _ in sources]

    async def kill():
        for one in reached:
            await one.event.wait()
        await killed(*victims())

    calls = [
        lambda source=source, one=one: bench.verdict(source, report=one)
        for source, one in zip(sources, reached, strict=True)
    ]
    with anyio.fail_after(60):
        *outcomes, _ = await together(*calls, kill)
    return outcomes


@side_by_side
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_warm_parent_or_the_judge_killed_during_verdicts_does_not_change_them(bench, position):
    await bench.honest()
    outcomes = await interrupted(bench, [SLOW, SLOW], lambda: [bench.lasting[position]])
    assert [outcome.status for outcome in outcomes] == ["correct", "correct"], outcomes


async def test_the_first_worker_killed_between_two_verdicts_is_replaced(bench):
    await killed(bench.first)
    try:
        await bench.honest()
    finally:
        await recovered(bench)


async def recovered(bench):
    """Wait until workers are back, however many verdicts that takes."""
    with anyio.fail_after(60):
        while True:
            try:
                await bench.honest()
            except WorkerError:
                await anyio.sleep(0.1)
            else:
                return


async def test_the_supervisor_killed_between_two_verdicts_is_replaced_and_its_workers_are_gone(bench):
    old, folder = descendants(bench.supervisor), bench.pool._workers.scratch.path
    await killed(*[process for process in children(os.getpid()) if process.pid == bench.supervisor])
    await bench.honest()
    await bench.all_gone(old)
    assert not folder.exists()
    assert working_in(folder) == []


async def test_the_supervisor_killed_during_a_verdict_does_not_change_it(bench):
    await bench.honest()
    old = descendants(bench.supervisor)
    supervisor = [process for process in children(os.getpid()) if process.pid == bench.supervisor]
    keeps_notes = misbehaving("time.sleep(0.1)\nopen('notes', 'w').close()")
    try:
        (outcome,) = await interrupted(bench, [keeps_notes], lambda: supervisor)
    finally:
        await recovered(bench)
        await bench.all_gone(old)
    assert outcome.status == "correct", outcome


async def test_a_scratch_folder_that_was_removed_is_made_anew(bench):
    folder = bench.pool._workers.scratch.path
    remove_tree(folder)
    await bench.honest()
    assert bench.pool._workers.scratch.path != folder


async def test_a_cancelled_verification_leaves_nothing(bench):
    reached = Reached("running")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: bench.verdict(misbehaving("while True: pass"), report=reached))
        await reached.event.wait()
        group.cancel_scope.cancel()


@side_by_side
async def test_an_endless_candidate_does_not_keep_an_honest_one_from_its_verdict(bench):
    endless, honest = await together(
        lambda: bench.verdict(misbehaving("while True: pass"), timeout_s=2), lambda: bench.verdict(HONEST)
    )
    assert (endless.status, honest.status) == ("timeout", "correct")


# --- machines with fewer layers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param((), id="none"),
        pytest.param(("landlock", "seccomp", "capabilities"), id="no namespaces"),
        pytest.param(
            ("nobody", "seccomp", "capabilities"),
            id="nobody in place of landlock",
        ),
    ],
)
async def test_with_fewer_layers_verdicts_are_the_same_and_strays_are_still_ended(tmp_path, layers):
    if "nobody" in layers:
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o711)  # pytest closes its folders to all others, nobody included
        if (reason := nobody_layer(tmp_path)) != "on":
            pytest.skip(reason)
    python = with_layers(tmp_path / "python", layers)
    bench = Bench(tmp_path / "scratch", python)
    try:
        await bench.start()
        fork = """
            libc = ctypes.CDLL(None)
            for _ in range(2):
                if libc.fork() == 0:
                    libc.setsid()
                    if libc.fork() == 0:
                        libc.sleep(1000)
                    libc._exit(0)
        """
        assert (await bench.run(misbehaving(fork, once=True))).report.strays >= 2
        assert (await bench.verdict(misbehaving("ctypes.string_at(0)"))).status == "crashed"
        stuck = misbehaving("while True: pass")
        assert (await bench.verdict(stuck, timeout_s=ENDLESS_S)).status == "timeout"
        await bench.honest()
        await bench.at_rest()
        await bench.close()
    finally:
        await bench.pool.aclose()


async def test_an_interpreter_without_torch_is_named_with_the_remedy(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    pool = WorkerPool(python, tmp_path / "scratch", MEMORY_BYTES)
    with pytest.raises(WorkerError, match="doctor") as caught:
        await pool.workers()
    assert str(python) in str(caught.value)
    assert list((tmp_path / "scratch").iterdir()) == []
