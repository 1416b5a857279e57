"""Rules, the failures behind them, known fixes, measured use, and every change with who made it.

Counts that a ranking needs stand beside the rule and are kept by the transaction that adds a failure, so that neither
recording nor asking grows with the number of failures.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import rulemerges, rulerows
from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.records import from_json, storable
from adaexplore_mcp.memory_store.rulerecords import (
    Change,
    Failing,
    Merge,
    NewRule,
    Outlook,
    RuleBrief,
    RuleDetails,
    RuleRecord,
    SpeedChange,
)
from adaexplore_mcp.models import RuleFix

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["RuleTable"]

KEPT_FIXES = 20
"""Fixes of a rule that are kept; those that worked most often."""
FAMILIES, KERNELS = "families", "kernels"

Words = Callable[[str, Sequence[str]], str]
"""Makes the text of a rule of its template and all names seen."""


class RuleTable:
    """The rules of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- what evaluations add

    async def judged(
        self,
        *,
        task_id: str,
        family: str,
        candidate_id: str,
        agent: str = "",
        broken: NewRule | None = None,
        words: Words | None = None,
    ) -> RuleRecord | None:
        """Count a judged kernel, and where it failed, its failure; all or nothing.

        Args:
            task_id: The task.
            family: Of tasks that differ in constants only.
            candidate_id: The kernel.
            agent: Label of who sent it.
            broken: The rule that its failure makes, where it is not known yet.
            words: Words the rule anew when another name was seen.

        Returns:
            The rule that was broken: the one it was merged into, where it was.
        """

        def judged(sqlite: "Sqlite") -> RuleRecord | None:
            rulerows.count_up(sqlite, KERNELS)
            known = sqlite.execute("SELECT 1 FROM rule_tasks WHERE family = ? LIMIT 1", [family]).fetchone()
            if known is None:
                rulerows.count_up(sqlite, FAMILIES)
            sqlite.conn.execute(
                "INSERT INTO rule_tasks (task_id, family, kernels) VALUES (?, ?, 1)"
                " ON CONFLICT (task_id) DO UPDATE SET kernels = kernels + 1",
                [task_id, family],
            )
            if broken is None:
                return None
            record = rulerows.kept(sqlite, broken, "server")
            rulerows.add_failure(
                sqlite,
                record.rule_id,
                task_id=task_id,
                family=family,
                candidate_id=candidate_id,
                agent=agent,
                made=rulerows.id_of(broken.key),
            )
            # What was seen last is named first: where a text does not list all, it names what just failed.
            names = tuple(dict.fromkeys((*broken.names, *record.names)))[: rulemerges.MAX_NAMES]
            if names != record.names:
                text = (
                    words(broken.words, names)
                    if words and record.wording in {"template", "shipped"}
                    else record.text
                )
                sqlite.conn.execute(
                    "UPDATE rules SET names = ?, text = ? WHERE rule_id = ?",
                    [json.dumps(names), text, record.rule_id],
                )
            return rulerows.by_id(sqlite, record.rule_id)

        return await self._database.write(judged)

    async def put(self, rules: Iterable[NewRule], agent: str) -> list[RuleRecord]:
        """Keep rules that are not known yet, in one transaction; return those that are new."""

        def put(sqlite: "Sqlite") -> list[RuleRecord]:
            new = []
            for rule in rules:
                found = sqlite.execute("SELECT 1 FROM rules WHERE key = ?", [rule.key]).fetchone()
                if found is None:
                    new.append(rulerows.kept(sqlite, rule, agent))
            return new

        return await self._database.write(put)

    async def speed(self, rule: NewRule, family: str, change: SpeedChange) -> RuleRecord | None:
        """Keep what a step did to a kernel's speed as evidence for a rule; None where that step has its lesson.

        Args:
            rule: As it is kept where it is new.
            family: Of the task.
            change: What was measured.
        """

        def speed(sqlite: "Sqlite") -> RuleRecord | None:
            known = sqlite.execute("SELECT 1 FROM rule_speeds WHERE node_id = ?", [change.node_id]).fetchone()
            if known is not None:
                return None
            agent = storable(change.agent)
            rule_id = rulerows.kept(sqlite, rule, agent).rule_id
            sqlite.conn.execute(
                "INSERT INTO rule_speeds (rule_id, task_id, node_id, parent_id, agent, ratio, low, high, created_at, made)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    rule_id,
                    change.task_id,
                    change.node_id,
                    change.parent_id,
                    agent,
                    change.ratio,
                    change.low,
                    change.high,
                    time.time(),
                    rulerows.id_of(rule.key),
                ],
            )
            rulerows.add_support(sqlite, rule_id, family)
            rulerows.add_change(sqlite, rule_id, "lesson", agent, {"text": rule.text, "node": change.node_id})
            return rulerows.by_id(sqlite, rule_id)

        return await self._database.write(speed)

    async def speed_lesson(self, node_id: str) -> RuleRecord | None:
        """Return the rule that was learned from what a step did to a kernel's speed, or None."""

        def found(sqlite: "Sqlite") -> RuleRecord | None:
            row = sqlite.execute("SELECT rule_id FROM rule_speeds WHERE node_id = ?", [node_id]).fetchone()
            return rulerows.by_id(sqlite, row[0]) if row else None

        return await self._database.read(found)

    async def add_fix(self, rule_id: str, fix: RuleFix) -> None:
        """Count that an edit turned a kernel that broke a rule into a right one."""
        digest = hashlib.sha256(f"{fix.before}\0{fix.after}".encode()).hexdigest()[:16]

        def add(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "INSERT INTO rule_fixes (rule_id, digest, before, after, worked, created_at) VALUES (?, ?, ?, ?, 1, ?)"
                " ON CONFLICT (rule_id, digest) DO UPDATE SET worked = worked + 1",
                [rule_id, digest, fix.before, fix.after, time.time()],
            )
            sqlite.conn.execute(
                "DELETE FROM rule_fixes WHERE rule_id = ? AND digest NOT IN"
                " (SELECT digest FROM rule_fixes WHERE rule_id = ? ORDER BY worked DESC, created_at DESC LIMIT ?)",
                [rule_id, rule_id, KEPT_FIXES],
            )

        await self._database.write(add)

    # --- asking

    async def all(self) -> tuple[list[RuleRecord], int]:
        """Return every rule that was not merged into another, and the number of task families that were tried."""

        def all_(sqlite: "Sqlite") -> tuple[list[RuleRecord], int]:
            rows = sqlite.execute(f"SELECT {rulerows.COLUMNS} FROM rules WHERE merged_into = ''")  # noqa: S608 - a constant
            return [rulerows.record(row) for row in rows], rulerows.total(sqlite, FAMILIES)

        return await self._database.read(all_)

    async def get(self, rule_id: str) -> RuleRecord | None:
        """Return one rule, also one that was merged or retired, or None."""
        return await self._database.read(lambda sqlite: rulerows.by_id(sqlite, rule_id))

    async def outlook(self, *, task_id: str, family: str, triton: str, min_support: int = 0) -> Outlook:
        """Return what a ranking needs, of the rules that hold for a version of Triton.

        Args:
            task_id: The task; empty for none.
            family: Its family.
            triton: The version.
            min_support: Families on which a rule was broken that neither a probe nor a person vouches for, nor the task broke.
        """

        def outlook(sqlite: "Sqlite") -> Outlook:
            own = rulerows.broken_by(sqlite, task_id, family)
            rows = sqlite.execute(
                "SELECT rule_id, key, subject, state, hits, support, dtype, device FROM rules"
                " WHERE merged_into = '' AND state != 'retired' AND rule_id NOT IN"
                " (SELECT rule_id FROM rule_versions WHERE triton = ? AND holds = 0)"
                " AND (support >= ? OR state IN ('verified', 'confirmed') OR rule_id IN (SELECT value FROM json_each(?)))",
                [triton, min_support, json.dumps(sorted(own))],
            )
            return Outlook(list(map(RuleBrief._make, rows)), rulerows.total(sqlite, FAMILIES), own)

        return await self._database.read(outlook)

    async def with_details(self, rule_ids: Sequence[str]) -> list[tuple[RuleRecord, RuleDetails]]:
        """Return some rules with what is shown of them, in that order; those that do not exist are left out."""

        def found(sqlite: "Sqlite") -> list[tuple[RuleRecord, RuleDetails]]:
            rules = {rule.rule_id: rule for rule in rulerows.where(sqlite, "rule_id", rule_ids)}
            kernels = rulerows.total(sqlite, KERNELS)
            known = [rules[rule_id] for rule_id in rule_ids if rule_id in rules]
            return [(rule, rulerows.details(sqlite, rule, kernels)) for rule in known]

        return await self._database.read(found)

    async def uses(self, rule_ids: Sequence[str]) -> tuple[dict[str, tuple[int, int]], int]:
        """Return of rules that were shown how many kernels were judged after, and how many of these broke it; and all kernels."""

        def uses(sqlite: "Sqlite") -> tuple[dict[str, tuple[int, int]], int]:
            rows = sqlite.execute(
                "SELECT rule_id, SUM(kernels - kernels_before), SUM(broken_after)"
                " FROM rule_uses JOIN rule_tasks USING (task_id)"
                " WHERE rule_id IN (SELECT value FROM json_each(?)) GROUP BY rule_id",
                [json.dumps(list(rule_ids))],
            )
            return {row[0]: (row[1], row[2]) for row in rows}, rulerows.total(sqlite, KERNELS)

        return await self._database.read(uses)

    async def with_keys(self, keys: Sequence[str]) -> dict[str, RuleRecord]:
        """Return the rules that were not merged into another, by those of some keys that there are."""
        return await self._database.read(
            lambda sqlite: {
                rule.key: rule for rule in rulerows.where(sqlite, "key", keys) if not rule.merged_into
            }
        )

    async def family(self, task_id: str) -> str:
        """Return the family of a task that was judged here, or the empty string."""

        def family(sqlite: "Sqlite") -> str:
            row = sqlite.execute("SELECT family FROM rule_tasks WHERE task_id = ?", [task_id]).fetchone()
            return str(row[0]) if row else ""

        return await self._database.read(family)

    async def details(self, rules: Sequence[RuleRecord]) -> dict[str, RuleDetails]:
        """Return what is shown with some rules."""

        def details(sqlite: "Sqlite") -> dict[str, RuleDetails]:
            kernels = rulerows.total(sqlite, KERNELS)
            return {rule.rule_id: rulerows.details(sqlite, rule, kernels) for rule in rules}

        return await self._database.read(details)

    async def failures(
        self, *, candidate_id: str = "", task_id: str = "", rule_id: str = "", limit: int = 20
    ) -> list[Failing]:
        """Return the failures of a candidate, of a task or behind a rule, latest first."""
        given = {"candidate_id": candidate_id, "rule_id": rule_id, "task_id": task_id}
        column, value = next((each for each in given.items() if each[1]), ("task_id", ""))

        def failures(sqlite: "Sqlite") -> list[Failing]:
            rows = sqlite.execute(
                "SELECT number, rule_id, task_id, candidate_id, agent, lesson FROM rule_failures"  # noqa: S608 - a constant
                f" WHERE {column} = ? ORDER BY number DESC LIMIT ?",
                [value, limit],
            )
            return [Failing(*row) for row in rows]

        return await self._database.read(failures)

    async def changes(self, rule_id: str, limit: int = 50) -> list[Change]:
        """Return what was done to a rule, latest first."""

        def changes(sqlite: "Sqlite") -> list[Change]:
            rows = sqlite.execute(
                "SELECT rule_id, action, detail, agent, changed_at FROM rule_changes WHERE rule_id = ?"
                " ORDER BY number DESC LIMIT ?",
                [rule_id, limit],
            )
            return [Change(row[0], row[1], from_json(row[2]), row[3], row[4]) for row in rows]

        return await self._database.read(changes)

    async def show(self, rule_ids: Sequence[str], task_id: str) -> None:
        """Remember that rules were shown for a task; the first time counts."""

        def show(sqlite: "Sqlite") -> None:
            row = sqlite.execute("SELECT kernels FROM rule_tasks WHERE task_id = ?", [task_id]).fetchone()
            now = time.time()
            sqlite.conn.executemany(
                "INSERT OR IGNORE INTO rule_uses (rule_id, task_id, kernels_before, broken_after, shown_at)"
                " VALUES (?, ?, ?, 0, ?)",
                [(rule_id, task_id, row[0] if row else 0, now) for rule_id in rule_ids],
            )

        await self._database.write(show)

    # --- changes

    async def change(
        self,
        rule_id: str,
        action: str,
        agent: str,
        detail: Mapping[str, Any],
        *,
        known: RuleRecord | None = None,
        **columns: str,
    ) -> RuleRecord:
        """Change columns of a rule, and keep what was done, by whom and when; all or nothing.

        Args:
            rule_id: The rule.
            action: What is done.
            agent: By whom.
            detail: What is kept of it beside.
            known: The rule as it was when this was decided; None where that does not matter.
            columns: What changes.

        Raises:
            RequestError: The rule is not as it was known.
        """
        assert set(columns) <= {"text", "wording", "state", "proposed"}, columns

        def change(sqlite: "Sqlite") -> RuleRecord:
            rulerows.require_unchanged(sqlite, known)
            rulerows.add_change(sqlite, rule_id, action, agent, detail)
            rulerows.set_columns(sqlite, rule_id, columns)
            return cast("RuleRecord", rulerows.by_id(sqlite, rule_id))

        return await self._database.write(change)

    async def teach(
        self,
        failure: int,
        rule: RuleRecord,
        agent: str,
        lesson: str,
        /,
        apart: NewRule | None = None,
        **columns: str,
    ) -> RuleRecord | None:
        """Keep the lesson of a failure; None where that kernel has its lesson for this task.

        Args:
            failure: Its number.
            rule: The rule it broke, as it was known.
            agent: Label of who gives the lesson.
            lesson: Its text.
            apart: A rule of its own that the lesson makes, or supports; None where it changes the broken one.
            columns: What changes of the broken one.

        Raises:
            RequestError: The rule is not as it was known, or the one that the lesson supports was retired.
        """
        rule_id = rule.rule_id
        assert set(columns) <= {"text", "wording", "proposed"}, columns

        def teach(sqlite: "Sqlite") -> RuleRecord | None:
            taken = sqlite.conn.execute(
                "UPDATE rule_failures SET lesson = ? WHERE number = ? AND NOT EXISTS (SELECT 1 FROM rule_failures o"
                " WHERE o.candidate_id = rule_failures.candidate_id AND o.task_id = rule_failures.task_id AND o.lesson != '')",
                [lesson, failure],
            )
            if taken.rowcount != 1:
                return None
            rulerows.require_unchanged(sqlite, rule)
            if apart is not None:
                return _taught_apart(sqlite, failure, apart, agent, lesson)
            rulerows.add_change(sqlite, rule_id, "lesson", agent, {"text": lesson, "failure": failure})
            rulerows.set_columns(sqlite, rule_id, columns)
            return rulerows.by_id(sqlite, rule_id)

        return await self._database.write(teach)

    async def merge(self, rule: RuleRecord, other: RuleRecord, agent: str) -> RuleRecord:
        """Make a rule part of another one: its failures, fixes and uses become the other's, and later ones too.

        Raises:
            RequestError: One of them is not as it was known.
        """
        return await self._database.write(lambda sqlite: rulemerges.merge(sqlite, rule, other, agent))

    async def restore(self, rule: RuleRecord, who: str) -> RuleRecord:
        """Undo that a rule was merged: it has its own failures, fixes, uses and support again, and so has the other.

        Raises:
            RequestError: It is not as it was known, or what it went into is part of another one.
        """
        return await self._database.write(lambda sqlite: rulemerges.restore(sqlite, rule, who))

    async def merges(self, limit: int = 20) -> list[Merge]:
        """Return the rules that were merged last and can be restored."""
        return await self._database.read(lambda sqlite: rulemerges.latest(sqlite, limit))

    # --- versions of Triton

    async def check(self, rule_id: str, triton: str, *, holds: bool, how: str) -> bool:
        """Keep whether a rule holds for a version of Triton; returns whether that is news."""

        def check(sqlite: "Sqlite") -> bool:
            row = sqlite.execute(
                "SELECT holds FROM rule_versions WHERE rule_id = ? AND triton = ?", [rule_id, triton]
            ).fetchone()
            sqlite.conn.execute(
                "INSERT INTO rule_versions (rule_id, triton, holds, how, checked_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET holds = excluded.holds, how = excluded.how, checked_at = excluded.checked_at",
                [rule_id, triton, int(holds), how, time.time()],
            )
            news = row is None or bool(row[0]) != holds
            if news:
                action = "holds" if holds else "retired for a version"
                rulerows.add_change(sqlite, rule_id, action, "server", {"triton": triton, "how": how})
            return news

        return await self._database.write(check)

    async def drop_names(
        self, rule_id: str, names: set[str], triton: str, words: Callable[[Sequence[str]], str]
    ) -> None:
        """Take names off a rule that exist in a version of Triton, and word it anew where a template worded it."""

        def drop(sqlite: "Sqlite") -> None:
            rule = cast("RuleRecord", rulerows.by_id(sqlite, rule_id))
            kept = [name for name in rule.names if name not in names]
            text = words(kept) if kept and rule.wording != "agent" else rule.text
            sqlite.conn.execute(
                "UPDATE rules SET names = ?, text = ? WHERE rule_id = ?", [json.dumps(kept), text, rule_id]
            )
            rulerows.add_change(
                sqlite, rule_id, "names exist", "server", {"triton": triton, "names": sorted(names)}
            )

        await self._database.write(drop)

    async def refuted(self, triton: str) -> set[str]:
        """Return the rules that do not hold for a version of Triton."""
        query = "SELECT rule_id FROM rule_versions WHERE triton = ? AND holds = 0"
        return await self._database.read(
            lambda sqlite: {str(row[0]) for row in sqlite.execute(query, [triton])}
        )

    async def checked(self, triton: str) -> set[str]:
        """Return the rules that were checked with a version of Triton, whatever came of it."""
        query = "SELECT rule_id FROM rule_versions WHERE triton = ?"
        return await self._database.read(
            lambda sqlite: {str(row[0]) for row in sqlite.execute(query, [triton])}
        )

    async def see_triton(self, triton: str) -> bool:
        """Remember that a version of Triton is installed; says whether its probes have never been run."""

        def see(sqlite: "Sqlite") -> bool:
            row = sqlite.execute("SELECT probed_at FROM rule_tritons WHERE triton = ?", [triton]).fetchone()
            sqlite.conn.execute(
                "INSERT INTO rule_tritons (triton, seen_at) VALUES (?, ?) ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at",
                [triton, time.time()],
            )
            return row is None or row[0] is None

        return await self._database.write(see)

    async def probed(self, triton: str) -> None:
        """Remember that the probes were run with a version of Triton."""

        def probed(sqlite: "Sqlite") -> None:
            now = time.time()
            sqlite.conn.execute(
                "INSERT INTO rule_tritons (triton, seen_at, probed_at) VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at, probed_at = excluded.probed_at",
                [triton, now, now],
            )

        await self._database.write(probed)

    async def triton(self) -> str:
        """Return the version of Triton that was seen last, or the empty string."""

        def triton(sqlite: "Sqlite") -> str:
            row = sqlite.execute("SELECT triton FROM rule_tritons ORDER BY seen_at DESC LIMIT 1").fetchone()
            return str(row[0]) if row else ""

        return await self._database.read(triton)


def _taught_apart(sqlite: "Sqlite", failure: int, new: NewRule, agent: str, lesson: str) -> RuleRecord | None:
    """Keep a lesson as a rule of its own, with the failure behind it as support."""
    rule = rulerows.kept(sqlite, new, storable(agent))
    if rule.state == "retired":
        raise RequestError(
            f"A person retired what this lesson says: rule {rule.rule_id}.",
            "Say what else the failure teaches.",
        )
    task_id, family, candidate_id, label = sqlite.execute(
        "SELECT task_id, family, candidate_id, agent FROM rule_failures WHERE number = ?", [failure]
    ).fetchone()
    rulerows.add_failure(
        sqlite,
        rule.rule_id,
        task_id=task_id,
        family=family,
        candidate_id=candidate_id,
        agent=label,
        made=rulerows.id_of(new.key),
        lesson=lesson,
    )
    rulerows.add_change(sqlite, rule.rule_id, "lesson", agent, {"text": lesson, "failure": failure})
    return rulerows.by_id(sqlite, rule.rule_id)
