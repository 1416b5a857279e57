"""The schema as numbered steps, each one transaction together with its own record.

A step is never edited once a version with it was released: add the next one. STRICT tables; times are seconds since
the epoch; JSON columns hold text that only the owning table class reads. Imports sqlite-utils: import it late.
"""

from pathlib import Path

from sqlite_utils import Database, Migrations

from adaexplore_mcp.errors import StoreError

__all__ = ["STEPS", "migrate", "migrations"]


def _tasks_candidates_outcomes_jobs(sqlite: Database) -> None:
    for statement in (
        """CREATE TABLE tasks (
            number INTEGER PRIMARY KEY,
            task_id TEXT NOT NULL UNIQUE,
            name TEXT NOT NULL,
            format TEXT NOT NULL,
            content TEXT NOT NULL,
            summary TEXT NOT NULL,
            created_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE candidates (
            candidate_id TEXT PRIMARY KEY,
            sha256 TEXT NOT NULL UNIQUE,
            source BLOB NOT NULL,
            created_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE outcomes (
            number INTEGER PRIMARY KEY,
            outcome_id TEXT NOT NULL UNIQUE,
            task_id TEXT NOT NULL REFERENCES tasks (task_id),
            candidate_id TEXT NOT NULL REFERENCES candidates (candidate_id),
            status TEXT NOT NULL,
            outcome TEXT NOT NULL,
            agent TEXT NOT NULL,
            created_at REAL NOT NULL,
            elapsed_s REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX outcomes_by_task ON outcomes (task_id, candidate_id)",
        """CREATE TABLE receipts (
            receipt_id TEXT PRIMARY KEY,
            outcome_id TEXT NOT NULL REFERENCES outcomes (outcome_id),
            receipt TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX receipts_by_outcome ON receipts (outcome_id)",
        """CREATE TABLE artifacts (
            artifact_id TEXT PRIMARY KEY,
            outcome_id TEXT NOT NULL REFERENCES outcomes (outcome_id),
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            size INTEGER NOT NULL,
            created_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX artifacts_by_outcome ON artifacts (outcome_id)",
        """CREATE TABLE jobs (
            number INTEGER PRIMARY KEY,
            job_id TEXT NOT NULL UNIQUE,
            tool TEXT NOT NULL,
            request TEXT NOT NULL,
            owner_host TEXT NOT NULL,
            owner_pid INTEGER NOT NULL,
            owner_started INTEGER NOT NULL,
            heartbeat_at REAL NOT NULL,
            status TEXT NOT NULL,
            stage TEXT NOT NULL,
            progress REAL NOT NULL,
            cancel_requested INTEGER NOT NULL DEFAULT 0,
            result TEXT NOT NULL DEFAULT '{}',
            problem TEXT NOT NULL DEFAULT '',
            next_step TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL,
            finished_at REAL
        ) STRICT""",
    ):
        sqlite.execute(statement)


def _told_trials(sqlite: Database) -> None:
    sqlite.execute(
        "CREATE TABLE told_trials (number INTEGER PRIMARY KEY, trials TEXT NOT NULL UNIQUE) STRICT"
    )


def _runs_nodes(sqlite: Database) -> None:
    for statement in (
        """CREATE TABLE runs (
            number INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL UNIQUE,
            task_id TEXT NOT NULL REFERENCES tasks (task_id),
            settings TEXT NOT NULL,
            seed INTEGER NOT NULL,
            max_steps INTEGER NOT NULL,
            status TEXT NOT NULL,
            stop_reason TEXT NOT NULL DEFAULT '',
            resumed_at INTEGER,
            round INTEGER NOT NULL DEFAULT 0,
            next_step INTEGER NOT NULL DEFAULT 1,
            version INTEGER NOT NULL DEFAULT 0,
            agent TEXT NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE steps (
            number INTEGER PRIMARY KEY,
            step_id TEXT NOT NULL UNIQUE,
            run_id TEXT NOT NULL REFERENCES runs (run_id),
            step INTEGER NOT NULL,
            purpose TEXT NOT NULL,
            kind TEXT NOT NULL,
            parent INTEGER NOT NULL,
            context TEXT NOT NULL,
            forced INTEGER NOT NULL DEFAULT 0,
            agent TEXT NOT NULL,
            state TEXT NOT NULL,
            leased_until REAL NOT NULL DEFAULT 0,
            candidate_id TEXT REFERENCES candidates (candidate_id),
            digest TEXT NOT NULL DEFAULT '',
            idea TEXT NOT NULL DEFAULT '',
            change TEXT NOT NULL DEFAULT '',
            path TEXT NOT NULL DEFAULT '',
            charged INTEGER NOT NULL DEFAULT 1,
            owner_host TEXT NOT NULL DEFAULT '',
            owner_pid INTEGER NOT NULL DEFAULT 0,
            owner_started INTEGER NOT NULL DEFAULT 0,
            claimed_at REAL NOT NULL DEFAULT 0,
            node INTEGER,
            answer TEXT NOT NULL DEFAULT '{}',
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX steps_by_run ON steps (run_id, state)",
        """CREATE TABLE nodes (
            run_id TEXT NOT NULL REFERENCES runs (run_id),
            node INTEGER NOT NULL,
            parent INTEGER NOT NULL,
            kind TEXT NOT NULL,
            step INTEGER NOT NULL,
            status TEXT NOT NULL,
            speedup REAL,
            low REAL,
            eligible INTEGER NOT NULL,
            charged INTEGER NOT NULL,
            roofline_share REAL,
            digest TEXT NOT NULL,
            candidate_id TEXT NOT NULL REFERENCES candidates (candidate_id),
            idea TEXT NOT NULL,
            change TEXT NOT NULL,
            path TEXT NOT NULL,
            agent TEXT NOT NULL,
            outcome TEXT NOT NULL,
            created_at REAL NOT NULL,
            PRIMARY KEY (run_id, node),
            UNIQUE (run_id, digest)
        ) STRICT""",
        """CREATE TABLE shown (
            run_id TEXT NOT NULL REFERENCES runs (run_id),
            agent TEXT NOT NULL,
            node INTEGER NOT NULL,
            PRIMARY KEY (run_id, agent, node)
        ) STRICT, WITHOUT ROWID""",
    ):
        sqlite.execute(statement)


def _rules(sqlite: Database) -> None:
    for statement in (
        """CREATE TABLE rules (
            number INTEGER PRIMARY KEY,
            rule_id TEXT NOT NULL UNIQUE,
            key TEXT NOT NULL UNIQUE,
            subject TEXT NOT NULL,
            words TEXT NOT NULL,
            text TEXT NOT NULL,
            wording TEXT NOT NULL,
            state TEXT NOT NULL,
            origin TEXT NOT NULL,
            names TEXT NOT NULL DEFAULT '[]',
            device TEXT NOT NULL DEFAULT '',
            hits INTEGER NOT NULL DEFAULT 0,
            support INTEGER NOT NULL DEFAULT 0,
            merged_into TEXT NOT NULL DEFAULT '',
            proposed TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL,
            changed_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE rule_failures (
            number INTEGER PRIMARY KEY,
            rule_id TEXT NOT NULL REFERENCES rules (rule_id),
            task_id TEXT NOT NULL,
            family TEXT NOT NULL,
            candidate_id TEXT NOT NULL,
            agent TEXT NOT NULL,
            lesson TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX rule_failures_by_candidate ON rule_failures (candidate_id)",
        "CREATE INDEX rule_failures_by_task ON rule_failures (task_id, number)",
        """CREATE TABLE rule_support (
            rule_id TEXT NOT NULL REFERENCES rules (rule_id),
            family TEXT NOT NULL,
            hits INTEGER NOT NULL,
            PRIMARY KEY (rule_id, family)
        ) STRICT""",
        "CREATE INDEX rule_support_by_family ON rule_support (family)",
        """CREATE TABLE rule_tasks (
            task_id TEXT PRIMARY KEY,
            family TEXT NOT NULL,
            kernels INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX rule_tasks_by_family ON rule_tasks (family)",
        "CREATE TABLE rule_totals (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT",
        """CREATE TABLE rule_fixes (
            rule_id TEXT NOT NULL REFERENCES rules (rule_id),
            digest TEXT NOT NULL,
            before TEXT NOT NULL,
            after TEXT NOT NULL,
            worked INTEGER NOT NULL,
            created_at REAL NOT NULL,
            PRIMARY KEY (rule_id, digest)
        ) STRICT""",
        """CREATE TABLE rule_uses (
            rule_id TEXT NOT NULL REFERENCES rules (rule_id),
            task_id TEXT NOT NULL,
            kernels_before INTEGER NOT NULL,
            broken_after INTEGER NOT NULL,
            shown_at REAL NOT NULL,
            PRIMARY KEY (rule_id, task_id)
        ) STRICT""",
        """CREATE TABLE rule_versions (
            rule_id TEXT NOT NULL REFERENCES rules (rule_id),
            triton TEXT NOT NULL,
            holds INTEGER NOT NULL,
            how TEXT NOT NULL,
            checked_at REAL NOT NULL,
            PRIMARY KEY (rule_id, triton)
        ) STRICT""",
        "CREATE TABLE rule_tritons (triton TEXT PRIMARY KEY, seen_at REAL NOT NULL, probed_at REAL) STRICT",
        """CREATE TABLE rule_changes (
            number INTEGER PRIMARY KEY,
            rule_id TEXT NOT NULL,
            action TEXT NOT NULL,
            detail TEXT NOT NULL,
            agent TEXT NOT NULL,
            changed_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX rule_changes_by_rule ON rule_changes (rule_id)",
    ):
        sqlite.execute(statement)


def _adapt(sqlite: Database) -> None:
    for statement in (
        """CREATE TABLE adapt_campaigns (
            seed INTEGER PRIMARY KEY,
            next_draft INTEGER NOT NULL,
            known_operators INTEGER NOT NULL,
            rejected TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE adapt_tasks (
            number INTEGER PRIMARY KEY,
            seed INTEGER NOT NULL REFERENCES adapt_campaigns (seed),
            draft INTEGER NOT NULL,
            name TEXT NOT NULL,
            source TEXT NOT NULL,
            operators TEXT NOT NULL,
            task_id TEXT NOT NULL DEFAULT '',
            refused TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL,
            UNIQUE (seed, draft)
        ) STRICT""",
        """CREATE TABLE adapt_attempts (
            number INTEGER PRIMARY KEY,
            attempt_id TEXT NOT NULL UNIQUE,
            task_id TEXT NOT NULL,
            agent TEXT NOT NULL,
            created_at REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE adapt_submissions (
            number INTEGER PRIMARY KEY,
            attempt_id TEXT NOT NULL REFERENCES adapt_attempts (attempt_id),
            candidate_id TEXT NOT NULL REFERENCES candidates (candidate_id),
            status TEXT NOT NULL,
            own INTEGER NOT NULL,
            rule_id TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX adapt_submissions_by_attempt ON adapt_submissions (attempt_id)",
    ):
        sqlite.execute(statement)


def _ceilings(sqlite: Database) -> None:
    sqlite.execute(
        """CREATE TABLE ceilings (
            device TEXT NOT NULL,
            software TEXT NOT NULL,
            ceilings TEXT NOT NULL,
            measured_at REAL NOT NULL,
            PRIMARY KEY (device, software)
        ) STRICT"""
    )


def _bounds_speeds(sqlite: Database) -> None:
    for statement in (
        "ALTER TABLE rules ADD COLUMN dtype TEXT NOT NULL DEFAULT ''",
        """CREATE TABLE rule_speeds (
            number INTEGER PRIMARY KEY,
            rule_id TEXT NOT NULL REFERENCES rules (rule_id),
            task_id TEXT NOT NULL,
            node_id TEXT NOT NULL UNIQUE,
            parent_id TEXT NOT NULL,
            agent TEXT NOT NULL,
            ratio REAL NOT NULL,
            low REAL NOT NULL,
            high REAL NOT NULL,
            created_at REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX rule_speeds_by_rule ON rule_speeds (rule_id)",
        """CREATE TABLE adapt_operators (
            torch TEXT PRIMARY KEY,
            names TEXT NOT NULL,
            left_out TEXT NOT NULL,
            found_at REAL NOT NULL
        ) STRICT""",
    ):
        sqlite.execute(statement)


def _profile_artifacts(sqlite: Database) -> None:
    sqlite.execute(
        """CREATE TABLE profile_artifacts (
            artifact_id TEXT PRIMARY KEY,
            task_id TEXT NOT NULL REFERENCES tasks (task_id),
            candidate_id TEXT NOT NULL REFERENCES candidates (candidate_id),
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            size INTEGER NOT NULL,
            created_at REAL NOT NULL
        ) STRICT"""
    )


def _pinned_runs(sqlite: Database) -> None:
    sqlite.execute("ALTER TABLE runs ADD COLUMN device TEXT NOT NULL DEFAULT ''")


def _merged_rules(sqlite: Database) -> None:
    for statement in (
        "ALTER TABLE rule_failures ADD COLUMN made TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rule_speeds ADD COLUMN made TEXT NOT NULL DEFAULT ''",
        """CREATE TABLE rule_merges (
            rule_id TEXT PRIMARY KEY REFERENCES rules (rule_id),
            into_id TEXT NOT NULL REFERENCES rules (rule_id),
            kept TEXT NOT NULL,
            agent TEXT NOT NULL,
            merged_at REAL NOT NULL
        ) STRICT""",
    ):
        sqlite.execute(statement)


STEPS = {
    "0001_tasks_candidates_outcomes_jobs": _tasks_candidates_outcomes_jobs,
    "0002_told_trials": _told_trials,
    "0004_runs_nodes": _runs_nodes,
    "0005_rules": _rules,
    "0006_adapt": _adapt,
    "0007_ceilings": _ceilings,
    "0008_bounds_speeds_operators": _bounds_speeds,
    "0009_profile_artifacts": _profile_artifacts,
    "0010_pinned_runs": _pinned_runs,
    "0011_merged_rules": _merged_rules,
}
"""Every step by the name under which it is recorded, in the order they run."""

migrations = Migrations("adaexplore")
for _name, _step in STEPS.items():
    migrations(name=_name)(_step)


def migrate(sqlite: Database, path: Path) -> None:
    """Bring a database up to date; the caller holds the set-up lock.

    Raises:
        StoreError: A newer version of the product made it.
    """
    unknown = [step.name for step in migrations.applied(sqlite) if step.name not in STEPS]
    if unknown:
        raise StoreError(
            f"A newer adaexplore-mcp made the database {str(path)!r} (it has {unknown[-1]}). "
            "Install that version, or set --home or ADAEXPLORE_HOME to another folder."
        )
    if migrations.pending(sqlite):
        migrations.apply(sqlite)
