"""Memory that the server holds by a descriptor, of the host or of a GPU, and what tells it from any other."""

import os
import secrets
from dataclasses import dataclass, field

__all__ = ["Memory", "new_id"]


def new_id() -> str:
    """Return a name that nothing else has."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Memory:
    """Memory, and its name: the number of its descriptor may be another's later.

    Args:
        file: Its descriptor.
        name: What a judge that keeps it mapped knows it by.
    """

    file: int
    name: str = field(default_factory=new_id)

    def close(self) -> None:
        """Close the descriptor; whoever has the memory mapped keeps it."""
        os.close(self.file)
