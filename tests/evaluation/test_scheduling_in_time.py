"""Who waits for a GPU, and for how long: scenes and random worlds under a clock that jumps to what happens next."""

import itertools
import math
import random
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial

import anyio
import looptime
import pytest

from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.scheduling import GIVE_WAY_S, MEMORY_SHARE, NOT_AGAIN_S, PASSED_S, Devices

ROOM = 100
GPU = Gpu(0, "GPU-0", "NVIDIA H200", math.ceil(ROOM / MEMORY_SHARE), (9, 0))


class Lock:
    """Notes who holds it, and that nobody does beside one that times."""

    def __init__(self):
        self.checks = self.timings = 0

    @asynccontextmanager
    async def shared(self, report):
        assert self.timings == 0
        self.checks += 1
        try:
            yield
        finally:
            self.checks -= 1

    @asynccontextmanager
    async def alone(self, report):
        assert (self.checks, self.timings) == (0, 0)
        self.timings += 1
        try:
            yield
        finally:
            self.timings -= 1


class World:
    """One GPU, and when who came to it."""

    def __init__(self, per_device=4):
        self.lock = Lock()
        self.devices = Devices([GPU], {GPU.uuid: self.lock}, per_device=per_device)
        self.came = {}
        self.started = {}
        self.stops = 0

    @asynccontextmanager
    async def placed(self, name, needed=0):
        self.came[name] = anyio.current_time()
        async with self.devices.use(needs=Needs(needed), report=str) as place:
            self.started[name] = anyio.current_time()
            yield place

    async def stays(self, name, needed, seconds):
        async with self.placed(name, needed):
            await anyio.sleep(seconds)

    async def times(self, name, seconds, *, holding=False, needed=0):
        self.came[name] = anyio.current_time()
        async with self.devices.alone(GPU, str, holding=holding, needs=Needs(needed)):
            self.started[name] = anyio.current_time()
            await anyio.sleep(seconds)

    @asynccontextmanager
    async def still(self):
        self.stops += 1
        yield

    def waited(self, name):
        return self.started[name] - self.came[name]


def played(scene):
    """Run a scene to its end; one without an end is an error after a day."""

    async def within_a_day():
        with anyio.fail_after(86_400):
            await scene()

    anyio.run(within_a_day, backend_options={"loop_factory": lambda: looptime.new_event_loop(start=0)})


async def comes(group, after, visit, *arguments, **more):
    """Have somebody come some seconds from now, and whoever is named next so many after that."""
    await anyio.sleep(after)

    async def visits():
        await visit(*arguments, **more)

    group.start_soon(visits)


# --- making way --------------------------------------------------------------------------------------------


def test_two_who_make_way_at_any_moment_do_it_together_however_they_stand():
    world = World()

    async def stands_by(name, busy_s):
        async with world.placed(name) as place:
            await anyio.sleep(busy_s)
            async with place.giving_way(world.still):
                await anyio.sleep(100)

    async def scene():
        async with anyio.create_task_group() as group:
            # The first gives way in vain while the second is busy, then the second while the first goes on.
            await comes(group, 0, stands_by, "one", 0)
            await comes(group, 0, stands_by, "other", 1 + GIVE_WAY_S + NOT_AGAIN_S / 2)
            await comes(group, 1, world.times, "timing", 5)

    played(scene)
    assert world.waited("timing") == pytest.approx(GIVE_WAY_S + NOT_AGAIN_S / 2)


def test_one_who_makes_way_between_two_requests_is_joined_by_one_who_does_it_at_any_moment():
    world = World()

    async def stands_by():
        async with world.placed("one") as place, place.giving_way(world.still):
            await anyio.sleep(100)

    async def asks():
        async with world.placed("other") as place:
            for _ in range(30):
                await anyio.sleep(GIVE_WAY_S + NOT_AGAIN_S * 0.6)  # while the one is aside, and goes on
                await place.give_way(world.still)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, stands_by)
            await comes(group, 0, asks)
            await comes(group, 0.5, world.times, "timing", 5)

    played(scene)
    assert world.waited("timing") < GIVE_WAY_S + NOT_AGAIN_S


def test_two_whose_processes_take_long_to_stop_make_way_together():
    world = World()

    @asynccontextmanager
    async def slow():
        await anyio.sleep(1.5 * GIVE_WAY_S)
        yield

    async def stands_by(name, busy_s):
        async with world.placed(name) as place:
            await anyio.sleep(busy_s)
            async with place.giving_way(slow):
                await anyio.sleep(100)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, stands_by, "one", 0)
            await comes(group, 0, stands_by, "other", 1 + 1.2 * GIVE_WAY_S)
            await comes(group, 1, world.times, "timing", 5)

    played(scene)
    assert world.waited("timing") == pytest.approx(2.7 * GIVE_WAY_S)


def test_who_stands_by_sees_at_once_who_came_while_it_took_its_place_again():
    world = World()

    async def takes_its_time():
        await anyio.sleep(0.3)

    async def stands_by():
        async with world.placed("one") as place:
            hold = place.hold

            async def slowly():
                await takes_its_time()
                await hold()

            place.hold = slowly
            async with place.giving_way(world.still):
                await anyio.sleep(60)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, stands_by)
            await comes(group, 1, world.times, "first", 1)
            await comes(group, 1.1, world.times, "second", 1)

    played(scene)
    assert world.waited("first") == 0
    assert world.waited("second") < 0.5


def test_who_is_done_stops_nothing_any_more():
    world = World()

    async def scene():
        async with world.placed("one") as place, anyio.create_task_group() as group:
            async with place.giving_way(world.still):
                await anyio.sleep(1)
                group.start_soon(world.times, "timing", 1)
                await anyio.wait_all_tasks_blocked()
            assert world.stops == 1
            async with place.giving_way(world.still):
                group.start_soon(world.times, "later", 1)
                # It comes in the moment in which the other is done.
            await anyio.sleep(5)
            assert world.stops == 1
            await place.give_way(world.still)

    played(scene)
    assert world.waited("later") >= 5


# --- who waits for memory ----------------------------------------------------------------------------------


def stream(world, group, *, needed, every_s, seconds, until=600):
    """Have somebody small come again and again."""

    async def come():
        for number in itertools.count():
            if anyio.current_time() > until:
                return
            group.start_soon(world.stays, f"small {number}", needed, seconds)
            await anyio.sleep(every_s)

    group.start_soon(come)


def test_who_waits_for_memory_is_not_kept_waiting_by_those_who_take_all_places():
    world = World(per_device=4)

    async def prepares():
        async with AsyncExitStack() as memory:
            async with world.placed("first", 60) as place:
                await memory.enter_async_context(place.reserved(Needs(60)))
            await anyio.sleep(30)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, prepares)
            await comes(group, 1, world.stays, "large", 80, 5)
            await anyio.sleep(PASSED_S)
            stream(world, group, needed=1, every_s=2, seconds=60)

    played(scene)
    assert world.started["large"] == 30


def test_two_who_wait_for_memory_and_fit_beside_each_other_are_not_kept_waiting_by_what_fits_beside_one():
    world = World(per_device=8)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, world.stays, "first", 60, 30)
            await comes(group, 1, world.stays, "one", 50, 50)
            await comes(group, 1, world.stays, "other", 45, 50)
            await anyio.sleep(PASSED_S)
            stream(world, group, needed=5, every_s=3, seconds=200, until=100)

    played(scene)
    assert (world.started["one"], world.started["other"]) == (30, 30)


def test_two_who_wait_for_memory_and_do_not_fit_beside_each_other_are_passed_by_what_fits_beside_each():
    world = World(per_device=8)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, world.stays, "first", 50, 60)
            await comes(group, 1, world.stays, "one", 60, 10)
            await comes(group, 1, world.stays, "other", 70, 10)
            await comes(group, 20, world.stays, "small", 20, 200)
            await comes(group, 1, world.stays, "too large", 15, 10)

    played(scene)
    assert world.waited("small") == 0
    assert (world.started["one"], world.started["other"]) == (60, 70)
    assert world.started["too large"] > 23


def test_who_waits_for_memory_to_be_alone_is_passed_by_nobody_in_the_end():
    world = World(per_device=40)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, world.stays, "first", 90, 30)
            await comes(group, 1, world.times, "profile", 1, needed=20)
            stream(world, group, needed=1, every_s=4, seconds=60)

    played(scene)
    # Whoever passed it in its first seconds stays 60; nobody who came later is in its way.
    assert world.started["profile"] <= 1 + PASSED_S + 60


def test_memory_that_is_reserved_came_when_its_place_did():
    """One that came later than who waits does not count twice against what may pass."""
    world = World(per_device=8)

    async def prepares():
        async with AsyncExitStack() as memory:
            async with world.placed("early", 40) as place:
                await anyio.sleep(5)
                await memory.enter_async_context(place.reserved(Needs(40)))
            await anyio.sleep(60)

    async def scene():
        async with anyio.create_task_group() as group:
            await comes(group, 0, prepares)
            await comes(group, 1, world.stays, "large", 70, 10)
            await comes(group, 20, world.stays, "small", 30, 10)

    played(scene)
    assert world.waited("small") == 0


# --- anything at all ---------------------------------------------------------------------------------------


class Chance(World):
    """Evaluations as they come in a search: they make inputs, judge, make ready and are timed; lengths are left to chance."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        super().__init__(per_device=self.chance.choice([1, 2, 4, 6]))
        self.held = {}
        self.busy = set()

    def looked_at(self):
        together = sum(self.held.values())
        assert together <= ROOM or len(self.held) == 1, self.held
        assert len(self.busy) <= self.devices._per_device

    async def works(self, name, longest_s):
        assert self.lock.timings == 0, "somebody works while another times"
        self.busy.add(name)
        try:
            await anyio.sleep(self.chance.uniform(0, longest_s))
            assert self.lock.timings == 0, "somebody works while another times"
        finally:
            self.busy.discard(name)

    @asynccontextmanager
    async def slow_still(self):
        await anyio.sleep(self.chance.choice([0, 0.001, 0.3]))
        yield
        await anyio.sleep(self.chance.choice([0, 0.001]))

    async def evaluates(self, name):
        needed = self.chance.choice([1, 5, 20, 35, 60, 95, 150])
        try:
            with anyio.move_on_after(self.chance.choice([5, 40, 1e6, 1e6, 1e6])):
                async with AsyncExitStack() as memory:
                    async with self.placed(name, needed) as place:
                        self.held[name] = needed
                        memory.callback(self.held.pop, name)
                        self.looked_at()
                        for _ in range(self.chance.randrange(6)):
                            if self.chance.random() < 0.5:
                                async with place.giving_way(self.slow_still):
                                    await anyio.sleep(self.chance.uniform(0, 8))
                            else:
                                await self.works(name, 1.5)
                                await place.give_way(self.slow_still)
                        if self.chance.random() < 0.4:
                            return
                        await memory.enter_async_context(place.reserved(Needs(needed)))
                    await self.times(name, self.chance.uniform(0, 3), holding=True)
        finally:
            self.busy.discard(name)

    async def plays(self):
        async with anyio.create_task_group() as group:
            for number in range(self.chance.randrange(2, 40)):
                if self.chance.random() < 0.1:
                    profile = partial(self.times, f"profile {number}", 1, needed=self.chance.choice([0, 30]))
                    group.start_soon(profile)
                else:
                    group.start_soon(self.evaluates, number)
                await anyio.sleep(self.chance.choice([0, 0, 0.1, 2, 5]))
        assert not self.held
        assert (self.lock.checks, self.lock.timings) == (0, 0)
        assert (self.devices.running(GPU), self.devices.waiting(GPU)) == (0, 0)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_is_done_within_the_limits_and_nothing_is_left(seed):
    played(Chance(seed).plays)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_who_times_waits_long_where_all_make_way(seed):
    """For the longest request, and for as long as one goes on that gave way in vain."""
    world, chance = World(per_device=6), random.Random(seed)

    async def judges(name):
        async with world.placed(name) as place:
            while anyio.current_time() < 150:
                if chance.random() < 0.5:
                    async with place.giving_way(world.still):
                        await anyio.sleep(chance.uniform(0, 12))
                else:
                    await anyio.sleep(chance.uniform(0, 0.5))
                    await place.give_way(nullcontext)

    async def scene():
        async with anyio.create_task_group() as group:
            for name in range(5):
                group.start_soon(judges, name)
            for number in range(10):
                await anyio.sleep(10)
                await world.times(f"timing {number}", 1)

    played(scene)
    assert max(world.waited(f"timing {number}") for number in range(10)) < GIVE_WAY_S + NOT_AGAIN_S
