"""Maps of memory files."""

import gc
import os
from pathlib import Path

import pytest
import torch

from adaexplore_mcp.evaluation.workers.spaces import HOST, PAGE, file_bytes, map_file


@pytest.fixture
def file():
    descriptor = file_bytes(4 * PAGE)
    yield descriptor
    os.close(descriptor)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def maps():
    return sum("memfd:adaexplore" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_thousand_tensors_take_no_descriptors(file):
    before = descriptors(), maps()
    size = 4 * PAGE
    tensors = HOST.open(file, [(PAGE * (i % 4), PAGE) for i in range(1_000)], size, shared=True)
    assert descriptors() == before[0]
    tensors[1][:] = 7
    assert bool((tensors[5] == 7).all())
    del tensors
    gc.collect()
    assert (descriptors(), maps()) == before


def test_a_view_keeps_its_map(file):
    view = map_file(file, PAGE, shared=True)[100:200].view(torch.float32)
    gc.collect()
    view.fill_(1.5)
    assert float(map_file(file, PAGE, shared=True)[100:104].view(torch.float32)) == 1.5


def test_private_writes_stay_private(file):
    map_file(file, PAGE, shared=False).fill_(9)
    assert int(map_file(file, PAGE, shared=True).max()) == 0


@pytest.mark.parametrize(
    ("size", "start"),
    [
        (0, 0),
        (-1, 0),
        (5 * PAGE, 0),
        (PAGE, 4 * PAGE),
        (PAGE, 1),
        (1 << 70, 0),
        (PAGE, 1 << 70),
        (PAGE, -PAGE),
    ],
)
def test_what_does_not_lie_in_the_file_is_refused(file, size, start):
    with pytest.raises(ValueError, match="cannot be mapped"):
        map_file(file, size, shared=True, start=start)


def test_what_is_no_file_is_refused():
    end, other = os.pipe()
    with pytest.raises((ValueError, OSError)):
        map_file(end, PAGE, shared=True)
    os.close(end)
    os.close(other)
