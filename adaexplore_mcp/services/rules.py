"""What failures taught: learns from every failing outcome, and gives out what matters for a task or a kernel.

Learning never changes a verdict, and where it fails the verdict stands. A rule's text is a template's, a person's, or an
agent's that passed the checks of a lesson; what a person confirmed, an agent can only propose to change.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from adaexplore_mcp.errors import AdaExploreError, RequestError, WorkerError
from adaexplore_mcp.memory_store import NewRule, RuleRecord, Store
from adaexplore_mcp.models import Outcome, Review, RuleFix, RulePage, RulesRequest, RuleView
from adaexplore_mcp.rules import (
    STARTERS,
    Evidence,
    Fingerprint,
    Sighting,
    Source,
    Starter,
    Subject,
    apis_of_operators,
    cleaned,
    edit_between,
    fingerprint_of,
    kind_of,
    objections,
    observed,
    probe_of,
    read,
    read_published,
    score,
    wording,
)
from adaexplore_mcp.services.messages import not_found, shortened
from adaexplore_mcp.services.probing import Prober
from adaexplore_mcp.services.ruleviews import as_line, is_visible, overview, view, vouched

__all__ = ["ImportReport", "Probed", "RuleService", "TaskTraits"]

logger = logging.getLogger(__name__)

GOOD = frozenset({"correct", "plausible"})
SHOWN_WARNINGS = 3
RECENT_FAILURES = 6
"""Failing kernels of a task among which the one is looked for that a right one mends."""
MIN_SUPPORT = 3
ORDER = {starter.key: place for place, starter in enumerate(STARTERS)}
NAMES_RULE = "name_missing:triton.language"
NO_RULE = "Call get_skill_rules for the ids of rules."


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """What rules need to know of a task.

    Args:
        family: Of tasks that differ in constants only.
        operators: Names of the functions and modules that its reference uses.
    """

    family: str
    operators: frozenset[str] = frozenset()


Describe = Callable[[str], Awaitable[TaskTraits]]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of an imported file.

    Args:
        kept: Rules that are new.
        known: Lines about a rule that was there already.
        dropped: Lines that are noise: number, text and why.
        malformed: Lines that are no rule: number and why.
    """

    kept: list[RuleView]
    known: int = 0
    dropped: list[tuple[int, str, str]] = field(default_factory=list)
    malformed: list[tuple[int, str]] = field(default_factory=list)


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


async def _nothing_known(task_id: str) -> TaskTraits:
    return TaskTraits(family=task_id)


class RuleService:
    """The rule memory of one store.

    Args:
        store: Where rules are kept.
        describe: Tells what rules need to know of a task.
        prober: Runs probes; None where nothing can be compiled.
    """

    def __init__(
        self, store: Store, describe: Describe = _nothing_known, prober: Prober | None = None
    ) -> None:
        self._store = store
        self._describe = describe
        self._prober = prober
        self._traits: dict[str, TaskTraits] = {}
        self._seeding = anyio.Lock()
        self._seeded = False
        self._triton = ""
        self.due = False
        """Whether another Triton was seen, with which no probe was run."""

    # --- learning

    async def warnings(self, source: bytes, *, triton: str = "") -> list[str]:
        """Return what the source of a candidate shows that a rule says cannot be done: line, what stands there, the rule.

        Never a reason to refuse: the verdict decides.
        """
        seen = read(source)
        if not seen.sightings:
            return []
        rules = {rule.key: rule for rule in await self._usable(triton)}
        found: dict[str, str] = {}
        for sighting in seen.sightings:
            rule = rules.get(sighting.key)
            if rule is not None and self._applies(rule, sighting) and rule.rule_id not in found:
                lead = f"line {sighting.line}, {sighting.why}: "
                found[rule.rule_id] = as_line(rule, lead=lead)
        return list(found.values())

    async def learn(self, outcome: Outcome, source: bytes, agent: str = "") -> Outcome:
        """Learn from a recorded outcome; return it with the rules that it, or its source, touches.

        Args:
            outcome: As it was recorded, with its candidate_id.
            source: The candidate.
            agent: Label of who sent it.
        """
        try:
            return await self._learn(outcome, source, agent)
        except AdaExploreError as error:
            logger.warning("nothing was learned from %s: %s", outcome.candidate_id, error)
            return outcome

    async def _learn(self, outcome: Outcome, source: bytes, agent: str) -> Outcome:
        triton = outcome.versions.get("triton", "")
        if triton and triton != self._triton:
            await self._seed()
            self.due = await self._store.rules.see_triton(triton)
            self._triton = triton
        seen = observed(outcome)
        found = fingerprint_of(seen) if seen is not None else None
        good = outcome.status in GOOD
        if not good and found is None:
            return await self._with_rules(outcome, source, None)
        await self._seed()
        traits = await self._traits_of(outcome.task_id)
        target = outcome.scope.target if outcome.scope is not None else ""
        broken = await self._store.rules.judged(
            task_id=outcome.task_id,
            family=traits.family,
            candidate_id=outcome.candidate_id,
            agent=agent,
            broken=_new_rule(found) if found is not None else None,
            device=target if found is not None and found.subject == "resource" else "",
            words=_words_of(found) if found is not None else None,
        )
        if good:
            await self._mine_fix(outcome, source, agent)
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
        return outcome.model_copy(update={"rules": [*outcome.rules, *lines]}) if lines else outcome

    async def _mine_fix(self, outcome: Outcome, source: bytes, agent: str) -> None:
        """Keep the small edit that turned a failing kernel of this task and agent into this right one."""
        again = await self._store.evaluations.outcomes(outcome.task_id, outcome.candidate_id, limit=2)
        if len(again) > 1:
            return  # it was counted when it was new
        for failure in await self._store.rules.failures(task_id=outcome.task_id, limit=RECENT_FAILURES):
            if failure.agent != agent:
                continue
            failed = await self._store.evaluations.candidate(failure.candidate_id)
            edit = edit_between(failed, source) if failed is not None else None
            if edit is not None:
                await self._store.rules.add_fix(failure.rule_id, RuleFix(before=edit[0], after=edit[1]))
                return

    async def _contradict(self, outcome: Outcome, source: bytes, triton: str) -> None:
        """Retire for this Triton what a right kernel does, where no probe says better."""
        compiled = {each.kernel for each in outcome.compiled if not each.failed_configurations}
        if not triton or not compiled:
            return
        rules: dict[str, RuleRecord] | None = None
        for sighting in read(source).sightings:
            if not sighting.always or sighting.kernel not in compiled or probe_of(sighting.key):
                continue
            rules = rules if rules is not None else {rule.key: rule for rule in await self._usable(triton)}
            rule = rules.get(sighting.key)
            if rule is not None and self._applies(rule, sighting) and rule.state != "confirmed":
                await self._store.rules.check(rule.rule_id, triton, holds=False, how="a right kernel")

    async def lesson(self, outcome_or_candidate_id: Outcome | str, text: str, agent: str) -> RuleView:
        """Take an agent's wording of what one of its own failures teaches.

        Args:
            outcome_or_candidate_id: The failing attempt.
            text: One sentence that begins "You cannot".
            agent: Label of who asks: that of the attempt.

        Raises:
            NotFoundError: No such attempt.
            RequestError: It did not fail, is someone else's, has its lesson, or the text is none; says which and why.
        """
        given = outcome_or_candidate_id
        candidate_id = given.candidate_id if isinstance(given, Outcome) else given
        failures = await self._store.rules.failures(candidate_id=candidate_id) if candidate_id else []
        if isinstance(given, Outcome):
            failures = [each for each in failures if each.task_id == given.task_id]
        if not failures:
            if await self._store.evaluations.candidate(candidate_id) is None:
                latest = await self._store.evaluations.ids("candidate")
                raise not_found(
                    "candidate", candidate_id, latest, "Give the candidate_id of a failing attempt."
                )
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
        failure = mine[0]
        text = self._worded(text)
        rule = await self._known(failure.rule_id)
        if failure.lesson:
            raise RequestError(
                f"Candidate {candidate_id} has its lesson already: {failure.lesson}",
                f"Reword it with review_rules(rule_id={rule.rule_id!r}, action='reword', text=…).",
            )
        columns = self._reworded(rule, text, agent)
        changed = await self._store.rules.teach(failure.number, rule.rule_id, agent, text, **columns)
        if changed is None:
            raise RequestError(f"Candidate {candidate_id} has its lesson already.", NO_RULE)
        return await self._view(
            changed, "The lesson was kept" + ("." if "text" in columns else " as a proposal.")
        )

    async def teaches(self, candidate_id: str) -> bool:
        """Tell whether a candidate has a failure that a lesson can be about."""
        return bool(await self._store.rules.failures(candidate_id=candidate_id, limit=1))

    # --- asking

    async def rules_for(self, *, task_id: str = "", limit: int = 20) -> list[RuleView]:
        """Return the rules that matter most for a task, best first, and count them as shown to it."""
        return (await self.get(RulesRequest(task_id=task_id, limit=limit))).rules

    async def get(self, request: RulesRequest) -> RulePage:
        """Return the rules that matter for a task, a kernel or a query, best first.

        Raises:
            NotFoundError: There is no such task.
        """
        await self._seed()
        table = self._store.rules
        traits = await self._traits_of(request.task_id) if request.task_id else TaskTraits("")
        own = (
            await table.broken_by(task_id=request.task_id, family=traits.family) if request.task_id else set()
        )
        seen = read(request.source) if request.source else Source()
        apis = seen.apis | apis_of_operators(traits.operators)
        rules, families = await table.all()
        refuted = await table.refuted(await self._installed())
        words = request.query.lower().split()
        ranked: list[tuple[float, RuleRecord]] = []
        for rule in rules:
            if rule.state == "retired" or rule.rule_id in refuted:
                continue
            if not (vouched(rule) or rule.support >= request.min_support or rule.rule_id in own):
                continue
            if rule.state == "unverified" and request.min_support > 0 and rule.support < request.min_support:
                continue
            if words and not _matches(rule, words):
                continue
            evidence = Evidence(
                rule.key,
                rule.support,
                max(families, 1),
                vouched=vouched(rule),
                own=rule.rule_id in own,
                seen=any(self._applies(rule, each) for each in seen.sightings if each.key == rule.key),
            )
            ranked.append((score(evidence, apis, _subject(rule)), rule))
        ranked.sort(
            key=lambda each: (-each[0], -each[1].hits, ORDER.get(each[1].key, len(ORDER)), each[1].rule_id)
        )
        best = [rule for _, rule in ranked[: request.limit]]
        details = await table.details(best)
        triton = await self._installed()
        views = [view(rule, details[rule.rule_id], triton) for rule in best]
        if request.task_id and best:
            await table.show([rule.rule_id for rule in best], request.task_id)
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

    # --- changing

    async def review(self, review: Review) -> RuleView:
        """Do what an agent may do to a rule: reword, merge, propose to retire.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        rule = await self._known(review.rule_id)
        table = self._store.rules
        match review.action:
            case "reword":
                text = self._worded(review.text)
                columns = self._reworded(rule, text, review.agent)
                changed = await table.change(
                    rule.rule_id, "reword", review.agent, {"text": text, "was": rule.text}, **columns
                )
                done = (
                    "Reworded."
                    if "text" in columns
                    else "Kept as a proposal: a person decides about this rule."
                )
            case "merge":
                into = await self._known(review.into, "into")
                if into.rule_id == rule.rule_id:
                    raise RequestError(
                        f"Rule {rule.rule_id} cannot be merged into itself.", "Give another rule as into."
                    )
                if vouched(rule) or rule.subject != into.subject:
                    what = (
                        "is vouched for by a probe or a person"
                        if vouched(rule)
                        else f"is about {rule.subject}, not {into.subject}"
                    )
                    raise RequestError(
                        f"Rule {rule.rule_id} {what}.",
                        "Merge a learned rule into one about the same subject.",
                    )
                changed = await table.merge(rule.rule_id, into.rule_id, review.agent)
                done = f"{rule.rule_id} is part of it now."
            case "propose_retire":
                reason = cleaned(review.text)[:200]
                if not reason:
                    raise RequestError("propose_retire needs a reason.", "Give it as text.")
                proposal = json.dumps({"action": "retire", "text": reason, "agent": review.agent})
                changed = await table.change(
                    rule.rule_id, "propose_retire", review.agent, {"reason": reason}, proposed=proposal
                )
                done = "Proposed; a person decides with `adaexplore-mcp rules review`."
        return await self._view(changed, done)

    async def decide(self, rule_id: str, action: str, who: str) -> RuleView:
        """Do what only a person may do: confirm or retire a rule, accept or decline what an agent proposed.

        Args:
            rule_id: The rule.
            action: confirm, retire, restore, accept or decline.
            who: Label of the person.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: There is nothing proposed.
        """
        rule = await self._known(rule_id)
        columns: dict[str, str] = {}
        match action:
            case "confirm":
                columns = {"state": "confirmed", "proposed": ""}
            case "retire":
                columns = {"state": "retired", "proposed": ""}
            case "restore":
                columns = {
                    "state": "verified" if probe_of(rule.key) else "learned" if rule.hits else "unverified"
                }
            case "accept" | "decline":
                if not rule.proposed:
                    raise RequestError(
                        f"Nothing is proposed for rule {rule_id}.", "See `adaexplore-mcp rules review`."
                    )
                columns = {"proposed": ""}
                if action == "accept" and rule.proposed.get("action") == "retire":
                    columns["state"] = "retired"
                elif action == "accept":
                    columns |= {"text": str(rule.proposed["text"]), "wording": "agent"}
            case _:
                raise RequestError(
                    f"{shortened(action)} is no decision.", "Use confirm, retire, restore, accept or decline."
                )
        changed = await self._store.rules.change(
            rule_id, action, who, {"was": rule.state, **columns}, **columns
        )
        return await self._view(changed, f"{action}: done.")

    async def one(self, rule_id: str) -> RuleView:
        """Return one rule.

        Raises:
            NotFoundError: There is no such rule.
        """
        return await self._view(await self._known(rule_id), "")

    async def pending(self) -> list[RuleView]:
        """Return the rules for which something is proposed, and unverified ones with support, for a person to decide."""
        await self._seed()
        rules, _ = await self._store.rules.all()
        waiting = [rule for rule in rules if rule.proposed]
        waiting += [
            rule
            for rule in rules
            if rule.state in {"learned", "unverified"} and rule.support >= MIN_SUPPORT and not rule.proposed
        ]
        details = await self._store.rules.details(waiting)
        return [view(rule, details[rule.rule_id], await self._installed()) for rule in waiting]

    # --- sets of rules

    async def import_rules(self, content: str, label: str) -> ImportReport:
        """Take a set that others made, as unverified; what is noise is dropped with the reason, all else kept at once."""
        await self._seed()
        origin = f"imported from {cleaned(label)[:60] or 'a file'}"
        lines = read_published(content)
        good = [line for line in lines if not line.reasons]
        new: dict[str, NewRule] = {}
        for line in good:
            known = new.get(line.key)
            names = tuple(dict.fromkeys((*(known.names if known else ()), *line.names)))
            text = _named(line.key, names) or line.text
            new[line.key] = NewRule(
                line.key, line.subject, text, text, names, "unverified", origin, "imported"
            )
        kept = await self._store.rules.put(new.values(), "import")
        details = await self._store.rules.details(kept)
        triton = await self._installed()
        return ImportReport(
            kept=[view(rule, details[rule.rule_id], triton) for rule in kept],
            known=len(good) - len(kept),
            dropped=[
                (line.number, line.text, line.reasons[0])
                for line in lines
                if line.reasons and not line.malformed
            ],
            malformed=[(line.number, line.reasons[0]) for line in lines if line.malformed],
        )

    async def export(self, form: str) -> str:
        """Return all rules that are not retired, as JSON that `import_rules` reads, or as Markdown."""
        await self._seed()
        rules, _ = await self._store.rules.all()
        rules = sorted(
            (rule for rule in rules if rule.state != "retired"), key=lambda rule: (-rule.support, rule.key)
        )
        details = await self._store.rules.details(rules)
        triton = await self._installed()
        views = [view(rule, details[rule.rule_id], triton) for rule in rules]
        if form == "json":
            wire = [
                each.to_wire() | {"names": list(rule.names)} for each, rule in zip(views, rules, strict=True)
            ]
            return json.dumps({"rules": wire}, indent=1, ensure_ascii=False) + "\n"
        lines = [
            f"# Rules ({overview(rules)})",
            "",
            "| rule | support | provenance | known fix |",
            "|---|---|---|---|",
        ]
        for each in views:
            fix = f"`{each.fix.before}` → `{each.fix.after}`".replace("|", "\\|") if each.fix else ""
            lines.append(
                f"| {each.rule.replace('|', chr(92) + '|')} | {each.support} | {each.provenance} | {fix} |"
            )
        return "\n".join(lines) + "\n"

    # --- probes

    async def probe(self, report: Callable[[str], None] = lambda _: None) -> Probed:
        """Run every probe with the installed Triton, and retire for that version what its probe refutes.

        Raises:
            WorkerError: The workers cannot be used.
        """
        await self._seed()
        if self._prober is None:
            raise WorkerError("Nothing can be compiled here, so no probe can be run.")
        triton = await self._prober.triton()
        await self._store.rules.see_triton(triton)
        rules, _ = await self._store.rules.all()
        result = Probed(triton, [], [], [], sum(not probe_of(rule.key) for rule in rules))
        for rule in rules:
            if not (probe := probe_of(rule.key)):
                continue
            report(rule.text)
            failed = await self._prober.fails_as(probe)
            if failed == "":
                await self._store.rules.check(rule.rule_id, triton, holds=False, how="its probe")
                result.retired.append(rule)
            elif failed == rule.key:
                await self._store.rules.check(rule.rule_id, triton, holds=True, how="its probe")
                if rule.state in {"unverified", "learned"}:
                    await self._store.rules.change(
                        rule.rule_id, "verified", "server", {"triton": triton}, state="verified"
                    )
                result.holds.append(rule)
            else:
                result.unclear.append((rule, failed or "no answer"))
        for rule in rules:
            if rule.key == NAMES_RULE and rule.names:
                there = await self._prober.present(rule.names)
                if there:
                    await self._store.rules.drop_names(
                        rule.rule_id, there, triton, lambda names: _named(NAMES_RULE, tuple(names))
                    )
                    result.present.append((rule, sorted(there)))
        await self._store.rules.probed(triton)
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

    # --- helpers

    def _applies(self, rule: RuleRecord, sighting: Sighting) -> bool:
        return rule.key == sighting.key and (not sighting.name or sighting.name in rule.names)

    async def _usable(self, triton: str) -> list[RuleRecord]:
        """Return the rules that may warn: not retired, not refuted for a version of Triton, and not a stranger's word."""
        await self._seed()
        rules, _ = await self._store.rules.all()
        refuted = await self._store.rules.refuted(triton or await self._installed())
        return [
            rule
            for rule in rules
            if is_visible(rule)
            and rule.rule_id not in refuted
            and (rule.state in {"verified", "confirmed"} or (rule.state != "retired" and rule.hits))
        ]

    async def _installed(self) -> str:
        if not self._triton:
            self._triton = await self._store.rules.triton()
        return self._triton

    async def _traits_of(self, task_id: str) -> TaskTraits:
        if task_id not in self._traits:
            self._traits[task_id] = await self._describe(task_id)
        return self._traits[task_id]

    async def _known(self, rule_id: str, parameter: str = "rule_id") -> RuleRecord:
        await self._seed()
        rule = await self._store.rules.get(rule_id)
        if rule is None:
            rules, _ = await self._store.rules.all()
            if not rule_id:
                raise RequestError(f"{parameter} is missing.", NO_RULE)
            raise not_found("rule", rule_id, [each.rule_id for each in rules], NO_RULE)
        if rule.merged_into:
            raise RequestError(
                f"Rule {rule_id} was merged into {rule.merged_into}.", f"Use {rule.merged_into}."
            )
        return rule

    async def _view(self, rule: RuleRecord, summary: str) -> RuleView:
        details = await self._store.rules.details([rule])
        shown = view(rule, details[rule.rule_id], await self._installed())
        return shown.model_copy(update={"summary": summary})

    def _worded(self, text: str) -> str:
        """Return a text as it may be kept.

        Raises:
            RequestError: It cannot be a rule; says why.
        """
        text = cleaned(text)
        if reasons := objections(text):
            raise RequestError(
                f"{shortened(text)} cannot be the text of a rule: {'; '.join(reasons[:3])}.",
                'Say what cannot be done in one sentence that begins "You cannot", grounded in the error message alone.',
            )
        return text

    def _reworded(self, rule: RuleRecord, text: str, agent: str) -> dict[str, str]:
        """Return the columns that take a new wording: a proposal where a probe or a person stands behind the old one."""
        if vouched(rule):
            return {"proposed": json.dumps({"action": "reword", "text": text, "agent": agent})}
        return {"text": text, "wording": "agent"}

    async def _seed(self) -> None:
        """Keep the rules that come with the product, once."""
        if self._seeded:
            return
        async with self._seeding:
            if not self._seeded:
                new = [_shipped(starter) for starter in STARTERS if starter.holds]
                kept = {rule.key: rule for rule in await self._store.rules.put(new, "server")}
                versions = {version for starter in STARTERS for version in starter.holds}
                for starter in STARTERS:
                    if starter.key in kept:
                        rule_id = kept[starter.key].rule_id
                        for version in sorted((*starter.holds, *starter.compiles)):
                            holds = version in starter.holds
                            await self._store.rules.check(rule_id, version, holds=holds, how="its probe")
                if kept:
                    for version in sorted(versions):
                        await self._store.rules.probed(version)
                self._seeded = True


def _new_rule(found: Fingerprint) -> NewRule:
    return NewRule(found.key, found.subject, found.words, wording(found), found.names)


def _words_of(found: Fingerprint) -> Callable[[str, Sequence[str]], str]:
    return lambda _, names: wording(found, tuple(names))


def _named(key: str, names: tuple[str, ...]) -> str:
    """Return the words of a known kind with all names, or the empty string."""
    known = kind_of(key)
    if known is None or not names:
        return ""
    return wording(Fingerprint(known.id, key.partition(":")[2], known.subject, known.words, names))


def _shipped(starter: Starter) -> NewRule:
    known = kind_of(starter.key)
    assert known is not None, starter.key
    found = Fingerprint(known.id, starter.key.partition(":")[2], known.subject, known.words, starter.names)
    return NewRule(
        starter.key,
        known.subject,
        known.words,
        wording(found),
        starter.names,
        "verified",
        "shipped",
        "shipped",
    )


def _subject(rule: RuleRecord) -> Subject:
    known = kind_of(rule.key)
    return known.subject if known is not None else "numeric" if rule.subject == "numeric" else "host"


def _matches(rule: RuleRecord, words: list[str]) -> bool:
    text = f"{rule.text} {rule.key} {' '.join(rule.names)}".lower()
    return all(word in text for word in words)
