"""The tools of the server, one module per family; translate and bound what comes in, and nothing more."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from mcp.types import CallToolResult, ToolAnnotations

from adaexplore_mcp.tools.adapt import adapt_on_task
from adaexplore_mcp.tools.artifacts import read_artifact
from adaexplore_mcp.tools.evaluate import benchmark_kernel, compile_and_verify, profile_kernel
from adaexplore_mcp.tools.jobs import cancel_job, job_status
from adaexplore_mcp.tools.machine import get_device
from adaexplore_mcp.tools.rules import get_skill_rules, review_rules
from adaexplore_mcp.tools.search import get_kernel, get_run, search_step
from adaexplore_mcp.tools.tasks import list_tasks, register_task

__all__ = ["TOOLS", "ToolEntry", "tools_of"]


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """A tool, and what a host may assume of it."""

    function: Callable[..., Awaitable[CallToolResult]]
    read_only: bool = False
    """It changes nothing that another call can see."""
    destructive: bool = False
    """It may undo or end something."""
    idempotent: bool = True
    """A second call with the same arguments changes nothing more."""
    core: bool = False
    """An optimizing agent needs it: part of `serve --toolset core`."""

    @property
    def name(self) -> str:
        """Name under which the tool is called."""
        return self.function.__name__

    @property
    def annotations(self) -> ToolAnnotations:
        """The hints on the wire; no tool reaches beyond this machine."""
        if self.read_only:  # the other hints have no meaning then
            return ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return ToolAnnotations(
            destructive_hint=self.destructive,
            idempotent_hint=self.idempotent,
            open_world_hint=False,
        )


TOOLS: tuple[ToolEntry, ...] = (
    ToolEntry(register_task, core=True),
    ToolEntry(list_tasks, read_only=True, core=True),
    ToolEntry(compile_and_verify, idempotent=False, core=True),
    ToolEntry(benchmark_kernel, idempotent=False, core=True),
    ToolEntry(profile_kernel, core=True),
    ToolEntry(search_step, idempotent=False, core=True),
    ToolEntry(get_run, read_only=True, core=True),
    ToolEntry(get_kernel, idempotent=False, core=True),
    ToolEntry(get_skill_rules, core=True),
    ToolEntry(review_rules, idempotent=False),
    ToolEntry(adapt_on_task, idempotent=False),
    ToolEntry(job_status, read_only=True, core=True),
    ToolEntry(cancel_job, destructive=True, core=True),
    ToolEntry(get_device, read_only=True),
    ToolEntry(read_artifact, read_only=True, core=True),
)
"""Every tool, in the order in which they are listed."""


def tools_of(toolset: Literal["all", "core"]) -> tuple[ToolEntry, ...]:
    """Return the tools of a toolset."""
    return TOOLS if toolset == "all" else tuple(tool for tool in TOOLS if tool.core)
