"""Word what goes wrong: values as they may stand in a message, what was meant, whose fault it is."""

import difflib
import logging
import secrets
from collections.abc import Iterable

from adaexplore_mcp.errors import (
    AdaExploreError,
    NotFoundError,
    RequestError,
    StoreError,
    WorkerError,
    WorkerLostError,
)
from adaexplore_mcp.memory_store import Store

__all__ = ["failure_of", "known_candidate", "nearest", "nearest_handles", "not_found", "shortened"]

HANDLED = frozenset({"artifact", "attempt", "candidate", "job", "node", "receipt", "run", "step", "task"})
"""What is known by a handle: its kind, an underscore and characters that mean nothing."""

logger = logging.getLogger(__name__)


def shortened(value: object, limit: int = 80) -> str:
    """Return a value as it may stand in a message: quoted, on one line, head and tail where it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 20]}…{text[-12:]} ({len(str(value))} characters)"


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names most like a name, best first; none where nothing is like it."""
    return difflib.get_close_matches(name[:200], list(known), n=count, cutoff=0.5)


def nearest_handles(handle: str, known: Iterable[str]) -> list[str]:
    """Return the ids most like one: their beginning, which tells the kind, makes all of them alike."""
    by_rest = {each.partition("_")[2]: each for each in known}
    return [by_rest[rest] for rest in nearest(handle.partition("_")[2], by_rest)]


def not_found(kind: str, name: str, known: Iterable[str], next_step: str) -> NotFoundError:
    """Return the error that says there is no such thing, and names those most like it.

    Args:
        kind: What it would be: task, job, candidate, …
        name: As it was given.
        known: What there is.
        next_step: What to call instead.
    """
    alike = nearest_handles(name, known) if kind in HANDLED else nearest(name, known)
    meant = f" Did you mean {' or '.join(alike)}?" if alike else ""
    return NotFoundError(f"There is no {kind} {shortened(name)}.{meant}", next_step)


async def known_candidate(store: Store, candidate_id: str, next_step: str) -> bytes:
    """Return the source of a candidate.

    Args:
        store: Where it is kept.
        candidate_id: Its id.
        next_step: What to call instead where there is none.

    Raises:
        NotFoundError: There is none with this id; names the nearest.
    """
    source = await store.evaluations.candidate(candidate_id)
    if source is None:
        raise not_found("candidate", candidate_id, await store.evaluations.ids("candidate"), next_step)
    return source


def failure_of(error: Exception, tool: str) -> tuple[str, str]:
    """Say what went wrong, and the next step, of whatever was raised while a tool was served.

    What was not raised on purpose is logged with its traceback under an id that the text names.
    """
    match error:
        case RequestError(problem=problem, next_step=next_step):
            return problem, next_step
        case StoreError():
            return str(error), "Then call again; nothing was recorded."
        case AdaExploreError():
            text = str(error).rstrip(".")
            next_step = "Call again."
            if isinstance(error, WorkerError) and not isinstance(error, WorkerLostError):
                next_step = (
                    "Call again once that is mended; `adaexplore-mcp doctor` examines the installation. What workers need: "
                    "`pip install torch triton numpy` with their interpreter."
                )
            return f"{tool} failed on the server's side: {text}. Nobody's kernel is to blame.", next_step
    incident = secrets.token_hex(4)
    logger.error("incident %s while serving %s", incident, tool, exc_info=error)
    return (
        f"{tool} failed on the server's side (incident {incident}). Nobody's kernel is to blame.",
        "Call again; if it recurs, report the incident with the server's log.",
    )
