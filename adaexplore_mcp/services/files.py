"""Read what a caller names by path: only below the allowed roots, only regular files, never more than 1 MiB."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from adaexplore_mcp.errors import NotFoundError, RequestError
from adaexplore_mcp.services.messages import nearest, shortened

__all__ = ["MAX_FILE_BYTES", "allowed_folder", "allowed_path", "read_file"]

MAX_FILE_BYTES = 1 << 20


def allowed_path(path: str, roots: Sequence[Path]) -> Path:
    """Resolve a path, links included, and refuse it outside the roots.

    A relative path is taken from the first root in which it exists.

    Raises:
        RequestError: It leads out of every root.
        NotFoundError: There is nothing there.
    """
    try:
        given = Path(path).expanduser()
        candidates = [given] if given.is_absolute() else [root / given for root in roots]
        resolved = [candidate.resolve() for candidate in candidates]
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, an unknown ~user, a NUL
        raise NotFoundError(f"There is no file {shortened(path)}: {error}.", "Check the path.") from error
    inside = [place for place in resolved if any(place.is_relative_to(root) for root in roots)]
    # Before whether it exists: what lies outside is nobody's business.
    if not inside:
        raise RequestError(
            f"{shortened(path)} lies outside the folders this server reads: {_listed(roots)}.",
            "Move the file there, send its text instead, or start the server with --root FOLDER.",
        )
    for place in inside:
        if _exists(place):
            return place
    raise NotFoundError(f"There is no file {shortened(path)}{_like(inside[0])}.", f"Roots: {_listed(roots)}.")


def allowed_folder(path: str, roots: Sequence[Path]) -> Path:
    """Resolve the path of a folder inside the roots.

    Raises:
        RequestError: It leads out of every root, or is not a folder.
        NotFoundError: There is nothing there.
    """
    folder = allowed_path(path, roots)
    if not folder.is_dir():
        raise RequestError(f"{shortened(path)} is not a folder.", "Name the folder that imports start from.")
    return folder


def read_file(path: Path, roots: Sequence[Path], limit_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file inside the roots.

    Args:
        path: As `allowed_path` returned it.
        roots: The allowed folders, resolved.
        limit_bytes: Most bytes to accept.

    Raises:
        RequestError: It is no regular file, too large, or cannot be read.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RequestError(
            f"{shortened(str(path))} cannot be read: {error.strerror}.", "Check the path and its permissions."
        ) from error
    try:
        # A folder on the way may have been swapped for a link since the path was resolved: ask what was opened.
        opened = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - as text: it may be gone already
        if not any(opened.is_relative_to(root) for root in roots):
            raise RequestError(
                f"{shortened(str(path))} leads outside the roots.", f"Roots: {_listed(roots)}."
            )
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RequestError(
                f"{shortened(str(path))} is not a regular file.", "Name a file of source text."
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit_bytes:
        raise RequestError(
            f"{shortened(str(path))} is larger than {limit_bytes // 1024} KiB.",
            "Split it, or leave out the data.",
        )
    return content


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long
        return False


def _like(path: Path) -> str:
    try:
        names = nearest(path.name, sorted(entry.name for entry in path.parent.iterdir())[:2000])
    except OSError:
        return ""
    return f"; there is {', '.join(map(repr, names))} in that folder" if names else ""


def _listed(roots: Sequence[Path]) -> str:
    return ", ".join(map(str, roots))
