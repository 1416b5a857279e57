"""Mint the handles under which things are asked for again: unguessable, or derived from content.

Lower-case letters and digits only, 12 of them after the prefix: short enough for a model to copy without a slip.
"""

import secrets
from typing import Literal

__all__ = ["content_handle", "new_handle"]

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without 0, 1, i, l, o: they are mistaken for one another
LENGTH = 12


def new_handle(prefix: Literal["job", "rcpt", "art", "out", "run", "step", "att"]) -> str:
    """Return a random handle such as job_7k2mhd93xqap; about 59 bits."""
    return f"{prefix}_" + "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def content_handle(prefix: Literal["task", "cand", "rule"], digest: str) -> str:
    """Return the handle of content with this SHA-256: equal content, equal handle.

    Args:
        prefix: The kind of content.
        digest: SHA-256 in hexadecimal.
    """
    number = int(digest, 16)
    letters = []
    for _ in range(LENGTH):
        number, letter = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[letter])
    return f"{prefix}_" + "".join(letters)
