"""Change rules: what an agent may do and what only a person decides; each change is kept with who made it and when."""

import json

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import RuleRecord
from adaexplore_mcp.models import Question, Review, RuleView
from adaexplore_mcp.rules import cleaned, probe_of
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.services.rulebook import Rulebook, worded
from adaexplore_mcp.services.ruleviews import place_of, view, vouched

__all__ = ["RuleReviews", "reworded"]

MIN_SUPPORT = 3
BY_HAND = "adaexplore-mcp rules review"
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
        rule = await self._book.known(review.rule_id)
        table = self._book.table
        match review.action:
            case "reword":
                text = worded(review.text)
                columns = reworded(rule, text, review.agent)
                changed = await table.change(
                    rule.rule_id,
                    "reword",
                    review.agent,
                    {"text": text, "was": rule.text},
                    known=rule,
                    **columns,
                )
                done = (
                    "Reworded."
                    if "text" in columns
                    else "Kept as a proposal: a person decides about this rule."
                )
            case "merge":
                into = await self._book.known(review.into, "into")
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
                    proposed=_proposal(review),
                )
                done = f"Proposed; a person decides with `{BY_HAND} {rule.rule_id} accept`."
        return await self._book.view(changed, done, reason=review.action.startswith("propose_"))

    async def question(self, review: Review) -> Question | None:
        """Return what a person is to be asked about a change before it is made; None where none has to decide.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        if review.action == "merge":
            return None
        rule = await self._book.known(review.rule_id)
        if review.action == "reword":
            text = worded(review.text)
            if not vouched(rule):
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
        said = json.loads(_proposal(review))
        if (rule.text, rule.state, rule.proposed) != (before.text, before.state, said):
            raise RequestError(
                f"Another change of rule {rule.rule_id} was proposed meanwhile.",
                f"A person decides with `{BY_HAND} {rule.rule_id}`.",
            )
        decided = await self._decide(rule, "accept" if agreed else "decline", who)
        return decided.model_copy(
            update={"summary": f"A person {'agreed' if agreed else 'declined'}: the rule is {decided.state}."}
        )

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
        return await self._decide(await self._book.known(rule_id), action, who)

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
        """Return one rule.

        Raises:
            NotFoundError: There is no such rule.
        """
        return await self._book.view(await self._book.known(rule_id), "", reason=True)

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


def _proposal(review: Review) -> str:
    """Return what is kept of a change that a person decides about."""
    action = review.action.removeprefix("propose_")
    return _proposed(action, worded(review.text) if action == "reword" else _reason(review), review.agent)


def _proposed(action: str, text: str, agent: str) -> str:
    return json.dumps({"action": action, "text": text, "agent": agent})


def reworded(rule: RuleRecord, text: str, agent: str) -> dict[str, str]:
    """Return the columns that take a new wording: a proposal where a probe or a person stands behind the old one."""
    if vouched(rule):
        return {"proposed": _proposed("reword", text, agent)}
    return {"text": text, "wording": "agent"}
