"""Sets of rules: take what others made, as unverified, and write out ours."""

import json
from dataclasses import dataclass, field

from adaexplore_mcp.memory_store import NewRule, RuleRecord
from adaexplore_mcp.models import RuleView
from adaexplore_mcp.rules import cleaned, read_published
from adaexplore_mcp.services.rulebook import Rulebook, named
from adaexplore_mcp.services.ruleviews import overview, place_of, view

__all__ = ["ImportReport", "RuleSets"]


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


class RuleSets:
    """Takes and gives sets of rules.

    Args:
        book: The rules of one store.
    """

    def __init__(self, book: Rulebook) -> None:
        self._book = book

    async def import_rules(self, content: str, label: str) -> ImportReport:
        """Take a set that others made, as unverified; what is noise is dropped with the reason, all else kept at once."""
        await self._book.seed()
        origin = f"imported from {cleaned(label)[:60] or 'a file'}"
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
        await self._book.seed()
        rules, _ = await self._book.table.all()
        rules = sorted(
            (rule for rule in rules if rule.state != "retired"), key=lambda rule: (-rule.support, rule.key)
        )
        details = await self._book.table.details(rules)
        triton = await self._book.installed()
        views = [view(rule, details[rule.rule_id], triton) for rule in rules]
        if form == "json":
            wire = [
                each.to_wire() | {"names": list(rule.names)} | _place(rule)
                for each, rule in zip(views, rules, strict=True)
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


def _place(rule: RuleRecord) -> dict[str, str]:
    """Return what a rule is bound to, as `import_rules` reads it."""
    place = {"dtype": rule.dtype, "device": rule.device} if place_of(rule) else {}
    return {name: value for name, value in place.items() if value}
