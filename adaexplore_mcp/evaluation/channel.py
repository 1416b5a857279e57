"""The server's end of a connection to a worker: asynchronous, bounded, closed exactly once."""

import os
import select
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, UNIXSocketStream

from adaexplore_mcp.errors import WorkerLostError
from adaexplore_mcp.evaluation.wire import (
    MAX_DESCRIPTORS,
    RECEIVE_BYTES,
    FrameReader,
    encode_frame,
)

__all__ = ["Channel", "Message"]


SEND_S = 5.0


class Message:
    """A received message and the descriptors that came with it; closes those nobody took.

    Args:
        body: The JSON object.
        descriptors: Owned by the message until taken.
    """

    def __init__(self, body: dict[str, Any], descriptors: list[int]) -> None:
        self.body = body
        self._descriptors = descriptors

    def take_descriptor(self) -> int | None:
        """Hand over the next descriptor, or None; the caller closes it."""
        return self._descriptors.pop(0) if self._descriptors else None

    def close(self) -> None:
        """Close what was not taken."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __del__(self) -> None:
        self.close()


class Channel:
    """A stream of messages to and from one process.

    Args:
        stream: The connected socket.
        peer: What to call the other side in errors.
        limit_bytes: Largest message accepted.
    """

    def __init__(self, stream: UNIXSocketStream, peer: str, limit_bytes: int = 4 << 20) -> None:
        self._stream = stream
        self._reader = FrameReader(limit_bytes)
        self.peer = peer

    @classmethod
    async def pair(cls, peer: str, limit_bytes: int = 4 << 20) -> tuple[Self, socket.socket]:
        """Return a channel and the socket that the other side gets."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(await UNIXSocketStream.from_socket(ours), peer, limit_bytes), theirs

    async def send(self, body: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors stay open on this side.

        Raises:
            WorkerLostError: The peer is gone.
        """
        frame = encode_frame(body, len(descriptors))
        try:
            # Shielded: half a frame would be the end of a connection that others use too.
            with anyio.move_on_after(SEND_S, shield=True) as sending:
                if descriptors:
                    # A single sendmsg may take only part of a long frame, so the descriptors ride on the header alone.
                    await self._stream.send_fds(frame[:1], list(descriptors))
                    await self._stream.send(frame[1:])
                else:
                    await self._stream.send(frame)
            if sending.cancelled_caught:
                await self.close()
                msg = f"{self.peer} took nothing for {SEND_S:g} s"
                raise WorkerLostError(msg)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            msg = f"{self.peer} is gone"
            raise WorkerLostError(msg) from error

    async def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            WorkerLostError: The peer closed its end.
            FrameError: It sent what is no message.
        """
        try:
            while (taken := self._reader.take()) is None:
                data, descriptors = await self._stream.receive_fds(RECEIVE_BYTES, MAX_DESCRIPTORS)
                self._reader.feed(data, descriptors)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            msg = f"{self.peer} closed the connection"
            raise WorkerLostError(msg) from error
        return Message(*taken)

    @property
    def hung_up(self) -> bool:
        """Whether the connection is closed, by this side or by the peer."""
        descriptor = self._stream.extra(SocketAttribute.raw_socket).fileno()  # noqa: S610 - no Django here
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))

    async def close(self) -> None:
        """Close the connection; the peer sees the end of it."""
        self._reader.close()
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
