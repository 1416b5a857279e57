"""Sets of rules: take what others made, as unverified, and write out ours."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaexplore_mcp.memory_store import NewRule, RuleDetails, RuleRecord
from adaexplore_mcp.models import RuleFix, RuleView
from adaexplore_mcp.rules import Line, cleaned, read_published
from adaexplore_mcp.services.rulebook import Rulebook, named
from adaexplore_mcp.services.ruleviews import day, overview, place_of, view

__all__ = ["ImportReport", "LeftOut", "RuleSets"]


class LeftOut(NamedTuple):
    """A line of a file that was not taken.

    Args:
        line: Its number, from 1.
        reason: Why.
        text: What it says; empty where it is no rule at all.
        entry: Number of the entry of a JSON file that begins there, from 1; 0 in other files.
    """

    line: int
    reason: str
    text: str = ""
    entry: int = 0


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of an imported file.

    Args:
        kept: Rules that are new.
        known: Rules that were there already.
        repeated: Further lines about a rule of an earlier line.
        dropped: Lines that are noise.
        malformed: Lines that are no rule.
    """

    kept: list[RuleView]
    known: int = 0
    repeated: int = 0
    dropped: list[LeftOut] = field(default_factory=list)
    malformed: list[LeftOut] = field(default_factory=list)

    def to_wire(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "kept": [rule.to_wire() for rule in self.kept],
            "known": self.known,
            "repeated": self.repeated,
            "dropped": [line._asdict() for line in self.dropped],
            "malformed": [line._asdict() for line in self.malformed],
        }


class RuleSets:
    """Takes and gives sets of rules.

    Args:
        book: The rules of one store.
    """

    def __init__(self, book: Rulebook) -> None:
        self._book = book

    async def import_rules(self, content: str | bytes, label: str) -> ImportReport:
        """Take a set that others made, as unverified; what is noise is dropped with the reason, all else kept at once."""
        await self._book.seed()
        readable = label.encode("utf-8", "replace").decode()
        origin = f"imported from {cleaned(readable)[:60] or 'a file'}"
        lines = read_published(content)
        good = [line for line in lines if not line.reasons]
        new: dict[str, NewRule] = {}
        for line in good:
            known = new.get(line.key)
            names = tuple(dict.fromkeys((*(known.names if known else ()), *line.names)))
            text = named(line.key, names) or line.text
            new[line.key] = NewRule(
                line.key,
                line.subject,
                text,
                text,
                names,
                "unverified",
                origin,
                "imported",
                line.place.dtype,
                line.place.device,
            )
        kept = await self._book.table.put(new.values(), "import")
        details = await self._book.table.details(kept)
        triton = await self._book.installed()
        return ImportReport(
            kept=[view(rule, details[rule.rule_id], triton) for rule in kept],
            known=len(new) - len(kept),
            repeated=len(good) - len(new),
            dropped=[_left_out(line) for line in lines if line.reasons and not line.malformed],
            malformed=[_left_out(line) for line in lines if line.malformed],
        )

    async def export(self, form: str) -> str:
        """Return all rules that nobody retired, as JSON that `import_rules` reads, or as Markdown.

        Each says for which versions of Triton it was verified and for which it is retired, and since when; one that is
        retired for the version in use has that state.
        """
        await self._book.seed()
        rules, _ = await self._book.table.all()
        rules = sorted(
            (rule for rule in rules if rule.state != "retired"), key=lambda rule: (-rule.support, rule.key)
        )
        details = await self._book.table.details(rules)
        triton = await self._book.installed()
        found = [_Exported(rule, details[rule.rule_id], triton) for rule in rules]
        if form == "json":
            wire = {"triton": triton, "rules": [each.to_wire() for each in found]}
            return json.dumps(wire, indent=1, ensure_ascii=False) + "\n"
        counts = overview([each.shown for each in found])
        head = [
            "rule",
            "state",
            "verified for triton",
            "retired for triton",
            "support",
            "provenance",
            "known fix",
        ]
        lines = [
            f"# Rules ({counts}{f'; triton {triton}' if triton else ''})",
            "",
            _row(head),
            "|---" * len(head) + "|",
        ]
        return "\n".join([*lines, *(_row(each.cells()) for each in found)]) + "\n"


class _Exported:
    """A rule as others get it.

    Args:
        rule: The rule.
        details: What else is known of it.
        triton: The version in use.
    """

    def __init__(self, rule: RuleRecord, details: RuleDetails, triton: str) -> None:
        self.shown = view(rule, details, triton)
        self._names = list(rule.names)
        self._place = _place(rule)
        self._checks = [
            {"triton": version, "holds": holds, "by": how, "date": day(checked)}
            for version, (holds, how, checked) in sorted(details.holds.items())
        ]

    def to_wire(self) -> dict[str, Any]:
        checks = {"verified_for": self._of(holds=True), "retired_for": self._of(holds=False)}
        return (
            self.shown.to_wire()
            | {"names": self._names}
            | {name: found for name, found in checks.items() if found}
            | self._place
        )

    def cells(self) -> list[str]:
        """Return its columns."""
        verified, retired = (
            ", ".join(f"{each['triton']} ({each['date']}, {each['by']})" for each in self._of(holds=holds))
            for holds in (True, False)
        )
        shown = self.shown
        return [
            shown.rule,
            shown.state,
            verified,
            retired,
            str(shown.support),
            shown.provenance,
            _edit(shown.fix),
        ]

    def _of(self, *, holds: bool) -> list[dict[str, Any]]:
        """Return the versions for which it was found to hold, or not to."""
        return [
            {name: value for name, value in each.items() if name != "holds"}
            for each in self._checks
            if each["holds"] is holds
        ]


def _left_out(line: Line) -> LeftOut:
    return LeftOut(line.number, line.reasons[0], line.text, line.entry)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _edit(fix: RuleFix | None) -> str:
    return f"`{fix.before}` → `{fix.after}`" if fix else ""


def _place(rule: RuleRecord) -> dict[str, str]:
    """Return what a rule is bound to, as `import_rules` reads it."""
    place = {"dtype": rule.dtype, "device": rule.device} if place_of(rule) else {}
    return {name: value for name, value in place.items() if value}
