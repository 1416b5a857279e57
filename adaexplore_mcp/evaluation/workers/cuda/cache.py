"""A kernel cache on its way from the process that compiled to the one that launches, as a file that a descriptor names.

Packed is what Triton needs to find a kernel again: its binary and metadata, and the launchers. Left out are the texts of
the stages before, as Triton itself leaves them out under `TRITON_STORE_BINARY_ONLY`, and what an autotuner remembers of
its configurations: where nothing ran it ranked them by their position. Triton notes the absolute path of every file of a
kernel; those notes are written anew.

A file is a header (magic, number of entries), then for each entry the length of its name, its size, name and bytes.
"""

import contextlib
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["pack", "unpack"]

MAGIC = b"adxcache"
HEADER = struct.Struct("<8sI")
ENTRY = struct.Struct("<HQ")
MAX_FILES = 20_000
MAX_BYTES = 1 << 30
CHUNK_BYTES = 1 << 20

GROUP = "__grp__"  # Triton's note of which files make up a kernel
METADATA, BINARY, LAUNCHER = ".json", ".cubin", ".so"
# A folder is named by a hash in base 32 (triton.runtime.cache), a file by a kernel or a module.
NAME = re.compile(rf"[A-Z2-7]{{1,64}}/(?!{GROUP})[^/\0]{{1,200}}(?<!\.autotune)\.(?:json|cubin|so)")


def pack(folder: Path, descriptor: int) -> int:
    """Write what a kernel cache holds into a file, in the place of what is in it; return the bytes written.

    Args:
        folder: The cache, a `TRITON_CACHE_DIR`.
        descriptor: Of the file.

    Raises:
        ValueError: There are more than 20,000 files, or more than 1 GiB.
        OSError: They cannot be read, or the file cannot take them.
    """
    paths = sorted(_to_pack(folder))
    if len(paths) > MAX_FILES:
        msg = f"{len(paths)} files are too many to pack: at most {MAX_FILES}"
        raise ValueError(msg)
    os.ftruncate(descriptor, 0)
    position = _write(descriptor, HEADER.pack(MAGIC, len(paths)), 0)
    for path in paths:
        data = path.read_bytes()
        name = os.fsencode(f"{path.parent.name}/{path.name}")
        position = _write(descriptor, ENTRY.pack(len(name), len(data)) + name, position)
        position = _write(descriptor, data, position)
        if position > MAX_BYTES:
            os.ftruncate(descriptor, 0)
            msg = f"more than {MAX_BYTES >> 20} MiB are too much to pack"
            raise ValueError(msg)
    return position


def _to_pack(folder: Path) -> Iterator[Path]:
    for each in _entries(folder):
        if not each.is_dir(follow_symlinks=False):
            continue
        files = {file.name: Path(file.path) for file in _entries(each) if file.is_file(follow_symlinks=False)}
        for name, path in files.items():
            if not NAME.fullmatch(f"{each.name}/{name}"):
                continue
            # A kernel counts once Triton has noted its files, which it does when all of them are written.
            kernel = name.removesuffix(METADATA).removesuffix(BINARY)
            complete = {
                f"{GROUP}{kernel}{METADATA}",
                f"{kernel}{METADATA}",
                f"{kernel}{BINARY}",
            } <= files.keys()
            if complete or name.endswith(LAUNCHER):
                yield path


def _entries(folder: Path | os.DirEntry[str]) -> list["os.DirEntry[str]"]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _write(descriptor: int, data: bytes, position: int) -> int:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
    return position


def unpack(descriptor: int, folder: Path) -> int:
    """Put packed files below another folder, which becomes a kernel cache; return how many there were.

    Args:
        descriptor: Of a file that `pack` wrote, or anybody: everything in it is checked.
        folder: The cache, made if there is none.

    Raises:
        ValueError: The file is not what `pack` writes, or names anything but a file of a kernel cache.
        OSError: The folder cannot take them.
    """
    size = os.fstat(descriptor).st_size
    if size > MAX_BYTES:
        msg = f"a packed cache of {size} bytes is too large: at most {MAX_BYTES}"
        raise ValueError(msg)
    magic: bytes
    count: int
    magic, count = HEADER.unpack(_read(descriptor, HEADER.size, 0))
    if magic != MAGIC or count > MAX_FILES:
        msg = f"not a packed cache: it begins with {magic!r} and promises {count} files"
        raise ValueError(msg)
    position = HEADER.size
    names: set[str] = set()
    for _ in range(count):
        name_length, length = ENTRY.unpack(_read(descriptor, ENTRY.size, position))
        position += ENTRY.size
        name = os.fsdecode(_read(descriptor, name_length, position))
        position += name_length
        if not NAME.fullmatch(name) or name in names:
            msg = f"not a file of a kernel cache: {name[:300]!r}"
            raise ValueError(msg)
        if length > size - position:
            msg = f"{name} is said to have {length} bytes, and {size - position} are left"
            raise ValueError(msg)
        names.add(name)
        _copy(descriptor, position, length, folder / name)
        position += length
    if position != size:
        msg = f"{size - position} bytes behind the last file of a packed cache"
        raise ValueError(msg)
    for name in sorted(names):
        if name.endswith(METADATA) and name.removesuffix(METADATA) + BINARY in names:
            _note_group(folder / name)
    return count


def _read(descriptor: int, length: int, position: int) -> bytes:
    data = os.pread(descriptor, length, position)
    if len(data) != length:
        msg = f"a packed cache ends at byte {position + len(data)}, in the middle of a file"
        raise ValueError(msg)
    return data


def _copy(descriptor: int, position: int, length: int, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for start in range(position, position + length, CHUNK_BYTES):
            file.write(_read(descriptor, min(CHUNK_BYTES, position + length - start), start))


def _note_group(metadata: Path) -> None:
    """Note for Triton which files make up a kernel, and where they are now."""
    paths = [metadata.with_suffix(BINARY), metadata]
    note = {"child_paths": {path.name: str(path) for path in paths}}
    metadata.with_name(f"{GROUP}{metadata.name}").write_text(json.dumps(note), encoding="utf-8")
