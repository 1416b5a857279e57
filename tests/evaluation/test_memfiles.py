import mmap
import os

from adaexplore_mcp.evaluation.memfiles import copy_file, first_bytes, refill, seal

GIB = 1 << 30


def memory_file(size):
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


def test_a_copy_has_the_same_bytes_and_the_same_holes():
    source = memory_file(4 * GIB)
    os.pwrite(source, b"far out", 3 * GIB)
    copy = copy_file(source)
    assert os.fstat(copy).st_size == 4 * GIB
    assert os.pread(copy, 7, 3 * GIB) == b"far out"
    assert os.fstat(copy).st_blocks * 512 < 1 << 20
    os.close(source)
    os.close(copy)


def test_refilling_replaces_everything_at_the_same_addresses():
    source, target = memory_file(3 * mmap.PAGESIZE), memory_file(3 * mmap.PAGESIZE)
    os.pwrite(source, b"new", 0)
    mapped = mmap.mmap(target, 3 * mmap.PAGESIZE)
    mapped[2 * mmap.PAGESIZE : 2 * mmap.PAGESIZE + 3] = b"old"
    refill(target, source)
    assert mapped[:3] == b"new"
    assert mapped[2 * mmap.PAGESIZE : 2 * mmap.PAGESIZE + 3] == bytes(3), (
        "what lay in a hole of the source is gone"
    )
    mapped.close()
    os.close(source)
    os.close(target)


def test_a_file_cannot_be_sealed_while_someone_can_write_to_it():
    descriptor = memory_file(mmap.PAGESIZE)
    mapped = mmap.mmap(descriptor, mmap.PAGESIZE)
    assert not seal(descriptor)
    mapped.close()
    assert seal(descriptor)
    assert first_bytes(descriptor, 4) == bytes(4)
    try:
        os.pwrite(descriptor, b"x", 0)
        raise AssertionError("a sealed file was written")
    except PermissionError:
        os.close(descriptor)
