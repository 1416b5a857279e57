"""Have a task's own process make its trials: inputs, weights and what the reference gives for them."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import anyio

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.buffers import Buffers, DeviceFullError, GpuBuffers, HostBuffers
from adaexplore_mcp.evaluation.channel import Message
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.judging import check_entries
from adaexplore_mcp.evaluation.memfiles import seal
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Place
from adaexplore_mcp.evaluation.task_process import NO_TRICKS, TaskProcess, understood
from adaexplore_mcp.evaluation.trials import (
    OF_THE_FIRST,
    ONLY_TRANSFORMED,
    RANDOMISED,
    SCALED_DOWN,
    SCHEDULE,
    Attachment,
    Trial,
    TrialSet,
    Weights,
    applicable,
    new_seed,
)
from adaexplore_mcp.evaluation.typical import note_typical
from adaexplore_mcp.models import Workload

__all__ = ["make_gpu_trials", "make_trials", "trial_count"]

FIXED_BYTES = 1 << 22  # of an input, as far as its digest goes
GPU_SHARE = 0.25  # of a GPU's memory: what the trials of one workload may take
GPU_TRIALS_S = 5.0  # after this long only the most important trials are still made
FEWEST_TRIALS = 4
MOST_BYTES = 1 << 48
DEPENDENCE_S = 2.0  # for finding out what does not matter
IMPORTANCE = (0, 1, 8, 11, 2, 3, 12, 6, 9, 10, 5, 13, 4, 7)
"""Which trials stay where memory is short: positions in `SCHEDULE`, the first above all."""
PLAINLY_SMALL = "inputs times 0.01", "times 0.01"
"""Name and transformation where no zeros may be among small inputs."""


async def make_trials(
    pool: WorkerPool,
    definition: Definition,
    workload: Workload,
    edits: Sizes,
    *,
    target: str,
    most: int = len(SCHEDULE),
    independent: list[str] | None = None,
) -> TrialSet:
    """Run the reference on fresh seeds and keep what a candidate will be given and measured against.

    Args:
        pool: Worker processes.
        definition: The task.
        workload: Which sizes.
        edits: Lowered constants.
        target: What to imitate.
        most: How many trials are of use.
        independent: Inputs and parameters that do not matter to the outputs; None to find out.

    Raises:
        TaskError: The reference is at fault: it raises, returns no tensors, is random, keeps state.
    """
    with contextlib.ExitStack() as undo:
        buffers = HostBuffers(pool)
        async with buffers.reference() as session:
            reference = TaskProcess(session, pool.memory_bytes)
            with understood():
                await reference.load(definition, workload, edits, target=target)
                # The error bound belongs to the sizes at which numbers are compared.
                cost = (await reference.ask("examine")).body["ok"]["cost"]
                changes = (await reference.ask("changes")).body["ok"]["changes"]
                maker = _Trials(reference, definition, buffers, undo, independent=independent)
                trials = await maker.make(
                    cost["accumulation"],
                    cost["parameters"],
                    changes,
                    products=cost["flops"] > 0,
                    most=most,
                )
        undo.pop_all()
    return trials


def trial_count(plan: Plan, gpu: Gpu) -> int:
    """Return how many trials of a workload a GPU has memory for, as many as are of use at most."""
    if plan.once:
        return 1
    return min(
        len(SCHEDULE), max(FEWEST_TRIALS, int(GPU_SHARE * gpu.memory_bytes / max(1, plan.trial_bytes)))
    )


async def make_gpu_trials(
    pool: WorkerPool,
    definition: Definition,
    plan: Plan,
    gpu: Gpu,
    place: Place | None = None,
    *,
    independent: list[str] | None = None,
) -> TrialSet:
    """Run the reference on a GPU, at the workload's own sizes; see `make_trials`.

    Args:
        pool: Worker processes.
        definition: The task.
        plan: Of the workload.
        gpu: Where it runs.
        place: Whoever waits to time there goes first, between two trials and while the reference is constructed.
        independent: Inputs and parameters that do not matter to the outputs; None to find out.

    Raises:
        TaskError: The reference is at fault, or the GPU has too little memory for it.
        DeviceFullError: Too little of it is free now.
    """
    buffers = GpuBuffers(pool, gpu)
    with contextlib.ExitStack() as undo:
        async with buffers.reference() as session:
            reference = TaskProcess(session, pool.memory_bytes, gpu=gpu.name)
            with understood():
                await reference.load(definition, plan.workload, {}, flops=plan.flops)
                maker = _Trials(reference, definition, buffers, undo, place, independent=independent)
                trials = await maker.make(
                    plan.accumulation,
                    plan.parameters,
                    plan.changes,
                    products=plan.flops > 0,
                    most=trial_count(plan, gpu),
                    seconds=GPU_TRIALS_S,
                )
        undo.pop_all()
    return trials


class _Trials:
    """Makes the trials of a task that a reference's process has loaded.

    Args:
        reference: To ask.
        definition: The task.
        buffers: Where inputs and outputs lie.
        undo: Closes every file taken, unless all goes well.
        place: Where way is given to others meanwhile; None where nobody waits.
        independent: What does not matter to the outputs; None to find out.
    """

    def __init__(
        self,
        reference: TaskProcess,
        definition: Definition,
        buffers: Buffers,
        undo: contextlib.ExitStack,
        place: Place | None = None,
        *,
        independent: list[str] | None = None,
    ) -> None:
        self._reference = reference
        self._definition = definition
        self._buffers = buffers
        self._undo = undo
        self._place = place
        self._known_independent = independent
        self._construct_seeds = {"constructor": new_seed(), "other seed": new_seed()}
        self._state_seed = new_seed()
        self._first_seed = new_seed()
        self._states: dict[Weights, Attachment] = {}
        self._constructed: set[int] = set()

    async def make(
        self,
        accumulation: int,
        parameters: int,
        changes: list[dict[str, Any]],
        *,
        products: bool,
        most: int = len(SCHEDULE),
        seconds: float = math.inf,
    ) -> TrialSet:
        """Return the trials of `SCHEDULE` that apply.

        Args:
            accumulation: K of the error bound.
            parameters: Elements of parameters and buffers.
            changes: Changes of size constants in a candidate's source.
            products: The reference multiplies matrices, or convolves.
            most: How many trials there is memory for.
            seconds: After which only the most important ones are still made.
        """
        inits = []
        for seed in self._construct_seeds.values():
            reply = await self._reference.ask("init", construct_seed=seed)
            inits.append(self._in_file(reply.body["ok"], reply))
        end = self._now() + seconds
        made: list[Trial] = []
        left_out: list[str] = []
        small: set[str] = set()
        first: Mapping[str, Any] = {}
        due = applicable(
            weighted=self._definition.format != "function" and parameters > 0,
            products=products,
            declared=any(domain != "keep" for domain in self._definition.domains.values()),
        )
        important = [position for position in IMPORTANCE if position in due]
        for position in due:
            name, weights, transform = SCHEDULE[position]
            if made and self._place is not None:
                await self._place.give_way(self._reference.still)
            late = self._now() > end and position not in important[:FEWEST_TRIALS]
            if position not in important[:most] or late:
                left_out.append(name)
                continue
            await self._construct("other seed" if weights == "other seed" else "constructor")
            constants = await self._constants() if weights == "constants randomised" else None
            if constants == []:
                continue
            if transform == "whole numbers" and not _floating(made[0]):
                continue  # among whole numbers many are equal, and which of them an index means is free
            if transform == "small" and not _floating(made[0]):
                name, transform = PLAINLY_SMALL  # zeros are equal too
            found = await self._trial(name, weights, transform, constants, repeat=not made)
            if found is None:
                continue
            trial, answer = found
            if transform in SCALED_DOWN:
                small.add(trial.name)
            made.append(trial)
            if not first:
                first = answer
                _refuse(answer)
        note_typical(made, small=small)
        return TrialSet(
            construct_seed=self._construct_seeds["constructor"],
            other_seed=self._construct_seeds["other seed"],
            init=inits[0],
            other_init=inits[1],
            states=self._states,
            trials=made,
            mutated=[str(name) for name in first["mutated"]],
            aliases={str(output): str(source) for output, source in first["aliases"].items()},
            accumulation=int(accumulation),
            changes=changes,
            not_wide=str(first["not_wide"]),
            constant=_constant(made),
            fixed=_fixed(made),
            left_out=left_out,
            independent=await self._independent(made[0]),
            gpu=self._buffers.gpu.uuid if self._buffers.gpu is not None else "",
        )

    def _now(self) -> float:
        """Return the seconds of a clock that stands still while others are given way."""
        return anyio.current_time() - (0.0 if self._place is None else self._place.given_way_s)

    async def _construct(self, weights: Literal["constructor", "other seed"]) -> None:
        """Have the reference constructed as a trial needs it: it is no work for the GPU, and takes long where weights are large."""
        seed = self._construct_seeds[weights]
        if self._place is None or seed in self._constructed:
            return
        self._constructed.add(seed)
        async with self._place.giving_way(self._reference.still):
            await self._reference.ask("construct", construct_seed=seed)

    async def _independent(self, first: Trial) -> list[str]:
        """Return the inputs and parameters that do not matter to the outputs, as far as that is tried."""
        if self._known_independent is not None:  # finding out takes as long as making the trials
            return self._known_independent
        try:
            reply = await self._reference.ask(
                "dependence",
                construct_seed=self._construct_seeds["constructor"],
                input_seed=first.seed,
                other_seed=new_seed(),
                seconds=DEPENDENCE_S,
            )
        except (TaskError, DeviceFullError):  # values that no call of the task has: nothing is known then
            return []
        names: list[str] = reply.body["ok"]["independent"]
        return [str(name) for name in names]

    async def _constants(self) -> list[str]:
        """Return the parameters and buffers that the constructor makes the same under both seeds."""
        await self._construct("other seed")
        seeds = list(self._construct_seeds.values())
        reply = await self._reference.ask("constants", construct_seeds=seeds)
        names: list[str] = reply.body["ok"]["names"]
        return names

    async def _trial(
        self, name: str, weights: Weights, transform: str, constants: list[str] | None, *, repeat: bool
    ) -> tuple[Trial, Mapping[str, Any]] | None:
        seed = self._first_seed if repeat or transform in OF_THE_FIRST else new_seed()
        reply = await self._reference.ask(
            "trial",
            construct_seed=self._construct_seeds["other seed" if weights == "other seed" else "constructor"],
            state_seed=self._state_seed if weights in RANDOMISED else None,
            state_names=constants,
            input_seed=seed,
            transform=transform,
            repeat=repeat,
        )
        answer = reply.body["ok"]
        if transform == "negated" and not answer["transformed"]:
            reply.close()
            return await self._trial("fresh inputs", weights, "none", constants, repeat=False)
        if answer["unusual"]:
            reply.close()
            if transform != "small":
                return None
            name, transform = PLAINLY_SMALL
            return await self._trial(name, weights, transform, constants, repeat=False)
        if weights == "constructor" and transform in ONLY_TRANSFORMED and not answer["transformed"]:
            reply.close()
            return None
        inputs = await self._encoded(answer["inputs"], reply)
        entries, size = check_entries(answer["expected"]), _size(answer["expected_bytes"])
        expected = self._owned(entries, self._taken(reply), size)
        expected.digests = await self._digests(expected, [(0, min(FIXED_BYTES, size))], size)
        if "state" in answer:
            state = await self._encoded(answer["state"], reply)
            if self._states.setdefault(weights, state) is not state:
                state.close()  # the same parameters as in the trial before
        if transform != "none" and not answer["transformed"]:
            name = f"{name.split(',', maxsplit=1)[0]}, fresh inputs"
        return Trial(name, weights, inputs, expected, seed, answer["transformed"]), answer

    async def _encoded(self, message: Mapping[str, Any], reply: Message) -> Attachment:
        """Take the memory that belongs to an encoded value, if it holds tensors."""
        if not message["table"]:
            return self._owned(message, None)
        size = _size(message["size"])
        attachment = self._owned(message, self._taken(reply), size)
        attachment.digests = await self._digests(attachment, message["storages"], size)
        return attachment

    def _in_file(self, message: Mapping[str, Any], reply: Message) -> Attachment:
        """Take an encoded value that lies in a memory file wherever the task runs: constructor arguments."""
        return self._owned(message, _sealed(reply) if message["table"] else None)

    def _owned(self, message: Any, file: int | None, size: int = 0) -> Attachment:  # noqa: ANN401 - as `Attachment` has it
        attachment = Attachment(message, file, size if self._buffers.gpu is not None else 0)
        self._undo.callback(attachment.close)
        return attachment

    def _taken(self, reply: Message) -> int:
        """Take memory that nobody changes any more: a sealed file, or GPU memory of a process that is about to end.

        Raises:
            TaskError: There is none, or the task's process keeps it writable.
        """
        if self._buffers.gpu is None:
            return _sealed(reply)
        if (file := reply.take_descriptor()) is None:
            raise TaskError("The reference's process does not hand over what it computed.", NO_TRICKS)
        return file

    async def _digests(self, attachment: Attachment, parts: Sequence[Any], size: int) -> list[str]:
        """Return digests of the beginnings of some parts.

        Raises:
            TaskError: The reference's process describes what is not there.
        """
        request = {"op": "digest", "parts": parts, "size": size}
        answer = (await self._buffers.judge(request, attachment.memories)).body
        if "malformed" in answer:
            msg = f"The reference's process did not hand over what it computed: {answer['malformed']}."
            raise TaskError(msg, NO_TRICKS)
        digests: list[str] = answer["digests"]
        return digests


def _size(claim: object) -> int:
    """Return a size in bytes that a reference's process named.

    Raises:
        ValueError: It is none.
    """
    if type(claim) is not int or not 0 <= claim < MOST_BYTES:
        msg = f"{claim!r} is no size"
        raise ValueError(msg)
    return claim


def _sealed(reply: Message) -> int:
    """Take a file that nobody can change any more.

    Raises:
        TaskError: There is none, or the task's process keeps it writable.
    """
    file = reply.take_descriptor()
    if file is None or not seal(file):
        if file is not None:
            os.close(file)
        raise TaskError("The reference's process does not hand over what it computed.", NO_TRICKS)
    return file


def _floating(trial: Trial) -> bool:
    """Tell whether all outputs of a trial are floating-point numbers."""
    return all("float" in entry.get("dtype", "") for entry in trial.expected.message)


def _constant(trials: Sequence[Trial]) -> bool:
    """Tell whether the reference gave the same bytes in all trials, although inputs and weights differed."""
    contents = {tuple(trial.expected.digests) for trial in trials if trial.expected.file is not None}
    return len(trials) > 1 and len(contents) == 1 and any(trial.inputs.message["table"] for trial in trials)


def _fixed(trials: Sequence[Trial]) -> list[str]:
    """Return the floating inputs that are the same under two seeds: what ignores them cannot be told."""
    if len(trials) < 2:
        return []
    one, other = trials[0].inputs, trials[1].inputs
    if one.message["table"] != other.message["table"]:
        return []
    return [
        str(entry["path"])
        for entry in one.message["table"]
        if "float" in entry["dtype"]
        and 0 < one.message["storages"][entry["storage"]][1] <= FIXED_BYTES
        and one.digests[entry["storage"]] == other.digests[entry["storage"]]
    ]


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
