"""The trials of a task at some sizes: inputs, weights and expected outputs as memory that the server holds.

Made once by the reference's process and used for many candidates: a candidate is given the inputs of one trial after
the other, the judge alone is given what is expected. Seeds are drawn afresh for every set and told to nobody before a
verdict.
"""

import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from adaexplore_mcp.evaluation.memory import Memory, new_id

__all__ = [
    "MOST_OUTPUTS",
    "MOST_SAME",
    "OF_THE_FIRST",
    "ONE_SIGN",
    "ONLY_TRANSFORMED",
    "RANDOMISED",
    "SCALED_DOWN",
    "SCHEDULE",
    "UNUSUAL",
    "Attachment",
    "Audit",
    "Trial",
    "TrialSet",
    "Weights",
    "applicable",
    "new_seed",
]

Weights = Literal["constructor", "randomised", "constants randomised", "other seed"]
"""What a trial's parameters hold. Constants are those that the constructor makes the same under every seed."""
RANDOMISED: frozenset[Weights] = frozenset({"randomised", "constants randomised"})
SCHEDULE: Sequence[tuple[str, Weights, str]] = (
    ("first inputs", "constructor", "none"),
    ("other values", "constructor", "none"),
    ("inputs negated", "constructor", "negated"),
    ("first inputs, some elements negated", "constructor", "some negated"),
    ("inputs redrawn within their domains", "constructor", "redrawn"),
    ("inputs times 3", "constructor", "times 3"),
    ("inputs times 0.01, some of them zero", "constructor", "small"),
    ("whole numbers as inputs", "constructor", "whole numbers"),
    ("random weights", "randomised", "none"),
    ("random weights, inputs times 3", "randomised", "times 3"),
    ("random weights where the constructor's are the same under every seed", "constants randomised", "none"),
    ("constructor weights under another seed", "other seed", "none"),
    ("inputs all below zero", "constructor", "all negative"),
    ("inputs all above zero", "constructor", "all positive"),
)
"""Name, weights and transformation of each trial; those that do not apply to a task are left out."""
OF_THE_FIRST = frozenset({"negated", "some negated"})
"""Transformations of the very inputs of the first trial: only then is every sign another one, or are most elements equal."""
ONE_SIGN = frozenset({"all negative", "all positive"})
"""A largest or smallest value is then not on the side of zero where it usually is."""
SCALED_DOWN = frozenset({"small", "times 0.01"})
"""With and without zeros among them."""
UNUSUAL = ONE_SIGN | {"small"}
"""Left out, or without its zeros, where the reference then gives fewer numbers than for inputs as they are drawn."""
ONLY_TRANSFORMED = ONE_SIGN | SCALED_DOWN | {"some negated", "times 3", "whole numbers"}
"""With the constructor's weights, a trial of these is left out where no input can be transformed."""

MOST_OUTPUTS = 4096
"""Values that a call may return."""
MOST_SAME = 0.99
"""Share of an output that may be one value, or whatever the inputs are, before it is remarked on: a mask of half of it is usual,
a diagonal of 33 rows is 3 %, one computed element of 9,801 is no task."""


@dataclass
class Attachment:
    """A JSON part and the memory that belongs to it: a memory file, or memory of a GPU.

    Args:
        message: As `tensors.Encoded.message()`, or a list of entries.
        file: Its descriptor, owned; None without tensors.
        held: Bytes of GPU memory; 0 for a file.
        digests: Of the first bytes of its parts: equal ones mean equal contents.
        name: Of the memory.
    """

    message: Any
    file: int | None
    held: int = 0
    digests: Sequence[str] = ()
    name: str = field(default_factory=new_id)

    @property
    def files(self) -> list[int]:
        """Return the file as a list, to send along."""
        return [] if self.file is None else [self.file]

    @property
    def memories(self) -> list[Memory]:
        """Return its memory as a list, to ask a judge about."""
        return [] if self.file is None else [Memory(self.file, self.name)]

    @property
    def size(self) -> int:
        """Bytes of memory it takes."""
        if self.file is None:
            return 0
        return self.held or os.fstat(self.file).st_blocks * 512

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


@dataclass
class Trial:
    """One call of the reference.

    Args:
        name: What is special about it, for evidence.
        weights: Which weights it ran with.
        inputs: The arguments as drawn, before the call.
        expected: Entries of the outputs, inputs changed by contract last.
        seed: Of its inputs.
        transformed: Inputs that were scaled or drawn anew.
        yardsticks: What the judge found its outputs to be measured by, by output: the same for every candidate.
    """

    name: str
    weights: Weights
    inputs: Attachment
    expected: Attachment
    seed: int
    transformed: list[str]
    yardsticks: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """What would pass in the place of a reference's outputs.

    Args:
        zeros_pass: Zeros.
        mean_pass: Their mean, everywhere.
        narrow: Nothing that passes yet, but they are all nearly one value.
        same_share: Share of their elements that hold one and the same value; 0 below a half.
        input_pass: Name of an input that would.
    """

    zeros_pass: bool = False
    mean_pass: bool = False
    narrow: bool = False
    same_share: float = 0.0
    input_pass: str = ""


@dataclass
class TrialSet:
    """All trials of a task at one workload's sizes.

    Args:
        construct_seed: Under which both models are built.
        other_seed: Under which both are built for the trials with `other seed`.
        init: Constructor arguments under the first seed.
        other_init: The same under the other.
        states: By weights, the randomised parameters; empty for a task without any.
        trials: In the order in which they are used.
        mutated: Inputs that the reference changes.
        aliases: By output of the reference, the input whose memory it shares.
        accumulation: K of the error bound.
        changes: Changes of size constants in a candidate's source.
        not_wide: Why the reference did not run in float64; empty if it did.
        constant: The outputs were equal in all trials although inputs and weights differed.
        fixed: Floating inputs that are the same under every seed.
        spent: What its inputs are may be known: a candidate told others, or somebody was told the seeds.
        told: Expected elements that evidence has named.
        id: Names it in receipts.
        independent: Inputs, parameters and buffers that do not change the outputs beyond rounding.
        left_out: Trials for which there is too little GPU memory or time.
        gpu: UUID of the GPU whose memory they are in; empty for files.
    """

    construct_seed: int
    other_seed: int
    init: Attachment
    other_init: Attachment
    states: Mapping[Weights, Attachment]
    trials: list[Trial]
    mutated: list[str]
    aliases: Mapping[str, str]
    accumulation: int
    changes: list[dict[str, Any]]
    not_wide: str = ""
    constant: bool = False
    independent: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    gpu: str = ""
    spent: bool = False
    told: int = 0
    id: str = field(default_factory=new_id)
    users: int = 0
    closed: bool = False

    def named(self, weights: Weights) -> list[Trial]:
        """Return the trials with some weights."""
        return [trial for trial in self.trials if trial.weights == weights]

    def state_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return name and shape of every parameter."""
        if (state := self.states.get("randomised")) is None:
            return []
        table = state.message["table"]
        return [(str(name), tuple(table[value["v"]]["shape"])) for name, value in state.message["tree"]["v"]]

    @property
    def smallest_output(self) -> int:
        """Elements of the smallest output."""
        shapes = [entry["shape"] for entry in self.trials[0].expected.message if "shape" in entry]
        return min((math.prod(shape) for shape in shapes), default=0)

    @property
    def _attachments(self) -> Iterator[Attachment]:
        yield from (self.init, self.other_init, *self.states.values())
        for trial in self.trials:
            yield from (trial.inputs, trial.expected)

    @property
    def size(self) -> int:
        """Bytes of memory that all files take."""
        return sum(each.size for each in self._attachments)

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(len(each.files) for each in self._attachments)

    @contextmanager
    def used(self) -> Iterator["TrialSet"]:
        """Keep the files open while someone works with them."""
        self.users += 1
        try:
            yield self
        finally:
            self.users -= 1
            if self.closed:
                self.close()

    def close(self) -> None:
        """Close all files, at once or when the last user is done."""
        self.closed = True
        if self.users:
            return
        for attachment in self._attachments:
            attachment.close()


def applicable(*, weighted: bool, products: bool, declared: bool) -> list[int]:
    """Return the positions in `SCHEDULE` of what applies to a task.

    Args:
        weighted: It has parameters.
        products: It multiplies matrices, or convolves.
        declared: Its owner named domains of inputs or parameters.
    """

    def applies(weights: Weights, transform: str) -> bool:
        if weights != "constructor" and not weighted:
            return False
        if weights == "constructor" and transform == "times 3" and weighted:
            return False  # it is scaled so with random weights
        if transform == "whole numbers" and not products:
            return False
        if transform in ONE_SIGN and products:
            return False  # sums of products have both signs all the same
        return transform != "redrawn" or declared

    return [at for at, (_, weights, transform) in enumerate(SCHEDULE) if applies(weights, transform)]


def new_seed() -> int:
    """Return a seed that nobody can guess."""
    return secrets.randbelow(2**31)
