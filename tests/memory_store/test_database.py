import errno
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from sqlite_utils import Database as Sqlite

from adaexplore_mcp.errors import StoreError
from adaexplore_mcp.memory_store import Store, database, filesystem
from adaexplore_mcp.memory_store.migrations import STEPS, migrations

pytestmark = pytest.mark.anyio

WRITER = """
import sys, anyio
from pathlib import Path
from adaexplore_mcp.memory_store import Store
async def main(path, name, count):
    store = Store(Path(path))
    for number in range(count):
        id_ = await store.evaluations.keep_candidate(f"{name} {number}".encode())
        print(id_, flush=True)
    await store.aclose()
anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def writer(path, name, count):
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def path(home):
    return home / "adaexplore.db"


async def opened(path):
    store = Store(path)
    await store.check()
    await store.aclose()


async def test_the_database_is_made_at_its_first_use_with_wal_and_strict_tables(path):
    store = Store(path)
    assert not path.parent.exists()
    await store.check()
    await store.aclose()
    with Sqlite(path) as sqlite:
        assert sqlite.journal_mode == "wal"
        ours = [table for table in sqlite.tables if not table.name.startswith("_")]
        assert {table.name for table in ours} == {
            "tasks", "candidates", "ceilings", "outcomes", "receipts", "artifacts", "profile_artifacts", "jobs", "told_trials",
            "runs", "steps", "nodes", "shown",
            "rules", "rule_failures", "rule_support", "rule_tasks", "rule_totals", "rule_fixes", "rule_uses",
            "rule_versions", "rule_tritons", "rule_changes", "rule_speeds", "rule_merges",
            "adapt_campaigns", "adapt_tasks", "adapt_attempts", "adapt_submissions", "adapt_operators",
        }  # fmt: skip
        assert all(table.strict for table in ours)


async def test_a_file_that_is_removed_while_in_use_is_made_anew(path, caplog):
    store = Store(path)
    await store.evaluations.keep_candidate(b"old")
    for file in path.parent.glob("adaexplore.db*"):
        file.unlink()
    new = await store.evaluations.keep_candidate(b"new")
    assert "removed or replaced while in use" in caplog.text
    await store.aclose()
    again = Store(path)
    assert await again.evaluations.candidate(new) == b"new"
    await again.aclose()


async def test_sqlite_utils_is_not_imported_before_the_first_use():
    code = (
        "import sys, adaexplore_mcp.server; sys.exit('sqlite_utils' in sys.modules or 'torch' in sys.modules)"
    )
    process = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert process.returncode == 0


async def test_each_migration_is_recorded_and_an_old_file_is_brought_up_to_date(path):
    """Start from the file of every earlier version, with data in it."""
    for version in range(len(STEPS) + 1):
        file = path.with_name(f"from_{version}.db")
        file.parent.mkdir(exist_ok=True)
        with Sqlite(file) as sqlite:
            names = list(STEPS)
            migrations.apply(sqlite, stop_before=names[version] if version < len(names) else None)
            if version:
                sqlite.execute("INSERT INTO candidates VALUES ('cand_x', 'ab', x'ff', 1.0)")
        store = Store(file)
        await store.check()
        assert await store.evaluations.candidate("cand_x") == (b"\xff" if version else None)
        await store.aclose()
        with Sqlite(file) as sqlite:
            assert [step.name for step in migrations.applied(sqlite)] == names


async def test_a_failed_migration_leaves_nothing_behind(path, monkeypatch):
    await opened(path)
    attempts = []

    def half_done(sqlite):
        attempts.append(1)
        sqlite.execute("CREATE TABLE half (x INTEGER) STRICT")
        sqlite.execute("THIS IS NOT SQL")

    step = type(migrations)._Migration("0999_half", half_done)
    monkeypatch.setattr(migrations, "_migrations", [*migrations._migrations, step])
    monkeypatch.setitem(STEPS, "0999_half", half_done)
    with pytest.raises(StoreError, match="syntax error"):
        await Store(path).check()
    with Sqlite(path) as sqlite:
        assert attempts
        assert "half" not in sqlite.table_names()
        assert len(migrations.applied(sqlite)) == len(STEPS) - 1


async def test_a_database_of_a_newer_version_is_refused_with_the_remedy(path):
    await opened(path)
    with Sqlite(path) as sqlite:
        sqlite["_sqlite_migrations"].insert(
            {"migration_set": "adaexplore", "name": "0042_of_the_future", "applied_at": "now"}
        )
    with pytest.raises(
        StoreError, match=r"newer adaexplore-mcp.*0042_of_the_future.*Install that version, or set --home"
    ):
        await Store(path).check()


async def test_a_network_file_system_is_refused_with_the_remedy(path, monkeypatch):
    monkeypatch.setattr(database, "file_system_of", lambda _: "nfs4")
    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*set --home or ADAEXPLORE_HOME"):
        await Store(path).check()
    assert not path.parent.exists()
    assert filesystem.is_network("nfs4")


async def test_a_damaged_file_is_named_with_the_remedy(path):
    path.parent.mkdir()
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StoreError, match=r"is damaged: .*move the file"):
        await Store(path).check()


async def test_damage_inside_the_file_is_found_by_the_check(path):
    store = Store(path)
    for number in range(200):
        await store.evaluations.keep_candidate(bytes([number]) * 2000)
    await store.aclose()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 9000] = b"\xa5" * 9000
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        await Store(path).check()


async def test_a_full_disk_is_named_and_nothing_is_half_written(path):
    store = Store(path)
    await store.check()
    await store._database.write(lambda sqlite: sqlite.conn.execute("PRAGMA max_page_count = 40"))
    with pytest.raises(StoreError, match="the disk is full"):
        await store.evaluations.keep_candidate(b"x" * 1_000_000)
    kept = await store.evaluations.keep_candidate(b"small")
    assert await store.evaluations.ids("candidate") == [kept]
    await store.aclose()


async def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot be used: .*set --home"):
        await Store(tmp_path / "file" / "adaexplore.db").check()


async def test_a_read_only_folder_is_named_with_the_remedy(path, monkeypatch):
    path.parent.mkdir()

    def refused(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(database.os, "open", refused)
    with pytest.raises(StoreError, match=r"Read-only file system.*set --home"):
        await Store(path).check()


async def test_a_file_that_cannot_be_written_is_named_with_the_remedy(path):
    store = Store(path)
    await store.check()
    await store._database.write(lambda _: None)
    store._database._writer._sqlite.conn.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match=r"cannot be written.*permissions"):
        await store.evaluations.keep_candidate(b"x")
    await store.aclose()


async def test_two_processes_create_and_write_one_database_at_once(path):
    writers = [writer(path, name, 60) for name in "abc"]
    acknowledged = []
    for process in writers:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        acknowledged += out.split()
    store = Store(path)
    assert len(acknowledged) == 180
    assert set(await store.evaluations.ids("candidate")) == set(acknowledged)
    await store.aclose()


async def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(path):
    process = writer(path, "killed", 100_000)
    acknowledged = [process.stdout.readline().strip() for _ in range(100)]
    process.kill()
    acknowledged += process.stdout.read().split("\n")[:-1]
    process.wait()
    process.stdout.close()
    process.stderr.close()
    store = Store(path)
    assert set(acknowledged) <= set(await store.evaluations.ids("candidate", limit=200_000))
    assert await store.evaluations.keep_candidate(b"after the kill")
    await store.aclose()


async def test_a_read_does_not_wait_for_the_write_of_another_process(path):
    store = Store(path)
    kept = await store.evaluations.keep_candidate(b"before")
    with Sqlite(path) as other:
        other.conn.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(5):
            assert await store.evaluations.candidate(kept) == b"before"
        other.conn.execute("ROLLBACK")
    await store.aclose()


async def test_a_lock_held_for_too_long_is_named(path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    store = Store(path)
    await store.check()
    with Sqlite(path) as other:
        other.conn.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="was locked by another process"):
            await store.evaluations.keep_candidate(b"x")
        other.conn.execute("ROLLBACK")
    await store.aclose()


async def test_an_exception_in_the_middle_keeps_nothing(path):
    store = Store(path)

    def fails(sqlite):
        sqlite["candidates"].insert({"candidate_id": "c", "sha256": "s", "source": b"", "created_at": 0.0})
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        await store._database.write(fails)
    assert await store.evaluations.ids("candidate") == []
    await store.aclose()


async def test_a_store_that_was_closed_opens_again(path):
    store = Store(path)
    kept = await store.evaluations.keep_candidate(b"x")
    await store.aclose()
    assert await store.evaluations.candidate(kept) == b"x"
    await store.aclose()


def test_one_store_serves_several_event_loops_one_after_the_other(path):
    store = Store(path)
    for _ in range(2):
        anyio.run(store.check)
        anyio.run(store.aclose)


def test_the_database_may_lie_behind_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    anyio.run(opened, tmp_path / "link" / "adaexplore.db")
    assert Path(tmp_path / "real" / "adaexplore.db").exists()
