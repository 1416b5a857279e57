"""The small edit between a kernel that failed and one that is right: what changed, without comments and text of its author."""

import difflib
import io
import tokenize

__all__ = ["edit_between"]

MAX_LINES = 6
"""On each side: a larger edit is another kernel, not a fix."""
MAX_CHARACTERS = 160
MAX_SOURCE, MAX_COMPARED = 128 << 10, 4000
"""Bytes and lines of a kernel that are compared: two strangers' texts could take hours."""


def edit_between(failed: bytes, right: bytes) -> tuple[str, str] | None:
    """Return the lines before and after an edit, or None where it is none or not a small one.

    Comments are taken out and texts emptied: an edit is shown to other agents, and these are free words.
    """
    if max(len(failed), len(right)) > MAX_SOURCE:
        return None
    one, other = _lines(failed), _lines(right)
    if one is None or other is None or len(one) + len(other) > MAX_COMPARED:
        return None
    before: list[str] = []
    after: list[str] = []
    for tag, start, end, from_, to in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            before += one[start:end]
            after += other[from_:to]
    if not (before or after) or len(before) > MAX_LINES or len(after) > MAX_LINES:
        return None
    texts = "; ".join(before), "; ".join(after)
    return texts if all(len(text) <= MAX_CHARACTERS for text in texts) else None


def _lines(source: bytes) -> list[str] | None:
    """Return logical lines without comments, docstrings and the contents of texts; None where it is no Python."""
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    lines: list[str] = []
    words: list[str] = []
    last: tuple[int, int] = (0, 0)
    for token in tokens:
        if token.type in {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}:
            last = token.end
            continue
        if token.type in {tokenize.NEWLINE, tokenize.ENDMARKER}:
            line = "".join(words).strip()
            if line and line != '""':
                lines.append(line)
            words = []
        else:
            text = '""' if token.type == tokenize.STRING and len(token.string) > 12 else token.string
            words.append(
                f" {text}" if words and (token.start[0] > last[0] or token.start[1] > last[1]) else text
            )
        last = token.end
    return lines
