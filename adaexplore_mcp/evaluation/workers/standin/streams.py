"""Streams and events of a device that runs everything at once: nothing is waited for or timed, but it is seen who would wait."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Self

import torch

from .devices import CUDA_0
from .ledger import MEASUREMENT, Ledger

__all__ = ["DeviceGuard", "StreamContext", "Work", "make_streams"]


class Work:
    """Launches on other streams than the default one, by number, until that or the host waits for them."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._unjoined: dict[int, str] = {}
        self._before: defaultdict[int, set[int]] = defaultdict(set)

    def launched(self, kernel: str, stream: int) -> None:
        """Note a launch on the stream with a handle."""
        if stream:
            number = next(self._numbers)
            self._unjoined[number] = kernel
            self._before[stream].add(number)

    def of(self, stream: int) -> frozenset[int]:
        """Return the launches that come before what the stream does next."""
        return frozenset(self._before[stream])

    def awaited(self, launches: Collection[int], by: int = 0) -> None:
        """Note that a stream waits for launches; the default one stands for the host, too."""
        if by:
            self._before[by].update(launches)
        for number in () if by else launches:
            self._unjoined.pop(number, None)

    def all_awaited(self) -> None:
        """Note that the host waits for the device."""
        self._unjoined.clear()

    def returned(self, stream: int) -> list[str]:
        """Return the kernels that nothing waits for, where a call ends with this stream, and forget all launches."""
        self.awaited(self.of(stream))
        left = list(dict.fromkeys(self._unjoined.values()))
        self._unjoined.clear()
        self._before.clear()
        return left


WORK = Work()
"""Of this process, as `StreamContext.current` is."""


class Stream:
    """Takes the place of `torch.cuda.Stream`; the default stream has the handle 0."""

    _handles: ClassVar[Iterator[int]] = count(1)
    device_index = 0
    device_type = 1
    priority = 0

    def __init__(self, *args: Any, handle: int | None = None, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        self.cuda_stream = next(self._handles) if handle is None else handle
        self.stream_id = self.native_handle = self.cuda_stream
        self.device = CUDA_0

    def synchronize(self) -> None:
        """Return at once: all work is done."""
        WORK.awaited(WORK.of(self.cuda_stream))

    def wait_stream(self, stream: Any) -> None:  # noqa: ANN401 - any stream
        """Return at once."""
        WORK.awaited(WORK.of(stream.cuda_stream), self.cuda_stream)

    def wait_event(self, event: Any) -> None:  # noqa: ANN401 - any event
        """Return at once."""
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:  # noqa: ANN401 - an event
        """Return the event, or a new one."""
        recorded: Any = torch.cuda.Event() if event is None else event  # type: ignore[no-untyped-call]  # torch's class, or ours
        recorded.record(self)
        return recorded

    def query(self) -> bool:
        """Say that all work is done."""
        self.synchronize()
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


DEFAULT_STREAM = Stream(handle=0)


class StreamContext:
    """Takes the place of `torch.cuda.stream(...)`; `current` is the innermost one."""

    current: ClassVar[list[Any]] = [DEFAULT_STREAM]

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - a stream or None
        self.stream = stream

    def __enter__(self) -> None:
        StreamContext.current.append(self.stream or StreamContext.current[-1])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        StreamContext.current.pop()


class DeviceGuard:
    """Takes the place of `torch.cuda.device` and `device_of`: there is one device and it is current."""

    def __init__(self, *args: Any) -> None:  # noqa: ANN401, ARG002 - a device, an index or a tensor
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


def make_streams(ledger: Ledger) -> type:
    """Return the class that takes the place of `torch.cuda.Event`, which refuses to tell times."""

    class Event:
        """An event that has happened."""

        cuda_event = 0
        event_id = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 - torch's options
            self.device = CUDA_0
            self._before: Collection[int] = ()

        def record(self, stream: Any = None) -> None:  # noqa: ANN401 - any stream
            """Return at once."""
            self._before = WORK.of((stream or StreamContext.current[-1]).cuda_stream)

        def wait(self, stream: Any = None) -> None:  # noqa: ANN401 - any stream
            """Return at once."""
            WORK.awaited(self._before, (stream or StreamContext.current[-1]).cuda_stream)

        def synchronize(self) -> None:
            """Return at once."""
            WORK.awaited(self._before)

        def query(self) -> bool:
            """Say that it has happened."""
            self.synchronize()
            return True

        def elapsed_time(self, end_event: Any) -> float:  # noqa: ANN401, ARG002 - any event
            """Refuse: nothing was timed."""
            ledger.refuse("torch.cuda.Event.elapsed_time", MEASUREMENT)

        def ipc_handle(self) -> bytes:
            """Refuse: it names an object of a CUDA driver."""
            ledger.refuse("torch.cuda.Event.ipc_handle", "it names an object of the CUDA driver")

    return Event
