"""A rule's row and the rows that belong to it: read and written inside the transaction of whoever asks."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store.handles import content_handle
from adaexplore_mcp.memory_store.records import from_json, storable, to_json
from adaexplore_mcp.memory_store.rulerecords import NewRule, RuleDetails, RuleRecord, SpeedChange
from adaexplore_mcp.models import RuleFix

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = [
    "COLUMNS",
    "add_change",
    "add_failure",
    "add_support",
    "broken_by",
    "by_id",
    "count_up",
    "details",
    "id_of",
    "kept",
    "record",
    "require_unchanged",
    "set_columns",
    "total",
    "where",
]

SHOWN_SPEEDS = 20
DECIDED_BY = ("text", "state", "merged_into", "proposed")
"""Of a rule: what a change rests on."""
COLUMNS = (
    "rule_id, key, subject, text, wording, state, origin, names, device, hits, support, merged_into, proposed, created_at,"
    " changed_at, dtype"
)


def record(row: Sequence[Any]) -> RuleRecord:
    """Return a row of `COLUMNS` as a value."""
    if row[7] == "[]" and not row[12]:
        return RuleRecord._make((*row[:7], (), *row[8:12], {}, *row[13:]))
    proposed = from_json(row[12]) if row[12] else {}
    return RuleRecord._make((*row[:7], tuple(json.loads(row[7])), *row[8:12], proposed, *row[13:]))


def by_id(sqlite: "Sqlite", rule_id: str) -> RuleRecord | None:
    """Return one rule, also one that was merged or retired, or None."""
    row = sqlite.execute(f"SELECT {COLUMNS} FROM rules WHERE rule_id = ?", [rule_id]).fetchone()  # noqa: S608
    return None if row is None else record(row)


def set_columns(sqlite: "Sqlite", rule_id: str, columns: Mapping[str, str]) -> None:
    """Set some columns of a rule, by their names."""
    for name, value in columns.items():
        sqlite.conn.execute(f"UPDATE rules SET {name} = ? WHERE rule_id = ?", [value, rule_id])  # noqa: S608


def require_unchanged(sqlite: "Sqlite", known: RuleRecord | None) -> None:
    """Refuse to change what is not as it was when the change was decided: another agent or server was first."""
    if known is None:
        return
    now = by_id(sqlite, known.rule_id)
    if now is None or any(getattr(now, name) != getattr(known, name) for name in DECIDED_BY):
        raise RequestError(
            f"Rule {known.rule_id} was changed meanwhile.",
            "Look at it again, and say whether it is still meant.",
        )


def where(sqlite: "Sqlite", column: str, values: Sequence[str]) -> Iterator[RuleRecord]:
    """Return the rules whose column has one of some values."""
    marks = ", ".join("?" * len(values))
    rows = sqlite.execute(f"SELECT {COLUMNS} FROM rules WHERE {column} IN ({marks})", list(values))  # noqa: S608
    return map(record, rows)


def broken_by(sqlite: "Sqlite", task_id: str, family: str) -> set[str]:
    """Return the rules that a task, or another one of its family, broke."""
    if family:
        query, value = "SELECT rule_id FROM rule_support WHERE family = ?", family
    else:
        query, value = "SELECT DISTINCT rule_id FROM rule_failures WHERE task_id = ?", task_id
    return {str(row[0]) for row in sqlite.execute(query, [value])} if task_id else set()


def id_of(key: str) -> str:
    """Return the id of the rule that a fingerprint makes, whatever it was merged into."""
    return content_handle("rule", hashlib.sha256(key.encode()).hexdigest())


def kept(sqlite: "Sqlite", rule: NewRule, agent: str) -> RuleRecord:
    """Return the rule of a key, kept now where it is new; the one it was merged into, where it was."""
    row = sqlite.execute("SELECT rule_id, merged_into FROM rules WHERE key = ?", [rule.key]).fetchone()
    if row is not None:
        return cast("RuleRecord", by_id(sqlite, row[1] or row[0]))
    rule_id = id_of(rule.key)
    now = time.time()
    sqlite.conn.execute(
        "INSERT INTO rules (rule_id, key, subject, words, text, wording, state, origin, names, dtype, device, created_at,"
        " changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            rule_id,
            rule.key,
            rule.subject,
            rule.words,
            rule.text,
            rule.wording,
            rule.state,
            rule.origin,
            json.dumps(rule.names),
            rule.dtype,
            rule.device,
            now,
            now,
        ],
    )
    add_change(sqlite, rule_id, "made", agent, {"text": rule.text, "origin": rule.origin})
    return cast("RuleRecord", by_id(sqlite, rule_id))


def add_failure(
    sqlite: "Sqlite",
    rule_id: str,
    *,
    task_id: str,
    family: str,
    candidate_id: str,
    agent: str,
    made: str = "",
    lesson: str = "",
) -> None:
    """Keep who broke a rule, and count it where the kernel did not break it before.

    Args:
        sqlite: The database, inside a transaction.
        rule_id: The rule.
        task_id: The task.
        family: Its family.
        candidate_id: The kernel.
        agent: Label of who sent it.
        made: The rule that the failure makes, where this was merged into the other one.
        lesson: What it teaches, where that made the rule.
    """
    run = sqlite.conn.execute
    again = run(
        "SELECT 1 FROM rule_failures WHERE candidate_id = ? AND rule_id = ? AND family = ?",
        [candidate_id, rule_id, family],
    ).fetchone()
    run(
        "INSERT INTO rule_failures (rule_id, task_id, family, candidate_id, agent, created_at, made, lesson)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [rule_id, task_id, family, candidate_id, storable(agent), time.time(), made or rule_id, lesson],
    )
    if again is not None:  # the same kernel, judged once more: it breaks the rule no second time
        return
    add_support(sqlite, rule_id, family)
    run(
        "UPDATE rule_uses SET broken_after = broken_after + 1 WHERE rule_id = ? AND task_id = ?",
        [rule_id, task_id],
    )


def add_support(sqlite: "Sqlite", rule_id: str, family: str) -> None:
    """Count one more hit, and one more family where it is the first of its own."""
    run = sqlite.conn.execute
    new = (
        run("SELECT 1 FROM rule_support WHERE rule_id = ? AND family = ?", [rule_id, family]).fetchone()
        is None
    )
    run(
        "INSERT INTO rule_support (rule_id, family, hits) VALUES (?, ?, 1)"
        " ON CONFLICT DO UPDATE SET hits = hits + 1",
        [rule_id, family],
    )
    run("UPDATE rules SET hits = hits + 1, support = support + ? WHERE rule_id = ?", [int(new), rule_id])


def add_change(sqlite: "Sqlite", rule_id: str, action: str, agent: str, detail: Mapping[str, Any]) -> None:
    """Keep what was done with a rule, by whom and when."""
    now = time.time()
    sqlite.conn.execute(
        "INSERT INTO rule_changes (rule_id, action, detail, agent, changed_at) VALUES (?, ?, ?, ?, ?)",
        [rule_id, action, to_json(detail), storable(agent), now],
    )
    sqlite.conn.execute("UPDATE rules SET changed_at = ? WHERE rule_id = ?", [now, rule_id])


def count_up(sqlite: "Sqlite", name: str) -> None:
    """Count one more of what has a total."""
    sqlite.conn.execute(
        "INSERT INTO rule_totals (name, count) VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
        [name],
    )


def total(sqlite: "Sqlite", name: str) -> int:
    """Return how many were counted."""
    row = sqlite.execute("SELECT count FROM rule_totals WHERE name = ?", [name]).fetchone()
    return int(row[0]) if row else 0


def details(sqlite: "Sqlite", rule: RuleRecord, kernels: int) -> RuleDetails:
    """Return what belongs to a rule besides its row, of so many kernels judged in all."""
    fix = sqlite.execute(
        "SELECT before, after, worked FROM rule_fixes WHERE rule_id = ? ORDER BY worked DESC, created_at DESC LIMIT 1",
        [rule.rule_id],
    ).fetchone()
    versions = sqlite.execute(
        "SELECT triton, holds, how, checked_at FROM rule_versions WHERE rule_id = ? ORDER BY checked_at",
        [rule.rule_id],
    )
    # Nothing sees a kernel break what was learned from a lesson, so its use cannot be measured.
    seen = not rule.key.startswith(("lesson:", "performance:"))
    after, broken = sqlite.execute(
        "SELECT COALESCE(SUM(kernels - kernels_before), 0), COALESCE(SUM(broken_after), 0)"
        " FROM rule_uses JOIN rule_tasks USING (task_id) WHERE rule_id = ? AND ?",
        [rule.rule_id, seen],
    ).fetchone()
    speeds: tuple[SpeedChange, ...] = ()
    if rule.subject == "performance":
        speeds = tuple(
            SpeedChange(*row)
            for row in sqlite.execute(
                "SELECT node_id, parent_id, task_id, agent, ratio, low, high FROM rule_speeds WHERE rule_id = ?"
                " ORDER BY number DESC LIMIT ?",
                [rule.rule_id, SHOWN_SPEEDS],
            )
        )
    return RuleDetails(
        fix=RuleFix(before=fix[0], after=fix[1], worked=fix[2]) if fix else None,
        holds={row[0]: (bool(row[1]), row[2], row[3]) for row in versions},
        kernels_before=kernels - after,
        broken_before=max(0, rule.hits - broken),
        kernels_after=after,
        broken_after=broken,
        speeds=speeds,
    )
