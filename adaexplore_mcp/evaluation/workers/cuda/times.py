"""For whom the device works in one call: for a candidate's own kernels, or for torch's operators.

Both are taken between events around each launch and each operator, behind a short delay on the device that lets the host
run ahead: the device then finds one after the other without waiting. What is launched past both (a replayed graph, another
stream, a library called by a foreign interface) is not seen. Like all that a candidate's process says, it is a claim.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adaexplore_mcp.evaluation.workers.cost import works

__all__ = ["DeviceTimes"]

DELAY_CYCLES = (
    10_000_000  # about 5 ms: as long as the host takes to launch what a call of some hundred operators does
)
MAX_EVENTS = 20_000


class DeviceTimes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """Takes the times of one call, entered as a context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._spans: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        torch.cuda._sleep(DELAY_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001 - the only kernel of torch's that takes as long as one likes

    @contextmanager
    def own(self) -> Iterator[None]:
        """Take the time of a launch of the candidate's."""
        with self._span(""):
            yield

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator overload; torch gives it no public type
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        if not works(func):
            return func(*args, **(kwargs or {}))
        with self._span(func.overloadpacket.__name__):
            return func(*args, **(kwargs or {}))

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        if len(self._spans) >= MAX_EVENTS or torch.cuda.is_current_stream_capturing():
            yield
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        yield
        end.record()
        self._spans.append((name, start, end))

    def facts(self) -> dict[str, Any]:
        """Return the times in nanoseconds, as `claims.CallFacts` reads them; waits for the device."""
        torch.cuda.synchronize()
        if len(self._spans) >= MAX_EVENTS:  # not all were taken
            return {}
        own, library = 0, dict[str, int]()
        for name, start, end in self._spans:
            nanoseconds = round(start.elapsed_time(end) * 1e6)
            if name:
                library[name] = library.get(name, 0) + nanoseconds
            else:
                own += nanoseconds
        return {"own_ns": own, "library_ns": library}
