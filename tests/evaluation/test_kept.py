"""The cache of trials: made once, drawn anew when due, let go of when memory is short, never while in use."""

import os
from functools import partial

import anyio
import pytest

from adaexplore_mcp.evaluation.kept import HOST_BYTES, USES, KeptTrials
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet

pytestmark = pytest.mark.anyio


class Maker:
    """Makes trials and counts them.

    Args:
        gpu: Where they lie.
        size: Bytes of each set, as it says.
        fails: How many of the first attempts raise.
    """

    def __init__(self, gpu="", size=1 << 20, fails=0):
        self.gpu, self.size, self.fails = gpu, size, fails
        self.made = []

    async def __call__(self, before):
        self.before = before
        await anyio.sleep(0.01)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("no trials")
        none = Attachment([], None)
        inputs = Attachment([], os.open("/dev/null", os.O_RDONLY), self.size)
        trial = Trial("first", "constructor", inputs, none, 1, [])
        trials = TrialSet(1, 2, none, none, {}, [trial], [], {}, 1, [], gpu=self.gpu)
        self.made.append(trials)
        return trials


@pytest.fixture
def kept():
    kept = KeptTrials({"GPU-1": 10 << 20}.__getitem__)
    yield kept
    kept.close()


async def together(*calls):
    results = []

    async def call(one):
        try:
            results.append(await one())
        except RuntimeError as error:
            results.append(error)

    async with anyio.create_task_group() as group:
        for each in calls:
            group.start_soon(call, each)
    return results


async def test_they_are_made_once_for_all_who_ask_at_the_same_time(kept):
    make = Maker()
    results = await together(*[lambda: kept.get("task", make)] * 5)
    assert len(make.made) == 1
    assert all(each is make.made[0] for each in results)
    assert "task" in kept
    assert "other" not in kept


async def test_who_waits_for_a_maker_does_something_else_meanwhile(kept):
    make, done = Maker(), []

    async def meanwhile():
        done.append(len(make.made))

    async def wait():
        await anyio.sleep(0.001)
        return await kept.get("task", make, meanwhile=meanwhile)

    first, second = await together(partial(kept.get, "task", make, meanwhile=meanwhile), wait)
    assert first is second
    assert done == [0]
    await kept.get("task", make, meanwhile=meanwhile)
    assert len(done) == 1


async def test_who_waits_for_a_maker_that_fails_makes_them_once_too(kept):
    make = Maker(fails=1)
    results = await together(*[lambda: kept.get("task", make)] * 4)
    assert sum(isinstance(each, RuntimeError) for each in results) == 1
    assert len(make.made) == 1


async def test_those_that_a_candidate_told_of_or_used_often_are_drawn_anew(kept):
    make = Maker()
    for _ in range(USES + 1):
        await kept.get("task", make)
    assert len(make.made) == 2
    assert make.made[0].closed
    assert make.before is make.made[0]
    make.made[1].spent = True
    await kept.get("task", make)
    assert len(make.made) == 3
    assert make.before is make.made[1]


async def test_the_oldest_in_one_memory_go_when_that_is_full(kept):
    on_gpu, on_host = Maker("GPU-1", 6 << 20), Maker(size=HOST_BYTES)
    await kept.get("host", on_host)
    for what in ("one", "two", "three"):
        await kept.get(what, on_gpu, gpu="GPU-1")
    # What is about to be used counts where its users wait for memory; of the others one is within what may be kept.
    assert [what for what in ("one", "two", "three", "host") if what in kept] == ["two", "three", "host"]
    assert [made.closed for made in on_gpu.made] == [True, False, False]
    kept.tidy("GPU-1")
    assert "two" not in kept
    await kept.get("large", Maker("GPU-1", 11 << 20), gpu="GPU-1")
    kept.tidy("GPU-1")
    assert "large" in kept  # the latest stay
    assert "three" not in kept


async def test_there_is_room_before_some_are_made(kept):
    await kept.get("large", Maker("GPU-1", 11 << 20), gpu="GPU-1")
    there = []

    async def make(_):
        there.append("large" in kept)
        return await small(None)

    small = Maker("GPU-1")
    await kept.get("small", make, gpu="GPU-1")
    assert there == [False]


async def test_those_in_use_stay_when_memory_is_full(kept):
    """They take it all the same, and whoever uses them next would have them made again."""
    first, second, third = (Maker("GPU-1", size=6 << 20) for _ in range(3))
    trials = await kept.get("first", first, gpu="GPU-1")
    with trials.used():
        await kept.get("second", second, gpu="GPU-1")
        await kept.get("third", third, gpu="GPU-1")
        assert ("first" in kept, "second" in kept) == (True, True)
        assert await kept.get("first", first, gpu="GPU-1") is trials
        assert ("first" in kept, "second" in kept, "third" in kept) == (True, False, True)
    assert len(first.made) == 1
    kept.tidy("GPU-1")  # in use no more: they are the latest, and the others are too many
    assert "third" not in kept
    assert not kept.several("GPU-1")


async def test_those_in_use_are_closed_when_their_users_are_done(kept):
    make = Maker("GPU-1")
    trials = await kept.get("task", make, gpu="GPU-1")
    file = trials.trials[0].inputs.file
    with trials.used():
        kept.forget_gpu("GPU-1")
        assert "task" not in kept
        os.fstat(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


async def test_trials_that_are_due_have_to_be_made_and_are_others_than_those_still_in_use(kept):
    make = Maker()
    assert ("task" in kept, kept.generation("task")) == (False, 1)
    trials = await kept.get("task", make)
    assert ("task" in kept, kept.generation("task")) == (True, 1)
    trials.spent = True
    assert ("task" in kept, kept.generation("task")) == (False, 2)
    for _ in range(USES):
        await kept.get("task", make)
    assert ("task" in kept, kept.generation("task")) == (False, 3)
    await kept.get("task", make)
    assert ("task" in kept, kept.generation("task")) == (True, 3)
    kept.forget_gpu("")
    assert ("task" in kept, kept.generation("task")) == (False, 4)


async def test_what_somebody_counts_for_who_has_not_asked_yet_is_not_idle():
    expected = set()
    kept = KeptTrials({"GPU-1": 0}.__getitem__, lambda _: expected)
    for what in ("one", "two"):
        await kept.get(what, Maker("GPU-1"), gpu="GPU-1")
        expected.add(what)
    kept.tidy("GPU-1", "three")
    assert ("one" in kept, "two" in kept) == (True, True)
    expected.clear()
    kept.tidy("GPU-1", "three")
    assert ("one" in kept, "two" in kept) == (False, False)
