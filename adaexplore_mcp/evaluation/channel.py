"""The server's end of a connection to a worker: asynchronous, bounded, closed exactly once."""

import os
import select
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Self

import anyio
import anyio.lowlevel

from adaexplore_mcp.errors import WorkerLostError
from adaexplore_mcp.evaluation.wire import FrameReader, encode_frame, receive_some, rights

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
        sock: The connected socket; owned.
        peer: What to call the other side in errors.
        limit_bytes: Largest message accepted.
    """

    def __init__(self, sock: socket.socket, peer: str, limit_bytes: int = 4 << 20) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._reader = FrameReader(limit_bytes)
        self.peer = peer

    @classmethod
    async def pair(cls, peer: str, limit_bytes: int = 4 << 20) -> tuple[Self, socket.socket]:
        """Return a channel and the socket that the other side gets."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours, peer, limit_bytes), theirs

    async def send(
        self, body: Mapping[str, Any], descriptors: Sequence[int] = (), *, whole: bool = True
    ) -> None:
        """Send one message; the descriptors stay open on this side.

        Args:
            body: The message.
            descriptors: What goes with it.
            whole: Half a frame would be the end of a connection that others use too: a caller that is cancelled sends all of it
                first, within `SEND_S`. Otherwise it is sent for as long as the caller likes.

        Raises:
            WorkerLostError: The peer is gone.
        """
        frame = memoryview(encode_frame(body, len(descriptors)))
        ancillary = rights(descriptors)
        await anyio.lowlevel.checkpoint()
        try:
            with anyio.move_on_after(SEND_S if whole else None, shield=whole):
                while frame:
                    try:
                        frame = frame[self._socket.sendmsg([frame], ancillary) :]
                        ancillary = []
                    except BlockingIOError:
                        await anyio.wait_writable(self._socket)
        except (OSError, anyio.ClosedResourceError) as error:
            msg = f"{self.peer} is gone"
            raise WorkerLostError(msg) from error
        if frame:
            await self.close()
            msg = f"{self.peer} took nothing for {SEND_S:g} s"
            raise WorkerLostError(msg)

    async def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            WorkerLostError: The peer closed its end.
            FrameError: It sent what is no message.
        """
        await anyio.lowlevel.checkpoint()
        try:
            while (taken := self._reader.take()) is None:
                try:
                    data, descriptors = receive_some(self._socket)
                except BlockingIOError:
                    await anyio.wait_readable(self._socket)
                    continue
                self._reader.feed(data, descriptors)
                if not data:
                    msg = f"{self.peer} closed the connection"
                    raise WorkerLostError(msg)
        except (OSError, anyio.ClosedResourceError) as error:
            msg = f"{self.peer} closed the connection"
            raise WorkerLostError(msg) from error
        return Message(*taken)

    @property
    def hung_up(self) -> bool:
        """Whether the connection is closed, by this side or by the peer."""
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    async def close(self) -> None:
        """Close the connection; the peer sees the end of it."""
        self._reader.close()
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
