"""A court for small tasks and candidates: the real evaluator, and texts of both."""

import sys
import textwrap
from pathlib import Path

import pytest

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.models import Policy, Workload

MEMORY_BYTES = 1 << 30


IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"


class Court:
    """One evaluator, and the plans of the tasks it has seen."""

    def __init__(self, scratch):
        self.pool = WorkerPool(Path(sys.executable), scratch, MEMORY_BYTES)
        self.evaluator = Evaluator(self.pool, "sm_90", MEMORY_BYTES)
        self.plans = {}

    async def examined(self, task):
        if task.digest not in self.plans:
            self.plans[task.digest] = await self.evaluator.examine(task, str)
        return self.plans[task.digest]

    async def evaluation(self, task, candidate, *, target=None, timeout_s=30.0):
        return await self.evaluator.verify(
            task,
            await self.examined(task),
            candidate.encode(),
            task_id="task_x",
            target=target,
            timeout_s=timeout_s,
            report=str,
        )

    async def verdict(self, task, candidate, **options):
        return (await self.evaluation(task, candidate, **options)).outcome

    async def refused(self, task):
        """Return what is said of a reference that is none."""
        with pytest.raises(TaskError) as caught:
            await self.evaluator.examine(task, str)
        return str(caught.value)


def function(body, inputs, entry="op", **fields):
    """Return a task of the function format; `body` defines the entry, `inputs` is what make_inputs returns."""
    source = (
        f"import torch\n{textwrap.dedent(body)}\n\ndef make_inputs(workload, device, seed):\n"
        f"    torch.manual_seed(seed)\n    return {inputs}\n"
    )
    fields["policy"] = Policy(**fields.pop("policy", {}))
    fields["workloads"] = [
        Workload(name=name, sizes=sizes) for name, sizes in fields.pop("workloads", {}).items()
    ]
    return Definition(format="function", files={"task.py": source}, entry=entry, **fields)


def kernelbench(model, inputs, init="[]", **fields):
    """Return a task of the kernelbench format; `model` is the text of class Model, and constants before it."""
    source = (
        f"import torch\nfrom torch import nn\n{textwrap.dedent(model)}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {init}\n"
    )
    fields["policy"] = Policy(**fields.pop("policy", {}))
    return Definition(format="kernelbench", files={"task.py": source}, entry="Model", **fields)


def elementwise(expression, *, before="", block=64, mask=", mask=o < n", grid="triton.cdiv(n, BLOCK)"):
    """Return a candidate `op(x, y)` whose kernel computes an expression of x and y, element by element."""
    other = f"{mask}, other=0.0" if mask else ""
    return IMPORTS + textwrap.dedent(f"""
        BLOCK = {block}

        @triton.jit
        def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
            o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + o{other})
            y = tl.load(y_ptr + o{other})
            tl.store(z_ptr + o, {expression}{mask})

        def op(x, y):
            {before or "pass"}
            n = x.numel()
            z = torch.empty_like(x)
            kernel[({grid},)](x, y, z, n, BLOCK=BLOCK)
            return z
    """)


def add(**fields):
    return function(
        "N = 96\ndef op(x, y):\n    return x + y",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
        **fields,
    )


ADD = add()


RIGHT = elementwise("x + y")


LARGE = function(
    "N = 16777216\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)
