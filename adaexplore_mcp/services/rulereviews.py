"""Change rules: what an agent may do and what only a person decides; each change is kept with who made it and when."""

import json

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import Merge, NewRule, RuleRecord
from adaexplore_mcp.models import Question, Review, RuleView
from adaexplore_mcp.rules import Place, cleaned, of_many_causes, probe_of, words_digest
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.services.rulebook import Rulebook
from adaexplore_mcp.services.ruleviews import place_of, view, vouched

__all__ = ["RuleReviews", "lesson_apart", "live", "replaced", "reworded"]

MIN_SUPPORT = 3
BY_HAND = "adaexplore-mcp rules review"
WORDS_OF_A_LABEL = 2
"""Of another agent's label: more of them may be a sentence."""
DECIDED = {"retire": "retired", "confirm": "confirmed"}
"""State of a rule for which a proposal was accepted, by its action; any other one rewords it."""


class RuleReviews:
    """Changes to the rules of one store.

    Args:
        book: The rules.
    """

    def __init__(self, book: Rulebook) -> None:
        self._book = book

    async def review(self, review: Review) -> RuleView:
        """Do what an agent may do to a rule: reword, merge, propose to retire or to confirm.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        rule = await self._changeable(review)
        table = self._book.table
        proposes = review.action.startswith("propose_")
        match review.action:
            case "reword":
                text = await self._book.reworded(review.text, rule)
                columns = reworded(rule, text, review.agent)
                changed = await table.change(
                    rule.rule_id,
                    "reword",
                    review.agent,
                    {"text": text, "was": rule.text},
                    known=rule,
                    **columns,
                )
                proposes = "proposed" in columns
                done = (
                    f"Kept as a proposal: a person decides about this rule.{replaced(rule)}"
                    if proposes
                    else "Reworded."
                )
            case "merge":
                into = live(await self._book.known(review.into, "into"))
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
                if (rule.dtype, rule.device) != (into.dtype, into.device):
                    raise RequestError(
                        f"Rule {rule.rule_id} holds for {_place(rule)}, {into.rule_id} for {_place(into)}.",
                        "Merge rules that hold for the same dtype and device.",
                    )
                changed = await table.merge(rule, into, review.agent)
                done = f"{rule.rule_id} is part of it now."
            case "propose_retire" | "propose_confirm":
                reason, action = _reason(review), review.action.removeprefix("propose_")
                if action == "retire" and not reason:
                    raise RequestError("propose_retire needs a reason.", "Give it as text.")
                if action == "confirm" and rule.state == "confirmed":
                    raise RequestError(
                        f"Rule {rule.rule_id} is confirmed already.", "There is nothing to do."
                    )
                changed = await table.change(
                    rule.rule_id,
                    review.action,
                    review.agent,
                    {"reason": reason},
                    known=rule,
                    proposed=_proposed(action, reason, review.agent),
                )
                done = f"Proposed; a person decides with `{BY_HAND} {rule.rule_id} accept`.{replaced(rule)}"
        return await self._book.view(changed, done, reason=proposes)

    async def _changeable(self, review: Review) -> RuleRecord:
        """Return the rule that an agent wants to change, where it may.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: It was merged, or a person retired it: an agent may only propose to have it back.
        """
        rule = await self._book.known(review.rule_id)
        return rule if review.action == "propose_confirm" else live(rule)

    async def question(self, review: Review) -> Question | None:
        """Return what a person is to be asked about a change before it is made; None where none has to decide.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        if review.action == "merge":
            return None
        rule = await self._changeable(review)
        if review.action == "reword":
            text = await self._book.reworded(review.text, rule)
            if not _is_a_persons(rule):
                return None
            asked, why = "be worded anew", f"New words: {text}"
        else:
            reason = _reason(review)
            asked = "no longer be given out" if review.action == "propose_retire" else "count as confirmed"
            why = f"The agent's reason: {reason}" if reason else ""
        shown = await self._book.view(rule, "")
        who = cleaned(review.agent)[:40] or "An agent"
        lines = (
            f"{who} proposes that a rule {asked}.",
            f"The rule: {shown.rule}",
            f"What it rests on: {shown.provenance}",
            shown.measured,
            why,
        )
        return Question(words="\n".join(filter(None, lines)), rule=rule.text, state=rule.state)

    async def answered(self, review: Review, question: Question, *, agreed: bool, who: str) -> RuleView:
        """Do what an agent proposes and a person was asked about; keep the proposal and the decision.

        Args:
            review: What is proposed.
            question: What the person was asked.
            agreed: What the person answered.
            who: Label of the person.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made, or the rule is not what the person was asked about any more.
        """
        before = await self._book.known(review.rule_id)
        if (before.text, before.state) != (question.rule, question.state):
            raise RequestError(
                f"Rule {review.rule_id} was changed while the person was asked about it.",
                "Look at it again, and propose what is still meant.",
            )
        await self.review(review)
        rule = await self._book.known(review.rule_id)
        action = review.action.removeprefix("propose_")
        text = cleaned(review.text) if action == "reword" else _reason(review)
        said = json.loads(_proposed(action, text, review.agent))
        if (rule.text, rule.state, rule.proposed) != (before.text, before.state, said):
            raise RequestError(
                f"Another change of rule {rule.rule_id} was proposed meanwhile.",
                f"A person decides with `{BY_HAND} {rule.rule_id}`.",
            )
        decided = await self._decide(rule, "accept" if agreed else "decline", who)
        return decided.model_copy(
            update={
                "summary": f"A person {'agreed' if agreed else 'declined'}: the rule is {decided.state}.{replaced(before)}"
            }
        )

    async def decide(self, rule_id: str, action: str, who: str) -> RuleView:
        """Do what only a person may do: confirm or retire a rule, bring it back, accept or decline what an agent proposed.

        Args:
            rule_id: The rule.
            action: confirm, retire, restore, accept or decline.
            who: Label of the person.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: There is nothing proposed, or it was merged.
        """
        rule = await (self._book.found if action == "restore" else self._book.known)(rule_id)
        if rule.merged_into:
            back = await self._book.table.restore(rule, who)
            done = f"restore: it is no part of {rule.merged_into} any more, and has its own failures again."
            return await self._book.view(back, done, reason=True)
        return await self._decide(rule, action, who)

    async def _decide(self, rule: RuleRecord, action: str, who: str) -> RuleView:
        """Decide about a rule as it was seen."""
        rule_id = rule.rule_id
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
                if action == "accept" and rule.proposed.get("action") in DECIDED:
                    columns["state"] = DECIDED[str(rule.proposed["action"])]
                elif action == "accept":
                    columns |= {"text": str(rule.proposed["text"]), "wording": "agent"}
            case _:
                raise RequestError(
                    f"{shortened(action)} is no decision.", "Use confirm, retire, restore, accept or decline."
                )
        changed = await self._book.table.change(
            rule_id, action, who, {"was": rule.state, **columns}, known=rule, **columns
        )
        return await self._book.view(changed, f"{action}: done.", reason=True)

    async def one(self, rule_id: str) -> RuleView:
        """Return one rule, also one that was merged into another.

        Raises:
            NotFoundError: There is no such rule.
        """
        return await self._book.view(await self._book.found(rule_id), "", reason=True)

    async def merges(self) -> list[Merge]:
        """Return the rules that were merged last, for a person to look at and undo."""
        return await self._book.table.merges()

    async def pending(self) -> list[RuleView]:
        """Return the rules for which something is proposed, and unverified ones with support, for a person to decide."""
        await self._book.seed()
        rules, _ = await self._book.table.all()
        waiting = [rule for rule in rules if rule.proposed]
        waiting += [
            rule
            for rule in rules
            if rule.state in {"learned", "unverified"} and rule.support >= MIN_SUPPORT and not rule.proposed
        ]
        details = await self._book.table.details(waiting)
        triton = await self._book.installed()
        return [view(rule, details[rule.rule_id], triton, reason=True) for rule in waiting]


def _place(rule: RuleRecord) -> str:
    return place_of(rule) or "anything"


def _reason(review: Review) -> str:
    return cleaned(review.text)[:200]


def _proposed(action: str, text: str, agent: str) -> str:
    """Return what is kept of a change that a person decides about."""
    return json.dumps({"action": action, "text": text, "agent": agent})


def live(rule: RuleRecord) -> RuleRecord:
    """Return a rule that agents may change.

    Raises:
        RequestError: A person retired it.
    """
    if rule.state != "retired":
        return rule
    raise RequestError(
        f"A person retired rule {rule.rule_id}, so it stays as it is.",
        f"A person brings it back with `{BY_HAND} {rule.rule_id} restore`; review_rules can propose_confirm it.",
    )


def _is_a_persons(rule: RuleRecord) -> bool:
    """Tell whether a person decides about the words of a rule: somebody vouches for them, or they stand for many causes."""
    return vouched(rule) or of_many_causes(rule.key)


def replaced(rule: RuleRecord) -> str:
    """Say, behind a sentence, whose proposal a new one takes the place of; empty where none waited."""
    if not rule.proposed:
        return ""
    label = " ".join(cleaned(str(rule.proposed.get("agent", ""))).split()[:WORDS_OF_A_LABEL])[:40]
    who = f"agent {label!r}" if label else "an agent without a label"
    return f" It takes the place of a proposal of {who} that waited ({rule.proposed.get('action')}); the history keeps that."


def reworded(rule: RuleRecord, text: str, agent: str) -> dict[str, str]:
    """Return the columns that take a new wording: a proposal where a person decides about it."""
    if _is_a_persons(rule):
        return {"proposed": _proposed("reword", text, agent)}
    return {"text": text, "wording": "agent"}


def lesson_apart(rule: RuleRecord, text: str) -> NewRule:
    """Return the rule that a lesson makes beside one that stands for many causes; equal sentences make one rule.

    It holds where the other one does.
    """
    place = Place(rule.dtype, rule.device) if place_of(rule) else Place()
    return NewRule(
        f"lesson:{words_digest(text)}{place.mark}",
        rule.subject,
        text,
        text,
        origin=f"lesson about what broke {rule.rule_id}",
        wording="agent",
        dtype=place.dtype,
        device=place.device,
    )
