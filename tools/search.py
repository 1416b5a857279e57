"""Drive a search and take away what it found."""

import base64
import functools
from typing import Annotated, Literal

import anyio.to_thread
from mcp.types import CallToolResult, ImageContent
from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import (
    ContextMode,
    Edit,
    JobView,
    KernelAnswer,
    KernelFormat,
    RunViewName,
    SearchAnswer,
    SearchRequest,
    StartKernel,
)
from adaexplore_mcp.services import Call, Report, Services
from adaexplore_mcp.services.files import allowed_path, read_file
from adaexplore_mcp.tools.answers import Answer, JobAnswer, OutcomeAnswer, answer
from adaexplore_mcp.tools.evaluate import warnings_of
from adaexplore_mcp.tools.parameters import (
    DEFAULT_WAIT_S,
    MAX_TEXT,
    Ctx,
    Wait,
    encoded,
    notifier,
    services_of,
    wait_of,
)

__all__ = ["get_kernel", "get_run", "search_step"]


async def search_step(
    ctx: Ctx,
    *,
    task_id: Annotated[str, Field(description="Begins a search.")] = "",
    run_id: Annotated[str, Field(description="Goes on with one.")] = "",
    step_id: Annotated[str, Field(description="The step that the kernel is for.")] = "",
    kernel: Annotated[str, Field(max_length=MAX_TEXT)] = "",
    kernel_path: str = "",
    edits: Annotated[
        list[Edit], Field(max_length=200, description="Small steps: changes of the parent's text.")
    ] = [],  # noqa: B006 - never changed; the schema shows it
    idea: Annotated[str, Field(max_length=2000, description="What was tried, in one sentence.")] = "",
    agent: Annotated[str, Field(max_length=80, description="Your name, if several work on a run.")] = "",
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0,
    max_steps: Annotated[int, Field(ge=0, le=100_000, description="Budget; 0: 100.")] = 0,
    preset: Literal["default", "paper", "paper_level3"] = "default",
    device: Annotated[str, Field(max_length=80, description="Only this GPU.")] = "",
    start_paths: Annotated[
        list[str], Field(max_length=5, description="Kernels you have, to begin with.")
    ] = [],  # noqa: B006 - as above
    context: Annotated[
        ContextMode, Field(description="full: show kernels you had already, after a loss of context.")
    ] = "new",
    resume: Annotated[bool, Field(description="Has a stopped search go on.")] = False,
    wait_seconds: Wait = DEFAULT_WAIT_S,
) -> OutcomeAnswer:
    """Search for a faster kernel: each call submits a kernel and gives its outcome and the next proposal.

    Without a kernel it gives the open proposal.
    """
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    request = SearchRequest(
        task_id=task_id,
        run_id=run_id,
        step_id=step_id,
        source=await _kernel(services, kernel, kernel_path),
        edits=edits,
        idea=idea,
        agent=agent,
        seed=seed,
        max_steps=max_steps,
        preset=preset,
        device=device,
        starts=[await _start(services, path) for path in start_paths],
        context=context,
        resume=resume,
    )
    explore = services.explore
    async with explore.asked(request) as ask:
        ready = await explore.ready(ask)
        if ready is not None:
            return answer(ready.to_wire())

        async def advance(report: Report) -> SearchAnswer:
            return await explore.advance(ask, report)

        again = {"run_id": ask.run_id, "step_id": ask.step_id, "agent": ask.agent}
        asking = Call(
            "search_step",
            {key: value for key, value in again.items() if value},
            warnings=await warnings_of(services, request.source),
        )
        explore.hold(ask)
        result: SearchAnswer | JobView = await services.jobs.run(
            asking,
            advance,
            wait_s=wait_s,
            notify=notifier(ctx),
            ended=functools.partial(explore.ended, ask),
        )
    return answer(result.to_wire())


async def get_run(
    ctx: Ctx,
    run_id: Annotated[str, Field(description="Without it the latest searches are listed.")] = "",
    view: Annotated[
        RunViewName, Field(description="pool: the best of each branch; plot: a picture.")
    ] = "summary",
    cursor: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=200)] = 30,
) -> Answer:
    """Show a search: nodes with outcome, speedup, visits and idea, open steps, the result."""
    services = services_of(ctx)
    if not run_id:
        return answer((await services.runs.latest()).to_wire())
    timed = services.evaluations.times
    seen = await services.runs.view(run_id, view, cursor=cursor, limit=limit, timed=timed)
    shown: CallToolResult = answer(seen.to_wire())
    if view == "plot":
        picture = await services.runs.plot(run_id, timed=timed)
        image = ImageContent(type="image", data=base64.b64encode(picture).decode(), mime_type="image/png")
        shown = shown.model_copy(update={"content": [*shown.content, image]})
    return shown


async def get_kernel(
    ctx: Ctx,
    *,
    node_id: str = "",
    run_id: Annotated[str, Field(description="For the best kernel of a search.")] = "",
    format: Annotated[  # noqa: A002 - the contract's name
        KernelFormat, Field(description="patch: a diff for git apply against the start kernel.")
    ] = "source",
    wait_seconds: Wait = DEFAULT_WAIT_S,
) -> JobAnswer:
    """Give a kernel of a search with its outcome; a patch is judged once more."""
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    taken = await services.kernels.take(node_id, run_id, format)
    if format != "patch":
        return answer((await services.kernels.answer(taken, format, lambda _: None)).to_wire())

    async def give(report: Report) -> KernelAnswer:
        return await services.kernels.answer(taken, format, report)

    result: KernelAnswer | JobView = await services.jobs.run(
        Call("get_kernel", {"node_id": taken.record.node_id, "format": format}),
        give,
        wait_s=wait_s,
        notify=notifier(ctx),
    )
    return answer(result.to_wire())


async def _kernel(services: Services, kernel: str, kernel_path: str) -> bytes | None:
    """Return the bytes of a submitted kernel; None where none was given."""
    if kernel and kernel_path:
        raise RequestError("Both kernel and kernel_path were given.", "Give one of them.")
    if kernel_path:
        return await _read(services, kernel_path)
    return encoded(kernel, "kernel") if kernel else None


async def _start(services: Services, path: str) -> StartKernel:
    """Return a start kernel, with its path relative to the innermost root it lies in."""
    file = allowed_path(path, services.settings.roots)
    inside = [root for root in services.settings.roots if file.is_relative_to(root)]
    root = max(inside, key=lambda each: len(each.parts))
    return StartKernel(path=file.relative_to(root).as_posix(), source=await _read(services, path))


async def _read(services: Services, path: str) -> bytes:
    roots = services.settings.roots
    return await anyio.to_thread.run_sync(read_file, allowed_path(path, roots), roots)
