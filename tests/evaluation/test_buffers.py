"""What a GPU's judge is told about the memory that it may keep mapped, by a pool that only writes it down."""

import os
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from adaexplore_mcp.evaluation.buffers import GpuBuffers
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.trials import Attachment

pytestmark = pytest.mark.anyio

GPU = Gpu(0, "GPU-0", "stand-in", 1 << 37, (9, 0))


class Pool:
    """Answers like a judge; keeps what it was asked, and what it was told to release."""

    def __init__(self):
        self.asked = []
        self.released = []
        self.events = []
        self.busy = False

    async def judge(self, body, descriptors, gpu):
        if self.busy:
            await anyio.sleep_forever()
        self.asked.append(body)
        if "names" in body:
            assert len(body["names"]) == len(descriptors)
        for descriptor in descriptors:
            os.fstat(descriptor)
        made = file() if body["op"] in {"copy", "make"} else None
        return SimpleNamespace(body={}, take_descriptor=lambda: made)

    async def release(self, lease, gpu):
        await anyio.lowlevel.checkpoint()
        self.released.append(lease)
        self.events.append("released")

    @asynccontextmanager
    async def session(self, role, parent, *, gpu):
        try:
            yield SimpleNamespace(role=role)
        finally:
            self.events.append("ended")


def file():
    return os.memfd_create("stand-in")


def attachment():
    return Attachment({"size": 64}, file(), 64)


async def test_what_is_asked_while_a_candidate_runs_is_of_one_lease_that_ends_with_it():
    pool = Pool()
    buffers, inputs = GpuBuffers(pool, GPU), attachment()
    await buffers.judge({"op": "digest"}, inputs.memories)
    assert "lease" not in pool.asked[-1]  # nobody would end it
    leases = []
    for _ in range(2):
        async with buffers.candidate() as session:
            assert session.role == "gpu_candidate"
            slot = await buffers.copy(inputs)
            await buffers.refill(slot, inputs)
            async with buffers.outputs(64) as outputs:
                await buffers.judge({"op": "compare"}, [outputs, slot])
            made, filled, room, compared = pool.asked[-4:]
            assert made["names"] == [inputs.name]
            assert filled["names"] == [made["name"], inputs.name]
            assert compared["names"] == [room["name"], made["name"]]
            (lease,) = {each["lease"] for each in pool.asked[-4:]}
            leases.append(lease)
            buffers.close()
        assert pool.released == leases
    assert len(set(leases)) == 2
    await buffers.judge({"op": "digest"}, inputs.memories)
    assert "lease" not in pool.asked[-1]


async def test_a_lease_ends_where_its_candidate_fails_or_is_given_up():
    pool = Pool()
    buffers = GpuBuffers(pool, GPU)
    with pytest.raises(RuntimeError):
        async with buffers.candidate():
            raise RuntimeError
    with anyio.CancelScope() as scope:
        async with buffers.candidate():
            scope.cancel()
            await anyio.sleep_forever()
    # At once, whatever the judge has to answer before.
    assert pool.events == ["ended", "released"] * 2


async def test_what_is_given_up_is_told_with_the_next_question_and_once():
    pool = Pool()
    buffers, inputs = GpuBuffers(pool, GPU), attachment()
    async with buffers.candidate():
        slot = await buffers.copy(inputs)
        async with buffers.outputs(64) as small:
            pass
        buffers.drop(slot)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(slot.file)
        async with buffers.outputs(128) as large:
            assert large != small
        assert set(pool.asked[-1]["closed"]) == {slot.name, small.name}
        other = await buffers.copy(inputs)
        assert pool.asked[-1]["closed"] == []
        assert other.name != slot.name
        buffers.close()


async def test_memory_of_one_descriptor_after_another_has_another_name():
    """The number of a descriptor is given again once it is closed."""
    pool = Pool()
    buffers, inputs = GpuBuffers(pool, GPU), attachment()
    async with buffers.candidate():
        first = await buffers.copy(inputs)
        buffers.drop(first)
        second = await buffers.copy(inputs)
        assert (first.file, second.name == first.name) == (second.file, False)
        buffers.drop(second)


async def test_what_is_given_up_is_told_again_where_nobody_heard_of_it():
    pool = Pool()
    buffers, inputs = GpuBuffers(pool, GPU), attachment()
    async with buffers.candidate():
        slot = await buffers.copy(inputs)
        buffers.drop(slot)
        pool.busy = True
        with anyio.move_on_after(0.01):
            await buffers.copy(inputs)
        pool.busy = False
        buffers.drop(await buffers.copy(inputs))
        assert pool.asked[-1]["closed"] == [slot.name]
