"""Make the domains that the tools work with."""

import json
import os
from pathlib import Path

from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import find
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.synthesizer import Synthesizer
from adaexplore_mcp.memory_store import Store, SyntheticRecord
from adaexplore_mcp.rules import family_of, narrowest, operators_of, written
from adaexplore_mcp.services.adapt import AdaptService, Shipped
from adaexplore_mcp.services.container import Collaborators
from adaexplore_mcp.services.evaluation import EvaluationService
from adaexplore_mcp.services.probing import Prober
from adaexplore_mcp.services.rules import RuleService, TaskTraits
from adaexplore_mcp.services.tasks import TaskService
from adaexplore_mcp.settings import Settings

__all__ = ["connect"]

LOCKS = Path("/tmp/adaexplore-locks")  # noqa: S108 - the same for every server and user of the machine


FIRST_TASKS = Path(__file__).parents[1] / "builtin/synthetic.json"


def connect(settings: Settings, store: Store) -> Collaborators:
    """Return the services of this process; no worker is started before the first use."""
    memory_bytes = settings.memory_limit_mib << 20
    gpus = find(settings.devices)
    locks = {gpu.uuid: DeviceLock(gpu, LOCKS) for gpu in gpus}
    pool = WorkerPool(settings.worker_python, settings.scratch, memory_bytes, gpus=gpus)
    devices = Devices(gpus, locks, per_device=settings.parallel)
    jobs = max(1, len(os.sched_getaffinity(0)) // settings.parallel)
    evaluator = Evaluator(pool, settings.target, memory_bytes, devices, jobs)
    tasks = TaskService(store, evaluator)

    async def describe(task_id: str) -> TaskTraits:
        definition = await tasks.definition(task_id)
        texts = {**definition.files, "": definition.extra}
        workloads = (await tasks.get(task_id)).workloads
        dtypes = [spec.dtype for each in workloads for spec in (*each.inputs, *each.outputs)]
        dtype = narrowest(dtypes) if dtypes else written(texts.values())
        return TaskTraits(family_of(texts, definition.entry), operators_of(texts.values()), dtype)

    here = {name for gpu in gpus for name in (gpu.arch, gpu.name)} or {settings.target}
    rules = RuleService(store, describe, Prober(pool, settings.target), here)
    evaluations = EvaluationService(settings, store, tasks, evaluator, rules)
    synthesizer = Synthesizer(pool, settings.target)
    adapt = AdaptService(store, tasks, evaluations, rules, synthesizer, shipped=_shipped_tasks())
    return Collaborators(tasks, evaluations, rules, adapt)


def _shipped_tasks() -> Shipped:
    """Read the first wave of synthetic tasks; benchmarks/synthesis.py --first writes it."""
    data = json.loads(FIRST_TASKS.read_text(encoding="utf-8"))
    tasks = [
        SyntheticRecord(each["draft"], each["name"], each["source"], tuple(each["operators"]))
        for each in data["tasks"]
    ]
    return Shipped(data["seed"], data["next_draft"], data["known_operators"], data["rejected"], tasks)
