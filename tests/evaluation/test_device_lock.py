"""The lock of a GPU, on a file in place of its device node and on the fallback, among real processes."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest
from processes import soon

from adaexplore_mcp.errors import WorkerError
from adaexplore_mcp.evaluation import device_lock
from adaexplore_mcp.evaluation.device_lock import CHECKED, TIMED, DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu

pytestmark = pytest.mark.anyio

UUID = "GPU-0123"


@dataclass(frozen=True)
class StandIn(Gpu):
    """A GPU whose node is a file."""

    place: str = ""

    @property
    def node(self):
        return self.place


def gpu(node=""):
    return StandIn(0, UUID, "NVIDIA H200", 100, (9, 0), place=str(node))


@pytest.fixture(params=["node", "file"])
def make(request, tmp_path):
    """Make locks of one GPU, as several servers would."""
    node = ""
    if request.param == "node":
        node = tmp_path / "nvidia0"
        node.write_text("")
        node.chmod(0o444)
    return lambda: DeviceLock(gpu(node), tmp_path / "locks")


def descriptors():
    """Name what this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder that is read here
            found.append(str(entry.readlink()))
    return sorted(found)


def silent(words):
    pass


class Told:
    """A report that a test waits for."""

    def __init__(self):
        self.words = []
        self.event = anyio.Event()

    def __call__(self, words):
        self.words.append(words)
        self.event.set()


def can_be_locked(path, kind):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def gate_of(lock):
    return lock._folder / f"{UUID}.gate"


def free(lock):
    """Say whether nobody holds the lock or its gate."""
    place = lock._node or lock._folder / lock._file
    return can_be_locked(place, fcntl.LOCK_EX) and can_be_locked(gate_of(lock), fcntl.LOCK_EX)


# --- who excludes whom -----------------------------------------------------------------------------------


async def test_checks_hold_it_together_and_a_timing_waits_for_all_of_them(make):
    first, second, told, inside = make(), make(), Told(), anyio.Event()

    async def time_it():
        async with second.alone(told):
            inside.set()

    async with anyio.create_task_group() as group, AsyncExitStack() as checks:
        await checks.enter_async_context(first.shared(silent))
        async with first.shared(silent), second.shared(silent):
            group.start_soon(time_it)
            await told.event.wait()
            assert told.words[0] == CHECKED
        await anyio.wait_all_tasks_blocked()
        assert not inside.is_set()
        await checks.aclose()
        with anyio.fail_after(30):
            await inside.wait()


async def test_who_times_keeps_off_checks_and_others_who_time(make):
    first, second, told = make(), make(), [Told(), Told()]
    inside = [anyio.Event(), anyio.Event()]

    async def enter(context, number):
        async with context(told[number]):
            inside[number].set()

    async with anyio.create_task_group() as group:
        async with first.alone(silent):
            group.start_soon(enter, second.shared, 0)
            group.start_soon(enter, first.alone, 1)
            for one in told:
                await one.event.wait()
            assert [one.words[0] for one in told] == [TIMED, TIMED]
            assert not any(event.is_set() for event in inside)
        with anyio.fail_after(30):
            for event in inside:
                await event.wait()


async def test_waiting_is_told_once_a_second_at_most(make, monkeypatch):
    told, clock = Told(), [100.0]
    monkeypatch.setattr(device_lock, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    tries = []

    def attempt():
        tries.append(clock[0])
        clock[0] += 0.3
        return len(tries) > 10

    await device_lock._until(attempt, "words", told)
    assert len(told.words) == 3  # from 0.3 s to 3.0 s


async def test_who_only_meets_somebody_at_the_gate_hears_nothing():
    told, answers = Told(), [False, True]
    await device_lock._until(lambda: answers.pop(0), "words", told)
    assert told.words == []


async def test_who_gets_it_at_once_hears_nothing(make):
    told = Told()
    async with make().shared(told):
        pass
    async with make().alone(told):
        pass
    assert told.words == []


async def test_checks_without_end_do_not_keep_a_timing_waiting(make):
    started, timed = [], anyio.Event()

    async def check(number):
        lock = make()
        while not timed.is_set():  # they overlap: without a gate the lock never comes free
            async with lock.shared(silent):
                started.append(number)
                await anyio.sleep(0.002 * (1 + number % 3))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(check, number)
        await soon(lambda: set(started) == set(range(8)), lambda: f"only {started}")
        with anyio.fail_after(30):
            async with make().alone(silent):
                timed.set()


async def test_a_timing_that_waits_keeps_new_checks_off_until_it_is_done(make):
    lock, told, check_told = make(), Told(), Told()
    order = []

    async def time_it():
        async with lock.alone(told):
            order.append("timing")

    async def check():
        async with lock.shared(check_told):
            order.append("check")

    async with anyio.create_task_group() as group, lock.shared(silent):
        group.start_soon(time_it)
        await told.event.wait()
        group.start_soon(check)
        await check_told.event.wait()
        assert order == []
    assert order == ["timing", "check"]


# --- nothing is left -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["shared", "alone"])
@pytest.mark.parametrize("held", ["shared", "alone"])
async def test_a_cancelled_wait_leaves_nothing_open_and_nothing_locked(make, kind, held):
    holder, waiter, told = make(), make(), Told()
    before = descriptors()

    async def wait():
        async with getattr(waiter, kind)(told):
            told.event.set()
            await anyio.sleep_forever()

    async with getattr(holder, held)(silent):
        inside = descriptors()
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await told.event.wait()
            group.cancel_scope.cancel()
        assert descriptors() == inside
        assert can_be_locked(gate_of(waiter), fcntl.LOCK_EX) == (held == "shared")
    assert descriptors() == before
    assert free(waiter)


async def test_a_cancellation_at_any_moment_leaves_nothing(make):
    lock = make()
    before = descriptors()
    for step in range(12):
        async with anyio.create_task_group() as group:

            async def hold():
                async with lock.alone(silent):
                    await anyio.sleep_forever()

            group.start_soon(hold)
            for _ in range(step):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert descriptors() == before
    assert free(lock)


async def test_what_fails_inside_gives_it_up(make):
    lock = make()
    for context in (lock.alone, lock.shared):
        with pytest.raises(ZeroDivisionError):
            async with context(silent):
                raise ZeroDivisionError
    assert free(lock)


async def test_programs_that_are_started_meanwhile_inherit_nothing(make):
    lock = make()
    async with lock.alone(silent):
        child = subprocess.Popen(  # noqa: ASYNC220 - anyio's closes all descriptors
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
    try:
        assert free(lock)
    finally:
        child.communicate(b"\n", timeout=30)


# --- other processes -------------------------------------------------------------------------------------


HOLDER = """
import sys
from pathlib import Path

import anyio

from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu

class StandIn(Gpu):
    node = sys.argv[2]

async def main():
    lock = DeviceLock(StandIn(0, sys.argv[1], "", 0, (9, 0)), Path(sys.argv[3]))
    async with getattr(lock, sys.argv[4])(lambda words: None):
        sys.stdout.write(lock.how + "\\n")
        sys.stdout.flush()
        await anyio.sleep_forever()

anyio.run(main)
"""


async def line(process):
    said = b""
    while not said.endswith(b"\n"):
        said += await process.stdout.receive()
    return said.decode().strip()


@asynccontextmanager
async def holding(lock, kind):
    """Let another process hold the lock; give it and what it says."""
    arguments = [UUID, lock._node, str(lock._folder), kind]
    process = await anyio.open_process([sys.executable, "-c", HOLDER, *arguments], stderr=None)
    try:
        with anyio.fail_after(60):
            said = await line(process)
        yield process, said
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await process.aclose()


async def test_another_process_is_waited_for_and_one_that_was_killed_is_not(make):
    lock = make()
    async with holding(lock, "alone") as (process, said):
        assert said == lock.how
        told, inside = Told(), anyio.Event()

        async def check():
            async with lock.shared(told):
                inside.set()

        async with anyio.create_task_group() as group:
            group.start_soon(check)
            await told.event.wait()
            assert not inside.is_set()
            process.send_signal(signal.SIGKILL)
            with anyio.fail_after(30):
                await inside.wait()


async def test_checks_of_several_processes_run_together(make):
    lock = make()
    async with holding(lock, "shared"), holding(lock, "shared") as (process, _):
        async with lock.shared(silent):
            pass
        assert not free(lock)
        process.kill()
        await process.wait()
        assert not free(lock)
    await soon(lambda: free(lock), lambda: "still held")


async def test_a_process_killed_while_it_waits_to_time_opens_the_gate(make):
    lock = make()
    async with lock.shared(silent):
        arguments = [UUID, lock._node, str(lock._folder), "alone"]
        process = await anyio.open_process([sys.executable, "-c", HOLDER, *arguments], stderr=None)
        try:
            await soon(
                lambda: gate_of(lock).exists() and not can_be_locked(gate_of(lock), fcntl.LOCK_SH),
                lambda: "it never waited",
            )
            process.kill()
            await process.wait()
            with anyio.fail_after(30):
                async with lock.shared(silent):
                    pass
        finally:
            await process.aclose()


# --- which lock ------------------------------------------------------------------------------------------


async def test_the_node_is_locked_where_it_can_be(tmp_path):
    node = tmp_path / "nvidia0"
    node.write_text("")
    lock = DeviceLock(gpu(node), tmp_path / "locks")
    assert lock.how == f"flock on {node}"
    async with lock.alone(silent):
        descriptor = os.open(node, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(descriptor)
    assert [path.name for path in (tmp_path / "locks").iterdir()] == [f"{UUID}.gate"]


def test_without_a_node_a_file_is_locked_and_named(tmp_path):
    lock = DeviceLock(gpu(tmp_path / "nothing"), tmp_path / "locks")
    assert lock.how == f"lock file {tmp_path}/locks/{UUID}.lock"


def test_a_node_that_cannot_be_locked_is_not_used(tmp_path, monkeypatch):
    node = tmp_path / "nvidia0"
    node.write_text("")
    real = fcntl.flock

    def flock(descriptor, kind):
        if Path(f"/proc/self/fd/{descriptor}").readlink() == node:
            raise OSError(errno.ENOLCK, "No locks available")
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    before = descriptors()
    assert DeviceLock(gpu(node), tmp_path / "locks").how.startswith("lock file")
    assert descriptors() == before


async def test_a_node_that_is_locked_is_used_all_the_same(tmp_path):
    node = tmp_path / "nvidia0"
    node.write_text("")
    async with DeviceLock(gpu(node), tmp_path / "locks").alone(silent):
        assert DeviceLock(gpu(node), tmp_path / "locks").how == f"flock on {node}"


def test_a_shortage_of_descriptors_does_not_change_which_lock_is_used(tmp_path, monkeypatch):
    def short(path):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(device_lock, "_node", short)
    with pytest.raises(WorkerError, match="Too many open files"):
        DeviceLock(gpu(tmp_path / "nvidia0"), tmp_path / "locks")


async def test_a_node_that_went_away_is_an_error_and_leaves_nothing_open(tmp_path):
    node = tmp_path / "nvidia0"
    node.write_text("")
    lock = DeviceLock(gpu(node), tmp_path / "locks")
    node.unlink()
    before = descriptors()
    with pytest.raises(WorkerError, match="nvidia0"):
        async with lock.shared(silent):
            pass
    assert descriptors() == before


# --- files that several users lock -----------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path):
    """A folder like /tmp."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def strict_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_in_a_temporary_folder_folder_and_files_are_for_all_users(temporary, strict_umask):
    DeviceLock(gpu(), temporary / "locks")
    assert (temporary / "locks").stat().st_mode & 0o7777 == 0o1777
    assert {path.name: path.stat().st_mode & 0o777 for path in (temporary / "locks").iterdir()} == {
        f"{UUID}.gate": 0o666,
        f"{UUID}.lock": 0o666,
    }


def test_elsewhere_the_folder_is_not_opened_to_all(tmp_path, strict_umask):
    DeviceLock(gpu(), tmp_path / "own" / "locks")
    assert (tmp_path / "own" / "locks").stat().st_mode & 0o7777 == 0o700


def test_the_files_look_young_to_what_cleans_temporary_folders(tmp_path):
    DeviceLock(gpu(), tmp_path / "locks")
    for path in (tmp_path / "locks").iterdir():
        os.utime(path, (1e9, 1e9))
    DeviceLock(gpu(), tmp_path / "locks")
    assert all(path.stat().st_mtime > 1.5e9 for path in (tmp_path / "locks").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("mode", [0o666, 0o644])
async def test_another_user_locks_the_same_files(temporary, mode):
    lock = DeviceLock(gpu(), temporary / "locks")
    for path in (temporary / "locks").iterdir():
        path.chmod(mode)
    code = f"""
import fcntl, os, sys
from pathlib import Path
from adaexplore_mcp.evaluation.device_lock import _lock_file
os.chdir({str(temporary)!r})
os.setgid(65534)
os.setuid(65534)
for name in ("{UUID}.gate", "{UUID}.lock"):
    fcntl.flock(_lock_file(Path("locks"), name), fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
input()
"""
    process = await anyio.open_process([sys.executable, "-c", code], stderr=None)
    try:
        with anyio.fail_after(60):
            assert await line(process) == "held"
        assert not free(lock)
        await process.stdin.send(b"\n")
        await process.wait()
        assert free(lock)
    finally:
        await process.aclose()


@pytest.mark.parametrize(
    "squat",
    [
        pytest.param(lambda path: path.symlink_to("/etc/passwd"), id="a link"),
        pytest.param(os.mkfifo, id="a pipe"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
    ],
)
@pytest.mark.parametrize("name", [f"{UUID}.gate", f"{UUID}.lock"])
def test_what_is_no_file_is_refused_with_the_remedy(tmp_path, squat, name):
    (tmp_path / "locks").mkdir()
    squat(tmp_path / "locks" / name)
    before = descriptors()
    with pytest.raises(WorkerError, match="remove what stands there") as caught:
        DeviceLock(gpu(), tmp_path / "locks")
    assert str(tmp_path / "locks") in str(caught.value)
    assert UUID in str(caught.value)
    assert descriptors() == before


@pytest.mark.parametrize(
    "squat",
    [
        pytest.param(lambda path: path.symlink_to(path.parent), id="a link"),
        pytest.param(lambda path: path.write_text(""), id="a file"),
    ],
)
def test_a_folder_that_is_none_is_refused(tmp_path, squat):
    squat(tmp_path / "locks")
    with pytest.raises(WorkerError, match="remove what stands there"):
        DeviceLock(gpu(), tmp_path / "locks")
    assert Path("/etc/passwd").stat().st_mode & 0o777 != 0o666


def test_a_file_that_is_made_meanwhile_is_the_one_that_is_locked(tmp_path, monkeypatch):
    (tmp_path / "locks").mkdir()
    real = os.open

    def meanwhile(path, flags, *rest, **more):
        if flags & os.O_EXCL:
            (tmp_path / "locks" / path).touch()
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", meanwhile)
    descriptor = device_lock._lock_file(tmp_path / "locks", "x")
    assert os.path.samestat(os.fstat(descriptor), (tmp_path / "locks" / "x").stat())
    os.close(descriptor)


def test_files_are_made_by_many_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from adaexplore_mcp.evaluation.device_lock import _lock_file;"
        "input(); _lock_file(Path(sys.argv[1]), 'x')"
    )
    several = [
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / "a" / "b"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(6)
    ]
    for process in several:
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in several] == [b""] * 6
