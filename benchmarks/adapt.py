"""What the rule memory makes of published search traces: folding, foretelling, false warnings, names in rules, imports.

    python benchmarks/adapt.py TRACES                      folding, rules, names in them, leave-one-out, false warnings
    python benchmarks/adapt.py TRACES --recompile FILE     first ask the compiler for messages that the traces lost (minutes)
    python benchmarks/adapt.py TRACES --right FOLDER       also how many of other right kernels are warned of
    python benchmarks/adapt.py TRACES --memory FILE        also what an import of a rule||count file keeps

TRACES is a folder with `kb-*.json`, each an object with `reference_src` and `steps`; a step has `code`, `score`
(`compiled`, `correct`) and `error`. FILE gets one line per kernel and is read where it exists. FOLDER holds `LEVEL/NUMBER.py`;
those of the tasks of the traces are left out. Nothing of them is kept here.
"""

import argparse
import ast
import functools
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from adaexplore_mcp.rules import (
    STARTERS,
    Fingerprint,
    Observation,
    Sighting,
    fingerprint_of,
    parsed,
    read,
    read_published,
    wording,
)
from adaexplore_mcp.rules.kinds import KINDS

TABLE = Path(__file__).parents[1] / "tests/rules/folding.json"
MIN_SUPPORT = 3
CATCH_ALL = frozenset({
    "argument_type", "check", "operand_types", "own_check", "static_assert", "syntax", "undefined_name",
})  # fmt: skip
"""Kinds whose rule names no construct: a wrong result, a candidate's own check, a name that is not defined, …"""
UNNAMED = frozenset({"a function", "any", "own", "value"})
"""Constructs that stand for no particular one."""
CONSTRUCTS = {kind.construct for kind in KINDS} | UNNAMED
"""Constructs that are our own words for a kind."""
API = ("tl.", "torch.", "triton.")
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


def names_construct(key: str) -> bool:
    """Tell whether the rule of a kind says what must not be written, not merely what goes wrong."""
    kind, _, construct = key.partition("@")[0].partition(":")
    if kind == "other":
        return construct.startswith(API)
    return kind not in CATCH_ALL and construct not in UNNAMED


@functools.cache
def sightings(code: str) -> tuple[Sighting, ...]:
    """Return what the source check sees."""
    return tuple(read(code).sightings)


@dataclass
class Known:
    """The rules that are known before a kernel is looked at.

    Args:
        keys: Of the rules.
        names: That each lists.
    """

    keys: set[str]
    names: dict[str, set[str]]

    @classmethod
    def of(cls, rows: Iterable[Kernel], *, shipped: bool) -> "Known":
        """Return those with enough support in some kernels, and those that are shipped."""
        tasks, names = rules_of(rows)
        known = cls({key for key, where in tasks.items() if len(where) >= MIN_SUPPORT}, names)
        for starter in STARTERS if shipped else ():
            if starter.holds:
                known.keys.add(starter.key)
                names[starter.key].update(starter.names)
        return known

    def foretells(self, found: Fingerprint) -> bool:
        """Tell whether a rule is about a failure and, where it lists names, lists this one."""
        names = self.names.get(found.key, set())
        return found.key in self.keys and (not found.names or bool(set(found.names) & names))

    def warned(self, code: str) -> set[str]:
        """Return the rules that a source is warned with."""
        return {
            each.key
            for each in sightings(code)
            if each.key in self.keys and (not each.name or each.name in self.names.get(each.key, set()))
        }


def leave_one_out(rows: list[Kernel], *, shipped: bool) -> None:
    """Feed all traces but one, look at that one; for each in turn."""
    counts: Counter[str] = Counter()
    catch_all: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for trace in sorted({row.trace for row in rows}):
        known = Known.of((row for row in rows if row.trace != trace), shipped=shipped)
        for row in (row for row in rows if row.trace == trace):
            seen = known.warned(row.code)
            counts["right" if row.right else "failed"] += 1
            if row.right:
                counts["false"] += bool(seen)
                false[trace] += bool(seen)
            elif row.found is not None:
                key = row.found.key
                counts["kept"] += 1
                counts["kind"] += key in known.keys
                if known.foretells(row.found):
                    counts["foretold"] += 1
                    counts["caught"] += key in seen
                    counts["named"] += names_construct(key)
                    counts["named and caught"] += names_construct(key) and key in seen
                    catch_all[key] += not names_construct(key)
    failed, kept = counts["failed"], counts["kept"]
    print("with the rules that are shipped" if shipped else "with learned rules alone")
    print(f"  failures with a message: {share(kept, failed)}")
    for words, name in (
        ("kind known", "kind"),
        ("foretold by a rule of any kind", "foretold"),
        ("foretold by a rule that names its construct", "named"),
        ("caught in source, any kind", "caught"),
        ("caught in source by a rule that names its construct", "named and caught"),
    ):
        print(f"  {words}: {share(counts[name], kept)}; of all failures {share(counts[name], failed)}")
    print(f"  kinds that name no construct: {dict(+catch_all)}")
    print(f"  right kernels warned of: {share(counts['false'], counts['right'])}; by trace {dict(+false)}")


def show_others(rows: list[Kernel], folder: Path) -> None:
    """Print how many right kernels of other tasks the rules of all traces, and the shipped ones, warn of."""
    traced = {f"level2/{row.trace}" for row in rows}
    files = [
        file for file in sorted(folder.glob("*/*.py")) if f"{file.parent.name}/{file.stem}" not in traced
    ]
    known = Known.of(rows, shipped=True)
    warned = {
        f"{file.parent.name}/{file.name}": sorted(seen)
        for file in files
        if (seen := known.warned(file.read_text(encoding="utf-8")))
    }
    print(f"right kernels of other tasks warned of: {share(len(warned), len(files))}")
    for file, keys in warned.items():
        print(f"  {file}: {', '.join(keys)}")


def defined(code: str) -> set[str]:
    """Return the names that a source defines: functions, classes, parameters, variables, attributes."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return set()
    return {name for node in ast.walk(tree) for name in _defined(node)}


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def words(text: str) -> list[str]:
    """Return the names and the numbers of a text."""
    return re.findall(r"[A-Za-z_]\w*|\d+", text)


def show_names(rows: list[Kernel]) -> None:
    """Print what rules take from messages that kernels define too, and the lines and sizes in them.

    A word is from a message if neither the words nor the construct of the kind hold it; a number from a message would be a line
    or a size. A word of one task is one that the kernels of a single trace define.
    """
    where: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for name in defined(row.code):
            where[name].add(row.trace)
    _, names = rules_of(rows)
    rules = {row.found.key: row.found for row in rows if row.found is not None}
    found: dict[str, list[str]] = defaultdict(list)
    for key, rule in rules.items():
        listed = tuple(sorted(names[key]))
        ours = {*words(rule.words), *(words(rule.construct) if rule.construct in CONSTRUCTS else ())}
        for word in sorted({*words(wording(rule, listed)), *listed} - ours):
            if word.isdigit():
                found["lines or sizes"].append(f"{word} in {key}")
            elif tasks := where.get(word):
                whose = "one task alone defines" if len(tasks) == 1 else "several tasks define"
                found[f"words from messages that {whose}"].append(f"{word} in {key}")
    print(f"in {len(rules)} rules, beside {len(where)} names that the kernels define")
    for what in (
        "lines or sizes",
        "words from messages that one task alone defines",
        "words from messages that several tasks define",
    ):
        print(f"  {what}: {'; '.join(found[what]) or 'none'}")


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
    lines = read_published(file.read_bytes())
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
    parser.add_argument("--right", type=Path, metavar="FOLDER")
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
    show_names(rows)
    leave_one_out(rows, shipped=False)
    leave_one_out(rows, shipped=True)
    if arguments.right:
        show_others(rows, arguments.right)
    if arguments.memory:
        show_import(arguments.memory)


if __name__ == "__main__":
    main()
