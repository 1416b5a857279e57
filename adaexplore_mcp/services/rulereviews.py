"""Change rules: what an agent may do and what only a person decides; each change is kept with who made it and when."""

import json

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import RuleRecord
from adaexplore_mcp.models import Review, RuleView
from adaexplore_mcp.rules import cleaned, probe_of
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.services.rulebook import Rulebook, worded
from adaexplore_mcp.services.ruleviews import place_of, view, vouched

__all__ = ["RuleReviews", "reworded"]

MIN_SUPPORT = 3


class RuleReviews:
    """Changes to the rules of one store.

    Args:
        book: The rules.
    """

    def __init__(self, book: Rulebook) -> None:
        self._book = book

    async def review(self, review: Review) -> RuleView:
        """Do what an agent may do to a rule: reword, merge, propose to retire.

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
            case "propose_retire":
                reason = cleaned(review.text)[:200]
                if not reason:
                    raise RequestError("propose_retire needs a reason.", "Give it as text.")
                proposal = json.dumps({"action": "retire", "text": reason, "agent": review.agent})
                changed = await table.change(
                    rule.rule_id, "propose_retire", review.agent, {"reason": reason}, proposed=proposal
                )
                done = "Proposed; a person decides with `adaexplore-mcp rules review`."
        return await self._book.view(changed, done)

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
                if action == "accept" and rule.proposed.get("action") == "retire":
                    columns["state"] = "retired"
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
