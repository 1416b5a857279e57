"""Everything the tools work with, made once per server process and freed with it."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.services.explore import ExploreService
from adaexplore_mcp.services.jobs import JobService
from adaexplore_mcp.services.kernels import Kernels
from adaexplore_mcp.services.ports import Evaluations, Rules, Tasks
from adaexplore_mcp.services.ruleviews import in_brief
from adaexplore_mcp.services.runviews import RunViews
from adaexplore_mcp.settings import Settings

if TYPE_CHECKING:  # it composes what is made at the first use
    from adaexplore_mcp.services.adapt import AdaptService

__all__ = ["Collaborators", "Connect", "Services"]

logger = logging.getLogger(__name__)

IDLE_CHECK_S = 60.0
PROBE_CHECK_S = 5.0
DRAW_CHECK_S = 2.0
PROPOSAL_RULES = 4
CLOSE_S = 4.0
"""How long the ends of the workers and of the database may take together; clients kill what is left after 5 s."""


@dataclass(frozen=True, slots=True)
class Collaborators:
    """The domains behind the tools."""

    tasks: Tasks
    evaluations: Evaluations
    rules: Rules
    adapt: "AdaptService"


Connect = Callable[[Settings, Store], Collaborators]
"""Makes the domains; called at the first use, so that the first tools/list does not wait for their imports."""


class Services:
    """What the tools use.

    Args:
        settings: Of this process.
        connect: Makes the domains when they are first needed.
    """

    def __init__(self, settings: Settings, connect: Connect) -> None:
        self.settings = settings
        self.store = Store(settings.database)
        self.jobs = JobService(self.store.jobs, settings.parallel)
        self._connect = connect

    @property
    def tasks(self) -> Tasks:
        """The tasks that candidates can be judged against."""
        return self._collaborators.tasks

    @property
    def evaluations(self) -> Evaluations:
        """The judge of candidates."""
        return self._collaborators.evaluations

    @property
    def rules(self) -> Rules:
        """What failures taught."""
        return self._collaborators.rules

    @property
    def adapt(self) -> "AdaptService":
        """The Adapt stage."""
        return self._collaborators.adapt

    @cached_property
    def explore(self) -> ExploreService:
        """The searches that agents drive."""
        return ExploreService(
            self.store,
            self.tasks,
            self.evaluations,
            lease_s=self.settings.step_lease_s,
            rules=self._rules_for,
        )

    async def _rules_for(self, task_id: str) -> list[str]:
        """Return the rules that a proposal shows of a task."""
        return [
            f"{rule.rule} [{rule.rule_id}, {in_brief(rule)}]"
            for rule in await self.rules.rules_for(task_id=task_id, limit=PROPOSAL_RULES)
        ]

    @cached_property
    def runs(self) -> RunViews:
        """The state of searches."""
        return RunViews(self.store, self.explore.searches)

    @cached_property
    def kernels(self) -> Kernels:
        """The kernels of searches, to be taken away."""
        return Kernels(self.store, self.tasks, self.evaluations, self.explore.searches, self.settings.roots)

    @cached_property
    def _collaborators(self) -> Collaborators:
        return self._connect(self.settings, self.store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until left; then end every evaluation, worker and connection."""
        try:
            async with self.jobs.running(), anyio.create_task_group() as background:
                background.start_soon(self._release_idle)
                background.start_soon(self._probe_when_due)
                background.start_soon(self._draw_when_due)
                yield
                background.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(CLOSE_S, shield=True) as scope:
                try:
                    if self._connected:
                        await self.evaluations.aclose()
                finally:
                    await self.store.aclose()
            if scope.cancelled_caught:
                self.shutdown_now()

    async def _release_idle(self) -> None:
        """End worker processes that nobody has used for a while: they hold some 400 MiB."""
        if not (after := self.settings.keep_workers_s):
            return
        while True:
            await anyio.sleep(min(after, IDLE_CHECK_S))
            if self._connected:
                await self.evaluations.release_idle(after)

    async def _probe_when_due(self) -> None:
        """Run the probes of rules after Triton changed, behind the calls that are being served."""
        while True:
            await anyio.sleep(PROBE_CHECK_S)
            if self._connected:
                await self.rules.checks.probe_if_due()

    async def _draw_when_due(self) -> None:
        """Draw synthetic tasks behind the calls that are being served, so that the next one is there when it is asked for."""
        while True:
            await anyio.sleep(DRAW_CHECK_S)
            if self._connected:
                await self.adapt.draw_if_due()

    def shutdown_now(self) -> None:
        """End every worker process at once, without waiting; for signal handlers."""
        if self._connected:
            self.evaluations.shutdown_now()

    @property
    def _connected(self) -> bool:
        return "_collaborators" in self.__dict__
