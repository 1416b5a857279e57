"""What a person does with rules from the command line: look, decide, import, export, probe."""

import codecs
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import RuleView
from adaexplore_mcp.services.container import Services
from adaexplore_mcp.services.rules import RuleService
from adaexplore_mcp.services.rulesets import LeftOut

__all__ = ["run"]

MAX_FILE_BYTES = 16 << 20
SHOWN = 40
"""Lines that were left out of which a report tells; all of them with `--json`."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


async def run(services: Services, action: str, arguments: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Do one action; return the lines to print, and whether all of it could be done.

    Raises:
        RequestError: It cannot be done; says why.
        WorkerError: Probes cannot be run here.
    """
    rules = services.rules
    assert isinstance(rules, RuleService)
    match action:
        case "review":
            return await _review(services, rules, arguments)
        case "import":
            return await _import(rules, arguments["file"], as_json=bool(arguments.get("json")))
        case "export":
            return (await rules.sets.export(arguments["format"])).rstrip("\n").split("\n"), True
    return await _probe(rules)


async def _review(
    services: Services, rules: RuleService, arguments: Mapping[str, Any]
) -> tuple[list[str], bool]:
    rule_id, decision = arguments["rule_id"], arguments["decision"]
    if not rule_id:
        waiting = await rules.reviews.pending()
        lines = [line for each in waiting for line in _lines(each)]
        lines += [
            f"merged by {each.agent or 'nobody named'}, {_when(each.merged_at)}: {each.text} [{each.rule_id}] into "
            f"{each.into_id}; undo it with: adaexplore-mcp rules review {each.rule_id} restore"
            for each in await rules.reviews.merges()
        ]
        lines.append(
            f"{len(waiting)} rules wait for a person: adaexplore-mcp rules review RULE_ID confirm|retire|accept|decline"
        )
        return lines, True
    if decision in {"", "history"}:
        lines = _lines(await rules.reviews.one(rule_id))
        for change in reversed(await services.store.rules.changes(rule_id)):
            detail = ", ".join(f"{name}={value}" for name, value in change.detail.items())
            lines.append(
                f"  {_when(change.changed_at)}  {change.action} by {change.agent or 'nobody named'}: {detail[:200]}"
            )
        return lines, True
    return _lines(await rules.reviews.decide(rule_id, decision, arguments["who"])), True


async def _import(rules: RuleService, file: Path, *, as_json: bool) -> tuple[list[str], bool]:
    try:
        content = await anyio.to_thread.run_sync(_content, file)
    except OSError as error:
        raise RequestError(
            f"{str(file)!r} cannot be read: {error}.", "Give a file of rule||count lines, or JSON."
        ) from error
    if content.startswith(UTF_16):
        raise RequestError(f"{str(file)!r} is UTF-16.", "Save it as UTF-8.")
    report = await rules.sets.import_rules(content, file.name)
    if as_json:
        return [json.dumps(report.to_wire(), ensure_ascii=False)], not report.malformed
    counts = (
        f"kept as unverified: {len(report.kept)}; known already: {report.known};"
        f" about the rule of an earlier line: {report.repeated}; dropped as noise: {len(report.dropped)}"
    )
    lines = [counts, *_named(report.dropped)]
    if report.malformed:
        lines.append(f"malformed lines, left out: {len(report.malformed)}")
        lines += _named(report.malformed)
    return lines, not report.malformed


def _named(left_out: Sequence[LeftOut]) -> list[str]:
    """Return which lines were left out and why, and how many more."""
    lines = []
    for line in left_out[:SHOWN]:
        where = f"line {line.line}" + (f", entry {line.entry}" if line.entry else "")
        said = f"{line.text[:90]} -> " if line.text else ""
        lines.append(f"  {where}: {said}{line.reason}")
    more = len(left_out) - SHOWN
    return [*lines, f"  and {more} more: --json names all"] if more > 0 else lines


def _content(file: Path) -> bytes:
    if file.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"more than {MAX_FILE_BYTES >> 20} MiB")
    return file.read_bytes()


async def _probe(rules: RuleService) -> tuple[list[str], bool]:
    seen = await rules.checks.probe()
    lines = [
        f"triton {seen.triton}: {len(seen.holds)} rules hold, {len(seen.retired)} are retired for it, {seen.without} have no probe"
    ]
    lines += [f"  retired for triton {seen.triton}: {rule.text} [{rule.rule_id}]" for rule in seen.retired]
    lines += [f"  names that exist: {', '.join(names)} [{rule.rule_id}]" for rule, names in seen.present]
    lines += [f"  unclear: {rule.text} [{rule.rule_id}]: {how}" for rule, how in seen.unclear]
    return lines, not seen.unclear


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _lines(rule: RuleView) -> list[str]:
    lines = [f"{rule.rule_id}  {rule.state:<10}  {rule.rule}", f"  {rule.provenance}"]
    if rule.fix is not None:
        lines.append(
            f"  known fix: {rule.fix.before or 'nothing'} -> {rule.fix.after or 'nothing'} (worked {rule.fix.worked}x)"
        )
    if rule.measured:
        lines.append(f"  {rule.measured}")
    if rule.proposed:
        lines.append(f"  proposed: {rule.proposed}")
    return lines
