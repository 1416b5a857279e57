"""What the rule memory makes of published search traces: folding, foretelling, false warnings, imports.

    python benchmarks/adapt.py TRACES                      folding, rules, leave-one-out, false warnings
    python benchmarks/adapt.py TRACES --recompile FILE     first ask the compiler for messages that the traces lost (minutes)
    python benchmarks/adapt.py TRACES --memory FILE        also what an import of a rule||count file keeps

TRACES is a folder with `kb-*.json`, each an object with `reference_src` and `steps`; a step has `code`, `score`
(`compiled`, `correct`) and `error`. FILE gets one line per kernel and is read where it exists. Nothing of them is kept here.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from adaexplore_mcp.rules import (
    STARTERS,
    Fingerprint,
    Observation,
    fingerprint_of,
    parsed,
    read,
    read_published,
)

TABLE = Path(__file__).parents[1] / "tests/rules/folding.json"
MIN_SUPPORT = 3
LAUNCHING = ("dynamic_func", "Keyword argument", "num_warps", "Conflicting meta", "is not in list")


@dataclass
class Kernel:
    """One kernel of a trace."""

    trace: str
    node: str
    code: str
    error: str
    right: bool
    found: Fingerprint | None = None


def kernels(folder: Path) -> list[Kernel]:
    """Return every kernel of every trace."""
    rows = []
    for file in sorted(folder.glob("kb-*.json")):
        match = re.search(r"-p(\d+)-", file.name)
        assert match is not None, file
        for step in json.loads(file.read_text(encoding="utf-8"))["steps"]:
            if step.get("code"):
                score = step["score"]
                right = bool(score.get("compiled") and score.get("correct"))
                rows.append(
                    Kernel(match[1], str(step["node_id"]), step["code"], str(step["error"] or ""), right)
                )
    return rows


def told(text: str) -> Fingerprint | None:
    """Return the fingerprint of an error as a trace has it."""
    if text.strip() == "Subprocess timeout":
        return fingerprint_of(Observation(stage="run", check="deadline"))
    first = text.partition(":")[0]
    stage = (
        "compile"
        if first.startswith("triton")
        else "launch"
        if any(each in text for each in LAUNCHING)
        else "run"
    )
    if "torch.cuda' has no attribute 'reset" in text or not re.match(r"[\w.]+(:|$)|incorrect output", text):
        stage = "harness"
    return fingerprint_of(parsed(text, stage=stage))


def lost(text: str) -> bool:
    """Tell an error of which a trace kept only the mark under the line."""
    return text.rstrip().endswith("^")


def share(part: int, whole: int) -> str:
    """Return a share in words."""
    return f"{part} of {whole} ({100 * part / max(whole, 1):.1f} %)"


def folding(rows: Iterable[Kernel]) -> None:
    """Compare with the table made by hand."""
    by_id = {f"{row.trace}.{row.node}": row for row in rows}
    right = total = 0
    for key, ids in json.loads(TABLE.read_text(encoding="utf-8")).items():
        for each in ids:
            row = by_id[each]
            got = row.found.key if row.found is not None else "none"
            total += 1
            right += got == key
            if got != key:
                print(f"  folded otherwise: {each}: {got} instead of {key}")
    print(f"folded as in the table made by hand: {share(right, total)}")


def rules_of(rows: Iterable[Kernel]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return tasks and names by rule."""
    tasks: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.found is not None:
            tasks[row.found.key].add(row.trace)
            names[row.found.key].update(row.found.names)
    return tasks, names


def leave_one_out(rows: list[Kernel], *, shipped: bool) -> None:
    """Feed all traces but one, look at that one; for each in turn."""
    counts: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for trace in sorted({row.trace for row in rows}):
        tasks, names = rules_of(row for row in rows if row.trace != trace)
        known = {key for key, where in tasks.items() if len(where) >= MIN_SUPPORT}
        if shipped:
            for starter in STARTERS:
                if starter.holds:
                    known.add(starter.key)
                    names[starter.key].update(starter.names)
        for row in (row for row in rows if row.trace == trace):
            seen = {
                each.key
                for each in read(row.code).sightings
                if each.key in known and (not each.name or each.name in names[each.key])
            }
            if row.right:
                counts["right"] += 1
                counts["false"] += bool(seen)
                false[trace] += bool(seen)
                continue
            counts["failed"] += 1
            if row.found is None:
                continue
            counts["kept"] += 1
            foretold = row.found.key in known and (
                not row.found.names or bool(set(row.found.names) & names[row.found.key])
            )
            counts["kind"] += row.found.key in known
            counts["foretold"] += foretold
            counts["caught"] += foretold and row.found.key in seen
    print("with the rules that are shipped" if shipped else "with learned rules alone")
    print(f"  failures with a message: {share(counts['kept'], counts['failed'])}")
    print(
        f"  kind known: {share(counts['kind'], counts['kept'])}; of all failures {share(counts['kind'], counts['failed'])}"
    )
    print(
        f"  foretold: {share(counts['foretold'], counts['kept'])}; of all failures {share(counts['foretold'], counts['failed'])}"
    )
    print(
        f"  caught in source: {share(counts['caught'], counts['kept'])}; of all failures {share(counts['caught'], counts['failed'])}"
    )
    print(
        f"  right kernels warned of: {share(counts['false'], counts['right'])}; by trace {dict(false.most_common(4))}"
    )


def show_rules(rows: list[Kernel]) -> None:
    """Print how many rules there are, and the most frequent ones."""
    tasks, _ = rules_of(rows)
    hits = Counter(row.found.key for row in rows if row.found is not None)
    enough = sum(len(where) >= MIN_SUPPORT for where in tasks.values())
    print(f"rules: {len(tasks)}, of which {enough} with support of {MIN_SUPPORT} tasks")
    print(f"failures without a rule: {sum(not row.right and row.found is None for row in rows)}")
    for key, count in hits.most_common(12):
        print(f"  {key:55} {count:4} kernels  {len(tasks[key])} tasks")


def show_import(file: Path) -> None:
    """Print what an import keeps and what it drops."""
    lines = read_published(file.read_text(encoding="utf-8"))
    kept = [line for line in lines if not line.reasons]
    known = {line.key for line in kept if not line.key.startswith("text:")}
    refuted = {starter.key for starter in STARTERS if starter.compiles}
    print(
        f"import: {len(lines)} lines, {len(kept)} kept as {len({line.key for line in kept})} rules, {len(lines) - len(kept)} dropped"
    )
    print(f"  lines of a known kind: {sum(line.key in known for line in kept)}")
    print(f"  rules that probes refute: {len({line.key for line in kept} & refuted)}")
    probed = {starter.key for starter in STARTERS}
    print(f"  rules with a probe: {len({line.key for line in kept} & probed)}")
    for reason, count in Counter(
        line.reasons[0].partition("(")[0] for line in lines if line.reasons
    ).most_common():
        print(f"  dropped, {reason.strip()}: {count}")


async def recompile(rows: list[Kernel], folder: Path, file: Path) -> None:
    """Compile the kernels whose message was lost, and write what the compiler says now."""
    from adaexplore_mcp.evaluation.candidates import Candidate  # noqa: PLC0415 - needs workers
    from adaexplore_mcp.evaluation.compilation import Compilation  # noqa: PLC0415
    from adaexplore_mcp.evaluation.definition import Definition  # noqa: PLC0415
    from adaexplore_mcp.evaluation.evaluator import Evaluator  # noqa: PLC0415
    from adaexplore_mcp.evaluation.pool import WorkerPool  # noqa: PLC0415
    from adaexplore_mcp.evaluation.trials import Attachment  # noqa: PLC0415
    from adaexplore_mcp.models import Policy  # noqa: PLC0415

    pool = WorkerPool(Path(sys.executable), file.parent / "scratch", 8 << 30)
    evaluator = Evaluator(pool, "sm_86", 8 << 30)
    plans: dict[str, Any] = {}
    try:
        with file.open("a", encoding="utf-8") as out:
            for row in (row for row in rows if not row.right and lost(row.error)):
                if row.trace not in plans:
                    trace = json.loads(
                        next(folder.glob(f"kb-*-p{row.trace}-*.json")).read_text(encoding="utf-8")
                    )
                    task = Definition(
                        format="kernelbench", files={"task.py": trace["reference_src"]}, entry="Model"
                    )
                    plans[row.trace] = (await evaluator.examine(task, lambda _: None))[0]
                plan = plans[row.trace]
                candidate = Candidate(row.code.encode(), "kernelbench", "ModelNew", Policy())
                compilation = Compilation(
                    pool, candidate, target="sm_86", timeout_s=30, report=lambda _: None
                )
                try:
                    report = await compilation.run(
                        changes=[],
                        init=Attachment(plan.init_outline, None),
                        inputs=Attachment(plan.inputs_outline, None),
                        fake=True,
                    )
                finally:
                    await compilation.close()
                failure = report.failure
                line = {"id": f"{row.trace}.{row.node}", "compiled": report.compiled}
                if failure is not None:
                    line |= {
                        "kind": failure.kind,
                        "type": failure.type,
                        "message": failure.message,
                        "source": failure.source,
                        "kernel": failure.kernel,
                    }
                out.write(json.dumps(line) + "\n")
                out.flush()
    finally:
        await pool.aclose()


def regained(rows: list[Kernel], file: Path) -> None:
    """Take what the compiler said now for messages that were lost."""
    by_id = {f"{row.trace}.{row.node}": row for row in rows}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line.get("kind") in {"language", "resources"}:
            by_id[line["id"]].found = fingerprint_of(
                Observation("compile", line["type"], line["message"], line["source"], kernel=line["kernel"])
            )
    print(f"messages regained: {sum(line.get('kind') in {'language', 'resources'} for line in lines)} of {len(lines)};"
          f" {sum(line['compiled'] for line in lines)} of these kernels compile now")  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--recompile", type=Path)
    arguments = parser.parse_args()
    rows = kernels(arguments.traces)
    for row in rows:
        row.found = None if row.right else told(row.error)
    failed = [row for row in rows if not row.right]
    print(
        f"{len(rows)} kernels, {len(failed)} failed, of which {sum(lost(row.error) for row in failed)} without their message"
    )
    folding(rows)
    if arguments.recompile:
        if not arguments.recompile.exists():
            anyio.run(recompile, rows, arguments.traces, arguments.recompile)
        regained(rows, arguments.recompile)
    show_rules(rows)
    leave_one_out(rows, shipped=False)
    leave_one_out(rows, shipped=True)
    if arguments.memory:
        show_import(arguments.memory)


if __name__ == "__main__":
    main()
