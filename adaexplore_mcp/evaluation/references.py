"""What is known of each task: how its workloads are judged here, its trials, and the hidden workloads drawn for it.

Everything is made when it is first asked for, and kept for the candidates that come next as long as it may be.
"""

import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeVar

from adaexplore_mcp.errors import TaskError, WorkerLostError
from adaexplore_mcp.evaluation.buffers import Buffers, DeviceFullError, GpuBuffers, HostBuffers
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes, tensor_bytes
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import (
    Needs,
    judging_bytes,
    making_bytes,
    timing_bytes,
    trials_bytes,
)
from adaexplore_mcp.evaluation.hidden import HIDDEN, draw, neighbours
from adaexplore_mcp.evaluation.judging import audit
from adaexplore_mcp.evaluation.kept import KeptTrials
from adaexplore_mcp.evaluation.planning import examine
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.preparation import make_gpu_trials, make_trials, trial_count
from adaexplore_mcp.evaluation.scheduling import Devices, Place
from adaexplore_mcp.evaluation.trials import SCHEDULE, Audit, TrialSet
from adaexplore_mcp.models import Target, Workload

__all__ = ["References", "again_if_lost", "sizes_in_words"]

DEFAULT_WORKLOAD = "default"
HIDDEN_USES = 20  # after this many candidates a task's hidden workloads are drawn anew
NEIGHBOURS = 6  # sizes that are tried for one near a task's own
KEPT_SHARE = 0.3
"""Of a GPU's memory: trials kept there that nobody uses."""
MEANWHILE_SHARE = 0.93
"""Of it: these, and all that evaluations need, while there are any."""

T = TypeVar("T")
Report = Callable[[str], None]


class References:
    """Knows tasks, and has their references run.

    Args:
        pool: Worker processes.
        target: What to compile for where there is no GPU.
        memory_bytes: What a process may take.
        devices: The GPUs, and who is on them.
    """

    def __init__(self, pool: WorkerPool, target: Target, memory_bytes: int, devices: Devices) -> None:
        self._pool = pool
        self._devices = devices
        self._target = target
        self._memory_bytes = memory_bytes
        self._lowered: dict[str, Plan] = {}
        self._hidden: dict[str, tuple[list[Plan], int]] = {}
        self._chance = random.SystemRandom()
        self._kept = KeptTrials(self._idle_bytes, self._expected)

    async def examine(self, definition: Definition, report: Report) -> list[Plan]:
        """Find out how each workload of a task is judged here; refuse what is no task.

        Raises:
            TaskError: The reference is at fault, or cannot be run on this machine.
        """
        plans = []
        for workload in definition.workloads or [Workload(name=DEFAULT_WORKLOAD)]:
            report(f"examining workload {workload.name}")
            plans.append(await self._plan(definition, workload, report))
        if not definition.vary:
            plans[0] = plans[0].model_copy(update={"elsewhere": await self._elsewhere(definition, plans[0])})
        await self.hidden_plans(
            definition, plans, report
        )  # a range at which the reference fails shows at once
        self.tidy()
        return plans

    async def hidden_plans(self, definition: Definition, plans: Sequence[Plan], report: Report) -> list[Plan]:
        """Return the plans of hidden workloads; drawn anew after some candidates, and after one that was told of them.

        Raises:
            TaskError: The reference fails at sizes that its own range allows.
        """
        unknown = set(definition.vary) - set(plans[0].constants)
        if not definition.vary or unknown:  # which registration refuses by name
            return []
        known, uses = self._hidden.get(definition.digest, ([], 0))
        if known and uses < HIDDEN_USES:
            self._hidden[definition.digest] = known, uses + 1
            return known
        drawn = []
        for number in range(1, HIDDEN + 1):
            workload = draw(definition.vary, plans[0].workload, number, self._chance)
            report(f"examining {workload.name}")
            try:
                plan = await self._plan(definition, workload, report)
                drawn.append(plan.model_copy(update={"hidden": True}))
            except TaskError as error:
                msg = f"At {sizes_in_words(workload)}, which vary allows: {error.problem}"
                raise TaskError(msg, "Narrow the range in vary, or mend the reference there.") from error
        self._hidden[definition.digest] = drawn, 1
        return drawn

    async def for_cpu(self, definition: Definition, plan: Plan) -> Plan:
        """Return a plan with sizes that a CPU can compute; one made on a machine with a GPU has none."""
        if plan.lowering_tried or not plan.too_large:
            return plan
        key = f"{definition.operation} {plan.workload.model_dump_json()}"
        if key not in self._lowered:
            made = await examine(
                self._pool,
                definition,
                plan.workload,
                target=self._target,
                memory_bytes=self._memory_bytes,
                lower=True,
            )
            kept = {
                "mutates": plan.mutates,
                "bytes": plan.bytes,
                "constant": plan.constant,
                "fixed": plan.fixed,
            }
            self._lowered[key] = made.model_copy(update=kept)
        return self._lowered[key]

    async def trials(
        self, definition: Definition, workload: Workload, edits: Sizes, *, once: bool = False
    ) -> TrialSet:
        """Return the trials of a task at some sizes, in memory files, from those kept where possible."""
        most = 1 if once else len(SCHEDULE)
        make = partial(make_trials, self._pool, definition, workload, edits, target=self._target, most=most)
        return await self._kept.get(
            f"{definition.operation} {workload.model_dump_json()} {sorted(edits.items())}", _anew(make)
        )

    async def trials_elsewhere(self, definition: Definition, plan: Plan) -> TrialSet | None:
        """Return the first trial of a task at sizes near its own, where there is one."""
        if plan.elsewhere is None or plan.elsewhere.too_large:
            return None
        with contextlib.suppress(TaskError):  # it is for information
            return await self.trials(definition, plan.elsewhere.workload, {}, once=True)
        return None

    async def gpu_trials(self, definition: Definition, plan: Plan, place: Place) -> TrialSet:
        """Return the trials of a workload on a GPU, from those kept where possible; others go first between two that are made."""
        gpu = place.gpu
        get = partial(
            self._kept.get,
            _on_gpu(definition, plan, gpu),
            _anew(partial(make_gpu_trials, self._pool, definition, plan, gpu, place)),
            gpu=gpu.uuid,
            meanwhile=partial(place.give_way, contextlib.nullcontext),
        )
        try:
            return await get()
        except DeviceFullError:
            if plan.once:
                raise
            self._kept.forget_gpu(gpu.uuid)
            return await get()

    async def trials_to_profile(self, definition: Definition, plan: Plan, gpu: Gpu) -> TrialSet:
        """Return one trial that is for profiles alone: what a profiler says may hold its inputs."""
        once = plan.model_copy(update={"once": True})
        make = _anew(partial(make_gpu_trials, self._pool, definition, once, gpu))
        return await self._kept.get(f"{_on_gpu(definition, plan, gpu)} to profile", make, gpu=gpu.uuid)

    def needs(self, definition: Definition, plan: Plan, contenders: int = 0) -> Needs:
        """Return the GPU memory that judging a candidate at a workload takes, trials among it that others use too.

        Args:
            definition: The task.
            plan: Of the workload.
            contenders: How many are made ready side by side in the end, to be timed.
        """
        timing = self.timing_needs(definition, plan, contenders)
        elsewhere = {} if plan.elsewhere is None else self._shared(definition, plan.elsewhere)
        return Needs(max(timing.own_bytes, judging_bytes(plan)), {**timing.shared, **elsewhere})

    def timing_needs(self, definition: Definition, plan: Plan, contenders: int) -> Needs:
        """Return the same for candidates that were judged: so many are made ready to be timed."""
        made = all(_on_gpu(definition, plan, gpu) in self._kept for gpu in self._devices.gpus)
        own = max(0 if made else making_bytes(plan), contenders * timing_bytes(plan))
        return Needs(own, self._shared(definition, plan))

    def tidy(self) -> None:
        """Give back what is kept on GPUs beyond what may be there now."""
        for gpu in self._devices.gpus:
            self._kept.tidy(gpu.uuid)

    def keeps_others(self, gpu: Gpu) -> bool:
        """Tell whether trials of more than one task, or workload, are kept on a GPU."""
        return self._kept.several(gpu.uuid)

    async def make_room(self, gpu: Gpu) -> None:
        """Give back what is kept on a GPU for later."""
        self._kept.forget_gpu(gpu.uuid)
        await self._pool.judge({"op": "trim"}, [], gpu=gpu)

    def known_hidden(self, definition: Definition) -> bool:
        """Tell whether hidden workloads are drawn for a task."""
        return definition.digest in self._hidden

    def forget_hidden(self, definition: Definition) -> None:
        """Draw other hidden workloads for the candidates that come next: these are known, or could be."""
        self._hidden.pop(definition.digest, None)

    def spend(self, ids: Collection[str]) -> None:
        """Draw other trials for the candidates that come next: somebody was told the seeds of these."""
        self._kept.spend(frozenset(ids))

    def close(self) -> None:
        """Close the files of all kept trials."""
        self._kept.close()

    async def _plan(self, definition: Definition, workload: Workload, report: Report) -> Plan:
        """Find out how one workload is judged here.

        Raises:
            TaskError: The reference is at fault.
        """
        plan = await again_if_lost(
            partial(
                examine,
                self._pool,
                definition,
                workload,
                target=self._target,
                memory_bytes=self._memory_bytes,
                lower=not self._devices.gpus,
            )
        )
        trials, audited = await self._audited_trials(definition, plan, report)
        undeclared = set(trials.mutated) - set(definition.mutates)
        if undeclared and definition.mutates:
            names = ", ".join(sorted(undeclared))
            msg = f"The reference also changes {names} in place, which `mutates` does not name."
            raise TaskError(msg, f"Register it with mutates={sorted({*definition.mutates, *undeclared})}.")
        return plan.model_copy(
            update={
                "mutates": trials.mutated,
                # What is changed in place is written too.
                "bytes": plan.bytes
                + sum(tensor_bytes(each) for each in plan.inputs if each.name in trials.mutated),
                "constant": trials.constant,
                **asdict(audited),
                "independent": trials.independent,
                "fixed": trials.fixed,
                "not_wide": trials.not_wide,
            }
        )

    async def _elsewhere(self, definition: Definition, plan: Plan) -> Plan | None:
        """Return the plan of a task at sizes near its own, at which its reference works, best with the same parameters."""
        if plan.reduced or plan.values_needed:
            return None
        found = None
        for workload in itertools.islice(neighbours(plan.constants, plan.workload), NEIGHBOURS):
            try:
                other = await examine(
                    self._pool,
                    definition,
                    workload,
                    target=self._target,
                    memory_bytes=self._memory_bytes,
                    lower=False,
                )
            except TaskError:  # sizes that do not go together
                continue
            usable = other.inputs != plan.inputs and self._fits_beside(other, plan)
            if usable and other.parameters == plan.parameters:
                return other.model_copy(update={"once": True})
            if usable and found is None:
                found = other.model_copy(update={"once": True})
        return found

    def _fits_beside(self, other: Plan, plan: Plan) -> bool:
        """Tell whether a trial at other sizes can be kept beside a task's own, and computed here."""
        gpus = self._devices.gpus
        if not gpus:
            return not other.too_large
        kept = trial_count(plan, gpus[0]) * plan.trial_bytes + other.trial_bytes
        return kept < KEPT_SHARE * min(gpu.memory_bytes for gpu in gpus)

    async def _audited_trials(
        self, definition: Definition, plan: Plan, report: Report
    ) -> tuple[TrialSet, Audit]:
        """Return trials of a task, on the kind of machine that candidates will be judged on, and what the judge sees in them.

        Raises:
            TaskError: There is too little memory for them.
        """
        if not self._devices.gpus:
            trials = await self.trials(definition, plan.workload, plan.edits)
            return trials, await self._audit(HostBuffers(self._pool), definition, trials)
        everything = Needs(max(gpu.memory_bytes for gpu in self._devices.gpus))
        for needs in (self.needs(definition, plan), everything):
            try:
                async with self._devices.use(needs=needs, report=report) as place:
                    trials = await self.gpu_trials(definition, plan, place)
                    return trials, await self._audit(GpuBuffers(self._pool, place.gpu), definition, trials)
            except DeviceFullError as error:  # once more, without neighbours
                full = error
        msg = f"The GPU has too little memory for this task: {full}; one trial takes {plan.trial_bytes >> 20} MiB."
        raise TaskError(msg, "Free memory of the GPU, or register smaller sizes.") from full

    def _shared(self, definition: Definition, plan: Plan) -> dict[str, int]:
        """Return what trials of a workload take, by the name that all have in common who will be given the same ones."""
        gpus = self._devices.gpus
        generations = (self._kept.generation(_on_gpu(definition, plan, gpu)) for gpu in gpus)
        name = f"{_trials_of(definition, plan)} {'.'.join(map(str, generations))}"
        return {name: trials_bytes(plan, max(trial_count(plan, gpu) for gpu in gpus))}

    def _expected(self, uuid: str) -> set[str]:
        """Return which trials on a GPU are counted by evaluations that have a place there."""
        names = self._devices.shared_by(self._devices.find(uuid)) if uuid else ()
        return {f"{name.rpartition(' ')[0]} {uuid}" for name in names}

    def _idle_bytes(self, uuid: str) -> int:
        """Return the memory of a GPU that trials may keep which nobody uses: while evaluations go on, whatever these leave."""
        gpu = self._devices.find(uuid)
        needed = self._devices.held_bytes(gpu)
        most = MEANWHILE_SHARE * gpu.memory_bytes - needed if needed else KEPT_SHARE * gpu.memory_bytes
        return max(0, int(most))

    @staticmethod
    async def _audit(buffers: Buffers, definition: Definition, trials: TrialSet) -> Audit:
        with trials.used():
            return await audit(buffers, trials.trials[0], definition.policy, trials.accumulation)


def sizes_in_words(workload: Workload) -> str:
    """Return a workload's sizes in words."""
    return ", ".join(f"{name}={value}" for name, value in workload.sizes.items())


def _on_gpu(definition: Definition, plan: Plan, gpu: Gpu) -> str:
    """Return what tells the trials of a workload on a GPU from all others."""
    return f"{_trials_of(definition, plan)} {gpu.uuid}"


def _trials_of(definition: Definition, plan: Plan) -> str:
    """Return what tells the trials of a workload from all others, on whatever GPU."""
    return f"{definition.operation} {plan.workload.model_dump_json()}"


def _anew(make: Callable[..., Awaitable[TrialSet]]) -> Callable[[TrialSet | None], Awaitable[TrialSet]]:
    """Return what makes trials, or others in place of some: what makes no difference to the outputs is known of these."""

    def made(before: TrialSet | None) -> Awaitable[TrialSet]:
        return again_if_lost(partial(make, independent=None if before is None else before.independent))

    return made


async def again_if_lost(work: Callable[[], Awaitable[T]]) -> T:
    """Do something once more where a worker of ours was lost on the way."""
    try:
        return await work()
    except WorkerLostError:
        return await work()
