"""Ask a task's own process what the task is: its files, what it costs, and at which sizes it can be judged here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.task_process import REFERENCE_S, TaskProcess, understood
from adaexplore_mcp.models import TensorSpec, Workload

__all__ = ["collect", "examine", "package_root"]

LOWER_S = 20.0
LOWER_ALIGNED_S = 10.0
OWN_SIZES_FLOPS = 3e8  # a matrix product of 512 x 512 x 512 takes the interpreter 2 to 3 s
OWN_SIZES_ELEMENTS = 2e6  # 2,000 programs of 1,024 elements take about 2 s


async def collect(pool: WorkerPool, path: Path, import_root: Path | None) -> tuple[dict[str, str], str]:
    """Return the files that a task in a user's package consists of, and the dotted name of its module.

    Args:
        pool: Where the process that reads them comes from.
        path: The file that holds the entry, inside an allowed root.
        import_root: Folder that imports start from, inside an allowed root; by default found from the file.

    Raises:
        TaskError: They cannot be taken: too many, no Python, outside the folder.
    """
    root = import_root or package_root(path)
    async with pool.session("reference", "interpret", readable=[str(root)]) as session:
        reply = await TaskProcess(session, pool.memory_bytes).ask(
            "collect", path=str(path), import_root=str(root)
        )
    answer = reply.body["ok"]
    return answer["files"], answer["module"]


def package_root(path: Path) -> Path:
    """Return the nearest folder above a file that is no package: it has no `__init__.py`."""
    return next(
        (folder for folder in path.parents if not (folder / "__init__.py").exists()), path.parents[-1]
    )


async def examine(
    pool: WorkerPool,
    definition: Definition,
    workload: Workload,
    *,
    target: str,
    memory_bytes: int,
    lower: bool,
) -> Plan:
    """Find out what a task costs at one workload, and at which sizes numbers can be compared here.

    Args:
        pool: Where the task's process comes from.
        definition: The task.
        workload: Which sizes.
        target: What to imitate.
        memory_bytes: What a process may take.
        lower: Look for sizes that this CPU can compute; a GPU needs none.

    Raises:
        TaskError: It is not a task, or cannot be run on this machine.
    """
    async with pool.session("reference", "interpret") as session:
        reference = TaskProcess(session, pool.memory_bytes)
        with understood():
            await reference.load(definition, workload, {}, target=target)
            return await _plan(reference, workload, memory_bytes, lower=lower)


async def _plan(reference: TaskProcess, workload: Workload, memory_bytes: int, *, lower: bool) -> Plan:
    seen = (await reference.ask("examine")).body["ok"]
    changes = (await reference.ask("changes")).body["ok"]["changes"]
    cost: Mapping[str, Any] = seen["cost"]
    edits: Sizes = {}
    aligned: Sizes = {}
    stretched: list[Sizes] = []
    too_large = cost["flops"] > OWN_SIZES_FLOPS or max(cost["elements"], cost["largest"]) > OWN_SIZES_ELEMENTS
    if too_large and lower:
        edits = await _lowered(reference, "small", LOWER_S)
        aligned = await _lowered(reference, "aligned", LOWER_ALIGNED_S)
        if edits:
            reply = await reference.ask("stretch", edits=edits)
            stretched = [each for each in reply.body["ok"]["stretched"] if each != aligned]
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
        stretched=stretched,
        flops=cost["flops"],
        unneeded=cost["unneeded"],
        bytes=seen["bytes"],
        parameters=cost["parameters"],
        accumulation=cost["accumulation"],
        peak_bytes=cost["peak_bytes"],
        lowering_tried=lower,
        inputs=_specs(seen["inputs"]),
        outputs=_specs(seen["outputs"]),
        state=seen["state"],
        unused_sizes=seen["unused_sizes"],
        constants=_whole(seen["constants"] | workload.sizes),
        too_large=too_large,
        changes=changes,
        init_outline=seen["init_outline"],
        inputs_outline=seen["inputs_outline"],
        values_needed=not seen["faked"],
    )


async def _lowered(reference: TaskProcess, budget: str, seconds: float) -> Sizes:
    reply = await reference.ask("lower", budget=budget, seconds=seconds, timeout_s=seconds + REFERENCE_S)
    edits: Sizes = reply.body["ok"]["edits"]
    return edits


def _whole(constants: Mapping[str, Any]) -> dict[str, int | None]:
    """Return constants by name, without values that are no whole numbers."""
    return {name: constants[name] if type(constants[name]) is int else None for name in sorted(constants)}


def _specs(entries: Sequence[Mapping[str, Any]]) -> list[TensorSpec]:
    return [TensorSpec(name=each["name"], dtype=each["dtype"], shape=list(each["shape"])) for each in entries]
