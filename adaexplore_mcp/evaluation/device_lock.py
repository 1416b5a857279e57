"""One lock per GPU among all processes of a machine: whatever times holds it alone, checks hold it together.

It is advisory, by flock(2): whoever ends, however it ends, gives it up. It lies on the GPU's device node, which
everybody who can use the GPU can open, or, where there is none to lock, on a file in a folder that all servers name alike.
Containers with device nodes of their own are not kept apart, and nobody is kept off the GPU who does not ask.

So that checks without end do not keep a timing waiting, there is a gate beside the lock, a file in the same folder:

* who times takes the gate alone, then waits for the lock, and gives up both at its end;
* who checks takes the gate for the instant in which it tries the lock, and tries again later if either is taken.

Nobody who checks gets in while the gate is held, so the lock comes free; and since the gate comes free with it, those
who check have the same chance as the next who times. There is no order among those who wait.
"""

import contextlib
import errno
import fcntl
import math
import os
import random
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from adaexplore_mcp.errors import WorkerError
from adaexplore_mcp.evaluation.devices import Gpu

__all__ = ["DeviceLock"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.05
REPORT_S = 1.0
TIMED = "waiting for the GPU: another process times on it"
CHECKED = "waiting for the GPU: other processes check kernels on it"

SHARED_FOLDER = 0o1777
FILE_TRIES, FILE_TRY_S = 5, 0.01
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class DeviceLock:
    """The lock of one GPU; may be held many times at once by one process.

    Args:
        gpu: The GPU.
        fallback: Folder of lock files and gates, the same for every server on the machine; made if need be, for all
            users where it lies in a folder of all users.

    Raises:
        WorkerError: The folder cannot be used.
    """

    def __init__(self, gpu: Gpu, fallback: Path) -> None:
        self._uuid = gpu.uuid
        self._folder = fallback
        with self._explained():
            self._node = gpu.node if _can_be_locked(gpu.node) else ""
        # Chosen once: two kinds of lock on one GPU would not see each other.
        self.how = f"flock on {self._node}" if self._node else f"lock file {fallback / self._file}"
        """What is locked, in words."""
        _close(self._open())

    @property
    def _file(self) -> str:
        return f"{self._uuid}.lock"

    @asynccontextmanager
    async def shared(self, report: Callable[[str], None]) -> AsyncIterator[None]:
        """Hold the lock together with others who do not time.

        Args:
            report: Told what is waited for, at most once a second.

        Raises:
            WorkerError: The lock cannot be opened.
        """
        async with self._opened() as (gate, lock):
            await _until(lambda: _passed(gate, lock), TIMED, report)
            yield

    @asynccontextmanager
    async def alone(self, report: Callable[[str], None]) -> AsyncIterator[None]:
        """Hold the lock while nobody else does.

        Args:
            report: Told what is waited for, at most once a second.

        Raises:
            WorkerError: The lock cannot be opened.
        """
        async with self._opened() as (gate, lock):
            await _until(lambda: _locked(gate, fcntl.LOCK_EX), TIMED, report)
            await _until(lambda: _locked(lock, fcntl.LOCK_EX), CHECKED, report)
            yield

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[int, int]]:
        """Open gate and lock anew: flock tells one opening from another, not one process from another."""
        # In a thread: opening the node may wake the GPU, and closing it may put it to sleep.
        descriptors = await anyio.to_thread.run_sync(self._open)
        try:
            yield descriptors
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_close, descriptors)

    def _open(self) -> tuple[int, int]:
        with self._explained():
            gate = _lock_file(self._folder, f"{self._uuid}.gate")
            try:
                return gate, _node(self._node) if self._node else _lock_file(self._folder, self._file)
            except BaseException:
                os.close(gate)
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            msg = (
                f"The lock of {self._uuid} cannot be used: {error}. Let every user of the GPU write to "
                f"{str(self._folder)!r}, or remove what stands there in its place."
            )
            raise WorkerError(msg) from error


async def _until(attempt: Callable[[], bool], words: str, report: Callable[[str], None]) -> None:
    """Try until it works, and say what is waited for.

    Nothing tells when a lock comes free but a wait inside flock, which would hold a thread that cannot be cancelled.
    """
    pause_s, told = FIRST_PAUSE_S, -math.inf
    first = True  # who only meets somebody at the gate does not wait
    while not attempt():
        if not first and (now := time.monotonic()) - told >= REPORT_S:
            told = now
            report(words)
        first = False
        await anyio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 - so that two do not keep meeting
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _passed(gate: int, lock: int) -> bool:
    """Try the lock behind the gate; never holds the gate longer than that."""
    if not _locked(gate, fcntl.LOCK_SH):
        return False
    try:
        return _locked(lock, fcntl.LOCK_SH)
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _close(descriptors: tuple[int, int]) -> None:
    gate, lock = descriptors
    try:
        os.close(lock)  # before the gate: who waits there finds it free
    finally:
        os.close(gate)


def _node(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)


def _can_be_locked(node: str) -> bool:
    try:
        descriptor = _node(node)
    except OSError as error:
        if error.errno in SHORTAGE:  # ours; the node is as good as ever
            raise
        return False
    try:
        _locked(descriptor, fcntl.LOCK_SH)  # whether it is free or not
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lock_file(folder: Path, name: str) -> int:
    """Open a file of a folder that other users may write to; makes both if need be."""
    directory = _directory(folder)
    try:
        for _ in range(FILE_TRIES - 1):
            # Whoever is making folder or file right now opens it to all in a moment.
            with contextlib.suppress(PermissionError):
                return _regular_file(name, directory)
            time.sleep(FILE_TRY_S)
        return _regular_file(name, directory)
    finally:
        os.close(directory)


def _directory(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        above, state = folder.parent.stat().st_mode, os.fstat(directory)
        for_all = above & stat.S_ISVTX and above & stat.S_IWOTH
        if for_all and state.st_uid == os.geteuid() and stat.S_IMODE(state.st_mode) != SHARED_FOLDER:
            os.fchmod(directory, SHARED_FOLDER)
    except BaseException:
        os.close(directory)
        raise
    return directory


def _regular_file(name: str, directory: int) -> int:
    """Open or create a file that everybody may lock, following no link, waiting for no pipe."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    made = False
    try:
        # Not with O_CREAT: the kernel may refuse that for another user's file (fs.protected_regular).
        try:
            descriptor = os.open(name, os.O_RDWR | flags, dir_fd=directory)
        except PermissionError:  # flock asks for no right to write
            descriptor = os.open(name, os.O_RDONLY | flags, dir_fd=directory)
    except FileNotFoundError:
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, dir_fd=directory)
        except FileExistsError:  # made meanwhile
            return _regular_file(name, directory)
        made = True
    try:
        if made:
            os.fchmod(descriptor, 0o666)  # whatever the umask
        _refuse_other_kinds(descriptor, name)
        with contextlib.suppress(PermissionError):
            os.utime(descriptor)  # what cleans temporary folders by age leaves it alone
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_other_kinds(descriptor: int, name: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", name)
