"""The memory in which inputs go to a candidate and outputs come back: files of the host, or memory of a GPU.

The server holds descriptors of both and looks into neither; memory of a GPU is copied by its judge.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio.to_thread

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.channel import Message
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.memfiles import copy_file, empty_file, refill, seal
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

    async def judge(self, body: Mapping[str, Any], descriptors: Sequence[int]) -> Message:
        """Ask the judge of this memory.

        Raises:
            DeviceFullError: It has not the memory to answer.
        """
        ...

    async def copy(self, source: Attachment) -> int:
        """Return the descriptor of memory with the same content."""
        ...

    async def refill(self, target: int, source: Attachment) -> None:
        """Put the content of one memory into another of the same size, at the same addresses of whoever has it mapped."""
        ...

    def outputs(self, room: int) -> AbstractAsyncContextManager[int]:
        """Give the descriptor of memory for the outputs of one call, with room for that many bytes."""
        ...

    def settled(self, descriptor: int) -> bool:
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

    async def judge(self, body: Mapping[str, Any], descriptors: Sequence[int]) -> Message:
        """Ask the judge of memory files."""
        return await self._pool.judge(body, descriptors)

    async def copy(self, source: Attachment) -> int:
        """Copy a file; see `Buffers`."""
        assert source.file is not None
        return await anyio.to_thread.run_sync(copy_file, source.file)

    async def refill(self, target: int, source: Attachment) -> None:
        """Write into a file; see `Buffers`."""
        assert source.file is not None
        await anyio.to_thread.run_sync(refill, target, source.file)

    @asynccontextmanager
    async def outputs(self, room: int) -> AsyncIterator[int]:  # noqa: ARG002 - a file grows
        """Give an empty file."""
        file = empty_file()
        try:
            yield file
        finally:
            os.close(file)

    def settled(self, descriptor: int) -> bool:
        """Seal the file; False while its writer keeps it mapped."""
        return seal(descriptor)

    def close(self) -> None:
        """Do nothing: nothing is kept."""


class GpuBuffers:
    """Memory of a GPU, made by its judge: a descriptor exposes nothing but the one allocation.

    Args:
        pool: Worker processes.
        gpu: Whose memory.
    """

    def __init__(self, pool: WorkerPool, gpu: Gpu) -> None:
        self._pool = pool
        self.gpu: Gpu | None = gpu
        self._gpu = gpu
        self._outputs: tuple[int, int] | None = None

    def candidate(self) -> AbstractAsyncContextManager[Session]:
        """Run a candidate's process on the GPU; see `Buffers`."""
        return self._session("gpu_candidate")

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

    async def judge(self, body: Mapping[str, Any], descriptors: Sequence[int]) -> Message:
        """Ask the judge of the GPU; see `Buffers`."""
        message = await self._pool.judge(body, descriptors, gpu=self._gpu)
        if (full := message.body.get("out_of_memory")) is not None:
            raise DeviceFullError(f"{full['free'] >> 20} of {full['total'] >> 20} MiB are free")
        if "malformed" in message.body and body["op"] in {"copy", "refill", "make"}:
            msg = f"The reference's process did not hand over what it computed: {message.body['malformed']}."
            raise TaskError(msg, "Register the operation alone, without code that touches its process.")
        return message

    async def copy(self, source: Attachment) -> int:
        """Have the judge copy memory; see `Buffers`."""
        assert source.file is not None
        return await self._made({"op": "copy", "size": source.message["size"]}, source.files)

    async def refill(self, target: int, source: Attachment) -> None:
        """Have the judge copy into memory; see `Buffers`."""
        await self.judge({"op": "refill", "size": source.message["size"]}, [target, *source.files])

    async def _made(self, body: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        descriptor = (await self.judge(body, descriptors)).take_descriptor()
        assert descriptor is not None
        return descriptor

    @asynccontextmanager
    async def outputs(self, room: int) -> AsyncIterator[int]:
        """Give the same memory for every call: the judge takes a copy of what was written, and overwrites it."""
        if self._outputs is None or self._outputs[1] != room:
            self.close()
            self._outputs = await self._made({"op": "make", "size": room}, []), room
        yield self._outputs[0]

    def settled(self, descriptor: int) -> bool:  # noqa: ARG002 - the judge takes a copy
        """Return True: the judge compares a copy of its own."""
        return True

    def close(self) -> None:
        """Close the memory for outputs."""
        if self._outputs is not None:
            os.close(self._outputs[0])
            self._outputs = None
