"""Rules that become part of another one, and come back: inside the transaction of whoever asks.

What a merge moves is told apart by the rule that each failure made, so that a restored rule has its own failures again, also
those that came after the merge; the rest is kept beside the merge.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import rulerows
from adaexplore_mcp.memory_store.records import from_json, storable, to_json
from adaexplore_mcp.memory_store.rulerecords import Merge, RuleRecord

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["MAX_NAMES", "latest", "merge", "restore"]

MAX_NAMES = 80
EVIDENCE = ("rule_failures", "rule_speeds")
FIXES = "digest, before, after, worked, created_at"
USES = "task_id, kernels_before, broken_after, shown_at"


def merge(sqlite: "Sqlite", rule: RuleRecord, other: RuleRecord, agent: str) -> RuleRecord:
    """Make a rule part of another one; return the other as it is now.

    Raises:
        RequestError: One of them is not as it was known.
    """
    run = sqlite.conn.execute
    rulerows.require_unchanged(sqlite, rule)
    rulerows.require_unchanged(sqlite, other)
    one, two = (cast("RuleRecord", rulerows.by_id(sqlite, each.rule_id)) for each in (rule, other))
    rule_id, into = one.rule_id, two.rule_id
    kept = {
        "names": two.names,
        "fixes": _rows(sqlite, "rule_fixes", FIXES, rule_id),
        "uses": _rows(sqlite, "rule_uses", USES, rule_id),
        "shown": [row[0] for row in _rows(sqlite, "rule_uses", USES, into)],
    }
    for table in EVIDENCE:
        run(f"UPDATE {table} SET made = rule_id WHERE made = '' AND rule_id IN (?, ?)", [rule_id, into])  # noqa: S608
        run(f"UPDATE {table} SET rule_id = ? WHERE rule_id = ?", [into, rule_id])  # noqa: S608 - a constant
    for table, columns, added in (
        ("rule_support", "family, hits", "hits = hits + excluded.hits"),
        ("rule_fixes", FIXES, "worked = worked + excluded.worked"),
        ("rule_uses", USES, "broken_after = broken_after + excluded.broken_after"),
    ):
        run(
            f"INSERT INTO {table} (rule_id, {columns}) SELECT ?, {columns} FROM {table} WHERE rule_id = ?"  # noqa: S608
            f" ON CONFLICT DO UPDATE SET {added}",
            [into, rule_id],
        )
        run(f"DELETE FROM {table} WHERE rule_id = ?", [rule_id])  # noqa: S608 - constants
    names = tuple(dict.fromkeys((*two.names, *one.names)))[:MAX_NAMES]
    run(
        "UPDATE rules SET names = ?, hits = hits + ?, support = (SELECT COUNT(*) FROM rule_support WHERE rule_id = ?)"
        " WHERE rule_id = ?",
        [json.dumps(names), one.hits, into, into],
    )
    run("UPDATE rules SET merged_into = ?, hits = 0, support = 0 WHERE rule_id = ?", [into, rule_id])
    run("UPDATE rules SET merged_into = ? WHERE merged_into = ?", [into, rule_id])
    run(
        "INSERT INTO rule_merges (rule_id, into_id, kept, agent, merged_at) VALUES (?, ?, ?, ?, ?)",
        [rule_id, into, to_json(kept), storable(agent), time.time()],
    )
    rulerows.add_change(sqlite, rule_id, "merge", agent, {"into": into, "text": two.text})
    rulerows.add_change(sqlite, into, "merge", agent, {"from": rule_id, "text": one.text})
    return cast("RuleRecord", rulerows.by_id(sqlite, into))


def restore(sqlite: "Sqlite", rule: RuleRecord, who: str) -> RuleRecord:
    """Bring a merged rule back with all that is its own; return it.

    Raises:
        RequestError: It is not as it was known, or the rule that it went into is itself part of another one.
    """
    run = sqlite.conn.execute
    rulerows.require_unchanged(sqlite, rule)
    rule_id, into = rule.rule_id, rule.merged_into
    found = run("SELECT into_id, kept FROM rule_merges WHERE rule_id = ?", [rule_id]).fetchone()
    if found is not None and found[0] != into:
        raise RequestError(
            f"Rule {rule_id} was merged into {found[0]}, which is part of {into}.",
            f"Restore {found[0]} first.",
        )
    kept = from_json(found[1]) if found is not None else {}
    group = _within(sqlite, rule_id)
    marks = ", ".join("?" * len(group))
    for table in EVIDENCE:
        run(
            f"UPDATE {table} SET rule_id = ? WHERE rule_id = ? AND made IN ({marks})",  # noqa: S608
            [rule_id, into, *group],
        )
    run("UPDATE rules SET merged_into = '' WHERE rule_id = ?", [rule_id])
    run(
        f"UPDATE rules SET merged_into = ? WHERE rule_id != ? AND rule_id IN ({marks})",  # noqa: S608
        [rule_id, rule_id, *group],
    )
    _divide_fixes(sqlite, rule_id, into, kept.get("fixes", []))
    _divide_uses(sqlite, rule_id, into, kept)
    other = cast("RuleRecord", rulerows.by_id(sqlite, into))
    brought = set(rule.names) - set(kept.get("names", other.names))
    names = [name for name in other.names if name not in brought]
    run("UPDATE rules SET names = ? WHERE rule_id = ?", [json.dumps(names), into])
    for each in (rule_id, into):
        _recount(sqlite, each)
    run("DELETE FROM rule_merges WHERE rule_id = ?", [rule_id])
    rulerows.add_change(sqlite, rule_id, "restore", who, {"from": into})
    rulerows.add_change(sqlite, into, "merge undone", who, {"from": rule_id, "text": rule.text})
    return cast("RuleRecord", rulerows.by_id(sqlite, rule_id))


def latest(sqlite: "Sqlite", limit: int) -> list[Merge]:
    """Return the latest merges that stand."""
    rows = sqlite.execute(
        "SELECT m.rule_id, r.text, m.into_id, m.agent, m.merged_at FROM rule_merges m JOIN rules r USING (rule_id)"
        " ORDER BY m.merged_at DESC LIMIT ?",
        [limit],
    )
    return list(map(Merge._make, rows))


def _rows(sqlite: "Sqlite", table: str, columns: str, rule_id: str) -> list[Sequence[Any]]:
    return list(sqlite.execute(f"SELECT {columns} FROM {table} WHERE rule_id = ?", [rule_id]))  # noqa: S608 - constants


def _within(sqlite: "Sqlite", rule_id: str) -> list[str]:
    """Return a rule and all that was merged into it, at any remove."""
    group = [rule_id]
    for each in group:
        group += [
            row[0] for row in sqlite.execute("SELECT rule_id FROM rule_merges WHERE into_id = ?", [each])
        ]
    return group


def _divide_fixes(sqlite: "Sqlite", rule_id: str, into: str, fixes: Iterable[Sequence[Any]]) -> None:
    run = sqlite.conn.execute
    for digest, before, after, worked, created_at in fixes:
        run(
            "INSERT INTO rule_fixes (rule_id, digest, before, after, worked, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            [rule_id, digest, before, after, worked, created_at],
        )
        run(
            "UPDATE rule_fixes SET worked = worked - ? WHERE rule_id = ? AND digest = ?",
            [worked, into, digest],
        )
    run("DELETE FROM rule_fixes WHERE rule_id = ? AND worked <= 0", [into])


def _divide_uses(sqlite: "Sqlite", rule_id: str, into: str, kept: dict[str, Any]) -> None:
    run = sqlite.conn.execute
    for row in kept.get("uses", []):
        run(f"INSERT INTO rule_uses (rule_id, {USES}) VALUES (?, ?, ?, ?, ?)", [rule_id, *row])  # noqa: S608 - a constant
        if row[0] not in kept["shown"]:
            run("DELETE FROM rule_uses WHERE rule_id = ? AND task_id = ?", [into, row[0]])
    for each in (rule_id, into):
        first = run(
            "SELECT task_id, MIN(created_at) FROM rule_failures WHERE rule_id = ? GROUP BY candidate_id, family",
            [each],
        ).fetchall()
        for task_id, _, _, shown_at in _rows(sqlite, "rule_uses", USES, each):
            broken = sum(task == task_id and at >= shown_at for task, at in first)
            run(
                "UPDATE rule_uses SET broken_after = ? WHERE rule_id = ? AND task_id = ?",
                [broken, each, task_id],
            )


def _recount(sqlite: "Sqlite", rule_id: str) -> None:
    """Count the support of a rule anew, from the failures and speeds behind it."""
    run = sqlite.conn.execute
    counts = Counter[str]()
    for family, hits in run(
        "SELECT family, COUNT(DISTINCT candidate_id || ' ' || made) FROM rule_failures WHERE rule_id = ? GROUP BY family",
        [rule_id],
    ).fetchall():
        counts[family] += hits
    for family, hits in run(
        "SELECT COALESCE(family, task_id), COUNT(*) FROM rule_speeds LEFT JOIN rule_tasks USING (task_id)"
        " WHERE rule_id = ? GROUP BY 1",
        [rule_id],
    ).fetchall():
        counts[family] += hits
    run("DELETE FROM rule_support WHERE rule_id = ?", [rule_id])
    sqlite.conn.executemany(
        "INSERT INTO rule_support (rule_id, family, hits) VALUES (?, ?, ?)",
        [(rule_id, family, hits) for family, hits in counts.items()],
    )
    run("UPDATE rules SET hits = ?, support = ? WHERE rule_id = ?", [counts.total(), len(counts), rule_id])
