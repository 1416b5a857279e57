"""Which GPU an evaluation gets, and when, on two GPUs that are none."""

from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaexplore_mcp.errors import RequestError, WorkerError
from adaexplore_mcp.evaluation import scheduling
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.scheduling import LEAVING, Devices

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _seventy_of_a_hundred(monkeypatch):
    monkeypatch.setattr(scheduling, "MEMORY_SHARE", 0.7)


def gpu(position):
    # Not the first two of the machine: index and label differ.
    return Gpu(position + 2, f"GPU-{position}000", "NVIDIA H200", 100, (9, 0), position=position)


class Lock:
    """Notes who holds it; another process holds it while `foreign` is set."""

    def __init__(self):
        self.checks = 0
        self.timings = 0
        self.foreign = None

    async def _others(self, report):
        if self.foreign is not None:
            report("waiting for another process")
            await self.foreign.wait()

    @asynccontextmanager
    async def shared(self, report):
        await self._others(report)
        assert self.timings == 0
        self.checks += 1
        try:
            yield
        finally:
            self.checks -= 1

    @asynccontextmanager
    async def alone(self, report):
        await self._others(report)
        assert (self.checks, self.timings) == (0, 0)
        self.timings += 1
        try:
            yield
        finally:
            self.timings -= 1


class Machine:
    """Two GPUs, and whoever uses them."""

    def __init__(self, count=2, **limits):
        self.gpus = [gpu(position) for position in range(count)]
        self.locks = {one.uuid: Lock() for one in self.gpus}
        self.devices = Devices(self.gpus, self.locks, **limits)

    @property
    def running(self):
        return [self.devices.running(one) for one in self.gpus]

    @property
    def waiting(self):
        return [self.devices.waiting(one) for one in self.gpus]

    @property
    def held(self):
        return [(lock.checks, lock.timings) for lock in self.locks.values()]


class Visitor:
    """Uses a GPU until told to leave; `alone` on the one it is pinned to if it times."""

    def __init__(self, pinned="", needed=1, alone=False, shared=None):
        self.pinned = pinned
        self.needs = Needs(needed, shared or {})
        self.needed = needed
        self.alone = alone
        self.told = []
        self.stilled = 0
        self.place = self.way = None
        self.inside = anyio.Event()
        self.leave = anyio.Event()
        self.gone = anyio.Event()
        self.scope = anyio.CancelScope()

    async def visit(self, machine):
        with self.scope:
            if self.alone:
                one = next(one for one in machine.gpus if one.label == self.pinned)
                async with machine.devices.alone(one, self.told.append):
                    await self._stay(one)
            else:
                async with machine.devices.use(
                    self.pinned, needs=self.needs, report=self.told.append
                ) as place:
                    self.way = place
                    await self._stay(place.gpu)
        self.gone.set()

    @asynccontextmanager
    async def _still(self):
        self.stilled += 1
        yield

    async def give_way(self):
        """Return the seconds that took."""
        before = self.way.given_way_s
        await self.way.give_way(self._still)
        return self.way.given_way_s - before

    async def _stay(self, one):
        self.place = one.label
        self.inside.set()
        await self.leave.wait()


@asynccontextmanager
async def visited(machine, *visitors):
    """Let visitors come one after the other; those still there leave at the end."""
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor.visit, machine)
            await settled()
        with anyio.fail_after(60):
            yield group
            for visitor in visitors:
                visitor.leave.set()
            for visitor in visitors:
                await visitor.gone.wait()
    assert (machine.running, machine.waiting) == ([0] * len(machine.gpus), [0] * len(machine.gpus))
    assert machine.held == [(0, 0)] * len(machine.gpus)


async def settled():
    """Wait until everybody has done what they can; all of it happens on this loop, in a few turns."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


async def left(visitor):
    visitor.leave.set()
    await visitor.gone.wait()
    await settled()


def inside(visitors):
    return [visitor.inside.is_set() for visitor in visitors]


# --- which GPU -------------------------------------------------------------------------------------------


async def test_evaluations_spread_over_the_gpus():
    machine, visitors = Machine(), [Visitor() for _ in range(4)]
    async with visited(machine, *visitors):
        assert [visitor.place for visitor in visitors] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
        assert machine.running == [2, 2]
        assert machine.held == [(2, 0), (2, 0)]


async def test_of_free_gpus_the_one_used_longest_ago_is_taken():
    machine, places, told = Machine(), [], []
    for _ in range(4):
        async with machine.devices.use(needs=Needs(1), report=told.append) as place:
            places.append(place.gpu.label)
    assert places == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert told == [LEAVING] * 4


@pytest.mark.parametrize("pinned", ["cuda:1", "3", "GPU-1000", "GPU-1"])
async def test_a_pinned_evaluation_stays_on_its_gpu(pinned):
    machine, visitors = Machine(), [Visitor(pinned) for _ in range(3)]
    async with visited(machine, *visitors):
        assert {visitor.place for visitor in visitors} == {"cuda:1"}
        assert machine.running == [0, 3]


async def test_others_make_room_for_those_that_are_pinned():
    machine, visitors = Machine(), [Visitor("cuda:0"), Visitor("cuda:0"), Visitor(), Visitor()]
    async with visited(machine, *visitors):
        assert [visitor.place for visitor in visitors[2:]] == ["cuda:1", "cuda:1"]


@pytest.mark.parametrize(
    ("pinned", "problem"),
    [
        ("cuda:2", "There is no GPU 'cuda:2'"),
        ("1", "There is no GPU '1'"),
        ("GPU-9", "There is no GPU 'GPU-9'"),
        ("H200", "There is no GPU 'H200'"),
        ("GPU-", "'GPU-' means 2 GPUs"),
    ],
)
async def test_an_unknown_gpu_is_named_beside_those_there_are(pinned, problem):
    machine = Machine()
    with pytest.raises(RequestError) as caught:
        await Visitor(pinned).visit(machine)
    there = "cuda:0 (NVIDIA H200, GPU-0000), cuda:1 (NVIDIA H200, GPU-1000)"
    assert caught.value.problem == f"{problem}; there are: {there}."
    assert machine.waiting == [0, 0]


@pytest.mark.parametrize("pinned", ["", "cuda:0"])
async def test_without_a_gpu_the_request_is_refused(pinned):
    with pytest.raises(RequestError, match="uses no GPU"):
        await Visitor(pinned).visit(Machine(count=0))


# --- when ------------------------------------------------------------------------------------------------


async def test_who_has_waited_for_memory_for_long_is_passed_by_what_fits_beside_it_alone(monkeypatch):
    monkeypatch.setattr(scheduling, "PASSED_S", 0.0)
    monkeypatch.setattr(scheduling, "GIB", 1)
    machine = Machine(count=1)
    first, large, too_large, small, no_more = visitors = [
        Visitor(needed=needed) for needed in (30, 50, 25, 15, 10)
    ]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False, False, True, False]
        assert large.told[0] == "waiting for 50 GiB of GPU memory, of 70 GiB 30 are taken (0 ahead)"
        assert too_large.told[0] == "waiting for the GPU (1 ahead)"
        await left(first)
        assert inside(visitors) == [True, True, False, True, False]  # it waited for nobody who came later
        await left(small)
        assert inside([too_large, no_more]) == [False, True]
        await left(large)
        assert too_large.inside.is_set()


async def test_who_waits_for_memory_is_passed_by_those_that_have_enough():
    machine = Machine(count=1)
    first, large, small, timing, last = visitors = [
        *(Visitor(needed=needed) for needed in (50, 40, 10)),
        Visitor("cuda:0", alone=True),
        Visitor(needed=10),
    ]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False, True, False, False]  # nobody passes who waits to time
        await left(small)
        await left(first)
        assert inside([large, timing, last]) == [True, False, False]


async def test_who_waits_for_memory_does_not_keep_others_from_making_way_for_a_timing():
    machine = Machine(count=1)
    first, large, timing = visitors = [
        Visitor(needed=50),
        Visitor(needed=40),
        Visitor("cuda:0", alone=True),
    ]
    async with visited(machine, *visitors) as group:
        group.start_soon(first.give_way)
        await timing.inside.wait()
        await left(timing)
        await settled()
        assert inside([large]) == [False]


async def test_those_behind_hear_how_many_are_ahead(monkeypatch):
    monkeypatch.setattr(scheduling, "GIB", 1)
    machine = Machine(count=1)
    visitors = [Visitor(needed=80), Visitor(needed=60), Visitor(needed=30)]
    async with visited(machine, *visitors):
        assert visitors[2].told == ["waiting for 30 GiB of GPU memory, of 70 GiB 80 are taken (1 ahead)"]
        await left(visitors[0])
        assert inside(visitors) == [True, True, False]
        assert visitors[2].told[1:] == ["waiting for 30 GiB of GPU memory, of 70 GiB 60 are taken (0 ahead)"]


async def test_what_several_need_in_common_counts_once():
    machine = Machine(count=1)
    trials = {"trials": 40}
    one, same, other, third = visitors = [
        Visitor(needed=10, shared=trials),
        Visitor(needed=10, shared=trials),
        Visitor(needed=10, shared={"others": 40}),
        Visitor(needed=10, shared=trials),
    ]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, True, False, True]
        async with one.way.reserved(Needs(10, trials)):
            await left(one)
            await left(same)
            assert not other.inside.is_set()
            await left(third)
            assert not other.inside.is_set()
        await other.inside.wait()


async def test_what_needs_more_than_there_is_runs_when_nothing_else_does(monkeypatch):
    monkeypatch.setattr(scheduling, "PASSED_S", 0.0)
    machine = Machine(count=1)
    small, huge, after = visitors = [Visitor(needed=1), Visitor(needed=10_000), Visitor(needed=1)]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False, False]
        await left(small)
        assert inside(visitors) == [True, True, False]
        await left(huge)
        assert after.inside.is_set()


async def test_a_gpu_that_does_not_tell_its_memory_takes_one_at_a_time():
    machine = Machine(count=0)
    mute = Gpu(0, "GPU-mute", "NVIDIA", 0, (9, 0))
    machine.gpus, machine.locks = [mute], {mute.uuid: Lock()}
    machine.devices = Devices(machine.gpus, machine.locks)
    visitors = [Visitor(), Visitor()]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False]


async def test_no_more_than_so_many_run_on_a_gpu():
    machine = Machine(per_device=2)
    visitors = [Visitor("cuda:0") for _ in range(3)]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, True, False]
        assert visitors[2].told == ["waiting for a place on the GPU (0 ahead)"]
        await left(visitors[1])
        assert visitors[2].inside.is_set()


async def test_who_may_use_any_gpu_takes_the_first_that_has_room():
    machine = Machine(per_device=1)
    visitors = [Visitor(), Visitor(), Visitor()]
    async with visited(machine, *visitors):
        assert machine.waiting == [1, 1]
        await left(visitors[1])
        assert visitors[2].place == "cuda:1"


async def test_who_waits_for_one_gpu_is_not_in_the_way_on_another():
    machine = Machine(per_device=1)
    visitors = [Visitor("cuda:0"), Visitor("cuda:0"), Visitor("cuda:1"), Visitor("cuda:1")]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False, True, False]
        assert visitors[3].told == ["waiting for a place on the GPU (0 ahead)"]


async def test_while_another_process_times_the_place_is_kept():
    machine, visitor = Machine(count=1), Visitor()
    lock = machine.locks["GPU-0000"]
    lock.foreign = anyio.Event()
    async with visited(machine, visitor):
        assert not visitor.inside.is_set()
        assert visitor.told == ["waiting for another process"]
        assert machine.running == [1]
        lock.foreign.set()
        await visitor.inside.wait()


# --- timing ----------------------------------------------------------------------------------------------


async def test_a_timing_waits_for_ours_and_keeps_off_those_that_come_later():
    machine = Machine(count=1)
    check, timing, later = visitors = [Visitor(), Visitor("cuda:0", alone=True), Visitor()]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False, False]
        assert timing.told == ["waiting for the GPU to be free (0 ahead)"]
        await left(check)
        assert inside(visitors) == [True, True, False]
        assert machine.held == [(0, 1)]
        assert later.told[-1] == "waiting for a measurement on the GPU to end (0 ahead)"
        await left(timing)
        assert later.inside.is_set()


async def test_while_one_gpu_is_timed_the_other_is_used():
    machine = Machine()
    visitors = [Visitor("cuda:0", alone=True), Visitor(), Visitor()]
    async with visited(machine, *visitors):
        assert [visitor.place for visitor in visitors] == ["cuda:0", "cuda:1", "cuda:1"]


async def test_two_timings_take_turns():
    machine = Machine(count=1)
    visitors = [Visitor("cuda:0", alone=True), Visitor("cuda:0", alone=True)]
    async with visited(machine, *visitors):
        assert inside(visitors) == [True, False]
        assert machine.running == [1]
        await left(visitors[0])
        assert visitors[1].inside.is_set()


# --- giving way ------------------------------------------------------------------------------------------


async def test_nobody_makes_way_for_those_who_do_not_time():
    machine = Machine(count=1, per_device=1)
    first, second = visitors = [Visitor(), Visitor()]
    async with visited(machine, *visitors):
        assert await first.give_way() == 0
        assert not second.inside.is_set()
        assert not first.stilled


async def test_who_gives_way_lets_a_timing_go_first_and_keeps_its_place():
    machine = Machine(count=1)
    check, timing, later = visitors = [Visitor(needed=60), Visitor("cuda:0", alone=True), Visitor(needed=60)]
    async with visited(machine, *visitors) as group:
        group.start_soon(check.give_way)
        await timing.inside.wait()
        assert machine.held == [(0, 1)]
        assert check.stilled
        assert check.told == ["making way for a measurement"]
        await left(timing)
        await settled()
        assert machine.held == [(1, 0)]
        assert not later.inside.is_set()  # the memory is still the first's
        assert await check.give_way() == 0


async def test_all_who_give_way_do_it_together():
    machine = Machine(count=1)
    one, other, timing = visitors = [Visitor(), Visitor(), Visitor("cuda:0", alone=True)]
    async with visited(machine, *visitors) as group:
        group.start_soon(one.give_way)
        await settled()
        assert not timing.inside.is_set()
        group.start_soon(other.give_way)
        await timing.inside.wait()
        await left(timing)
        await settled()


async def test_nobody_makes_way_for_long_while_somebody_else_is_in_the_way(monkeypatch):
    monkeypatch.setattr(scheduling, "GIVE_WAY_S", 0.05)
    machine = Machine(count=1)
    check, busy, timing = visitors = [Visitor(), Visitor(), Visitor("cuda:0", alone=True)]
    async with visited(machine, *visitors):
        assert 0.05 <= await check.give_way() < 1
        assert inside(visitors) == [True, True, False]
        assert machine.held == [(2, 0)]
        assert await check.give_way() == 0  # not again at once
        await left(busy)
        assert not timing.inside.is_set()
        monkeypatch.setattr(scheduling, "NOT_AGAIN_S", 0.0)


async def test_who_has_reserved_nothing_does_not_run_beside_what_others_hold_who_make_way():
    """What a GPU can do is measured, and its counters read, with memory that is there."""
    machine = Machine(count=1)
    async with machine.devices.use(needs=Needs(60), report=lambda _: None) as place:
        inside = anyio.Event()

        async def measure():
            async with machine.devices.alone(machine.gpus[0], lambda _: None, needs=Needs(20)):
                inside.set()

        async def profile():
            async with machine.devices.alone(machine.gpus[0], lambda _: None, needs=Needs(5)):
                inside.set()

        async with anyio.create_task_group() as group:
            group.start_soon(measure)
            await settled()
            with anyio.move_on_after(0.1):
                await place.give_way(nullcontext)
            assert not inside.is_set()
            group.cancel_scope.cancel()
        async with anyio.create_task_group() as group:
            group.start_soon(profile)
            await settled()
            await place.give_way(nullcontext)
            assert inside.is_set()


async def test_who_has_reserved_nothing_does_not_run_beside_what_others_have():
    machine = Machine(count=1)
    inside = anyio.Event()

    async def profile():
        async with machine.devices.alone(machine.gpus[0], lambda _: None, needs=Needs(20)):
            inside.set()

    async with anyio.create_task_group() as group:
        async with AsyncExitStack() as memory:
            async with machine.devices.use(needs=Needs(60), report=lambda _: None) as place:
                await memory.enter_async_context(place.reserved(Needs(60)))
            group.start_soon(profile)
            await settled()
            assert not inside.is_set()
            async with machine.devices.alone(machine.gpus[0], lambda _: None, holding=True):
                assert not inside.is_set()
            await settled()
            assert not inside.is_set()  # the processes of who has timed are there still
        await inside.wait()


async def test_nobody_makes_way_for_who_is_not_the_next():
    machine = Machine(count=1, per_device=1)
    check, second, timing = visitors = [Visitor(), Visitor(), Visitor("cuda:0", alone=True)]
    async with visited(machine, *visitors):
        assert await check.give_way() == 0  # the second waits for a place, and the timing for the second
        await left(check)
        await second.inside.wait()
        assert not timing.inside.is_set()


async def test_two_timings_in_a_row_find_the_way_free():
    machine = Machine(count=1)
    check, first, second = visitors = [Visitor(), *(Visitor("cuda:0", alone=True) for _ in range(2))]
    async with visited(machine, *visitors) as group:
        group.start_soon(check.give_way)
        await first.inside.wait()
        await left(first)
        await second.inside.wait()
        assert machine.held == [(0, 1)]
        await left(second)
        await settled()


async def test_a_row_of_timings_does_not_keep_anybody_aside_for_good():
    machine = Machine(count=1)
    check, *timings = visitors = [Visitor(), *(Visitor("cuda:0", alone=True) for _ in range(4))]
    async with visited(machine, *visitors) as group:
        group.start_soon(check.give_way)
        for timing in timings[:2]:
            await timing.inside.wait()
            await left(timing)
        await settled()
        assert inside(timings) == [True, True, False, False]
        assert machine.held == [(1, 0)]
        await left(check)
        assert timings[2].inside.is_set()


async def test_who_is_cancelled_while_it_gives_way_is_gone():
    machine = Machine(count=1)
    check, timing, later = visitors = [Visitor(), Visitor("cuda:0", alone=True), Visitor()]
    async with visited(machine, *visitors) as group:
        scope = anyio.CancelScope()

        async def give_way():
            with scope:
                await check.give_way()

        group.start_soon(give_way)
        await timing.inside.wait()
        scope.cancel()
        check.scope.cancel()
        await check.gone.wait()
        assert machine.held == [(0, 1)]  # the timing is not disturbed
        assert not later.inside.is_set()
        await left(timing)
        assert later.inside.is_set()


async def test_who_only_computes_on_the_cpu_gives_way_at_any_moment():
    machine = Machine(count=1)
    check, timing, second = visitors = [Visitor(), *(Visitor("cuda:0", alone=True) for _ in range(2))]
    async with visited(machine, check) as group:
        async with check.way.giving_way(check._still):
            group.start_soon(timing.visit, machine)
            await timing.inside.wait()
            assert (machine.held, check.stilled) == ([(0, 1)], 1)
            await left(timing)
            assert machine.held == [(1, 0)]
            group.start_soon(second.visit, machine)
            await second.inside.wait()
            second.leave.set()
        assert machine.held == [(1, 0)]  # not before it has its place again
        assert check.stilled == 2
    assert inside(visitors) == [True] * 3


async def test_what_fails_meanwhile_has_its_place_again_first():
    machine = Machine(count=1)
    check, timing = Visitor(), Visitor("cuda:0", alone=True)
    async with visited(machine, check) as group:

        async def fails():
            async with check.way.giving_way(check._still):
                group.start_soon(timing.visit, machine)
                await timing.inside.wait()
                timing.leave.set()
                raise WorkerError("lost")

        with pytest.raises(WorkerError, match="lost"):
            await fails()
        assert machine.held == [(1, 0)]
        assert timing.gone.is_set()


async def test_what_cannot_be_held_still_says_why_and_its_timing_is_not_begun():
    machine = Machine(count=1)
    check, timing = visitors = [Visitor(), Visitor("cuda:0", alone=True)]

    def still():
        raise WorkerError("it has ended")

    async with visited(machine, *visitors):
        with pytest.raises(WorkerError, match="it has ended"):
            async with check.way.giving_way(still):
                await anyio.sleep_forever()
        assert machine.held == [(1, 0)]
        assert not timing.inside.is_set()


async def test_who_is_cancelled_while_it_gives_way_at_any_moment_is_gone():
    machine = Machine(count=1)
    check, timing = Visitor(), Visitor("cuda:0", alone=True)
    async with visited(machine, check) as group:
        with anyio.CancelScope() as scope:
            async with check.way.giving_way(check._still):
                group.start_soon(timing.visit, machine)
                await timing.inside.wait()
                scope.cancel()
                await anyio.sleep_forever()
        check.scope.cancel()
        await check.gone.wait()
        assert machine.held == [(0, 1)]
        await left(timing)


# --- giving up -------------------------------------------------------------------------------------------


async def test_one_that_gives_up_while_it_waits_makes_way_for_those_behind_it():
    machine = Machine(count=1)
    visitors = [Visitor(needed=50), Visitor(needed=40), Visitor(needed=10)]
    async with visited(machine, *visitors):
        visitors[1].scope.cancel()
        await settled()
        assert inside(visitors) == [True, False, True]


async def test_one_that_is_cancelled_gives_up_its_place():
    machine = Machine(count=1)
    visitors = [Visitor(needed=80), Visitor(needed=80)]
    async with visited(machine, *visitors):
        visitors[0].scope.cancel()
        await visitors[1].inside.wait()


async def test_a_place_given_in_the_moment_of_giving_up_passes_on():
    machine = Machine(count=1)
    visitors = [Visitor(needed=80) for _ in range(3)]
    async with visited(machine, *visitors):
        visitors[0].leave.set()
        visitors[0].scope.cancel()
        visitors[1].scope.cancel()
        await visitors[2].inside.wait()


async def test_one_that_gives_up_while_another_process_times_gives_up_its_place():
    machine, visitors = Machine(count=1, per_device=1), [Visitor(), Visitor("cuda:0", alone=True)]
    lock = machine.locks["GPU-0000"]
    lock.foreign = anyio.Event()
    async with visited(machine, *visitors):
        visitors[0].scope.cancel()
        await settled()
        assert machine.running == [1]  # the timing has its place, and waits for the other process too
        visitors[1].scope.cancel()
        await settled()
        assert (machine.running, machine.waiting) == ([0], [0])


async def test_a_lock_that_fails_gives_up_the_place():
    machine = Machine(count=1)

    @asynccontextmanager
    async def broken(report):
        raise WorkerError("no lock")
        yield

    machine.locks["GPU-0000"].shared = broken
    with pytest.raises(WorkerError, match="no lock"):
        await Visitor().visit(machine)
    assert (machine.running, machine.waiting) == ([0], [0])


@given(
    visitors=st.lists(
        st.tuples(st.sampled_from(["", "cuda:0", "cuda:1"]), st.integers(0, 120), st.booleans()), max_size=12
    ),
    endings=st.randoms(use_true_random=False),
)
def test_whoever_comes_is_served_within_the_limits_and_nothing_is_left(visitors, endings):
    async def play():
        machine = Machine(per_device=3)
        party = [
            Visitor(pinned or ("cuda:0" if alone else ""), needed, alone)
            for pinned, needed, alone in visitors
        ]
        async with visited(machine, *party):
            present = list(party)
            while present:
                for one in machine.gpus:
                    here = [each for each in present if each.place == one.label]
                    assert machine.devices.running(one) == len(here) <= 3
                    needed = sum(each.needed for each in here)
                    assert len(here) <= 1 or (needed <= 80 and not any(each.alone for each in here))
                assert any(each.inside.is_set() for each in present)
                leaving = present.pop(endings.randrange(len(present)))
                if leaving.inside.is_set() and endings.random() < 0.7:
                    leaving.leave.set()
                else:
                    leaving.scope.cancel()
                await leaving.gone.wait()
                await settled()

    anyio.run(play)


class Party:
    """Who prepares beside others, then times alone with what it has prepared; or makes way at times; left to chance."""

    def __init__(self, machine, needed, times, chance):
        self.machine, self.needed, self.times, self.chance = machine, needed, times, chance
        self.scope = anyio.CancelScope()
        self.holds = 0
        self.busy = self.alone = self.done = False

    async def run(self):
        devices, one = self.machine.devices, self.machine.gpus[0]
        try:
            with self.scope:
                async with AsyncExitStack() as memory:
                    memory.callback(self._nothing)
                    async with devices.use(needs=Needs(self.needed), report=lambda _: None) as place:
                        self.holds = self.needed
                        self.busy = True
                        for _ in range(self.chance.randrange(4)):
                            await self._for_a_while()
                            self.busy = False
                            if self.chance.randrange(2):
                                await place.give_way(nullcontext)
                            else:
                                async with place.giving_way(nullcontext):
                                    await self._for_a_while()
                            self.busy = True
                        await self._for_a_while()
                        self.busy = False
                        if not self.times:
                            return
                        await memory.enter_async_context(place.reserved(Needs(self.needed)))
                    async with devices.alone(one, lambda _: None, holding=True):
                        self.alone = True
                        await self._for_a_while()
                        self.alone = False
        finally:
            self.busy = self.alone = False
            self.done = True

    def _nothing(self):
        self.holds = 0

    async def _for_a_while(self):
        for _ in range(self.chance.randrange(8)):
            await anyio.lowlevel.checkpoint()


@given(
    who=st.lists(st.tuples(st.integers(1, 90), st.booleans()), min_size=1, max_size=10),
    chance=st.randoms(use_true_random=False),
)
def test_whoever_prepares_makes_way_and_times_in_any_order_is_done_and_nothing_is_left(who, chance):
    async def play():
        machine = Machine(count=1)
        lock = machine.locks["GPU-0000"]
        party = [Party(machine, needed, times, chance) for needed, times in who]

        def looked_at():
            alone = [each for each in party if each.alone]
            assert not alone or (len(alone) == 1 and not any(each.busy for each in party))
            assert not alone or (lock.checks, lock.timings) == (0, 1)
            holds = [each.holds for each in party if each.holds]
            assert len(holds) < 2 or sum(holds) <= 80, holds
            waits = [each for each in party if not each.done]
            if waits and chance.random() < 0.03:
                chance.choice(waits).scope.cancel()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for each in party:
                    group.start_soon(each.run)
                    for _ in range(chance.randrange(5)):
                        await anyio.lowlevel.checkpoint()
                        looked_at()
                while not all(each.done for each in party):
                    await anyio.lowlevel.checkpoint()
                    looked_at()
        assert (machine.running, machine.waiting, machine.held) == ([0], [0], [(0, 0)])

    before, scheduling.GIVE_WAY_S = scheduling.GIVE_WAY_S, 0.0
    try:
        anyio.run(play)
    finally:
        scheduling.GIVE_WAY_S = before


async def test_memory_that_is_reserved_is_given_to_nobody_and_who_holds_it_goes_first():
    machine = Machine(count=1)
    one, told = machine.gpus[0], []
    timing, after = anyio.Event(), Visitor(needed=60)

    async def prepare_and_time():
        async with AsyncExitStack() as memory:
            async with machine.devices.use(needs=Needs(60), report=told.append) as place:
                await settled()
                await memory.enter_async_context(place.reserved(Needs(60)))
            async with machine.devices.alone(one, told.append, holding=True):
                timing.set()
                assert not after.inside.is_set()
            await settled()
            assert not after.inside.is_set()  # its processes are still there

    async with anyio.create_task_group() as group:
        group.start_soon(prepare_and_time)
        await anyio.lowlevel.checkpoint()
        async with visited(machine, after):
            await timing.wait()
            await after.inside.wait()


# --- with real locks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [True, False])
async def test_that_a_gpu_is_left_is_said_before_anybody_else_is_on_it(alone):
    machine, order = Machine(), []
    gpu = machine.devices.gpus[0]

    async def next_one():
        async with machine.devices.alone(gpu, lambda _: None):
            order.append("next")

    def report(words):
        if words == LEAVING:
            order.append(words)

    one = (
        machine.devices.alone(gpu, report)
        if alone
        else machine.devices.use(gpu.label, needs=Needs(1), report=report)
    )
    async with anyio.create_task_group() as group, one:
        group.start_soon(next_one)
        await anyio.wait_all_tasks_blocked()
    assert order == [LEAVING, "next"]


async def test_with_real_locks_two_servers_share_a_gpu_and_neither_disturbs_the_timing_of_the_other(tmp_path):
    one = gpu(0)
    servers = [Devices([one], {one.uuid: DeviceLock(one, tmp_path / "locks")}) for _ in range(2)]
    told, order = anyio.Event(), []

    async def check():
        async with servers[1].use(needs=Needs(1), report=lambda words: told.set()):
            order.append("check")

    async with anyio.create_task_group() as group:
        async with (
            servers[0].use(needs=Needs(1), report=order.append),
            servers[1].use(needs=Needs(1), report=order.append),
        ):
            pass
        async with servers[0].alone(one, order.append):
            group.start_soon(check)
            with anyio.fail_after(30):
                await told.wait()
            order.append("timed")
    assert order == [LEAVING, LEAVING, "timed", LEAVING, "check"]
