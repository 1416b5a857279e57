"""How long recording a failure and asking for rules take with 1,000 rules and 100,000 failures: python benchmarks/rules_scale.py.

Recording is timed three times: the row of the rule alone; all that is learned from an outcome (its fingerprint, the row, the
warnings for its source); and with the outcome, its candidate and its receipt, as a server records every failure.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import anyio

from adaexplore_mcp.memory_store import NewRule, Store, TaskRecord
from adaexplore_mcp.models import ErrorExcerpt, Outcome, RulesRequest, TaskSummary
from adaexplore_mcp.services.rules import RuleService, TaskTraits

TASKS = 499
"""Prime to the number of rules: each is broken on a hundred families, so all of them are ranked."""
KERNEL = Path(__file__).parents[1] / "adaexplore_mcp/builtin/matmul_gelu/kernel.py"


MISSING = "module 'triton.language' has no attribute 'tanh'"


def failed(number: int) -> Outcome:
    """Return the outcome of a kernel that calls a function that does not exist."""
    return Outcome(
        summary="",
        status="compile_error",
        task_id=f"task_{number % TASKS}",
        stage="compile",
        check="language",
        error=ErrorExcerpt(type="CompilationError", message=MISSING, line=8, kernel="kernel"),
        versions={"triton": "3.9.0"},
    )


def fill(path: Path, rules: int, failures: int) -> None:
    """Write failures by the statements of the store, in one transaction: one by one they would take minutes."""
    import sqlite3  # noqa: PLC0415 - only here

    connection = sqlite3.connect(path)
    ids = [row[0] for row in connection.execute("SELECT rule_id FROM rules WHERE key LIKE 'made:%'")]
    rows = [
        (ids[n * 7919 % rules], f"task_{n % TASKS}", f"family_{n % TASKS}", f"cand_{n}", "a", n)
        for n in range(failures)
    ]
    connection.executemany(
        "INSERT INTO rule_failures (rule_id, task_id, family, candidate_id, agent, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )
    connection.execute(
        "INSERT INTO rule_support (rule_id, family, hits) SELECT rule_id, family, COUNT(*) FROM rule_failures GROUP BY 1, 2"
    )
    connection.execute(
        "INSERT OR REPLACE INTO rule_tasks (task_id, family, kernels) SELECT task_id, family, COUNT(*) FROM rule_failures"
        " GROUP BY 1"
    )
    connection.execute(
        "UPDATE rules SET hits = (SELECT COUNT(*) FROM rule_failures f WHERE f.rule_id = rules.rule_id),"
        " support = (SELECT COUNT(*) FROM rule_support s WHERE s.rule_id = rules.rule_id) WHERE key LIKE 'made:%'"
    )
    connection.execute(
        "INSERT OR REPLACE INTO rule_totals VALUES ('families', ?), ('kernels', ?)", [TASKS, 2 * failures]
    )
    connection.commit()
    connection.close()


async def measure(rules: int, failures: int, calls: int) -> None:
    """Print medians and the slowest of twenty."""

    async def describe(task_id: str) -> TaskTraits:
        return TaskTraits(task_id.replace("task", "family"), frozenset({"linear", "softmax"}))

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "rules.db")
        service = RuleService(store, describe)
        made = [
            NewRule(f"made:{n}", "language", f"You cannot do thing {n}.", f"You cannot do thing {n}.")
            for n in range(rules)
        ]
        await store.rules.put(made, "benchmark")
        await service.get(RulesRequest())
        await store.aclose()
        fill(store.path, rules, failures)
        for n in range(TASKS):
            summary = TaskSummary(task_id=f"task_{n}", name="t", format="kernelbench", entry="Model")
            await store.tasks.put(TaskRecord(summary.task_id, {}, summary))
        source = KERNEL.read_bytes().replace(b"tl.erf(", b"tl.tanh(")  # of which a rule warns

        async def recorded(n: int, kind: str) -> Outcome:
            return await store.evaluations.record(
                failed(n), b"%b\n# %b %d\n" % (source, kind.encode(), n), receipt={}
            )

        async def record_and_learn(n: int) -> None:
            await service.learn(await recorded(n, "all"), source, "a")

        await record_and_learn(calls)  # the version of Triton is new to the store
        times: dict[str, list[float]] = defaultdict(list)
        for n in range(calls):
            before = await recorded(n, "learn")
            for name, work in (
                ("record: the row of the rule alone", lambda n=n: store.rules.judged(task_id=f"task_{n % TASKS}", family=f"family_{n % TASKS}", candidate_id=f"c{n}", broken=made[n % rules])),
                ("record: all that is learned", lambda before=before: service.learn(before, source, "a")),
                ("record: outcome and learning", lambda n=n: record_and_learn(n)),
                ("rules for a task", lambda n=n: service.get(RulesRequest(task_id=f"task_{n % TASKS}"))),
                ("rules for a task and a kernel", lambda n=n: service.get(RulesRequest(task_id=f"task_{n % TASKS}", source=source))),
                ("warnings", lambda: service.warnings(source)),
            ):  # fmt: skip
                started = time.perf_counter()
                await work()
                times[name].append(1000 * (time.perf_counter() - started))
        for name, taken in times.items():
            slow = statistics.quantiles(taken, n=20)[-1]
            print(f"{name:34} median {statistics.median(taken):6.2f} ms   slowest of twenty {slow:6.2f} ms")
        await store.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--failures", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=100)
    arguments = parser.parse_args()
    anyio.run(measure, arguments.rules, arguments.failures, arguments.calls)
