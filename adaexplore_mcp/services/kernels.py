"""Kernels of a run, to be taken away: source, standalone file, or a patch against the kernel it began with."""

import dataclasses
import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import NodeRecord, RunRecord, Store, node_handle, read_node_handle
from adaexplore_mcp.models import KernelAnswer, KernelFormat, Outcome
from adaexplore_mcp.search import ROOT
from adaexplore_mcp.services.messages import not_found
from adaexplore_mcp.services.ports import Evaluations, Report, Tasks
from adaexplore_mcp.services.runverdicts import judged
from adaexplore_mcp.services.searchstate import Searches
from adaexplore_mcp.services.searchwords import (
    RIGHT,
    best_node_of,
    how_many_right,
    short_outcome,
    speedup_words,
    under_its_name,
)

__all__ = ["Kernels", "Taken", "unified_diff"]

CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True)
class Taken:
    """A node with its kernel, and where it is to go."""

    record: NodeRecord
    run: RunRecord
    source: bytes
    start: NodeRecord | None = None
    """The kernel that a patch applies to."""
    start_source: bytes = b""
    chosen: str = ""
    """How it was chosen, where not by its speed."""


class Kernels:
    """The kernels of all runs.

    Args:
        store: Where they are kept.
        tasks: What they were judged against.
        evaluations: Judges what is to be applied once more.
        searches: Those in memory.
        roots: Folders from which start kernels are read.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        evaluations: Evaluations,
        searches: Searches,
        roots: Sequence[Path] = (),
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._evaluations = evaluations
        self._searches = searches
        self._roots = roots

    async def take(self, node_id: str, run_id: str, format_: KernelFormat) -> Taken:
        """Return a node, or the result of a run.

        Raises:
            NotFoundError: There is no such node or run.
            RequestError: The run has no right kernel, or a patch has nothing to apply to.
        """
        if bool(node_id) == bool(run_id):
            raise RequestError(
                "Both node_id and run_id were given." if node_id else "Neither node_id nor run_id was given.",
                "Give node_id for one kernel, or run_id for the best of a run.",
            )
        chosen = ""
        if run_id:
            now = await self._searches.now(run_id)
            number = best_node_of(now, timed=self._evaluations.times)
            if number is None:
                raise RequestError(
                    f"No kernel of run {run_id} is right and does the work itself ({how_many_right(now)}).",
                    f"Call search_step with run_id {run_id!r}{under_its_name(now)} to go on, or get_run with view history for what there is.",
                )
            if not self._evaluations.times:
                chosen = (
                    f"Nothing is timed on this machine: it is the first that is right ({how_many_right(now)}), and not known to "
                    "be the fastest."
                )
        else:
            place = read_node_handle(node_id)
            if place is None or await self._store.runs.get(place[0]) is None:
                known = await self._store.runs.ids("run")
                raise not_found(
                    "node",
                    node_id,
                    [node_handle(run, 1) for run in known[:20]],
                    "get_run names the nodes of a run.",
                )
            run_id, number = place
            now = await self._searches.now(run_id)
        record = (await self._store.runs.nodes(run_id, [number])).get(number)
        if record is None:
            raise not_found(
                "node",
                node_id,
                [],
                f"Run {run_id} has nodes 1 to {now.search.next_id - 1}; get_run with view history lists them.",
            )
        source = await self._store.evaluations.candidate(record.candidate_id)
        assert source is not None
        taken = Taken(record, now.run, source, chosen=chosen)
        if format_ != "patch":
            return taken
        start = await self._start_of(record)
        start_source = await self._store.evaluations.candidate(start.candidate_id)
        assert start_source is not None
        return dataclasses.replace(taken, start=start, start_source=start_source)

    async def answer(self, taken: Taken, format_: KernelFormat, report: Report) -> KernelAnswer:
        """Return a kernel in a format; one that is to be applied is judged, and timed, once more."""
        record = taken.record
        outcome = Outcome.model_validate(record.outcome, extra="ignore")
        said = f"Node {record.tree.node}: {record.tree.status}{speedup_words(record)}."
        if taken.chosen:
            said += f" {taken.chosen}"
        next_step = ""
        match format_:
            case "source":
                text = _text_of(taken.source)
            case "standalone":
                text = await self._standalone(taken)
                said += " The file stands alone: it imports nothing of yours."
            case "patch":
                assert taken.start is not None
                text = unified_diff(taken.start_source, taken.source, taken.start.path)
                outcome = await self._again(taken, report)
                said += f" Judged again: {outcome.summary} The patch changes {taken.start.path}, relative to its root."
                place = (
                    shlex.quote(str(root))
                    if (root := await self._root_of(taken))
                    else "the root it was read from"
                )
                next_step = f"Save text as a file and apply it in {place} with `git apply`, which works inside a repository and outside."
        return KernelAnswer(
            summary=said,
            next_step=next_step,
            status=outcome.status,
            node_id=record.node_id,
            receipt_id=outcome.receipt_id,
            speedup=outcome.timing.speedups[0].speedup
            if outcome.timing and outcome.timing.speedups
            else None,
            outcome=short_outcome(outcome.to_wire()),
            text=text,
        )

    async def _root_of(self, taken: Taken) -> Path | None:
        """Return the root below which a start kernel lies now: before all one where it is as it was."""
        assert taken.start is not None
        path, source = taken.start.path, taken.start_source

        def found() -> Path | None:
            there = [root for root in self._roots if (root / path).is_file()]
            same = (root for root in there if _holds(root / path, source))
            return next(same, there[0] if there else None)

        return await anyio.to_thread.run_sync(found)

    async def _again(self, taken: Taken, report: Report) -> Outcome:
        outcome = await judged(
            self._evaluations, taken.run, taken.source, agent=taken.record.agent, last=True, report=report
        )
        if outcome.status not in RIGHT:
            raise RequestError(
                f"Judged again, node {taken.record.tree.node} is {outcome.status}: {outcome.summary}",
                f"Do not apply it; receipt {outcome.receipt_id}. get_kernel with format source gives its text all the same.",
            )
        return outcome

    async def _standalone(self, taken: Taken) -> str:
        task = await self._tasks.get(taken.run.task_id)
        record = taken.record
        receipt = record.outcome.get("receipt_id", "")
        head = (
            f"# {task.name or task.entry}: node {record.tree.node} of {record.run_id}\n"
            f"# {record.tree.status}{speedup_words(record)} at precision {task.policy.precision}; receipt {receipt}\n"
        )
        text = _text_of(taken.source)
        # A first line that names an encoding or a program must stay one of the first two.
        first, newline, rest = text.partition("\n")
        if first.startswith("#!") or "coding" in first:
            return f"{first}{newline}{head}{rest}"
        return head + text

    async def _start_of(self, record: NodeRecord) -> NodeRecord:
        """Return the kernel of the user's own from which a node came, else the first that the run began with."""
        here = record
        while here.tree.parent != ROOT:
            here = (await self._store.runs.nodes(record.run_id, [here.tree.parent]))[here.tree.parent]
        if here.path:
            return here
        first = await self._store.runs.history(record.run_id, 0, 5)
        for each in first:
            if each.path:
                return each
        raise RequestError(
            f"Run {record.run_id} began with no kernel of yours, so there is nothing to patch.",
            "Use format standalone; or begin a run with start_paths.",
        )


def unified_diff(old: bytes, new: bytes, path: str) -> str:
    """Return a diff that `git apply` takes at the folder to which the path is relative.

    Raises:
        RequestError: The texts are equal, or not UTF-8.
    """
    if old == new:
        raise RequestError(
            f"The kernel is the one at {path}: there is nothing to patch.",
            "Name another one by its node_id (get_run with view history lists them), or use format source for its text.",
        )
    name_a, name_b = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    # No `diff --git` line: git takes the names after one to be relative to the top of a repository, and below that skips them.
    lines: list[bytes] = []
    for line in difflib.diff_bytes(
        difflib.unified_diff, _lines(old), _lines(new), name_a.encode(), name_b.encode(), n=CONTEXT_LINES
    ):
        if line.startswith((b"--- ", b"+++ ")) and len(lines) < 2 and b" " in line[4:].strip():
            lines.append(line.rstrip(b"\n") + b"\t\n")  # else git ends the name at its first blank
        elif line.endswith(b"\n"):
            lines.append(line)
        else:
            lines.append(line + b"\n\\ No newline at end of file\n")
    return _text_of(b"".join(lines))


def _holds(file: Path, source: bytes) -> bool:
    try:
        return file.stat().st_size == len(source) and file.read_bytes() == source
    except OSError:
        return False


def _lines(text: bytes) -> list[bytes]:
    """Split at line feeds alone, as git does."""
    lines = text.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _quoted(name: str) -> str:
    """Write a name as git does: in quotes where it holds what would mislead a reader of the patch."""
    if name.isascii() and name.isprintable() and not set(name) & set('"\\'):
        return name
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 9: "\\t", 13: "\\r"}
    written = (
        escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in name.encode()
    )
    return f'"{"".join(written)}"'


def _text_of(source: bytes) -> str:
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            "The kernel is not UTF-8 text.", "read_artifact with its candidate_id shows it with escapes."
        ) from error
