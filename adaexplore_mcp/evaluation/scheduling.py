"""Which GPU an evaluation gets, and when: first come, first served, within what fits into the memory of each.

Two things are waited for, one after the other: a place among the evaluations of this server, here, and the GPU's lock,
which other servers on the machine hold too (see `device_lock`). What is counted of memory is what this server's own
evaluations said they need.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu, matching

__all__ = ["Devices", "GiveWay", "Place", "Still"]

PER_DEVICE = 4
MEMORY_SHARE = 0.7
GIVE_WAY_S = 1.0
"""How long who gives way waits for others to leave, who may wait for it."""
NOT_AGAIN_S = 2.0
"""For how long who gave way in vain goes on before it does so again."""
LEAVING = "leaving the GPU"


@dataclass(eq=False, slots=True)
class _Device:
    gpu: Gpu
    lock: DeviceLock
    running: int = 0
    aside: int = 0
    needed_bytes: int = 0
    reserved: int = 0
    timed: bool = False
    timings: int = 0
    used_at: int = 0
    arrivals: int = 0


@dataclass(eq=False, slots=True)
class _Waiter:
    devices: Sequence[_Device]
    needed_bytes: int
    alone: bool
    report: Callable[[str], None]
    admitted: anyio.Event
    holding: bool = False
    device: _Device | None = None
    told: str = ""


Still = Callable[[], AbstractAsyncContextManager[None]]
GiveWay = Callable[[Still], Awaitable[float]]


@dataclass(frozen=True)
class Place:
    """A place on a GPU.

    Args:
        gpu: Where it is.
        give_way: To be awaited wherever the caller can stop: lets whoever waits to use the GPU alone go first, while the
            caller's processes there do nothing. It is given what holds those still that might not. The place and its memory
            stay the caller's. Returns the seconds that took.
    """

    gpu: Gpu
    give_way: "GiveWay"


class Devices:
    """The GPUs of one server and who has a place on them.

    Args:
        gpus: As `devices.find` gave them.
        locks: The lock of each, by its UUID.
        per_device: Evaluations at once on a GPU.
        memory_share: Share of a GPU's memory that all its evaluations together may need.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        locks: Mapping[str, DeviceLock],
        *,
        per_device: int = PER_DEVICE,
        memory_share: float = MEMORY_SHARE,
    ) -> None:
        self._devices = {gpu.uuid: _Device(gpu, locks[gpu.uuid]) for gpu in gpus}
        self._per_device = per_device
        self._memory_share = memory_share
        self._waiting: list[_Waiter] = []  # in order of arrival
        self._news = anyio.Event()  # somebody got a place, or left one
        self._uses = itertools.count(1)

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs there are."""
        return [device.gpu for device in self._devices.values()]

    def find(self, pinned: str = "") -> Gpu:
        """Return the GPU that a label, an index or a UUID means; the first for nothing.

        Raises:
            RequestError: There is no such GPU, or none at all.
        """
        return self._acceptable(pinned)[0].gpu

    def lock_of(self, gpu: Gpu) -> str:
        """Return what keeps servers apart that time on a GPU, in words."""
        return self._devices[gpu.uuid].lock.how

    def running(self, gpu: Gpu) -> int:
        """Return how many of ours have a place on a GPU, one that times included."""
        return self._devices[gpu.uuid].running

    def arrivals(self, gpu: Gpu) -> int:
        """Return how many of ours have been given a place on a GPU so far."""
        return self._devices[gpu.uuid].arrivals

    def waiting(self, gpu: Gpu) -> int:
        """Return how many of ours wait for a place on a GPU, or on any of several that it is one of."""
        return sum(self._devices[gpu.uuid] in waiter.devices for waiter in self._waiting)

    @asynccontextmanager
    async def use(
        self,
        pinned: str = "",
        *,
        bytes_needed: int,
        report: Callable[[str], None],
        mark: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> AsyncIterator[Place]:
        """Wait for a place on a GPU, hold it beside others, and give it.

        It is the GPU with room that has the fewest evaluations, and of those the one used longest ago. Whoever came
        earlier and could use the same GPU goes first, even where that leaves room unused.

        Args:
            pinned: Label, index or UUID of the only GPU that will do; empty for any.
            bytes_needed: GPU memory it needs at most; what needs more than the share allows runs without others.
            report: Told what is waited for and how many are ahead, whenever that changes, and that the GPU is left; must
                not raise.
            mark: Returns what says that the caller goes on with what it does now, for when it has made way.

        Raises:
            RequestError: There is no such GPU, or none at all.
            WorkerError: The GPU's lock cannot be opened.
        """
        waiter = _Waiter(self._acceptable(pinned), bytes_needed, False, report, anyio.Event())
        async with self._place(waiter) as device, AsyncExitStack() as lock:

            async def hold() -> None:
                await lock.enter_async_context(device.lock.shared(report))

            again_at = 0.0

            async def give_way(still: Still) -> float:
                nonlocal again_at
                began, timings = anyio.current_time(), device.timings
                if began < again_at or not self._somebody_times(device):
                    return 0.0
                goes_on = mark()
                async with still():
                    report("making way for a measurement")
                    await lock.aclose()
                    await self._step_aside(device)
                    await hold()
                goes_on()
                if device.timings == timings:
                    again_at = anyio.current_time() + NOT_AGAIN_S
                return anyio.current_time() - began

            await hold()
            try:
                yield Place(device.gpu, give_way)
            finally:  # before anybody else is on it
                report(LEAVING)

    @asynccontextmanager
    async def alone(
        self, gpu: Gpu, report: Callable[[str], None], *, holding: bool = False, bytes_needed: int = 0
    ) -> AsyncIterator[None]:
        """Wait until nobody uses a GPU, neither this server nor another, and keep it so.

        Args:
            gpu: One of these GPUs, on which the caller holds no place: it would wait for itself.
            report: Told what is waited for and how many are ahead, whenever that changes, and that the GPU is left; must
                not raise.
            holding: The caller has reserved memory there, and goes before all who have not: they may wait for that memory.
            bytes_needed: Memory it takes otherwise, beside what those hold who make way.

        Raises:
            WorkerError: The GPU's lock cannot be opened.
        """
        waiter = _Waiter([self._devices[gpu.uuid]], bytes_needed, True, report, anyio.Event(), holding)
        async with self._place(waiter) as device, device.lock.alone(report):
            try:
                yield
            finally:
                report(LEAVING)

    @asynccontextmanager
    async def reserved(self, gpu: Gpu, bytes_needed: int) -> AsyncIterator[None]:
        """Count memory that processes without a place hold, while they wait to time alone.

        To be begun while the place is still there in which they got it, or others are let in who count on it.
        """
        device = self._devices[gpu.uuid]
        device.needed_bytes += bytes_needed
        device.reserved += 1
        try:
            yield
        finally:
            device.needed_bytes -= bytes_needed
            device.reserved -= 1
            self._admit()

    def _somebody_times(self, device: _Device) -> bool:
        """Tell whether somebody uses a GPU alone, or waits to and is the next."""
        following = next((waiter for waiter in self._waiting if device in waiter.devices), None)
        return device.timed or (following is not None and following.alone)

    async def _step_aside(self, device: _Device) -> None:
        """Count for nobody who wants a GPU alone, until they are done; not for long where others are in their way."""
        device.aside += 1
        try:
            self._admit()
            with anyio.move_on_after(GIVE_WAY_S):
                while self._somebody_times(device) and not device.timed:
                    await self._news.wait()
            present = device.timings
            while device.timed and device.timings == present:
                await self._news.wait()
        finally:
            device.aside -= 1
        while device.timed:  # one that came right after; those behind it wait for us
            await self._news.wait()

    def _acceptable(self, pinned: str) -> list[_Device]:
        if not pinned and self._devices:
            return list(self._devices.values())
        labelled = [gpu for gpu in self.gpus if gpu.label == pinned]
        found = labelled or (matching(pinned, self.gpus) if pinned else [])
        if len(found) == 1:
            return [self._devices[found[0].uuid]]
        if not self._devices:
            raise RequestError("This server uses no GPU.", "`adaexplore-mcp doctor` says why.")
        there = ", ".join(f"{gpu.label} ({gpu.name}, {gpu.uuid})" for gpu in self.gpus)
        problem = f"{pinned!r} means {len(found)} GPUs" if found else f"There is no GPU {pinned!r}"
        raise RequestError(f"{problem}; there are: {there}.", "Name one of these, or none for any.")

    # --- places

    @asynccontextmanager
    async def _place(self, waiter: _Waiter) -> AsyncIterator[_Device]:
        holding = sum(each.holding for each in self._waiting)  # they are the first
        self._waiting.insert(holding if waiter.holding else len(self._waiting), waiter)
        try:
            self._admit()
            await waiter.admitted.wait()
            assert waiter.device is not None
            yield waiter.device
        finally:
            if waiter.device is None:  # cancelled before there was a place
                self._waiting.remove(waiter)
            else:
                self._leave(waiter, waiter.device)
            self._admit()

    def _admit(self) -> None:
        """Give places in order of arrival: nobody passes one who could use the same GPU."""
        awaited: set[_Device] = set()
        for waiter in list(self._waiting):
            free = [
                device
                for device in waiter.devices
                if device not in awaited and not self._obstacle(waiter, device)
            ]
            if free:
                self._enter(waiter, min(free, key=lambda device: (device.running, device.used_at)))
            else:
                awaited.update(waiter.devices)
        for position, waiter in enumerate(self._waiting):
            self._tell(waiter, self._waiting[:position])
        self._news.set()
        self._news = anyio.Event()

    def _enter(self, waiter: _Waiter, device: _Device) -> None:
        self._waiting.remove(waiter)
        device.running += 1
        device.arrivals += 1
        device.needed_bytes += waiter.needed_bytes
        device.timed = waiter.alone
        device.timings += waiter.alone
        device.used_at = next(self._uses)
        waiter.device = device
        waiter.admitted.set()

    @staticmethod
    def _leave(waiter: _Waiter, device: _Device) -> None:
        device.running -= 1
        device.timed = device.timed and not waiter.alone
        device.needed_bytes -= waiter.needed_bytes

    def _obstacle(self, waiter: _Waiter, device: _Device) -> str:
        """Say what a waiter lacks on a GPU; nothing where it can begin."""
        if device.running == 0 and (waiter.alone or not device.reserved):
            return ""
        if device.timed:
            return "a measurement on the GPU to end"
        if waiter.alone and device.running > device.aside:
            return "the GPU to be free"
        if waiter.holding:
            return ""
        if not waiter.alone and device.running >= self._per_device:
            return "a place on the GPU"
        if device.needed_bytes + waiter.needed_bytes > self._memory_share * device.gpu.memory_bytes:
            return "GPU memory"
        return ""

    def _tell(self, waiter: _Waiter, earlier: Sequence[_Waiter]) -> None:
        obstacles = filter(None, (self._obstacle(waiter, device) for device in waiter.devices))
        ahead = sum(not set(waiter.devices).isdisjoint(one.devices) for one in earlier)
        words = f"waiting for {next(obstacles, 'the GPU')} ({ahead} ahead)"
        if words != waiter.told:
            waiter.told = words
            waiter.report(words)
