"""The rules of one store as every service on them needs them: seeded once, found, shown; what is known of tasks and Triton."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import anyio

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import NewRule, RuleRecord, RuleTable, Store
from adaexplore_mcp.models import RuleView
from adaexplore_mcp.rules import (
    STARTERS,
    Fingerprint,
    Kind,
    Sighting,
    Starter,
    cleaned,
    kind_of,
    objections,
    own_words,
    wording,
)
from adaexplore_mcp.services.messages import not_found, shortened
from adaexplore_mcp.services.ruleviews import is_visible, view

__all__ = ["NO_RULE", "Describe", "Rulebook", "TaskTraits", "applies", "named"]

MOST_KERNELS = 8
"""Of a rule: the latest of those that broke it, whose names may not stand in its text."""
NO_RULE = "Call get_skill_rules for the ids of rules."


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """What rules need to know of a task.

    Args:
        family: Of tasks that differ in constants only.
        operators: Names of the functions and modules that its reference uses.
        dtype: The narrowest floating one of its inputs and outputs; empty where it has none.
    """

    family: str
    operators: frozenset[str] = frozenset()
    dtype: str = ""


Describe = Callable[[str], Awaitable[TaskTraits]]


async def nothing_known(task_id: str) -> TaskTraits:
    """Describe a task of which nothing is known."""
    return TaskTraits(family=task_id)


class Rulebook:
    """The rules of one store.

    Args:
        store: Where they are kept.
        describe: Tells what rules need to know of a task.
    """

    def __init__(self, store: Store, describe: Describe = nothing_known) -> None:
        self.table: RuleTable = store.rules
        self._kernels = store.evaluations
        self._describe = describe
        self._traits: dict[str, TaskTraits] = {}
        self._seeding = anyio.Lock()
        self._seeded = False
        self._triton = ""

    async def all(self) -> tuple[list[RuleRecord], int]:
        """Return every rule that was not merged into another, and the number of task families that were tried."""
        await self.seed()
        return await self.table.all()

    async def known(self, rule_id: str, parameter: str = "rule_id") -> RuleRecord:
        """Return a rule that was not merged into another.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
            RequestError: It was merged, or no id was given; names the parameter.
        """
        rule = await self.found(rule_id, parameter)
        if rule.merged_into:
            raise RequestError(
                f"Rule {rule_id} was merged into {rule.merged_into}.", f"Use {rule.merged_into}."
            )
        return rule

    async def found(self, rule_id: str, parameter: str = "rule_id") -> RuleRecord:
        """Return a rule, also one that was merged into another.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
            RequestError: No id was given; names the parameter.
        """
        await self.seed()
        rule = await self.table.get(rule_id)
        if rule is None:
            rules, _ = await self.table.all()
            if not rule_id:
                raise RequestError(f"{parameter} is missing.", NO_RULE)
            raise not_found("rule", rule_id, [each.rule_id for each in rules], NO_RULE)
        return rule

    async def worded(self, text: str, kernels: Iterable[str], rule: RuleRecord | None = None) -> str:
        """Return a text as it may be kept for a rule.

        Args:
            text: As an agent gave it.
            kernels: Candidates, or nodes of a search, that it is about: their own names and numbers may not stand in it.
            rule: The rule; what this itself names may.

        Raises:
            RequestError: It cannot be a rule; says why.
        """
        sources = [await self._kernels.candidate(each) for each in dict.fromkeys(kernels)]
        own = own_words(source for source in sources if source is not None)
        if rule is not None:
            known = kind_of(rule.key)
            own = own.without(
                f"{rule.text} {rule.key} {' '.join(rule.names)} {known.words if known is not None else ''}"
            )
        text = cleaned(text)
        if reasons := objections(text, own=own):
            raise RequestError(
                f"{shortened(text)} cannot be the text of a rule: {'; '.join(reasons[:3])}.",
                'Say what cannot be done in one sentence that begins "You cannot", grounded in the error message alone.',
            )
        return text

    async def reworded(self, text: str, rule: RuleRecord) -> str:
        """Return new words for a rule as they may be kept: without what belongs to the kernels behind it.

        Raises:
            RequestError: They cannot be a rule's; says why.
        """
        failures = await self.table.failures(rule_id=rule.rule_id, limit=MOST_KERNELS)
        kernels = [each.candidate_id for each in failures]
        details = await self.table.details([rule])
        for speed in details[rule.rule_id].speeds[:MOST_KERNELS]:
            kernels += (speed.node_id, speed.parent_id)
        return await self.worded(text, kernels, rule)

    async def view(self, rule: RuleRecord, summary: str, *, reason: bool = False) -> RuleView:
        """Return a rule as it is shown, to a person and who proposed a change with the reason for it."""
        details = await self.table.details([rule])
        shown = view(rule, details[rule.rule_id], await self.installed(), reason=reason)
        return shown.model_copy(update={"summary": summary})

    async def usable(self, sightings: Sequence[Sighting], triton: str) -> dict[str, RuleRecord]:
        """Return the rules that may warn of what a source shows, by key.

        They are not retired, not refuted for a version of Triton, and not a stranger's word.
        """
        await self.seed()
        rules = await self.table.with_keys(sorted({each.key for each in sightings}))
        refuted = await self.table.refuted(triton or await self.installed())
        return {
            key: rule
            for key, rule in rules.items()
            if is_visible(rule)
            and rule.rule_id not in refuted
            and (rule.state in {"verified", "confirmed"} or (rule.state != "retired" and rule.hits))
        }

    async def unchecked(self, rules: Iterable[RuleRecord], triton: str) -> set[str]:
        """Return those of some rules of which nothing is known for a version of Triton."""
        checked = await self.table.checked(triton or await self.installed())
        return {rule.rule_id for rule in rules} - checked

    async def traits(self, task_id: str) -> TaskTraits:
        """Return what rules need to know of a task.

        Raises:
            NotFoundError: There is no such task.
        """
        if task_id not in self._traits:
            self._traits[task_id] = await self._describe(task_id)
        return self._traits[task_id]

    async def installed(self) -> str:
        """Return the version of Triton that was seen last, or the empty string."""
        if not self._triton:
            self._triton = await self.table.triton()
        return self._triton

    async def see_triton(self, triton: str) -> bool | None:
        """Remember the version of Triton that is used; says whether its probes were never run, None of the last one seen."""
        if not triton or triton == self._triton:
            return None
        await self.seed()
        never_probed = await self.table.see_triton(triton)
        self._triton = triton
        return never_probed

    async def seed(self) -> None:
        """Keep the rules that come with the product, once."""
        if self._seeded:
            return
        async with self._seeding:
            if not self._seeded:
                new = [_shipped(starter) for starter in STARTERS if starter.holds]
                kept = {rule.key: rule for rule in await self.table.put(new, "server")}
                versions = {version for starter in STARTERS for version in starter.holds}
                for starter in STARTERS:
                    if starter.key in kept:
                        rule_id = kept[starter.key].rule_id
                        for version in sorted((*starter.holds, *starter.compiles)):
                            holds = version in starter.holds
                            await self.table.check(rule_id, version, holds=holds, how="its probe")
                if kept:
                    for version in sorted(versions):
                        await self.table.probed(version)
                self._seeded = True


def named(key: str, names: tuple[str, ...]) -> str:
    """Return the words of a known kind with all names, or the empty string."""
    known = kind_of(key)
    return _words(known, key, names) if known is not None and names else ""


def _words(known: Kind, key: str, names: tuple[str, ...]) -> str:
    return wording(Fingerprint(known.id, key.partition(":")[2], known.subject, known.words, names))


def _shipped(starter: Starter) -> NewRule:
    known = kind_of(starter.key)
    assert known is not None, starter.key
    return NewRule(
        starter.key,
        known.subject,
        known.words,
        _words(known, starter.key, starter.names),
        starter.names,
        "verified",
        "shipped",
        "shipped",
    )


def applies(rule: RuleRecord, sighting: Sighting) -> bool:
    """Tell whether a rule is about what a source shows."""
    return rule.key == sighting.key and (not sighting.name or sighting.name in rule.names)
