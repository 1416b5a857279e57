"""Frames between our processes: a JSON object, with file descriptors riding along.

A frame is a header (length of the JSON in bytes, number of descriptors), then the JSON as UTF-8. Descriptors travel as
SCM_RIGHTS with the header's first byte. The peer may run a stranger's code: whatever it sends is bounded and checked
here, and is never unpickled.
"""

import array
import json
import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "MAX_DESCRIPTORS",
    "Connection",
    "FrameError",
    "FrameReader",
    "encode_frame",
    "receive_some",
    "rights",
]

HEADER = struct.Struct("!IH")
MAX_FRAME_BYTES = 16 << 20
MAX_DESCRIPTORS = 8
RECEIVE_BYTES = 256 << 10


class FrameError(Exception):
    """The peer sent something that is no frame, or too much of it."""


def encode_frame(message: Mapping[str, Any], descriptors: int = 0) -> bytes:
    """Return the bytes of one frame.

    Raises:
        FrameError: The message is over 16 MiB, holds NaN or infinity, or announces more than 8 descriptors.
    """
    try:
        body = json.dumps(message, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"not a JSON message: {error}"
        raise FrameError(msg) from error
    if len(body) > MAX_FRAME_BYTES or descriptors > MAX_DESCRIPTORS:
        msg = f"a frame of {len(body)} bytes and {descriptors} descriptors is too large"
        raise FrameError(msg)
    return HEADER.pack(len(body), descriptors) + body


def _no_constant(name: str) -> float:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


class FrameReader:
    """Turns received bytes and descriptors into messages.

    It owns every descriptor given to it until the message that announces it is taken; `close()` closes the rest.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._descriptors: list[int] = []

    def feed(self, data: bytes, descriptors: Iterable[int] = ()) -> None:
        """Take what was received."""
        self._buffer += data
        self._descriptors.extend(descriptors)

    def take(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next message and its descriptors, or None while it is incomplete.

        Raises:
            FrameError: The peer broke the rules; the connection is of no further use.
        """
        if len(self._descriptors) > 2 * MAX_DESCRIPTORS:
            raise FrameError("more descriptors than any message announced")
        if len(self._buffer) < HEADER.size:
            return None
        length, count = HEADER.unpack_from(self._buffer)
        if length > self._limit_bytes or count > MAX_DESCRIPTORS:
            msg = f"a frame of {length} bytes and {count} descriptors exceeds the limit"
            raise FrameError(msg)
        if len(self._buffer) < HEADER.size + length:
            return None
        body = bytes(self._buffer[HEADER.size : HEADER.size + length])
        if count > len(self._descriptors):
            raise FrameError("fewer descriptors than announced")
        try:
            message = json.loads(body.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            msg = f"not a JSON message: {error}"
            raise FrameError(msg) from error
        if not isinstance(message, dict):
            raise FrameError("a message must be a JSON object")
        del self._buffer[: HEADER.size + length]
        descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        return message, descriptors

    def close(self) -> None:
        """Close the descriptors that no message has claimed."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


Ancillary = list[tuple[int, int, "array.array[int]"]]


def rights(descriptors: Sequence[int]) -> Ancillary:
    """Return the ancillary data of a message with which descriptors travel."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []


def receive_some(sock: socket.socket) -> tuple[bytes, "array.array[int]"]:
    """Receive what there is, and the descriptors that came with it.

    Raises:
        BlockingIOError: There is nothing, and the socket does not block.
        FrameError: More descriptors came than fit; those that came are closed.
    """
    data, ancillary, flags, _ = sock.recvmsg(
        RECEIVE_BYTES, socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
    )
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise FrameError("more descriptors than fit")
    return data, descriptors


class Connection:
    """A blocking connection, for worker processes.

    Args:
        sock: A connected Unix stream socket; closed with the connection.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._reader = FrameReader()

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors stay open on this side.

        Raises:
            FrameError: The message cannot be a frame.
            OSError: The peer is gone.
        """
        frame = memoryview(encode_frame(message, len(descriptors)))
        ancillary = rights(descriptors)
        sent = self.socket.sendmsg([frame], ancillary)
        self.socket.sendall(frame[sent:])

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Wait for the next message; None when the peer has closed.

        Raises:
            FrameError: What came is no frame.
        """
        while (taken := self._reader.take()) is None:
            try:
                data, descriptors = receive_some(self.socket)
            except ConnectionResetError:  # it closed without having read all that we sent
                return None
            self._reader.feed(data, descriptors)
            if not data:
                return None
        return taken

    def waiting(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return a message that came with the one before; None where there is none."""
        return self._reader.take()

    def close(self) -> None:
        """Close the socket and unclaimed descriptors."""
        self._reader.close()
        self.socket.close()
