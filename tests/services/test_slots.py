import anyio
import pytest

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.services import slots
from adaexplore_mcp.services.slots import Slots

pytestmark = pytest.mark.anyio


class Visitor:
    """Holds a place until told to leave."""

    def __init__(self):
        self.places = []
        self.inside = anyio.Event()
        self.leave = anyio.Event()
        self.scope = anyio.CancelScope()

    async def visit(self, slots):
        with self.scope:
            async with slots.slot(self.places.append):
                self.inside.set()
                await self.leave.wait()


async def test_places_are_given_in_order_and_each_visitor_knows_how_many_are_before_it():
    slots, visitors = Slots(2), [Visitor() for _ in range(5)]
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor.visit, slots)
        await anyio.wait_all_tasks_blocked()
        assert [visitor.inside.is_set() for visitor in visitors] == [True, True, False, False, False]
        assert [visitor.places for visitor in visitors] == [[], [], [2], [3], [4]]
        visitors[1].leave.set()
        await visitors[2].inside.wait()
        assert [visitor.places for visitor in visitors[3:]] == [[3, 2], [4, 3]]
        assert slots.taken == 2
        for visitor in visitors:
            visitor.leave.set()
    assert slots.taken == 0


async def test_a_visitor_that_gives_up_makes_way_for_those_behind_it():
    slots, visitors = Slots(1), [Visitor() for _ in range(3)]
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor.visit, slots)
        await anyio.wait_all_tasks_blocked()
        visitors[1].scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert visitors[2].places == [2, 1]
        visitors[0].leave.set()
        await visitors[2].inside.wait()
        visitors[2].leave.set()
    assert slots.taken == 0


async def test_a_place_given_in_the_moment_of_giving_up_passes_on():
    slots, visitors = Slots(1), [Visitor() for _ in range(3)]
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor.visit, slots)
        await anyio.wait_all_tasks_blocked()
        visitors[0].leave.set()
        visitors[0].scope.cancel()
        visitors[1].scope.cancel()
        await visitors[2].inside.wait()
        visitors[2].leave.set()
    assert slots.taken == 0


async def test_a_queue_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(slots, "MAX_WAITING", 1)
    crowded, visitors = Slots(1), [Visitor() for _ in range(2)]
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor.visit, crowded)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RequestError, match="1 evaluations run and 1 wait"):
            await Visitor().visit(crowded)
        group.cancel_scope.cancel()
