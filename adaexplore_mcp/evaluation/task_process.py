"""The conversation with a task's own process: what it cannot do is said as a fault of the task."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.channel import Message
from adaexplore_mcp.evaluation.definition import Definition, Sizes
from adaexplore_mcp.evaluation.session import Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.wire import FrameError
from adaexplore_mcp.models import Workload

__all__ = ["NO_TRICKS", "REFERENCE_S", "TaskProcess", "understood"]

logger = logging.getLogger(__name__)

NO_TRICKS = "Register the operation alone, without code that touches the process it runs in."
REFERENCE_S = 60.0  # one step of a reference: loading it, one call in both dtypes


class TaskProcess:
    """A conversation with one task's process."""

    def __init__(self, session: Session, memory_bytes: int, gpu: str = "") -> None:
        self._session = session
        self._memory_bytes = memory_bytes
        self._gpu = gpu

    async def load(
        self,
        definition: Definition,
        workload: Workload,
        edits: Sizes,
        **machine: Any,  # noqa: ANN401 - JSON
    ) -> None:
        """Have it load a task at some sizes.

        Raises:
            TaskError: The task cannot be loaded.
        """
        task = definition.to_worker(workload, edits)
        await self.ask("load", task=task, domains=definition.domains, **machine)

    async def ask(self, op: str, *, timeout_s: float = REFERENCE_S, **fields: Any) -> Message:  # noqa: ANN401
        """Ask and return the answer.

        Raises:
            TaskError: The reference is at fault.
            DeviceFullError: The GPU has too little memory left for it.
        """
        with self._blamed(op):
            message = await self._session.request({"op": op, **fields}, timeout_s=timeout_s)
        if (fault := message.body.get("fault")) is not None:
            where = f" (line {fault['line']})" if fault["line"] else ""
            if self._gpu and fault["reason"] == "out_of_memory":
                msg = f"the reference found no room on {self._gpu}: {fault['detail']}{where}"
                raise DeviceFullError(msg)
            msg = f"The reference is not a task: {fault['detail']}{where}."
            raise TaskError(msg, _remedy(fault["reason"]))
        return message

    @contextlib.asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Have nothing of it run for as long as the context lasts.

        Raises:
            TaskError: It has ended.
        """
        with self._blamed("waiting"):
            async with self._session.still():
                yield

    @contextlib.contextmanager
    def _blamed(self, step: str) -> Iterator[None]:
        """Say what its process does as a fault of the task."""
        try:
            yield
        except SessionTimeoutError as error:
            msg = f"The reference did not finish within {error.timeout_s:g} s (step: {step})."
            raise TaskError(msg, "Register it with smaller sizes, or as several workloads.") from error
        except SessionEndedError as error:
            raise _ended(step, error, self._memory_bytes) from error
        except FrameError as error:
            raise TaskError(
                f"The reference's process sent what is no message: {error}.", NO_TRICKS
            ) from error


def _ended(op: str, error: SessionEndedError, memory_bytes: int) -> TaskError:
    report = error.report
    if report.reason == "memory":
        return TaskError(
            f"The reference was ended when it held {report.peak_bytes >> 20} MiB; {memory_bytes >> 20} MiB are allowed "
            f"(step: {op}).",
            "Register it with smaller sizes, or start the server with a larger --memory-limit-mib.",
        )
    how = report.signal or f"exit code {report.exit_code}"
    said = f"; it said: {report.last_line}" if report.last_line else ""
    return TaskError(f"The reference ended its process ({how}, step: {op}{said}).", "Fix the reference.")


def _remedy(reason: str) -> str:
    remedies = {
        "entry": "Define it, or name what to use with `entry`.",
        "import": "Fix the import; modules must be installed for the worker interpreter or lie below import_root.",
        "sizes": "Name constants that the reference defines at module level.",
        "inputs": "Fix the function that makes the inputs.",
        "outputs": "Return tensors, or a tuple, list or dict of them.",
        "domain": "Change the domain.",
        "out_of_memory": "Register smaller sizes, or start the server with a larger --memory-limit-mib.",
    }
    return remedies.get(reason, "Fix the reference and register it again.")


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Blame a task for answers of its process that are none: our own worker gives none like that.

    Raises:
        TaskError: Its code speaks in the worker's place.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, FrameError) as error:
        logger.warning("a reference's process answered what is no answer", exc_info=error)
        msg = f"The reference's process answered what is no answer ({type(error).__name__})."
        raise TaskError(msg, NO_TRICKS) from error
