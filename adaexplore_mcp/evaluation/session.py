"""One confined process and its stub, as the server sees them: ask, wait with a deadline, end, hear how it ended."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation.channel import Channel, Message
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["EndReport", "Session", "SessionEndedError", "SessionTimeoutError"]

END_S = 5.0


@dataclass(frozen=True)
class EndReport:
    """How a session ended, as its stub saw it.

    Args:
        reason: ended (by itself), told (by us), memory, lifetime, or lost (the stub itself ended).
        exit_code: Of the confined process; -1 after a signal.
        signal: Its name, or empty.
        strays: Processes it left running; they are gone.
        wall_s: Its life in seconds.
        cpu_s: Processor seconds of the confined process.
        peak_bytes: Largest memory of the whole tree seen, in bytes.
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


PROGRESS_LIMIT, PROGRESS_PER_S = 20, 4.0  # more messages than this come from no harness of ours
OUR_FAULT = 70  # as in workers.stub
LOST = "lost"


class SessionEndedError(WorkerLostError):
    """The confined process ended before it answered.

    Args:
        report: How it ended.
    """

    def __init__(self, report: EndReport) -> None:
        self.report = report
        super().__init__(f"the process ended ({report.reason}, {report.signal or report.exit_code})")


class SessionTimeoutError(WorkerLostError):
    """The confined process did not answer in time, and was ended."""

    def __init__(self, report: EndReport, timeout_s: float) -> None:
        self.report = report
        self.timeout_s = timeout_s
        super().__init__(f"no answer within {timeout_s:g} s")


class Session:
    """One confined process; made by `WorkerPool.session`.

    Args:
        channel: To the confined process.
        control: To its stub.
    """

    def __init__(self, channel: Channel, control: Channel) -> None:
        self._channel = channel
        self._control = control
        self._report: EndReport | None = None

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
            timeout_s: Seconds to wait.
            on_progress: Given what comes under `progress` before the answer.

        Raises:
            SessionEndedError: The process is gone.
            SessionTimeoutError: It did not answer in time; it is gone now.
        """
        try:
            with anyio.fail_after(timeout_s):
                await self._channel.send(body, descriptors)
                for _ in range(PROGRESS_LIMIT + int(PROGRESS_PER_S * timeout_s)):
                    message = await self._channel.receive()
                    if "progress" not in message.body:
                        return message
                    on_progress(message.body["progress"])
                raise FrameError("progress without end")
        except TimeoutError:
            raise SessionTimeoutError(await self.end(), timeout_s) from None
        except WorkerLostError as error:
            report = await self.end()
            if report.exit_code == OUR_FAULT:
                msg = f"a worker failed: {_last_line(report)}"
                raise WorkerError(msg) from error
            if report.reason == LOST:
                raise WorkerLostError("a worker and its watcher were lost") from error
            raise SessionEndedError(report) from error

    async def end(self) -> EndReport:
        """End the session, if it has not ended, and say how it went."""
        if self._report is None:
            self._report = EndReport()
            with anyio.CancelScope(shield=True), anyio.move_on_after(END_S):
                with contextlib.suppress(WorkerLostError):  # it may have ended, and reported, by itself
                    await self._control.send({"op": "end"})
                with contextlib.suppress(WorkerLostError, TypeError):
                    self._report = EndReport(**(await self._control.receive()).body)
            await self._channel.close()
            await self._control.close()
        return self._report


def _last_line(report: EndReport) -> str:
    text = str(report.stderr.get("tail") or report.stderr.get("head") or "").strip()
    return text.rpartition("\n")[2][:400] or "it said nothing"
