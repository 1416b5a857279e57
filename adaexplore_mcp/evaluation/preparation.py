"""Ask a task's own process what the task is: what it costs, how it can be made smaller, and its trials."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.channel import Message
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes
from adaexplore_mcp.evaluation.memfiles import first_bytes, seal
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.session import Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet, Weights, new_seed
from adaexplore_mcp.models import TensorSpec, Workload

__all__ = ["collect", "examine", "make_trials"]

REFERENCE_S = 60.0  # one step of a reference: loading it, one call in both dtypes
LOWER_S = 20.0
LOWER_ALIGNED_S = 10.0
OWN_SIZES_FLOPS = 3e8  # a matrix product of 512 x 512 x 512 takes the interpreter 2 to 3 s
OWN_SIZES_ELEMENTS = 2e6  # 2,000 programs of 1,024 elements take about 2 s

CONSTANT_BYTES = 1 << 22  # of the expected outputs, looked at to tell whether they are the same in all trials

SCHEDULE: Sequence[tuple[str, Weights, str]] = (
    ("first inputs", "constructor", "none"),
    ("other values", "constructor", "none"),
    ("inputs negated", "constructor", "negated"),
    ("inputs redrawn within their domains", "constructor", "redrawn"),
    ("random weights", "randomised", "none"),
    ("random weights, inputs times 3", "randomised", "times 3"),
    ("constructor weights under another seed", "other seed", "times 0.01"),
)
"""Name, weights and transformation of each trial; those that do not apply to a task are left out."""


class _Reference:
    """A conversation with one task's process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def ask(self, op: str, *, timeout_s: float = REFERENCE_S, **fields: Any) -> Message:  # noqa: ANN401
        """Ask and return the answer.

        Raises:
            TaskError: The reference is at fault.
        """
        try:
            message = await self._session.request({"op": op, **fields}, timeout_s=timeout_s)
        except SessionTimeoutError as error:
            msg = f"The reference did not finish within {error.timeout_s:g} s (step: {op})."
            raise TaskError(msg, "Register it with smaller sizes, or as several workloads.") from error
        except SessionEndedError as error:
            raise _ended(op, error) from error
        if (fault := message.body.get("fault")) is not None:
            where = f" (line {fault['line']})" if fault["line"] else ""
            msg = f"The reference is not a task: {fault['detail']}{where}."
            raise TaskError(msg, _remedy(fault["reason"]))
        return message


def _ended(op: str, error: SessionEndedError) -> TaskError:
    report = error.report
    if report.reason == "memory":
        size = report.peak_bytes >> 20
        return TaskError(
            f"The reference took more memory than allowed ({size} MiB, step: {op}).",
            "Register it with smaller sizes, or start the server with a larger --memory-limit-mib.",
        )
    how = report.signal or f"exit code {report.exit_code}"
    return TaskError(f"The reference ended its process ({how}, step: {op}).", "Mend the reference.")


def _remedy(reason: str) -> str:
    remedies = {
        "entry": "Define it, or name what to use with `entry`.",
        "import": "Mend the import; modules must be installed for the worker interpreter or lie below import_root.",
        "sizes": "Name constants that the reference defines at module level.",
        "inputs": "Mend the function that makes the inputs.",
        "outputs": "Return tensors, or a tuple, list or dict of them.",
        "domain": "Change the domain.",
        "out_of_memory": "Register smaller sizes, or start the server with a larger --memory-limit-mib.",
    }
    return remedies.get(reason, "Mend the reference and register it again.")


async def collect(pool: WorkerPool, path: Path, import_root: Path | None) -> tuple[dict[str, str], str]:
    """Return the files that a task in a user's package consists of, and the dotted name of its module.

    Args:
        pool: Where the process that reads them comes from.
        path: The file that holds the entry, inside an allowed root.
        import_root: Folder that imports start from, inside an allowed root; by default found from the file.

    Raises:
        TaskError: They cannot be taken: too many, no Python, outside the folder.
    """
    root = import_root or _package_root(path)
    async with pool.session("reference", "interpret", readable=[str(root)]) as session:
        reply = await _Reference(session).ask("collect", path=str(path), import_root=str(root))
    answer = reply.body["ok"]
    return answer["files"], answer["module"]


def _package_root(path: Path) -> Path:
    """Return the nearest folder above a file that is no package."""
    return next(folder for folder in path.parents if not (folder / "__init__.py").exists())


async def _load(
    reference: _Reference, definition: Definition, workload: Workload, edits: Sizes, target: str
) -> None:
    task = definition.to_worker(workload, edits)
    await reference.ask("load", task=task, domains=definition.domains, target=target)


async def examine(
    pool: WorkerPool, definition: Definition, workload: Workload, *, target: str, memory_bytes: int
) -> Plan:
    """Find out what a task costs at one workload, and at which sizes numbers can be compared here.

    Raises:
        TaskError: It is not a task, or cannot be run on this machine.
    """
    async with pool.session("reference", "interpret") as session:
        reference = _Reference(session)
        await _load(reference, definition, workload, {}, target)
        seen = (await reference.ask("examine")).body["ok"]
        changes = (await reference.ask("changes")).body["ok"]["changes"]
        cost: Mapping[str, Any] = seen["cost"]
        edits: Sizes = {}
        aligned: Sizes = {}
        largest = max(cost["elements"], cost["largest"])
        too_large = cost["flops"] > OWN_SIZES_FLOPS or largest > OWN_SIZES_ELEMENTS
        if too_large:
            edits = await _lowered(reference, "small", LOWER_S)
            aligned = await _lowered(reference, "aligned", LOWER_ALIGNED_S)
            if not edits and cost["peak_bytes"] > memory_bytes:
                msg = (
                    f"The task needs about {cost['peak_bytes'] >> 20} MiB at its own sizes, more than the "
                    f"{memory_bytes >> 20} MiB a process may take here, and none of its sizes can be lowered."
                )
                raise TaskError(msg, "Register smaller sizes, or start with a larger --memory-limit-mib.")
    return Plan(
        workload=workload,
        edits=edits,
        aligned=aligned if aligned != edits else {},
        flops=cost["flops"],
        bytes=seen["bytes"],
        parameters=cost["parameters"],
        peak_bytes=cost["peak_bytes"],
        elements=cost["elements"],
        accumulation=cost["accumulation"],
        inputs=_specs(seen["inputs"]),
        outputs=_specs(seen["outputs"]),
        state=seen["state"],
        too_large=too_large,
        changes=changes,
        init_outline=seen["init_outline"],
        inputs_outline=seen["inputs_outline"],
        values_needed=not seen["faked"],
    )


async def _lowered(reference: _Reference, budget: str, seconds: float) -> Sizes:
    reply = await reference.ask("lower", budget=budget, seconds=seconds, timeout_s=seconds + REFERENCE_S)
    edits: Sizes = reply.body["ok"]["edits"]
    return edits


def _specs(entries: Sequence[Mapping[str, Any]]) -> list[TensorSpec]:
    return [TensorSpec(name=each["name"], dtype=each["dtype"], shape=list(each["shape"])) for each in entries]


async def make_trials(
    pool: WorkerPool, definition: Definition, workload: Workload, edits: Sizes, *, target: str
) -> TrialSet:
    """Run the reference on fresh seeds and keep what a candidate will be given and measured against.

    Raises:
        TaskError: The reference is at fault: it raises, returns no tensors, is random, keeps state.
    """
    made: list[Trial] = []
    kept: list[Attachment] = []
    with contextlib.ExitStack() as undo:
        undo.callback(_close, made, kept)
        async with pool.session("reference", "interpret") as session:
            reference = _Reference(session)
            await _load(reference, definition, workload, edits, target)
            # The error bound belongs to the sizes at which numbers are compared.
            cost = (await reference.ask("examine")).body["ok"]["cost"]
            changes = (await reference.ask("changes")).body["ok"]["changes"]
            seeds = {"constructor": new_seed(), "other seed": new_seed()}
            state_seed = new_seed()
            inits = [await reference.ask("init", construct_seed=seed) for seed in seeds.values()]
            kept += [_attachment(reply.body["ok"], reply) for reply in inits]
            state: Attachment | None = None
            first: Mapping[str, Any] = {}
            for name, weights, transform in SCHEDULE:
                if not _applies(weights, transform, definition, parameters=cost["parameters"]):
                    continue
                seed = new_seed()
                reply = await reference.ask(
                    "trial",
                    construct_seed=seeds["other seed" if weights == "other seed" else "constructor"],
                    state_seed=state_seed if weights == "randomised" else None,
                    input_seed=seed,
                    transform=transform,
                    repeat=not made,
                )
                answer = reply.body["ok"]
                trial = Trial(
                    name
                    if answer["transformed"] or transform == "none"
                    else f"{name.split(',')[0]}, fresh inputs",
                    weights,
                    _attachment(answer["inputs"], reply),
                    Attachment(answer["expected"], _taken(reply)),
                    seed,
                    answer["transformed"],
                )
                made.append(trial)
                if "state" in answer and state is None:
                    state = _attachment(answer["state"], reply)
                    kept.append(state)
                if not first:
                    first = answer
                    _refuse(answer)
        undo.pop_all()
    return TrialSet(
        construct_seed=seeds["constructor"],
        other_seed=seeds["other seed"],
        init=kept[0],
        other_init=kept[1],
        state=state,
        trials=made,
        mutated=first["mutated"],
        aliases=first["aliases"],
        accumulation=cost["accumulation"],
        changes=changes,
        not_wide=first["not_wide"],
        constant=_constant(made),
    )


def _close(*groups: Sequence[Trial] | Sequence[Attachment]) -> None:
    for group in groups:
        for each in group:
            each.close()


def _attachment(message: Mapping[str, Any], reply: Message) -> Attachment:
    """Take the file that belongs to an encoded value, if it holds tensors."""
    return Attachment(message, _taken(reply) if message["table"] else None)


def _taken(reply: Message) -> int:
    """Take a file that nobody can change any more.

    Raises:
        TaskError: There is none, or the task's process keeps it writable.
    """
    file = reply.take_descriptor()
    if file is None or not seal(file):
        if file is not None:
            os.close(file)
        msg = "The reference's process does not hand over what it computed."
        raise TaskError(
            msg, "Register the operation alone, without code that touches the process it runs in."
        )
    return file


def _applies(weights: Weights, transform: str, definition: Definition, *, parameters: int) -> bool:
    if weights != "constructor" and (definition.format == "function" or parameters == 0):
        return False
    declared = any(domain != "keep" for domain in definition.domains.values())
    return transform != "redrawn" or declared


def _constant(trials: Sequence[Trial]) -> bool:
    """Tell whether the reference gave the same bytes in all trials, although inputs and weights differed."""
    contents = [
        first_bytes(trial.expected.file, CONSTANT_BYTES)
        for trial in trials
        if trial.expected.file is not None
    ]
    return (
        len(contents) > 1
        and len(set(contents)) == 1
        and any(trial.inputs.message["table"] for trial in trials)
    )


def _refuse(answer: Mapping[str, Any]) -> None:
    """Refuse a reference that is no function of its inputs and weights.

    Raises:
        TaskError: Says what it does.
    """
    if answer["problem"]:
        msg = f"The reference cannot be a yardstick: {answer['problem']}."
        raise TaskError(
            msg,
            "Make the reference deterministic (call .eval() in its constructor, set dropout to 0), "
            "then register it again.",
        )
