"""Rules checked by their probes: run when Triton changes and on request; what a probe refutes is retired for that version."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from adaexplore_mcp.errors import AdaExploreError, WorkerError
from adaexplore_mcp.memory_store import RuleRecord
from adaexplore_mcp.rules import probe_of
from adaexplore_mcp.services.probing import Prober
from adaexplore_mcp.services.rulebook import Rulebook, named

__all__ = ["Probed", "RuleChecks"]

logger = logging.getLogger(__name__)

NAMES_RULE = "name_missing:triton.language"


@dataclass(frozen=True, slots=True)
class Probed:
    """What running the probes showed.

    Args:
        triton: The version that is installed.
        holds: Rules whose probe fails as they say.
        retired: Rules whose probe compiles: they do not hold for this version.
        unclear: Rules whose probe failed in another way, and how.
        without: Rules that have no probe.
        present: Rules that list names which exist in this version, and these names; they are taken off the list.
    """

    triton: str
    holds: list[RuleRecord]
    retired: list[RuleRecord]
    unclear: list[tuple[RuleRecord, str]]
    without: int
    present: list[tuple[RuleRecord, list[str]]] = field(default_factory=list)


class RuleChecks:
    """Runs probes.

    Args:
        book: The rules of one store.
        prober: Compiles; None where nothing can be compiled.
    """

    def __init__(self, book: Rulebook, prober: Prober | None) -> None:
        self._book = book
        self._prober = prober
        self.due = False
        """Whether another Triton was seen, with which no probe was run."""

    async def see(self, triton: str) -> None:
        """Notice the version of Triton with which a candidate was judged."""
        never_probed = await self._book.see_triton(triton)
        if never_probed is not None:
            self.due = never_probed

    async def probe(self, report: Callable[[str], None] = lambda _: None) -> Probed:
        """Run every probe with the installed Triton, and retire for that version what its probe refutes.

        Raises:
            WorkerError: The workers cannot be used.
        """
        await self._book.seed()
        if self._prober is None:
            raise WorkerError("Nothing can be compiled here, so no probe can be run.")
        triton = await self._prober.triton()
        await self._book.table.see_triton(triton)
        rules, _ = await self._book.table.all()
        result = Probed(triton, [], [], [], sum(not probe_of(rule.key) for rule in rules))
        for rule in rules:
            if not (probe := probe_of(rule.key)):
                continue
            report(rule.text)
            failed = await self._prober.fails_as(probe)
            if failed == "":
                await self._book.table.check(rule.rule_id, triton, holds=False, how="its probe")
                result.retired.append(rule)
            elif failed == rule.key:
                await self._book.table.check(rule.rule_id, triton, holds=True, how="its probe")
                if rule.state in {"unverified", "learned"}:
                    await self._book.table.change(
                        rule.rule_id, "verified", "server", {"triton": triton}, state="verified"
                    )
                result.holds.append(rule)
            else:
                result.unclear.append((rule, failed or "no answer"))
        for rule in rules:
            if rule.key == NAMES_RULE and rule.names:
                there = await self._prober.present(rule.names)
                if there:
                    await self._book.table.drop_names(
                        rule.rule_id, there, triton, lambda names: named(NAMES_RULE, tuple(names))
                    )
                    result.present.append((rule, sorted(there)))
        await self._book.table.probed(triton)
        self.due = False
        return result

    async def probe_if_due(self) -> None:
        """Run the probes where another Triton was seen; what fails is logged."""
        if not self.due or self._prober is None:
            return
        self.due = False
        try:
            await self.probe()
        except AdaExploreError as error:
            logger.warning("the probes of rules were not run: %s", error)
