"""Change rules: what an agent may do and what only a person decides; each change is kept with who made it and when."""

import json

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import RuleRecord
from adaexplore_mcp.models import Review, RuleView
from adaexplore_mcp.rules import cleaned, probe_of
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.services.rulebook import Rulebook, worded
from adaexplore_mcp.services.ruleviews import place_of, proposal_of, view, vouched

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
                    rule.rule_id, "reword", review.agent, {"text": text, "was": rule.text}, **columns
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
                changed = await table.merge(rule.rule_id, into.rule_id, review.agent)
                done = f"{rule.rule_id} is part of it now."
            case "propose_retire" | "propose_confirm":
                reason = cleaned(review.text)[:200]
                action = review.action.removeprefix("propose_")
                if action == "retire" and not reason:
                    raise RequestError("propose_retire needs a reason.", "Give it as text.")
                if action == "confirm" and rule.state == "confirmed":
                    raise RequestError(
                        f"Rule {rule.rule_id} is confirmed already.", "There is nothing to do."
                    )
                proposal = json.dumps({"action": action, "text": reason, "agent": review.agent})
                changed = await table.change(
                    rule.rule_id, review.action, review.agent, {"reason": reason}, proposed=proposal
                )
                done = f"Proposed; a person decides with `{BY_HAND} {rule.rule_id} accept`."
        return await self._book.view(changed, done)

    async def question(self, review: Review) -> str:
        """Return what a person is to be asked about a change before it is made; empty where none has to decide.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        if review.action == "merge":
            return ""
        rule = await self._book.known(review.rule_id)
        if review.action == "reword":
            text = worded(review.text)
            if not vouched(rule):
                return ""
            asked, why = "be worded anew", f"New words: {text}"
        else:
            reason = cleaned(review.text)[:200]
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
        return "\n".join(line for line in lines if line)

    async def answered(self, review: Review, *, agreed: bool, who: str) -> RuleView:
        """Do what an agent proposes and a person was asked about; keep the proposal and the decision.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made, or somebody else proposed another one meanwhile.
        """
        proposed = await self.review(review)
        rule = await self._book.known(review.rule_id)
        if not rule.proposed or proposal_of(rule) != proposed.proposed:
            raise RequestError(
                f"Another change of rule {rule.rule_id} was proposed meanwhile.",
                f"A person decides with `{BY_HAND} {rule.rule_id}`.",
            )
        decided = await self.decide(review.rule_id, "accept" if agreed else "decline", who)
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
        rule = await self._book.known(rule_id)
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
            rule_id, action, who, {"was": rule.state, **columns}, **columns
        )
        return await self._book.view(changed, f"{action}: done.")

    async def one(self, rule_id: str) -> RuleView:
        """Return one rule.

        Raises:
            NotFoundError: There is no such rule.
        """
        return await self._book.view(await self._book.known(rule_id), "")

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
        return [view(rule, details[rule.rule_id], await self._book.installed()) for rule in waiting]


def _place(rule: RuleRecord) -> str:
    return place_of(rule) or "anything"


def reworded(rule: RuleRecord, text: str, agent: str) -> dict[str, str]:
    """Return the columns that take a new wording: a proposal where a probe or a person stands behind the old one."""
    if vouched(rule):
        return {"proposed": json.dumps({"action": "reword", "text": text, "agent": agent})}
    return {"text": text, "wording": "agent"}
