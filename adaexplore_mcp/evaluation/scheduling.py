"""Which GPU an evaluation gets, and when: first come, first served, within what fits into the memory of each.

Two things are waited for, one after the other: a place among the evaluations of this server, here, and the GPU's lock,
which other servers on the machine hold too (see `device_lock`). What is counted of memory is what this server's own
evaluations said they need.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum

import anyio

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu, matching
from adaexplore_mcp.evaluation.gpu_memory import Needs, together_bytes

__all__ = ["Devices", "Place", "Still"]

PER_DEVICE = 4
MEMORY_SHARE = 0.9
"""Of a GPU's memory: what all evaluations together may need, with the trials that they use; the rest is for other programs."""
PASSED_S = 10.0
"""For how long who waits for memory is passed by anybody; after that only by what fits beside it."""
GIVE_WAY_S = 1.0
"""How long who gives way waits for others to leave, who may wait for it."""
NOT_AGAIN_S = 2.0
"""For how long who gave way in vain goes on before it does so again."""
LEAVING = "leaving the GPU"
NOTHING = Needs(0)
GIB = 1 << 30


class _Obstacle(Enum):
    """What a waiter lacks on a GPU, in words."""

    NONE = ""
    TIMED = "a measurement on the GPU to end"
    USED = "the GPU to be free"
    FULL = "a place on the GPU"
    MEMORY = "GPU memory"


@dataclass(eq=False, slots=True)
class _Claim:
    """What somebody needs, or has; `arrived` orders who came before whom. Memory that is reserved comes without a place."""

    needs: Needs
    arrived: int
    place: bool = True


@dataclass(eq=False, slots=True)
class _Device:
    gpu: Gpu
    lock: DeviceLock
    claims: list[_Claim] = field(default_factory=list)
    willing: "set[Place]" = field(default_factory=set)
    aside: "set[Place]" = field(default_factory=set)
    timed: bool = False
    timings: int = 0
    used_at: int = 0
    arrivals: int = 0

    @property
    def running(self) -> int:
        """How many have a place, one that times included."""
        return sum(claim.place for claim in self.claims)

    def all_make_way(self, *places: "Place") -> bool:
        """Tell whether all who have a place on it make way, or will at once; these do."""
        return self.running <= len(self.aside | self.willing | set(places))

    @property
    def held_bytes(self) -> int:
        """What all on it need together, or hold."""
        return together_bytes(claim.needs for claim in self.claims)

    @property
    def room_bytes(self) -> float:
        """What all on it together may need."""
        return MEMORY_SHARE * self.gpu.memory_bytes


@dataclass(eq=False, slots=True)
class _Waiter:
    devices: Sequence[_Device]
    claim: _Claim
    alone: bool
    report: Callable[[str], None]
    admitted: anyio.Event
    holding: bool = False
    device: _Device | None = None
    since: float = field(default_factory=anyio.current_time)
    told: "tuple[tuple[_Obstacle, _Device] | None, int] | None" = None


class _Line:
    """The line for one GPU, as one goes along it: who may pass those that were met so far."""

    def __init__(self, device: _Device, per_device: int) -> None:
        self._device = device
        self._per_device = per_device
        self._open = True
        self._promised: list[_Claim] = []
        self._bounds: list[list[_Claim]] = []  # each has to fit, with whoever passes

    def passable(self, claim: _Claim) -> bool:
        """Tell whether nobody who was met waits longer if this one goes first."""
        return self._open and all(self._fit([*bound, claim]) for bound in self._bounds)

    def passed(self, claim: _Claim) -> None:
        """Count one that has gone first."""
        for bound in self._bounds:
            bound.append(claim)

    def meet(self, waiter: _Waiter, obstacle: _Obstacle) -> None:
        """Go past one that waits.

        Only where memory is waited for is anybody passed: for a while by all, then by those that leave room for it, and for
        those before it as far as these can be there together, once all who came earlier are gone.
        """
        if obstacle not in {_Obstacle.NONE, _Obstacle.MEMORY}:
            self._open = False
        elif anyio.current_time() >= waiter.since + PASSED_S:
            self._open = self._open and not waiter.alone  # memory is not all that it will wait for
            beside = [*self._promised, waiter.claim]
            self._promised = beside if self._fit(beside) else [waiter.claim]
            later = [claim for claim in self._device.claims if claim.arrived > waiter.claim.arrived]
            self._bounds.append([*self._promised, *later])

    def _fit(self, claims: Sequence[_Claim]) -> bool:
        places = sum(claim.place for claim in claims)
        needed = together_bytes(claim.needs for claim in claims)
        return places <= self._per_device and needed <= self._device.room_bytes


Still = Callable[[], AbstractAsyncContextManager[None]]
"""Holds the processes of whoever gives way still, for as long as the context lasts."""


class Devices:
    """The GPUs of one server and who has a place on them.

    Args:
        gpus: As `devices.find` gave them.
        locks: The lock of each, by its UUID.
        per_device: Evaluations at once on a GPU.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        locks: Mapping[str, DeviceLock],
        *,
        per_device: int = PER_DEVICE,
    ) -> None:
        self._devices = {gpu.uuid: _Device(gpu, locks[gpu.uuid]) for gpu in gpus}
        self._per_device = per_device
        self._waiting: list[_Waiter] = []  # in order of arrival
        self._news = anyio.Event()  # somebody got a place, or left one
        self._uses = itertools.count(1)
        self._order = itertools.count(1)

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

    def held_bytes(self, gpu: Gpu) -> int:
        """Return the memory that ours on a GPU need or hold, with the trials that they use; 0 if nobody is there."""
        return self._devices[gpu.uuid].held_bytes

    def shared_by(self, gpu: Gpu) -> set[str]:
        """Return the names of what ours on a GPU need in common with others."""
        return {name for claim in self._devices[gpu.uuid].claims for name in claim.needs.shared}

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
        needs: Needs,
        report: Callable[[str], None],
        mark: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> AsyncIterator["Place"]:
        """Wait for a place on a GPU, hold it beside others, and give it.

        It is the GPU with room that has the fewest evaluations, and of those the one used longest ago. Whoever came
        earlier and could use the same GPU goes first, even where that leaves room unused; but who waits for memory may be
        passed, for a while by everybody and then by those that fit beside it.

        Args:
            pinned: Label, index or UUID of the only GPU that will do; empty for any.
            needs: GPU memory it needs at most; what needs more than the share allows runs without others.
            report: Told what is waited for and how many are ahead, whenever that changes, and that the GPU is left; must
                not raise.
            mark: Returns what says that the caller goes on with what it does now, for when it has made way.

        Raises:
            RequestError: There is no such GPU, or none at all.
            WorkerError: The GPU's lock cannot be opened.
        """
        claim = _Claim(needs, next(self._order))
        waiter = _Waiter(self._acceptable(pinned), claim, False, report, anyio.Event())
        async with self._place(waiter) as device, AsyncExitStack() as lock:
            place = Place(self, device, claim.arrived, lock, report=report, mark=mark)
            await place.hold()
            try:
                yield place
            finally:  # before anybody else is on it
                report(LEAVING)

    @asynccontextmanager
    async def alone(
        self, gpu: Gpu, report: Callable[[str], None], *, holding: bool = False, needs: Needs = NOTHING
    ) -> AsyncIterator[None]:
        """Wait until nobody uses a GPU, neither this server nor another, and keep it so.

        Args:
            gpu: One of these GPUs, on which the caller holds no place: it would wait for itself.
            report: Told what is waited for and how many are ahead, whenever that changes, and that the GPU is left; must
                not raise.
            holding: The caller has reserved memory there, and goes before all who have not: they may wait for that memory.
            needs: GPU memory it takes otherwise, beside what those hold who make way.

        Raises:
            WorkerError: The GPU's lock cannot be opened.
        """
        claim = _Claim(needs, next(self._order))
        waiter = _Waiter([self._devices[gpu.uuid]], claim, True, report, anyio.Event(), holding)
        async with self._place(waiter) as device, device.lock.alone(report):
            try:
                yield
            finally:
                report(LEAVING)

    @asynccontextmanager
    async def reserved(self, device: _Device, needs: Needs, arrived: int) -> AsyncIterator[None]:
        """Count memory that processes without a place hold; see `Place.reserved`."""
        claim = _Claim(needs, arrived, place=False)
        device.claims.append(claim)
        try:
            yield
        finally:
            device.claims.remove(claim)
            self._admit()

    def somebody_times(self, device: _Device) -> bool:
        """Tell whether somebody uses a GPU alone, or waits to and is the next."""
        if device.timed:
            return True
        line = _Line(device, self._per_device)
        for waiter in self._waiting:
            if device in waiter.devices:
                obstacle = self._obstacle(waiter, device)
                if waiter.alone and obstacle is not _Obstacle.MEMORY:
                    return line.passable(waiter.claim)
                line.meet(waiter, obstacle)
        return False

    async def news(self) -> None:
        """Wait until somebody gets a place, leaves one or comes for one."""
        await self._news.wait()

    def wake(self) -> None:
        """Have whoever waits for news look again."""
        self._news.set()
        self._news = anyio.Event()

    async def step_aside(self, place: "Place", device: _Device) -> None:
        """Have a place count for nobody who wants a GPU alone, until they are done; not for long where others are in their way."""
        device.aside.add(place)
        patience = anyio.current_time() + GIVE_WAY_S
        try:
            self._admit()
            while self.somebody_times(device) and not device.timed:
                if (now := anyio.current_time()) >= patience and not device.all_make_way():
                    break
                with anyio.CancelScope(deadline=max(patience, now + GIVE_WAY_S / 2)):
                    await self.news()
            present = device.timings
            while device.timed and device.timings == present:
                await self.news()
        finally:
            device.aside.remove(place)
        while device.timed:  # one that came right after; those behind it wait for us
            await self.news()

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
        """Give places in order of arrival: nobody passes one who could use the same GPU, but where memory is waited for."""
        lines = {device: _Line(device, self._per_device) for device in self._devices.values()}
        for waiter in list(self._waiting):
            obstacles = {device: self._obstacle(waiter, device) for device in waiter.devices}
            free = [
                device
                for device, obstacle in obstacles.items()
                if obstacle is _Obstacle.NONE and lines[device].passable(waiter.claim)
            ]
            if free:
                chosen = min(free, key=lambda device: (device.running, device.used_at))
                self._enter(waiter, chosen)
                lines[chosen].passed(waiter.claim)
            else:
                for device, obstacle in obstacles.items():
                    lines[device].meet(waiter, obstacle)
        for position, waiter in enumerate(self._waiting):
            self._tell(waiter, self._waiting[:position])
        self.wake()

    def _enter(self, waiter: _Waiter, device: _Device) -> None:
        self._waiting.remove(waiter)
        device.claims.append(waiter.claim)
        device.arrivals += 1
        device.timed = waiter.alone
        device.timings += waiter.alone
        device.used_at = next(self._uses)
        waiter.device = device
        waiter.admitted.set()

    @staticmethod
    def _leave(waiter: _Waiter, device: _Device) -> None:
        device.claims.remove(waiter.claim)
        device.timed = device.timed and not waiter.alone

    def _obstacle(self, waiter: _Waiter, device: _Device) -> "_Obstacle":
        """Say what a waiter lacks on a GPU."""
        if not device.claims:
            return _Obstacle.NONE
        if device.timed:
            return _Obstacle.TIMED
        if not waiter.alone and device.running >= self._per_device:
            return _Obstacle.FULL
        if not waiter.holding and device.held_bytes + _added_bytes(waiter, device) > device.room_bytes:
            return _Obstacle.MEMORY
        if waiter.alone and device.running > len(device.aside):
            return _Obstacle.USED
        return _Obstacle.NONE

    def _tell(self, waiter: _Waiter, earlier: Sequence[_Waiter]) -> None:
        obstacles = ((self._obstacle(waiter, device), device) for device in waiter.devices)
        found = next((each for each in obstacles if each[0] is not _Obstacle.NONE), None)
        ahead = sum(not set(waiter.devices).isdisjoint(one.devices) for one in earlier)
        told = found, ahead
        if told == waiter.told:
            return
        waiter.told = told
        match found:
            case None:
                what = "the GPU"
            case _Obstacle.MEMORY, device:
                sizes = _added_bytes(waiter, device), device.held_bytes, device.room_bytes
                needed, taken, room = (f"{size / GIB:.0f}" for size in sizes)
                what = f"{needed} GiB of GPU memory, of {room} GiB {taken} are taken"
            case obstacle, _:
                what = obstacle.value
        waiter.report(f"waiting for {what} ({ahead} ahead)")


def _added_bytes(waiter: _Waiter, device: _Device) -> int:
    """Return by how much what is needed on a GPU would grow with a waiter."""
    return together_bytes([*(claim.needs for claim in device.claims), waiter.claim.needs]) - device.held_bytes


class Place:
    """A place on a GPU; made by `Devices.use`.

    Its methods let whoever waits to use the GPU alone go first, while the caller's processes there do nothing. They are given
    what holds those still that might not. The place and its memory stay the caller's.
    """

    def __init__(
        self,
        devices: Devices,
        device: _Device,
        arrived: int,
        lock: AsyncExitStack,
        *,
        report: Callable[[str], None],
        mark: Callable[[], Callable[[], None]],
    ) -> None:
        self.gpu = device.gpu
        self.given_way_s = 0.0
        """Seconds for which others were given way so far."""
        self._devices = devices
        self._device = device
        self._arrived = arrived
        self._lock = lock
        self._report = report
        self._mark = mark
        self._again_at = 0.0

    async def hold(self) -> None:
        """Wait for the GPU's lock, and hold it beside others."""
        await self._lock.enter_async_context(self._device.lock.shared(self._report))

    async def give_way(self, still: Still) -> None:
        """Give way now, where somebody waits for it; to be awaited wherever the caller can stop."""
        if not self._wanted():
            return
        began, timings = anyio.current_time(), self._device.timings
        goes_on = self._mark()
        async with still():
            self._report("making way for a measurement")
            await self._lock.aclose()
            await self._devices.step_aside(self, self._device)
            await self.hold()
        goes_on()
        now = anyio.current_time()
        if self._device.timings == timings:
            self._again_at = now + NOT_AGAIN_S
        self.given_way_s += now - began

    @asynccontextmanager
    async def giving_way(self, still: Still) -> AsyncIterator[None]:
        """Give way at any moment while the context lasts: what the caller's processes do in it is no work for the GPU."""
        willing = self._device.willing
        assert self not in willing, "its caller stands by already"
        failure: Exception | None = None

        async def stand_by() -> None:
            while self in willing:
                if self._wanted():
                    await self.give_way(still)
                else:
                    with anyio.move_on_after(NOT_AGAIN_S):
                        await self._devices.news()

        willing.add(self)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(stand_by)
                try:
                    yield
                except Exception as error:  # noqa: BLE001 - raised below, once whoever was given way is done
                    failure = error
                finally:
                    willing.remove(self)
                    self._devices.wake()
        except ExceptionGroup as errors:
            raise failure or errors.exceptions[0] from errors
        if failure is not None:
            raise failure

    def reserved(self, needs: Needs) -> AbstractAsyncContextManager[None]:
        """Count memory that processes hold which go on without the place, while they wait to time alone.

        To be begun while the place is still there, or others are let in who count on that memory.
        """
        return self._devices.reserved(self._device, needs, self._arrived)

    def _wanted(self) -> bool:
        """Tell whether to give way: not again at once, where others are in the way who do not."""
        due = anyio.current_time() >= self._again_at or self._device.all_make_way(self)
        return due and self._devices.somebody_times(self._device)
