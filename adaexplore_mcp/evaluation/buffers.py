"""The memory in which inputs go to a candidate and outputs come back: files of the host, or memory of a GPU.

The server holds descriptors of both and looks into neither; memory of a GPU is copied by its judge.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio
import anyio.to_thread

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.channel import Message
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.memfiles import copy_file, empty_file, refill, seal
from adaexplore_mcp.evaluation.memory import Memory, new_id
from adaexplore_mcp.evaluation.pool import Role, WorkerPool
from adaexplore_mcp.evaluation.session import NoRoomError, Session
from adaexplore_mcp.evaluation.trials import Attachment

__all__ = ["Buffers", "DeviceFullError", "GpuBuffers", "HostBuffers"]


class DeviceFullError(Exception):
    """A GPU has not the memory that the judge asked for; the message says how that is known."""


class Buffers(Protocol):
    """Where the tensors of one evaluation lie."""

    gpu: Gpu | None
    """The GPU they lie on; None for the host."""

    def candidate(self) -> AbstractAsyncContextManager[Session]:
        """Run a candidate's process that uses this memory, for as long as the context lasts.

        Raises:
            DeviceFullError: The GPU has no memory left for it.
        """
        ...

    def reference(self) -> AbstractAsyncContextManager[Session]:
        """Run a reference's process that uses this memory."""
        ...

    async def judge(self, body: Mapping[str, Any], memories: Sequence[Memory]) -> Message:
        """Ask the judge of this memory.

        Raises:
            DeviceFullError: It has not the memory to answer.
        """
        ...

    async def copy(self, source: Attachment) -> Memory:
        """Return memory with the same content, to be given up by `drop`."""
        ...

    async def refill(self, target: Memory, source: Attachment) -> None:
        """Put the content of one memory into another of the same size, at the same addresses of whoever has it mapped."""
        ...

    def drop(self, memory: Memory) -> None:
        """Give up memory that `copy` made."""
        ...

    def outputs(self, room: int) -> AbstractAsyncContextManager[Memory]:
        """Give memory for the outputs of one call, with room for that many bytes."""
        ...

    def settled(self, memory: Memory) -> bool:
        """Make sure that nobody changes outputs while they are judged; False if somebody still can."""
        ...

    def close(self) -> None:
        """Close what is kept between calls."""


class HostBuffers:
    """Memory files."""

    gpu: Gpu | None = None

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def candidate(self) -> AbstractAsyncContextManager[Session]:
        """Run a candidate's process; see `Buffers`."""
        return self._pool.session("candidate", "interpret")

    def reference(self) -> AbstractAsyncContextManager[Session]:
        """Run a reference's process; see `Buffers`."""
        return self._pool.session("reference", "interpret")

    async def judge(self, body: Mapping[str, Any], memories: Sequence[Memory]) -> Message:
        """Ask the judge of memory files."""
        return await self._pool.judge(body, [each.file for each in memories])

    async def copy(self, source: Attachment) -> Memory:
        """Copy a file; see `Buffers`."""
        assert source.file is not None
        return Memory(await anyio.to_thread.run_sync(copy_file, source.file))

    async def refill(self, target: Memory, source: Attachment) -> None:
        """Write into a file; see `Buffers`."""
        assert source.file is not None
        await anyio.to_thread.run_sync(refill, target.file, source.file)

    def drop(self, memory: Memory) -> None:
        """Close a file."""
        memory.close()

    @asynccontextmanager
    async def outputs(self, room: int) -> AsyncIterator[Memory]:  # noqa: ARG002 - a file grows
        """Give an empty file."""
        memory = Memory(empty_file())
        try:
            yield memory
        finally:
            memory.close()

    def settled(self, memory: Memory) -> bool:
        """Seal the file; False while its writer keeps it mapped."""
        return seal(memory.file)

    def close(self) -> None:
        """Do nothing: nothing is kept."""


class GpuBuffers:
    """Memory of a GPU, made by its judge: a descriptor exposes nothing but the one allocation.

    As long as a candidate runs, the judge keeps mapped what it is asked about, which takes longer than most answers.

    Args:
        pool: Worker processes.
        gpu: Whose memory.
    """

    def __init__(self, pool: WorkerPool, gpu: Gpu) -> None:
        self._pool = pool
        self.gpu: Gpu | None = gpu
        self._gpu = gpu
        self._outputs: tuple[Memory, int] | None = None
        self._lease = ""
        self._closed: list[str] = []

    @asynccontextmanager
    async def candidate(self) -> AsyncIterator[Session]:
        """Run a candidate's process on the GPU; see `Buffers`."""
        try:
            async with self._session("gpu_candidate") as session:
                self._lease = new_id()
                yield session
        finally:  # its process has ended, while a judge may have others to answer first
            lease, self._lease = self._lease, ""
            self._closed.clear()
            if lease:
                with anyio.CancelScope(shield=True):
                    await self._pool.release(lease, self._gpu)

    def reference(self) -> AbstractAsyncContextManager[Session]:
        """Run a reference's process on the GPU; see `Buffers`."""
        return self._session("gpu_reference")

    @asynccontextmanager
    async def _session(self, role: Role) -> AsyncIterator[Session]:
        try:
            async with self._pool.session(role, "cuda", gpu=self._gpu) as session:
                yield session
        except NoRoomError as error:
            raise DeviceFullError(str(error)) from error

    async def judge(self, body: Mapping[str, Any], memories: Sequence[Memory]) -> Message:
        """Ask the judge of the GPU; see `Buffers`."""
        closed = list(self._closed)
        if self._lease:
            body = {
                **body,
                "lease": self._lease,
                "names": [each.name for each in memories],
                "closed": closed,
            }
        message = await self._pool.judge(body, [each.file for each in memories], gpu=self._gpu)
        self._closed = [name for name in self._closed if name not in closed]
        if (full := message.body.get("out_of_memory")) is not None:
            raise DeviceFullError(f"{full['free'] >> 20} of {full['total'] >> 20} MiB are free")
        if "malformed" in message.body and body["op"] in {"copy", "refill", "make"}:
            msg = f"The reference's process did not hand over what it computed: {message.body['malformed']}."
            raise TaskError(msg, "Register the operation alone, without code that touches its process.")
        return message

    async def copy(self, source: Attachment) -> Memory:
        """Have the judge copy memory; see `Buffers`."""
        return await self._made({"op": "copy", "size": source.message["size"]}, source.memories)

    async def refill(self, target: Memory, source: Attachment) -> None:
        """Have the judge copy into memory; see `Buffers`."""
        await self.judge({"op": "refill", "size": source.message["size"]}, [target, *source.memories])

    def drop(self, memory: Memory) -> None:
        """Close memory, and have the judge unmap it when it is asked next."""
        memory.close()
        self._closed.append(memory.name)

    async def _made(self, body: Mapping[str, Any], memories: Sequence[Memory]) -> Memory:
        name = new_id()
        descriptor = (await self.judge({**body, "name": name}, memories)).take_descriptor()
        assert descriptor is not None
        return Memory(descriptor, name)

    @asynccontextmanager
    async def outputs(self, room: int) -> AsyncIterator[Memory]:
        """Give the same memory for every call: the judge takes a copy of what was written, and overwrites it."""
        if self._outputs is None or self._outputs[1] != room:
            self.close()
            self._outputs = await self._made({"op": "make", "size": room}, []), room
        yield self._outputs[0]

    def settled(self, memory: Memory) -> bool:  # noqa: ARG002 - the judge takes a copy
        """Return True: the judge compares a copy of its own."""
        return True

    def close(self) -> None:
        """Close the memory for outputs."""
        if self._outputs is not None:
            self.drop(self._outputs[0])
            self._outputs = None
