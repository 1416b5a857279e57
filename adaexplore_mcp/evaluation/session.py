"""One confined process and its stub, as the server sees them: ask, wait with a deadline, end, hear how it ended."""

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation.channel import Channel, Message
from adaexplore_mcp.evaluation.scratch import remove_tree
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["EndReport", "NoRoomError", "Session", "SessionEndedError", "SessionTimeoutError"]

END_S = 5.0
STEER_S = 5.0  # to stop a session or have it go on: a millisecond, but for a machine that is busy


@dataclass(frozen=True)
class EndReport:
    """How a session ended, as its stub saw it.

    Args:
        reason: ended (by itself), told (by us), memory, processes, lifetime, or lost (the stub itself ended).
        exit_code: Of the confined process; -1 after a signal.
        signal: Its name, or empty.
        strays: Processes it left running; they are gone.
        wall_s: Its life in seconds.
        cpu_s: Processor seconds of the confined process.
        peak_bytes: Largest memory of the whole tree seen, its scratch files included, in bytes.
        stdout: Captured text: head, tail, total bytes.
        stderr: The same.
        last_words: What it was doing when a signal ended it, as `failures.describe` says it; empty if unknown.
    """

    reason: str = "lost"
    exit_code: int = -1
    signal: str = ""
    strays: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    stdout: Mapping[str, Any] = field(default_factory=dict)
    stderr: Mapping[str, Any] = field(default_factory=dict)
    last_words: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last_line(self) -> str:
        """The last line on its standard error, at most 300 characters."""
        text = str(self.stderr.get("tail") or self.stderr.get("head") or "").strip()
        return text.rpartition("\n")[2][:300]


PROGRESS_LIMIT, PROGRESS_PER_S = 20, 4.0  # more messages than this come from no harness of ours
LOST, TOLD = "lost", "told"
READY_S = 60.0  # forking and confining take 0.15 s


class SessionEndedError(Exception):
    """The confined process ended before it answered.

    Args:
        report: How it ended.
    """

    def __init__(self, report: EndReport) -> None:
        self.report = report
        super().__init__(f"the process ended ({report.reason}, {report.signal or report.exit_code})")


class SessionTimeoutError(Exception):
    """The confined process did not answer in time, and was ended."""

    def __init__(self, report: EndReport, timeout_s: float) -> None:
        self.report = report
        self.timeout_s = timeout_s
        super().__init__(f"no answer within {timeout_s:g} s")


class NoRoomError(WorkerError):
    """A GPU has too little memory for a process of ours."""


class Session:
    """One confined process; made by `WorkerPool.session`.

    Args:
        channel: To the confined process.
        control: To its stub.
        folder: Its scratch folder, which the stub removes; if the stub is lost, it is removed here.
    """

    def __init__(self, channel: Channel, control: Channel, folder: Path) -> None:
        self._channel = channel
        self._control = control
        self._folder = folder
        self._report: EndReport | None = None
        self._is_ready = False
        self._steering = anyio.Lock()
        self._waits: anyio.CancelScope | None = None
        self._left_s = 0.0
        self._paused = False
        self._ending = False
        self._hung_up = False  # before we ended it

    async def ready(self) -> None:
        """Wait until the process is confined; what ends it before that is our fault, what ends it later is not.

        Raises:
            NoRoomError: A GPU has too little memory for it.
            WorkerError: It could not be confined.
            WorkerLostError: It and its stub are gone.
        """
        if self._is_ready:
            return
        try:
            with anyio.fail_after(READY_S):
                message = await self._channel.receive()
        except TimeoutError:
            await self.end()
            msg = f"A process could not be confined within {READY_S:g} s. Run `adaexplore-mcp doctor`."
            raise WorkerError(msg) from None
        except WorkerLostError as error:
            report = await self.end()
            if report.reason == LOST:
                raise
            msg = f"A process could not be confined: {report.last_line or 'it said nothing'}. Run `adaexplore-mcp doctor`."
            raise WorkerError(msg) from error
        if full := message.body["full"]:
            await self.end()
            raise NoRoomError(f"A process that uses the GPU found no room there: {full}.")
        self._is_ready = True

    async def request(
        self,
        body: Mapping[str, Any],
        descriptors: Sequence[int] = (),
        *,
        timeout_s: float,
        on_progress: Callable[[object], None] = lambda _: None,
    ) -> Message:
        """Ask for something and wait for the answer.

        Args:
            body: The request; the confined process gives it a meaning.
            descriptors: Files that ride along; they stay open here.
            timeout_s: Seconds to wait, without those for which it is paused meanwhile.
            on_progress: Given what comes under `progress` before the answer.

        Raises:
            SessionEndedError: The process is gone.
            SessionTimeoutError: It did not answer in time; it is gone now.
            FrameError: It sent what is no message; it is gone now.
            WorkerLostError: It was lost through no fault of its own.
        """
        try:
            with anyio.fail_after(timeout_s) as self._waits:
                if self._paused:
                    self._hold_time()
                # However long it is paused meanwhile: it takes no more than its sockets hold.
                await self._channel.send(body, descriptors, whole=False)
                return await self._answer(PROGRESS_LIMIT + int(PROGRESS_PER_S * timeout_s), on_progress)
        except TimeoutError:
            raise SessionTimeoutError(await self.end(), timeout_s) from None
        except FrameError:
            await self.end()
            raise
        except WorkerLostError as error:
            self._hung_up |= not self._ending
            raise self._gone(await self.end()) from error
        finally:
            self._waits = None

    async def pause(self) -> None:
        """Have nothing of it run on the CPU until `resume`: no thread of a stranger's launches anything meanwhile.

        Raises:
            SessionEndedError: The process is gone.
            WorkerLostError: Its stub could not be reached in time, which is no fault of it; it is gone now.
        """
        self._paused = True
        self._hold_time()
        await self._steer("pause")

    async def resume(self) -> None:
        """Have it go on; raises as `pause`."""
        await self._steer("resume")
        self._paused = False
        if self._waits is not None and self._waits.deadline == math.inf:
            self._waits.deadline = anyio.current_time() + self._left_s

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Pause it for as long as the context lasts; raises what `pause` and `resume` do.

        After an error it stays paused: whoever meets one ends it.
        """
        await self.pause()
        yield
        await self.resume()

    def _hold_time(self) -> None:
        """Have the time of a request stand still."""
        if self._waits is not None and self._waits.deadline != math.inf and not self._waits.cancel_called:
            self._left_s = self._waits.deadline - anyio.current_time()
            self._waits.deadline = math.inf

    async def _steer(self, op: str) -> None:
        try:
            # Shielded: an answer left unread would be taken for the next one.
            with anyio.fail_after(STEER_S, shield=True):
                async with self._steering:
                    if self._report is not None:
                        raise self._gone(self._report)
                    await self._control.send({"op": op})
                    answer = (await self._control.receive()).body
                    if "reason" in answer:  # it had ended: that is its report
                        self._report = EndReport(**answer)
                        await self._closed()
                        raise self._gone(self._report)
        except TimeoutError:
            await self.end()
            msg = f"a worker's watcher did not {op} it within {STEER_S:g} s"
            raise WorkerLostError(msg) from None
        except WorkerLostError as error:
            raise self._gone(await self.end()) from error

    async def _answer(self, limit: int, on_progress: Callable[[object], None]) -> Message:
        """Return the next message that is no progress."""
        for _ in range(limit):
            message = await self._channel.receive()
            if "progress" not in message.body:
                return message
            on_progress(message.body["progress"])
        raise FrameError("progress without end")

    @property
    def lost(self) -> bool:
        """Whether its stub is gone."""
        return self._control.hung_up

    async def abandon(self) -> None:
        """Let go without waiting for its report, where all workers are about to end."""
        self._report = self._report or EndReport()
        await self._channel.close()
        await self._control.close()

    async def end(self) -> EndReport:
        """End the session, if it has not ended, and say how it went."""
        self._ending = True
        with anyio.CancelScope(shield=True):
            async with self._steering:
                if self._report is None:
                    self._report = await self._told_to_end()
                    await self._closed()
        assert self._report is not None
        return self._report

    def _gone(self, report: EndReport) -> SessionEndedError | WorkerLostError:
        """Return the error that says how it ended: lost with its watcher, or ended by us, it is no fault of its own."""
        if report.reason == LOST:
            return WorkerLostError("a worker and its watcher were lost")
        if report.reason == TOLD and not self._hung_up:
            return WorkerLostError("a worker was ended")
        return SessionEndedError(report)

    async def _told_to_end(self) -> EndReport:
        with anyio.move_on_after(END_S):
            with contextlib.suppress(WorkerLostError):  # it may have ended, and reported, by itself
                await self._control.send({"op": "end"})
            with contextlib.suppress(WorkerLostError, TypeError):
                return EndReport(**(await self._control.receive()).body)
        return EndReport()

    async def _closed(self) -> None:
        """Close what leads to it, and remove what it left where nobody else did."""
        await self._channel.close()
        await self._control.close()
        if self._report is not None and self._report.reason == LOST:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, self._folder)
