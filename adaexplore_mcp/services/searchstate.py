"""Searches in memory: each made once from the database, then kept up to date with what any server recorded."""

from dataclasses import dataclass

from adaexplore_mcp.memory_store import RunRecord, RunTable, StepRecord, TreeRow
from adaexplore_mcp.search import ROOT, Node, Proposal, Search, SearchSettings, StopReason, makes_node
from adaexplore_mcp.services.messages import not_found

__all__ = ["RunNow", "Searches"]

KEPT = 32
"""Searches in memory; one of 10,000 nodes takes some 10 MiB."""


@dataclass(frozen=True, slots=True)
class RunNow:
    """A run as it stands."""

    run: RunRecord
    search: Search
    """Knows every node of the snapshot, maybe also later ones; whoever writes names `run.version`."""
    steps: tuple[StepRecord, ...]

    @property
    def open(self) -> list[StepRecord]:
        """Proposals that wait for a kernel, in order."""
        return [step for step in self.steps if step.purpose == "ask" and step.state == "open"]

    @property
    def judged(self) -> list[StepRecord]:
        """Steps with a kernel that has no outcome yet, in order."""
        return [step for step in self.steps if step.state == "submitted"]

    @property
    def finals(self) -> list[StepRecord]:
        """Evaluations of the best kernels at the end."""
        return [step for step in self.steps if step.purpose == "final" and step.step == self.run.round]

    @property
    def reserved(self) -> int:
        """Steps of the budget that proposals out now will use."""
        return sum(
            step.charged and step.purpose == "ask" and step.state in {"open", "submitted"}
            for step in self.steps
        )

    @property
    def steps_left(self) -> int:
        """Steps of the budget that are not used."""
        return max(0, self.run.max_steps - self.search.charged_steps)

    def stop_reason(self) -> StopReason | None:
        """Say why the run ends here, or None."""
        return self.search.stop_reason(max_steps=self.run.max_steps, resumed_at=self.run.resumed_at)

    def proposals(self) -> list[Proposal]:
        """Return what agents work on now."""
        return [
            Proposal(step=step.step, kind=step.kind, parent=step.parent, context=step.context)
            for step in self.steps
            if step.purpose == "ask" and step.state in {"open", "submitted"}
        ]


class Searches:
    """The searches of this process.

    Args:
        runs: Where they are kept.
    """

    def __init__(self, runs: RunTable) -> None:
        self._runs = runs
        self._searches: dict[str, Search] = {}

    async def now(self, run_id: str) -> RunNow:
        """Return a run as it stands.

        Raises:
            NotFoundError: There is no such run; names the nearest.
        """
        search = self._searches.get(run_id)
        state = await self._runs.state(run_id, 0 if search is None else search.next_id - 1)
        if state is None:
            latest = await self._runs.ids("run")
            raise not_found("run", run_id, latest, "get_run without run_id lists the runs.")
        # Somebody else may have made or brought it up to date meanwhile: from here on nothing waits.
        search = self._searches.pop(run_id, None) or search
        if search is None:
            search = Search(SearchSettings.from_data(state.run.settings), state.run.seed)
        for row in state.nodes:
            if row.node not in search.entries:
                search.record(_node(row))
        self._searches[run_id] = search
        while len(self._searches) > KEPT:
            del self._searches[next(iter(self._searches))]
        return RunNow(state.run, search, state.steps)


def _node(row: TreeRow) -> Node:
    assert makes_node(row.status), row
    return Node(
        id=row.node,
        parent=max(ROOT, row.parent),
        kind=row.kind,
        status=row.status,
        step=row.step,
        speedup=row.speedup,
        low=row.low,
        eligible=row.eligible,
        charged=row.charged,
        roofline_share=row.roofline_share,
    )
