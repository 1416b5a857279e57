"""Compile what baselines choose from on CPU cores: they choose while the GPU is held alone."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from adaexplore_mcp.evaluation.compilation import CONFIGURATIONS_ALONE_S, Built, Compilation
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.timing.baselines import Contender

__all__ = ["built_ahead"]


@asynccontextmanager
async def built_ahead(
    pool: WorkerPool,
    baselines: Sequence[Contender],
    plan: Plan,
    *,
    target: Mapping[str, Any],
    timeout_s: float,
    jobs: int,
    report: Callable[[str], None],
) -> AsyncIterator[dict[str, Built]]:
    """Compile those of some baselines that tune kernels of Triton, one after the other; let go of what that gave in the end.

    Args:
        pool: Where the compiling processes come from.
        baselines: Of one race.
        plan: Of the workload at which they are timed.
        target: The GPU, as it describes itself.
        timeout_s: Limit for each.
        jobs: Configurations to compile side by side.
        report: Told what is being done.

    Yields:
        By name, what was compiled; a baseline that does not compile comes to grief where it is timed.
    """
    found: dict[str, Built] = {}
    async with AsyncExitStack() as stack:
        for each in baselines:
            if not each.tunes_triton:
                continue
            compilation = Compilation(
                pool,
                each.candidate,
                target=target,
                timeout_s=timeout_s,
                report=report,
                jobs=jobs,
                launchers=True,
                configurations_s=CONFIGURATIONS_ALONE_S,
            )
            stack.push_async_callback(compilation.close)
            found[each.name] = await compilation.at(plan)
            stack.callback(found[each.name].close)
        yield found
