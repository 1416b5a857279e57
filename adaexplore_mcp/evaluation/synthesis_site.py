"""The place in a synthetic task that an operator is drawn for: the value so far, the task's sizes and its inputs."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["DTYPES", "EMBEDDING", "Call", "Input", "Operator", "Parameter", "Shape", "Site", "Sizes"]

Shape = tuple[int, ...]
DTYPES = ("float32", "float16", "bfloat16")
EDGES = (
    2,
    3,
    5,
    7,
    8,
    12,
    13,
    16,
    17,
    24,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    96,
    100,
    127,
    128,
    129,
    200,
    255,
    257,
    500,
    513,
    1000,
    1025,
)
"""Sizes: powers of two, their neighbours, and some that are neither."""
LARGEST = {1: 70_000, 2: 1025, 3: 257, 4: 33, 5: 9}
"""Largest size of a dimension, by the number of dimensions."""
MOST_ELEMENTS = 1 << 17
"""Of an input."""
EMBEDDING = "embedding"
"""The family whose operators take whole numbers."""
TABLES = (5, 17, 33, 100, 127, 257, 1000)
"""Rows of what is looked up in."""
DIMENSIONS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("RNN", "LSTM", "GRU", "MultiheadAttention"), (2, 3)),
    **dict.fromkeys(("RNNCell", "LSTMCell", "GRUCell"), (1, 2)),
    **dict.fromkeys(("EmbeddingBag", "embedding_bag"), (2,)),
    **dict.fromkeys(("Embedding", "embedding"), (1, 2, 3)),
}
"""How many dimensions an operator takes whose name does not tell."""
NAMES = ("y", "z", "u", "v", "w", "s", "t", "r")
"""Names of inputs beside the first."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operator.

    Args:
        name: Of the parameter.
        required: It has no default.
    """

    name: str
    required: bool


@dataclass(frozen=True)
class Operator:
    """A documented function or module of torch.

    Args:
        name: As a task writes it: nn.Linear, F.gelu, torch.sum.
        family: What it is for.
        parameters: Of the function, or of the module's constructor.
        forward: Of a module's call; None for a function.
    """

    name: str
    family: str
    parameters: tuple[Parameter, ...]
    forward: tuple[Parameter, ...] | None = None

    @property
    def plain(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]

    @property
    def taken(self) -> tuple[Parameter, ...]:
        """Parameters of the call that takes the value so far."""
        return self.parameters if self.forward is None else self.forward

    @property
    def takes_indices(self) -> bool:
        """Whether it begins a task, with whole numbers that name rows of a table."""
        return self.family == EMBEDDING

    def fits(self, rank: int) -> bool:
        """Tell whether it may take a value of so many dimensions, by the number in its name: Conv2d takes four."""
        if self.plain in DIMENSIONS:
            return rank in DIMENSIONS[self.plain]
        found = re.search(r"[1-3]d(_|$)", self.plain)
        return found is None or self.family == "layout" or int(found.group()[0]) + 2 == rank


@dataclass(frozen=True)
class Input:
    """An input of a task.

    Args:
        name: In the signature of `forward`.
        text: What makes it.
        shape: Of what that gives.
        limit: Whole numbers below it; 0 for floating ones.
    """

    name: str
    text: str
    shape: Shape
    limit: int = 0


@dataclass(frozen=True)
class Call:
    """An operator with its arguments.

    Args:
        module: What makes the module; empty for a function.
        text: The call; `$module` stands for the module.
        inputs: That it brings.
    """

    module: str
    text: str
    inputs: tuple[Input, ...]


@dataclass
class Sizes:
    """A task's size constants, by name; distinct, so that a size is known by its value."""

    values: dict[str, int] = field(default_factory=dict)

    def add(self, value: int) -> str:
        """Return the name of a size, a new one where there is none yet; 1 has no name."""
        if value == 1:
            return "1"
        name = self.text(value)
        if not name.isidentifier():
            name = f"N{len(self.values)}"
            self.values[name] = value
        return name

    def text(self, value: int) -> str:
        """Return a size as a task writes it."""
        return next((name for name, known in self.values.items() if known == value), str(value))


class Site:
    """The place that an operator is drawn for.

    Args:
        rng: Decides.
        sizes: The task's size constants; new ones are added.
        shape: Of the value so far.
        dtype: Of the value so far.
        operator: Its name without its module.
        inputs: How many the task has.
        limit: Below which the value so far lies, where it is of whole numbers.
    """

    def __init__(
        self,
        rng: random.Random,
        sizes: Sizes,
        shape: Shape,
        dtype: str,
        *,
        operator: str = "",
        inputs: int = 0,
        limit: int = 0,
    ) -> None:
        self.rng = rng
        self.sizes = sizes
        self.shape = shape
        self.dtype = dtype
        self.operator = operator
        self.limit = limit
        self.hidden = 1
        """Width of a recurrent state, once it is drawn."""
        self.inputs: list[Input] = []
        self._before = inputs
        self.axis = rng.randrange(len(shape)) if shape else 0
        self.inner = self.pick(EDGES[1:13])

    @property
    def rank(self) -> int:
        """Number of dimensions of the value so far."""
        return len(self.shape)

    @property
    def channels(self) -> int:
        """Size of the dimension that convolutions call channels."""
        return self.shape[1] if self.rank > 1 else self.shape[0] if self.shape else 1

    @property
    def spatial(self) -> int:
        """Smallest size behind batch and channels."""
        return min(self.shape[2:], default=1)

    def pick(self, values: Sequence[int]) -> int:
        """Draw a number."""
        return self.rng.choice(values)

    def one_of(self, *texts: str) -> str:
        """Draw a text."""
        return self.rng.choice(texts)

    # --- inputs

    def first_input(self, rank: int) -> Input:
        """Draw the value that a task begins with."""
        shape: list[int] = []
        for _ in range(rank):
            room = MOST_ELEMENTS // math.prod(shape)
            usable = [size for size in EDGES if size <= min(room, LARGEST[rank]) and size not in shape]
            if rank == 1:
                usable = [1000, 4097, 65_537, 12_345, 513]
            shape.append(1 if not usable or (rank > 1 and self.rng.random() < 0.1) else self.pick(usable))
        if math.prod(shape) < 2:
            shape[-1] = 17
        return self._laid_out(tuple(shape), self.one_of("normal", "normal", "normal", "normal", "positive"))

    def first_indices(self, rank: int) -> Input:
        """Draw whole numbers for a task to begin with."""
        shape = [self.pick([size for size in EDGES if size <= (257, 65, 17)[rank - 1]]) for _ in range(rank)]
        limit = self.pick(TABLES)
        names = ", ".join(self.sizes.add(size) for size in shape)
        trailing = "," if rank == 1 else ""
        text = f"torch.randint(0, {self.sizes.add(limit)}, ({names}{trailing}))"
        return Input("x", text, tuple(shape), limit)

    def _laid_out(self, shape: Shape, values: str) -> Input:
        """Return the first input, now and then one that does not lie in memory row by row."""
        names = [self.sizes.add(size) for size in shape]
        layout = self.rng.random()
        if len(shape) > 1 and layout < 0.12:
            text = f"{self._random([*names[:-2], names[-1], names[-2]], values)}.transpose(-2, -1)"
        elif layout < 0.2:
            text = f"{self._random([*names[:-1], f'2 * {names[-1]}'], values)}[..., ::2]"
        else:
            text = self._random(names, values)
        return Input("x", text, shape)

    def _random(self, names: Sequence[str], values: str) -> str:
        shape = ", ".join(names)
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        if values == "positive":
            return f"(torch.rand({shape}{dtype}) + 0.1)"
        if values == "probability":
            return f"torch.rand({shape}{dtype})"
        if values == "signs":
            return f"(2 * torch.randint(0, 2, ({shape},)) - 1).to(torch.{self.dtype})"
        return f"torch.randn({shape}{dtype})"

    def tensor(self, shape: Sequence[int], values: str = "normal") -> str:
        """Add a floating input and return its name."""
        names = [self.sizes.text(size) for size in shape]
        return self._added(self._random(names, values), tuple(shape))

    def indices(self, shape: Sequence[int], limit: int) -> str:
        """Add an input of int64 below a limit and return its name."""
        names = ", ".join(self.sizes.text(size) for size in shape)
        return self._added(f"torch.randint(0, {self.sizes.text(limit)}, ({names},))", tuple(shape))

    def _added(self, text: str, shape: Shape) -> str:
        name = NAMES[(self._before - 1 + len(self.inputs)) % len(NAMES)]
        self.inputs.append(Input(name, text, shape))
        return name

    def partner(self) -> str:
        """Add an input that broadcasts with the value so far, at times by sizes of 1 or by fewer dimensions."""
        shape = list(self.shape)
        kind = self.rng.random()
        if kind < 0.2 and self.rank > 1:
            shape = shape[1:]
        elif kind < 0.5 and self.rank > 1:
            shape[self.rng.randrange(self.rank)] = 1
        return self.tensor(shape, self.one_of("normal", "normal", "positive"))
