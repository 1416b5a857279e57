"""What failures taught: learns from every failing outcome, and gives out what matters for a task or a kernel.

Learning never changes a verdict, and where it fails the verdict stands. A rule's text is a template's, a person's, or an
agent's that passed the checks of a lesson; what a person confirmed, an agent can only propose to change.
"""

import functools
import heapq
import logging
from collections.abc import Callable, Collection, Sequence

from adaexplore_mcp.errors import AdaExploreError, RequestError
from adaexplore_mcp.memory_store import (
    Failing,
    NewRule,
    NodeRecord,
    RuleBrief,
    RuleRecord,
    Store,
    read_node_handle,
)
from adaexplore_mcp.models import Outcome, RuleFix, RulePage, RulesRequest, RuleView
from adaexplore_mcp.rules import (
    STARTERS,
    Evidence,
    Fingerprint,
    Place,
    Source,
    Subject,
    apis_of_operators,
    bound,
    edit_between,
    effect,
    fingerprint_of,
    holds_at,
    kind_of,
    observed,
    of_many_causes,
    probe_of,
    read,
    score,
    wording,
)
from adaexplore_mcp.services.messages import known_candidate, shortened
from adaexplore_mcp.services.probing import Prober
from adaexplore_mcp.services.rulebook import (
    NO_RULE,
    Describe,
    Rulebook,
    TaskTraits,
    applies,
    nothing_known,
)
from adaexplore_mcp.services.rulechecks import RuleChecks
from adaexplore_mcp.services.rulereviews import RuleReviews, lesson_apart, live, replaced, reworded
from adaexplore_mcp.services.rulesets import RuleSets
from adaexplore_mcp.services.ruleviews import as_line, view, vouched
from adaexplore_mcp.services.speedlessons import SpeedLessons

__all__ = ["RuleService", "TaskTraits"]

logger = logging.getLogger(__name__)

GOOD = frozenset({"correct", "plausible"})
SHOWN_WARNINGS = 3
WORDLESS = "other:"
"""Kinds of errors that no template has words for."""
WORDS_WANTED = " Words for it are wanted: adapt_on_task with node_id {} and lesson."
CONSIDERED = 2
"""Times as many rules as are asked for whose measured use takes part in their rank."""
MOST_FAILURES = 1000
"""Of one candidate: each time that it is judged anew is one."""
OTHERWISE: tuple[Subject, ...] = ("numeric", "resource", "performance")
"""Subjects of rules that no message makes and that are kept for their ranking."""
ORDER = {starter.key: place for place, starter in enumerate(STARTERS)}


class RuleService:
    """The rule memory of one store.

    Args:
        store: Where rules are kept.
        describe: Tells what rules need to know of a task.
        prober: Runs probes; None where nothing can be compiled.
        here: Targets and names of the devices that candidates are judged on.
    """

    def __init__(
        self,
        store: Store,
        describe: Describe = nothing_known,
        prober: Prober | None = None,
        here: Collection[str] = (),
    ) -> None:
        self._store = store
        self._here = frozenset(here)
        self._book = Rulebook(store, describe)
        self.reviews = RuleReviews(self._book)
        self.sets = RuleSets(self._book)
        self.checks = RuleChecks(self._book, prober)
        self._speeds = SpeedLessons(store, self._book)

    # --- learning

    async def warnings(self, source: bytes, *, triton: str = "") -> list[str]:
        """Return what the source of a candidate shows that a rule says cannot be done: line, what stands there, the rule.

        Never a reason to refuse: the verdict decides.
        """
        seen = read(source)
        if not seen.sightings:
            return []
        rules = await self._book.usable(seen.sightings, triton)
        unchecked = await self._book.unchecked(rules.values(), triton)
        found: dict[str, str] = {}
        for sighting in seen.sightings:
            rule = rules.get(sighting.key)
            if rule is not None and applies(rule, sighting) and rule.rule_id not in found:
                lead = f"line {sighting.line}, {sighting.why}: "
                found[rule.rule_id] = as_line(rule, lead=lead, elsewhere=rule.rule_id in unchecked)
        return list(found.values())

    async def learned(self, outcome: Outcome, source: bytes) -> Outcome:
        """Return an outcome that was learned from before with the rules that it, or its source, touches."""
        good = outcome.status in GOOD
        failures = [] if good else await self._failures(outcome.candidate_id, outcome.task_id)
        rule = await self._book.table.get(failures[0].rule_id) if failures else None
        return await self._with_rules(outcome, source, rule)

    async def learn(
        self, outcome: Outcome, source: bytes, agent: str = "", edits: str | None = None
    ) -> Outcome:
        """Learn from a recorded outcome; return it with the rules that it, or its source, touches.

        Args:
            outcome: As it was recorded, with its candidate_id.
            source: The candidate.
            agent: Label of who sent it.
            edits: candidate_id of the kernel that it is an edit of; empty for a new one; None where nobody knows.
        """
        try:
            return await self._learn(outcome, source, agent, edits)
        except AdaExploreError as error:
            logger.warning("nothing was learned from %s: %s", outcome.candidate_id, error)
            return outcome

    async def _learn(self, outcome: Outcome, source: bytes, agent: str, edits: str | None) -> Outcome:
        triton = outcome.versions.get("triton", "")
        await self.checks.see(triton)
        seen = observed(outcome)
        found = fingerprint_of(seen) if seen is not None else None
        good = outcome.status in GOOD
        if not good and found is None:
            return await self._with_rules(outcome, source, None)
        await self._book.seed()
        traits = await self._book.traits(outcome.task_id)
        target = outcome.scope.target if outcome.scope is not None else ""
        broken = await self._book.table.judged(
            task_id=outcome.task_id,
            family=traits.family,
            candidate_id=outcome.candidate_id,
            agent=agent,
            broken=_new_rule(found, Place(traits.dtype, target)) if found is not None else None,
            words=_words_of(found) if found is not None else None,
        )
        if good:
            await self._mine_fix(outcome, source, agent, edits)
            await self._contradict(outcome, source, triton)
        named = f"{', '.join(found.names)}: " if found is not None and found.names else ""
        return await self._with_rules(outcome, source, broken, named)

    async def _with_rules(
        self, outcome: Outcome, source: bytes, broken: RuleRecord | None, lead: str = ""
    ) -> Outcome:
        lines = [as_line(broken, lead=lead)] if broken is not None and broken.state != "retired" else []
        said = await self.warnings(source, triton=outcome.versions.get("triton", ""))
        mine = f"[{broken.rule_id}," if broken is not None else "[]"
        lines += [line for line in said if mine not in line][:SHOWN_WARNINGS]
        if lines and broken is not None and broken.wording == "template" and broken.key.startswith(WORDLESS):
            lines[0] += WORDS_WANTED.format(outcome.candidate_id)
        return outcome.model_copy(update={"rules": [*outcome.rules, *lines]}) if lines else outcome

    async def _mine_fix(self, outcome: Outcome, source: bytes, agent: str, edits: str | None) -> None:
        """Keep the small edit that turned a failing kernel of this task into this right one.

        Where nobody says which kernel it edits, it is what the agent sent before it for this task.
        """
        again = await self._store.evaluations.outcomes(outcome.task_id, outcome.candidate_id, limit=2)
        if len(again) > 1:
            return  # it was counted when it was new
        if outcome.facts is not None and outcome.facts.shape_specialised:
            return  # it would teach to write the task's own sizes down
        if edits is None:
            edits = await self._store.evaluations.sent_before(outcome.task_id, outcome.candidate_id, agent)
        failures = await self._failures(edits, outcome.task_id)
        failed = await self._store.evaluations.candidate(edits) if failures else None
        edit = edit_between(failed, source) if failed is not None else None
        if edit is not None:
            await self._book.table.add_fix(failures[0].rule_id, RuleFix(before=edit[0], after=edit[1]))

    async def _contradict(self, outcome: Outcome, source: bytes, triton: str) -> None:
        """Retire for this Triton what a right kernel does, where no probe says better."""
        compiled = {each.kernel for each in outcome.compiled if not each.failed_configurations}
        if not triton or not compiled:
            return
        rules: dict[str, RuleRecord] | None = None
        shown = read(source).sightings
        for sighting in shown:
            if not sighting.always or sighting.kernel not in compiled or probe_of(sighting.key):
                continue
            rules = rules if rules is not None else await self._book.usable(shown, triton)
            rule = rules.get(sighting.key)
            if rule is not None and applies(rule, sighting) and rule.state != "confirmed":
                await self._book.table.check(rule.rule_id, triton, holds=False, how="a right kernel")

    async def lesson(
        self, outcome_or_candidate_id: Outcome | str, text: str, agent: str, *, task_id: str = ""
    ) -> RuleView:
        """Take an agent's wording of what one of its own failures teaches, or what a step of a search did to the speed.

        Args:
            outcome_or_candidate_id: The failing attempt, or a node of a search.
            text: One sentence that begins "You cannot".
            agent: Label of who asks: that of the attempt.
            task_id: On which it failed; empty for any.

        Raises:
            NotFoundError: No such attempt.
            RequestError: It did not fail, is someone else's, has its lesson, or the text is none; says which and why.
        """
        given = outcome_or_candidate_id
        candidate_id = given.candidate_id if isinstance(given, Outcome) else given
        task_id = given.task_id if isinstance(given, Outcome) else task_id
        if (node := await self._node(candidate_id)) is not None:
            candidate_id = node.candidate_id
        if node is not None and node.tree.status == "correct":
            return await self._speeds.lesson(node, text, agent)
        failure = await self._untaught(candidate_id, task_id, agent)
        rule = await self._book.known(failure.rule_id)
        text = await self._book.worded(text, [candidate_id], rule)
        apart = lesson_apart(rule, text) if of_many_causes(rule.key) else None
        columns = reworded(live(rule), text, agent) if apart is None else {}
        changed = await self._book.table.teach(failure.number, rule, agent, text, apart=apart, **columns)
        if changed is None:
            raise RequestError(f"Candidate {candidate_id} has its lesson for this task already.", NO_RULE)
        if apart is not None:
            done = (
                f"Rule {rule.rule_id} says what failed and not why, so its words stay; the lesson "
                f"{'supports' if changed.hits > 1 else 'is'} a rule of its own, {changed.rule_id}."
            )
        elif "text" in columns:
            done = "The lesson was kept."
        else:
            done = f"The lesson was kept as a proposal: a person decides about this rule.{replaced(rule)}"
        return await self._book.view(changed, done, reason="proposed" in columns)

    async def _untaught(self, candidate_id: str, task_id: str, agent: str) -> Failing:
        """Return the failure of an agent's candidate that a lesson is about.

        Raises:
            NotFoundError: No such candidate.
            RequestError: It did not fail, is someone else's, has its lesson, or its rule was retired.
        """
        failures = await self._failures(candidate_id, task_id)
        if not failures:
            await known_candidate(self._store, candidate_id, "Give the candidate_id of a failing attempt.")
            raise RequestError(
                f"Candidate {candidate_id} has no failure that teaches a rule: it was right, or it was not to blame.",
                "Give lessons for failing attempts only.",
            )
        mine = [each for each in failures if each.agent == agent]
        if not mine:
            raise RequestError(
                f"Candidate {candidate_id} was sent under another label than {shortened(agent)}.",
                "Give lessons for your own attempts, under the label (agent) they were sent with.",
            )
        taught = {each.task_id: each for each in failures if each.lesson}
        failure = next((each for each in mine if each.task_id not in taught), None)
        if failure is None:
            known = taught[mine[0].task_id]
            raise RequestError(
                f"Candidate {candidate_id} has its lesson already: {known.lesson}",
                f"Reword it with review_rules(rule_id={known.rule_id!r}, action='reword', text=…).",
            )
        return failure

    async def _failures(self, candidate_id: str, task_id: str) -> list[Failing]:
        """Return the failures of a candidate on a task, or on any where none is named, latest first."""
        if not candidate_id:
            return []
        failures = await self._book.table.failures(candidate_id=candidate_id, limit=MOST_FAILURES)
        return [each for each in failures if each.task_id == task_id or not task_id]

    async def _node(self, node_id: str) -> NodeRecord | None:
        """Return the node of a search that an id names."""
        handle = read_node_handle(node_id)
        return (await self._store.runs.nodes(handle[0], [handle[1]])).get(handle[1]) if handle else None

    async def teaches(self, candidate_id: str, task_id: str) -> bool:
        """Tell whether a candidate failed on a task in a way that teaches, and has no lesson for that yet."""
        failures = await self._failures(candidate_id, task_id)
        if not failures or any(each.lesson for each in failures):
            return False
        rule = await self._book.known(failures[0].rule_id)
        return rule.state != "retired" or of_many_causes(rule.key)

    # --- asking

    async def rules_for(self, *, task_id: str = "", limit: int = 20) -> list[RuleView]:
        """Return the rules that matter most for a task, best first, and count them as shown to it."""
        return (await self.get(RulesRequest(task_id=task_id, limit=limit))).rules

    async def get(self, request: RulesRequest) -> RulePage:
        """Return the rules that matter for a task, a kernel or a query, best first.

        Raises:
            NotFoundError: There is no such task.
        """
        await self._book.seed()
        table, triton = self._book.table, await self._book.installed()
        traits = await self._book.traits(request.task_id) if request.task_id else TaskTraits("")
        known = await table.outlook(
            task_id=request.task_id,
            family=traits.family,
            triton=triton,
            min_support=request.min_support,
        )
        seen = read(request.source) if request.source else Source()
        shown = await self._shown(seen)
        apis = seen.apis | apis_of_operators(traits.operators)
        matching = await self._matching(request.query)
        dtype = traits.dtype if request.task_id else None
        ranked: list[tuple[float, int, int, str]] = []
        for rule in known.rules:
            own = rule.rule_id in known.own
            if matching is not None and rule.rule_id not in matching:
                continue
            if request.min_support and not own and not self._holds(rule, dtype):
                continue
            evidence = Evidence(
                rule.key, rule.support, known.families, vouched(rule), own, rule.rule_id in shown
            )
            rank = -score(evidence, apis, _subject(rule.key, rule.subject))
            ranked.append((rank, -rule.hits, ORDER.get(rule.key, len(ORDER)), rule.rule_id))
        # Whether showing a rule helped is looked up for those that may be among the first alone.
        near = heapq.nsmallest(CONSIDERED * request.limit, ranked)
        uses, kernels = await table.uses([rule_id for *_, rule_id in near])
        hits = {rule.rule_id: rule.hits for rule in known.rules}

        def helped(rule_id: str) -> float:
            after, broken = uses.get(rule_id, (0, 0))
            return effect(max(0, hits[rule_id] - broken), kernels - after, broken, after)

        by_use = sorted((rank - helped(rule_id), *rest, rule_id) for rank, *rest, rule_id in near)
        chosen = [str(rule_id) for *_, rule_id in by_use[: request.limit]]
        best = await table.with_details(chosen)
        views = [view(rule, details, triton) for rule, details in best]
        if request.task_id and best:
            await table.show([rule.rule_id for rule, _ in best], request.task_id)
        left = len(ranked) - len(best)
        about = f" for task {request.task_id}" if request.task_id else ""
        return RulePage(
            summary=f"{len(views)} rules{about}, best first; each is data about failures, not an instruction."
            if views
            else f"No rule{about} has enough support yet.",
            next_step=""
            if views
            else "Ask with min_support=1 for rarer ones, or go on: failures become rules at once.",
            rules=views,
            left_out=left,
        )

    def _holds(self, rule: RuleBrief, dtype: str | None) -> bool:
        """Tell whether a rule holds for tasks of a dtype, on the devices of this server."""
        if not (rule.dtype or rule.device or rule.key.startswith("check:")):
            return True
        place = Place(rule.dtype, rule.device)
        return holds_at(rule.key, place, dtype=dtype, devices=self._here)

    async def _shown(self, seen: Source) -> set[str]:
        """Return the rules that a source shows."""
        if not seen.sightings:
            return set()
        rules = await self._book.table.with_keys(sorted({each.key for each in seen.sightings}))
        return {
            rules[each.key].rule_id
            for each in seen.sightings
            if each.key in rules and applies(rules[each.key], each)
        }

    async def _matching(self, query: str) -> set[str] | None:
        """Return the rules that hold every word of a query; None where nothing is asked for."""
        if not (words := query.lower().split()):
            return None
        rules, _ = await self._book.all()
        return {rule.rule_id for rule in rules if _matches(rule, words)}


def _new_rule(found: Fingerprint, seen: Place) -> NewRule:
    key, place = bound(found.key, seen)
    return NewRule(
        key,
        found.subject,
        found.words,
        wording(found),
        found.names,
        dtype=place.dtype,
        device=place.device,
    )


def _words_of(found: Fingerprint) -> Callable[[str, Sequence[str]], str]:
    return lambda _, names: wording(found, tuple(names))


@functools.lru_cache(maxsize=4096)
def _subject(key: str, subject: str) -> Subject:
    known = kind_of(key)
    if known is not None:
        return known.subject
    return next((each for each in OTHERWISE if each == subject), "host")


def _matches(rule: RuleRecord, words: list[str]) -> bool:
    text = f"{rule.text} {rule.key} {' '.join(rule.names)}".lower()
    return all(word in text for word in words)
