"""The state of a search, as people and agents look at it."""

import collections

import anyio

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import NodeRecord, StepRecord, Store, node_handle
from adaexplore_mcp.models import NodeRow, RunPage, RunRow, RunView, RunViewName
from adaexplore_mcp.search import ROOT, pool_view, reward, tree_view
from adaexplore_mcp.services.owners import is_left
from adaexplore_mcp.services.plots import drawn, png
from adaexplore_mcp.services.searchstate import RunNow, Searches
from adaexplore_mcp.services.searchwords import (
    RIGHT,
    beginning,
    best_node_of,
    how_many_right,
    result_of,
    speedup_words,
    stopped_because,
    under_its_name,
    why_wrong,
)

__all__ = ["RunViews"]

MAX_LISTED = 20


class RunViews:
    """Views of the searches of one database.

    Args:
        store: Where they are kept.
        searches: Those in memory.
    """

    def __init__(self, store: Store, searches: Searches) -> None:
        self._store = store
        self._searches = searches

    async def latest(self) -> RunPage:
        """Return the latest runs of all servers, latest first."""
        rows = [
            RunRow(run_id=run.run_id, task_id=run.task_id, status=run.status, nodes=nodes, agent=run.agent)
            for run, nodes in await self._store.runs.latest(MAX_LISTED)
        ]
        return RunPage(
            summary=f"The latest {len(rows)} searches." if rows else "There are no searches.",
            next_step="Call get_run with a run_id for its state."
            if rows
            else "Call search_step with a task_id to begin one.",
            runs=rows,
        )

    async def view(self, run_id: str, view: RunViewName, *, cursor: int, limit: int, timed: bool) -> RunView:
        """Return the state of a run.

        Args:
            run_id: The run.
            view: summary; tree: nodes, each before those made from it; pool: the best kernel of each segment; history: nodes in
                the order of recording.
            cursor: Rows to skip.
            limit: Most rows to return.
            timed: Whether kernels are timed here.

        Raises:
            NotFoundError: There is no such run; names the nearest.
            RequestError: The view has fewer rows than are to be skipped.
        """
        now = await self._searches.now(run_id)
        numbers: list[int] = []
        match view:
            case "tree":
                numbers = [each.id for each in tree_view(now.search) if each.node is not None]
            case "history":
                numbers = [node.id for node in now.search.nodes]
            case "pool":
                numbers = [segment.best.id for segment in pool_view(now.search)]
        if numbers and cursor >= len(numbers):
            raise RequestError(
                f"cursor {cursor} is past the end: view {view} of run {run_id} has {len(numbers)} "
                f"row{'s' * (len(numbers) != 1)}.",
                f"Call get_run with run_id {run_id!r}, view {view!r} and a cursor below {len(numbers)}.",
            )
        page = numbers[cursor : cursor + limit]
        records = await self._store.runs.nodes(run_id, page)
        more = len(numbers) > cursor + limit
        best = best_node_of(now, timed=timed)
        named = best is not None and timed
        return RunView(
            summary=await self._summary(now, best, timed=timed),
            next_step=_next_step(now, cursor + limit if more else 0),
            run_id=run_id,
            task_id=now.run.task_id,
            status=now.run.status,
            view=view,
            stop_reason=now.run.stop_reason,
            device=now.run.device,
            steps_done=now.search.charged_steps,
            steps_left=now.steps_left,
            counts=dict(collections.Counter(node.status for node in now.search.nodes).most_common()),
            best=node_handle(run_id, best) if named and best is not None else "",
            result=result_of(now, timed=timed),
            open_steps=[
                _open(step) for step in now.steps if step.purpose == "ask" and step.state != "answered"
            ],
            has_more=more,
            next_cursor=cursor + limit if more else 0,
            nodes=[_row(now, records[number]) for number in page],
        )

    async def plot(self, run_id: str, *, timed: bool) -> bytes:
        """Return a picture of a run, as PNG.

        Raises:
            NotFoundError: There is no such run; names the nearest.
        """
        now = await self._searches.now(run_id)
        best = best_node_of(now, timed=timed)
        title = f"{run_id}: {await self._summary(now, best, timed=timed)}"
        # Here, not in a thread: the search must not grow meanwhile.
        picture = drawn(now.search, title, timed=timed)
        return await anyio.to_thread.run_sync(png, picture)

    async def _summary(self, now: RunNow, best: int | None, *, timed: bool) -> str:
        nodes = now.search.nodes
        said = f"{now.search.charged_steps} of {now.run.max_steps} steps used; {how_many_right(now)}."
        if best is not None and timed:
            record = (await self._store.runs.nodes(now.run.run_id, [best]))[best]
            said += f" The best is node {best}, {record.tree.status}{speedup_words(record)}."
        elif not timed and any(node.right for node in nodes):
            said += " Nothing is timed on this machine, so none is called the best."
        if now.run.status == "stopped":
            said += f" Stopped: {stopped_because(now)}."
        return said


def _next_step(now: RunNow, cursor: int) -> str:
    if cursor:
        return f"Call get_run with cursor {cursor} for more."
    if now.run.status == "stopped":
        return f"Call get_kernel with run_id for the kernel, or search_step with run_id{under_its_name(now)}, and resume to go on."
    return f"Call search_step with run_id{under_its_name(now)} for a proposal."


def _open(step: StepRecord) -> str:
    where = f"from node {step.parent}" if step.parent != ROOT else "at the root"
    state = "open"
    if step.state == "submitted":
        state = "interrupted, the next call with it takes it up" if is_left(step) else "being judged"
    who = f" ({step.agent})" if step.agent else ""
    return f"{step.step_id}{who}: {step.kind} {where}, {state}"


def _row(now: RunNow, record: NodeRecord) -> NodeRow:
    row = record.tree
    entry = now.search.entries[row.node]
    assert entry.node is not None
    detail = "" if row.status in RIGHT else beginning(why_wrong(record.outcome))
    if not row.eligible:
        detail = "its own kernels do none of the work"
    return NodeRow(
        node=row.node,
        node_id=record.node_id,
        parent=row.parent,
        kind=row.kind,
        status=row.status,
        speedup=row.speedup,
        visits=entry.visits,
        reward=round(reward(entry.node, now.search.settings), 4),
        subtree_mean=round(entry.mean, 4),
        agent=record.agent,
        idea=record.idea,
        change=record.change,
        detail=detail,
    )
