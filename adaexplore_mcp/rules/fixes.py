"""The small edit between a kernel that failed and one that is right: what changed, without comments and words of its author."""

import difflib
import io
import itertools
import keyword
import tokenize
from collections.abc import Iterable, Iterator

from adaexplore_mcp.rules.ownwords import says_something

__all__ = ["edit_between"]

MAX_LINES = 6
"""On each side: a larger edit is another kernel, not a fix."""
MAX_CHARACTERS = 160
MAX_TEXT = 12
"""Characters of a text, with its quotes, that is shown."""
MAX_SOURCE, MAX_COMPARED = 128 << 10, 4000
"""Bytes and lines of a kernel that are compared: two strangers' texts could take hours."""
LEFT_OUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING})
PART_OF_TEXT = getattr(tokenize, "FSTRING_MIDDLE", -1)

Line = tuple[tuple[int, str], ...]
"""Kind and text of each token, with the space before it."""


def edit_between(failed: bytes, right: bytes) -> tuple[str, str] | None:
    """Return the lines before and after an edit, or None where it is none or not a small one.

    An edit is shown to other agents, and what an author may choose freely can speak to them: comments are taken out, texts
    emptied, and names that say something replaced by short ones, the same for the same.
    """
    if max(len(failed), len(right)) > MAX_SOURCE:
        return None
    one, other = _lines(failed), _lines(right)
    if one is None or other is None or len(one) + len(other) > MAX_COMPARED:
        return None
    before: list[Line] = []
    after: list[Line] = []
    for tag, start, end, from_, to in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            before += one[start:end]
            after += other[from_:to]
    if not (before or after) or len(before) > MAX_LINES or len(after) > MAX_LINES:
        return None
    short = _short_names([*before, *after])
    texts = _joined(before, short), _joined(after, short)
    return texts if all(len(text) <= MAX_CHARACTERS for text in texts) else None


def _joined(lines: Iterable[Line], short: dict[str, str]) -> str:
    return "; ".join("".join(_shown(kind, text, short) for kind, text in line).strip() for line in lines)


def _shown(kind: int, text: str, short: dict[str, str]) -> str:
    name = text.lstrip()
    return text.replace(name, short.get(name, name)) if kind == tokenize.NAME else text


def _short_names(lines: Iterable[Line]) -> dict[str, str]:
    """Return the short name of each name that says something, in the order in which they stand."""
    names = dict.fromkeys(text.lstrip() for line in lines for kind, text in line if kind == tokenize.NAME)
    free = (name for number in itertools.count(1) if (name := f"name{number}") not in names)
    return {name: next(free) for name in names if not keyword.iskeyword(name) and says_something(name)}


def _lines(source: bytes) -> list[Line] | None:
    """Return logical lines without comments, docstrings and the contents of texts; None where it is no Python."""
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return [line for line in _split(tokens) if [kind for kind, _ in line] != [tokenize.STRING]]


def _split(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[Line]:
    line: list[tuple[int, str]] = []
    last = (0, 0)
    for token in tokens:
        if token.type in {tokenize.NEWLINE, tokenize.ENDMARKER}:
            if line:
                yield tuple(line)
            line = []
        elif token.type not in LEFT_OUT:
            space = " " if line and token.start != last else ""
            line.append((token.type, f"{space}{_emptied(token)}"))
        last = token.end


def _emptied(token: tokenize.TokenInfo) -> str:
    """Return a token, a text only where it is short and says nothing."""
    words = token.string
    if token.type == PART_OF_TEXT:
        return words if len(words) + 2 <= MAX_TEXT and not _speaks(words) else ""
    if token.type == tokenize.STRING and (len(words) > MAX_TEXT or _speaks(words)):
        return '""'
    return words


def _speaks(text: str) -> bool:
    return any(says_something(word) for word in text.strip("rbfuRBFU'\"").split())
