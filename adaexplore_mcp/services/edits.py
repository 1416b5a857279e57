"""Kernels as texts: edits applied to one, two compared by what they say."""

import ast
import contextlib
import difflib
import hashlib
import itertools
from collections.abc import Iterable, Sequence

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import Edit
from adaexplore_mcp.services.messages import shortened

__all__ = ["apply_edits", "change_of", "diff_of", "refuse_empty", "tree_digest"]

MAX_WINDOWS = 4000
"""Places at which a text is looked for that stands nowhere as it was given."""
MAX_LIKENED = 4000
"""Characters of it that are compared."""
MAX_COMPARED_LINES = 4000
MAX_LIKED_LINES = 50
MAX_TELLING = 60
"""Characters of the line that stands for a change."""
MAX_PARSED = 256 << 10


def apply_edits(parent: bytes, edits: Sequence[Edit], name: str) -> bytes:
    """Return a kernel with all edits applied together.

    Each old text must stand exactly once in the parent as it is; no two may overlap. Line ends count as equal; the
    parent's own are kept.

    Args:
        parent: The kernel that is edited.
        edits: What to replace.
        name: How messages call the parent.

    Raises:
        RequestError: Says which edit does not fit and why, with the nearest text and its line. Nothing is applied then.
    """
    try:
        text = parent.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 text.", "Send a whole kernel instead of edits.") from error
    windows = "\r\n" in text
    text = _with_plain_ends(text)
    spans: list[tuple[int, int, int, str]] = []
    for number, edit in enumerate(edits, 1):
        old = _with_plain_ends(edit.old)
        places = _places(text, old)
        which = f"edits[{number - 1}]: old text {shortened(edit.old)}"
        if not places:
            raise RequestError(
                f"{which} stands nowhere in {name}.{_nearest(text, old)}",
                f"Copy it exactly from {name}. Nothing was changed, and no step used.",
            )
        if len(places) > 1:
            lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places[:5])
            raise RequestError(
                f"{which} stands {len(places)} times in {name} (lines {lines}).",
                "Take in a line before or after it, so that it stands once. Nothing was changed, and no step used.",
            )
        spans.append((places[0], places[0] + len(old), number, _with_plain_ends(edit.new)))
    spans.sort()
    for (_, end, number, _), (start, _, other, _) in itertools.pairwise(spans):
        if start < end:
            raise RequestError(
                f"edits[{number - 1}] and edits[{other - 1}] overlap at line {text.count(chr(10), 0, start) + 1} of {name}.",
                "Put both into one edit. Nothing was changed, and no step used.",
            )
    for start, end, _, new in reversed(spans):
        text = text[:start] + new + text[end:]
    return (text.replace("\n", "\r\n") if windows else text).encode()


def refuse_empty(source: bytes) -> None:
    """Refuse a kernel without a line of code: there is nothing to judge, and nothing to learn from it.

    Raises:
        RequestError: It is empty, or holds comments alone.
    """
    lines = [line for line in map(bytes.strip, source.removeprefix(b"\xef\xbb\xbf").splitlines()) if line]
    if not lines:
        raise RequestError("The kernel is empty.", "Send its source text; nothing was judged.")
    if all(line.startswith(b"#") for line in lines):
        raise RequestError(
            "The kernel holds comments alone, no code.", "Send its whole source text; nothing was judged."
        )


def tree_digest(source: bytes) -> str:
    """Return what is equal for kernels with the same syntax tree; of what cannot be parsed, for the same text.

    Parsing holds the interpreter: what is so long that it would take seconds is compared as text too.
    """
    tree = ""
    if len(source) <= MAX_PARSED:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.dump(ast.parse(source), include_attributes=False)
    if not tree:
        lines = (line.rstrip() for line in source.replace(b"\r\n", b"\n").split(b"\n"))
        return "text:" + hashlib.sha256(b"\n".join(lines).strip()).hexdigest()
    return "tree:" + hashlib.sha256(tree.encode("utf-8", "surrogatepass")).hexdigest()


def change_of(parent: bytes, source: bytes) -> str:
    """Say on one line what a kernel changes of its parent; of a first kernel, how long it is."""
    new = source.decode(errors="replace").splitlines()
    if not parent:
        return f"{len(new)} lines"
    old = parent.decode(errors="replace").splitlines()
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return f"{len(new)} lines for {len(old)}"
    added, removed = 0, 0
    came, gone = "", ""
    for tag, low, high, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        removed, added = removed + high - low, added + end - start
        gone = gone or _first_telling(old[low:high])
        if not came and (came := _first_telling(new[start:end])):
            came = _where_it_differs(came, _likest(came, old[low:high]))
    telling = came or _where_it_differs(gone, "")
    return f"+{added} -{removed}{f': {telling}' if telling else ''}"


def diff_of(old: str, new: str, old_name: str, new_name: str) -> str:
    """Return a unified diff for a reader, with one line of context; empty where the texts are equal or too long to compare."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > MAX_COMPARED_LINES:
        return ""
    return "\n".join(difflib.unified_diff(before, after, old_name, new_name, n=1, lineterm=""))


def _first_telling(lines: Iterable[str]) -> str:
    return next((line.strip() for line in lines if len(line.strip()) > 3), "")


def _likest(line: str, others: Sequence[str]) -> str:
    """Return the line that another one was made from; empty where none is like it."""
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(line[:MAX_LIKENED])
    best, found = 0.5, ""
    for other in map(str.strip, others[:MAX_LIKED_LINES]):
        matcher.set_seq1(other[:MAX_LIKENED])
        if matcher.real_quick_ratio() > best and (ratio := matcher.quick_ratio()) > best:
            best, found = ratio, other
    return found


def _where_it_differs(line: str, other: str) -> str:
    """Return a line, or the part of a long one around what differs from another."""
    if len(line) <= MAX_TELLING:
        return line
    head = _shared(line, other)
    tail = _shared(line[head:][::-1], other[head:][::-1])
    width = MAX_TELLING - 2
    # Before a long part that differs a little, around a short one as much on either side.
    begin = head - max(width - (len(line) - tail - head), width // 4) // 2 if other else 0
    begin = min(max(begin, 0), len(line) - width)
    return f"{'…' if begin else ''}{line[begin : begin + width]}{'…' if begin + width < len(line) else ''}"


def _shared(one: str, other: str) -> int:
    """Return with how many characters both texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _with_plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n")


def _places(text: str, old: str) -> list[int]:
    """Return where a text begins, overlapping places too, as far as a message needs them."""
    places: list[int] = []
    start = text.find(old)
    while start >= 0 and len(places) < 100:
        places.append(start)
        start = text.find(old, start + 1)
    return places


def _nearest(text: str, old: str) -> str:
    """Name the lines most like a text."""
    wanted = [line.strip() for line in old.strip("\n").split("\n")]
    target = "\n".join(wanted)[:MAX_LIKENED]
    lines = text.split("\n")
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(target)
    best, where = 0.5, -1
    for start in range(min(max(len(lines) - len(wanted) + 1, 1), MAX_WINDOWS)):
        here = "\n".join(line.strip() for line in lines[start : start + len(wanted)])[:MAX_LIKENED]
        matcher.set_seq1(here)
        if (
            matcher.real_quick_ratio() > best
            and matcher.quick_ratio() > best
            and (ratio := matcher.ratio()) > best
        ):
            best, where = ratio, start
    if where < 0:
        return " Nothing there is like it."
    found = "\n".join(lines[where : where + len(wanted)])
    return f" Nearest, at line {where + 1}: {shortened(found, 300)}."
