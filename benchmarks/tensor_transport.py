"""Measure the ways in which a tensor can get from one process's GPU memory into another's; needs a GPU.

    python benchmarks/tensor_transport.py

One way a line and size: make the memory, hand it over, open it, copy, let go. Both processes are forked from one that has
not touched CUDA; where the sender is confined as a candidate is, the line says whether the way works there.
"""

import argparse
import json
import mmap
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from adaexplore_mcp.evaluation.devices import find
from adaexplore_mcp.evaluation.pool import CONTROL_NODES
from adaexplore_mcp.evaluation.sandbox import (
    Layers,
    Limits,
    confine,
    enter_namespaces,
    mount_private_proc,
    probe,
)
from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.cuda import memory
from adaexplore_mcp.evaluation.workers.cuda.start import start

SIZES = (1 << 20, 64 << 20, 512 << 20)
REPEATS = 5
Step = Callable[[Connection], None]


def main() -> None:
    """Print a table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    gpu = find(())[0]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        layers = probe(scratch)
        for name, send, receive in WAYS:
            for size in SIZES:
                try:
                    row = timed(name, size, send, receive, layers, Path(scratch), [gpu.node, *CONTROL_NODES])
                except (OSError, RuntimeError, EOFError) as error:
                    row = {"way": name, "mib": size >> 20, "failed": str(error)[:160]}
                rows.append(row)
                print(json.dumps(row), flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"gpu": gpu.name, "rows": rows}), encoding="utf-8")


def timed(name, size, send, receive, layers, scratch, nodes):  # noqa: ANN001, ANN201, PLR0917 - a script
    """Return medians in milliseconds of one way at one size."""
    with (
        child(lambda peer: send(peer, size), layers, scratch, nodes) as sender,
        child(lambda peer: receive(peer, size), Layers({}), scratch, nodes) as receiver,
    ):
        made, opened = [], []
        for _ in range(REPEATS):
            file = os.memfd_create("transport")
            sender.send({"go": True}, [file])
            message, files = answer(sender)
            files = files or [file]
            made.append(message["ms"])
            receiver.send(message, files)
            for each in {file, *files}:
                os.close(each)
            reply, _ = answer(receiver)
            opened.append(reply["ms"])
    return {
        "way": name,
        "mib": size >> 20,
        "make_and_fill_first_ms": made[0],
        "make_and_fill_ms": round(statistics.median(made[1:]), 2),
        "open_and_copy_ms": round(statistics.median(opened[1:]), 2),
    }


def answer(peer: Connection) -> tuple[dict, list[int]]:
    """Return the next message, or raise what the process said."""
    received = peer.receive()
    if received is None:
        raise EOFError("the process ended")
    if "error" in received[0]:
        raise RuntimeError(received[0]["error"])
    return received


@contextmanager
def child(work: Step, layers: Layers, scratch: Path, nodes: list[str]) -> Iterator[Connection]:
    """Run `work` in a process that is confined by some layers and has started CUDA."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        enter_namespaces(layers)
        if (inner := os.fork()) == 0:
            if layers.on("pid"):
                mount_private_proc()
            peer = Connection(theirs)
            try:
                if layers.state:
                    confine(
                        layers,
                        Limits(16 << 30, 16 << 30, address_space=False),
                        writable=[str(scratch), *nodes, "/proc/self/task"],
                    )
                start()
                work(peer)
            except BaseException as error:  # noqa: BLE001 - told to the parent
                peer.send({"error": f"{type(error).__name__}: {error}"[:300]})
            os._exit(0)
        os.waitpid(inner, 0)
        os._exit(0)
    theirs.close()
    peer = Connection(ours)
    try:
        yield peer
    finally:
        peer.close()
        os.wait()


def rounds(peer: Connection) -> Iterator[tuple[dict, list[int]]]:
    """Yield requests until the parent closes the connection."""
    while (received := peer.receive()) is not None:
        yield received
        for file in received[1]:
            os.close(file)


def milliseconds(since: float) -> float:
    """Return the time since then, with the GPU idle again."""
    torch.cuda.synchronize()
    return round(1e3 * (time.monotonic() - since), 2)


# --- GPU memory by descriptor ---------------------------------------------------------------------------


def send_descriptor(peer: Connection, size: int) -> None:
    """Make GPU memory and hand over its descriptor."""
    for _ in rounds(peer):
        since = time.monotonic()
        made, descriptor = memory.allocate(size)
        made.tensor().fill_(3)
        peer.send({"ms": milliseconds(since)}, [descriptor])
        os.close(descriptor)


def receive_descriptor(peer: Connection, size: int) -> None:
    """Map it and copy it."""
    for _, files in rounds(peer):
        since = time.monotonic()
        copy = memory.open_memory(files[0], size).tensor().clone()
        peer.send({"ms": milliseconds(since)})
        assert int(copy[-1]) in {0, 3}


# --- CUDA's older IPC, as torch offers it ----------------------------------------------------------------


def send_ipc(peer: Connection, size: int) -> None:
    """Allocate by torch and hand over a handle."""
    kept = []
    for _ in rounds(peer):
        since = time.monotonic()
        kept = [torch.full((size,), 3, dtype=torch.uint8, device="cuda")]
        handle = kept[0].untyped_storage()._share_cuda_()
        ms = milliseconds(since)
        peer.send({"ms": ms, "handle": [part.hex() if isinstance(part, bytes) else part for part in handle]})


def receive_ipc(peer: Connection, size: int) -> None:
    """Open it and copy it."""
    for message, _ in rounds(peer):
        handle = [bytes.fromhex(part) if isinstance(part, str) else part for part in message["handle"]]
        since = time.monotonic()
        storage = torch.UntypedStorage._new_shared_cuda(*handle)
        copy = torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage)[:size].clone()
        peer.send({"ms": milliseconds(since)})
        assert int(copy[0]) == 3


# --- memory of the host ----------------------------------------------------------------------------------


def send_file(peer: Connection, size: int) -> None:
    """Copy from the GPU into a memory file."""
    source = torch.full((size,), 3, dtype=torch.uint8, device="cuda")
    for _, files in rounds(peer):
        since = time.monotonic()
        os.ftruncate(files[0], size)
        torch.frombuffer(mmap.mmap(files[0], size), dtype=torch.uint8).copy_(source)
        peer.send({"ms": milliseconds(since)})


def receive_file(peer: Connection, size: int) -> None:
    """Map it and copy it to the GPU."""
    for _, files in rounds(peer):
        since = time.monotonic()
        copy = torch.frombuffer(mmap.mmap(files[0], size), dtype=torch.uint8).cuda()
        peer.send({"ms": milliseconds(since)})
        assert int(copy[0]) == 3


def receive_pinned(peer: Connection, size: int) -> None:
    """Map it, pin it, and copy it to the GPU."""
    for _, files in rounds(peer):
        since = time.monotonic()
        mapped = torch.frombuffer(mmap.mmap(files[0], size), dtype=torch.uint8)
        torch.cuda.cudart().cudaHostRegister(mapped.data_ptr(), size, 0)
        copy = mapped.cuda()
        torch.cuda.cudart().cudaHostUnregister(mapped.data_ptr())
        peer.send({"ms": milliseconds(since)})
        assert int(copy[0]) == 3


WAYS = (
    ("GPU memory by descriptor", send_descriptor, receive_descriptor),
    ("CUDA IPC through torch", send_ipc, receive_ipc),
    ("file of the host", send_file, receive_file),
    ("file of the host, pinned by the receiver", send_file, receive_pinned),
)

if __name__ == "__main__":
    main()
