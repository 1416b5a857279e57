"""Judge a candidate, time it, and say what holds it back."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

import anyio.to_thread
from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import (
    BenchmarkRequest,
    Effort,
    JobView,
    Outcome,
    Profile,
    Target,
    Value,
    VerifyRequest,
)
from adaexplore_mcp.services import Call, Report, Services
from adaexplore_mcp.services.edits import refuse_empty
from adaexplore_mcp.services.files import allowed_path, read_file
from adaexplore_mcp.services.messages import known_candidate
from adaexplore_mcp.tools.answers import JobAnswer, OutcomeAnswer, answer
from adaexplore_mcp.tools.parameters import (
    DEFAULT_WAIT_S,
    MAX_TEXT,
    Ctx,
    Format,
    Wait,
    encoded,
    notifier,
    services_of,
    wait_of,
)

__all__ = ["benchmark_kernel", "candidate_of", "compile_and_verify", "profile_kernel", "warnings_of"]

Kernel = Annotated[
    str,
    Field(max_length=MAX_TEXT, description="Source text. Give exactly one of kernel, kernel_path, node_id."),
]
KernelPath = Annotated[str, Field(description="File below an allowed root.")]
Node = Annotated[str, Field(description="candidate_id from an earlier answer.")]
Device = Annotated[str, Field(max_length=80, description="cuda:0, …; cpu: no GPU.")]
Again = Annotated[bool, Field(description="Despite a receipt.")]
TimeLimit = Annotated[float, Field(ge=1, le=600, description="Per stage.")]
SHOWN_WARNINGS = 3
TIME_LIMIT_S, BENCHMARK_LIMIT_S = 60.0, 120.0

V = TypeVar("V", bound=Value)


async def compile_and_verify(
    ctx: Ctx,
    *,
    task_id: str,
    kernel: Kernel = "",
    kernel_path: KernelPath = "",
    node_id: Node = "",
    target: Annotated[Literal["", Target], Field(description="GPU to compile for, without one.")] = "",
    device: Device = "",
    timeout_seconds: TimeLimit = TIME_LIMIT_S,
    wait_seconds: Wait = DEFAULT_WAIT_S,
    agent: Annotated[str, Field(max_length=80)] = "",
    again: Again = False,
    response_format: Format = "concise",
) -> OutcomeAnswer:
    """Judge a candidate kernel against a task: does it compile, and are its numbers right?

    Gives status, evidence, error line, registers, spills, scope, receipt_id.
    """
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    source = await candidate_of(services, kernel, kernel_path, node_id)
    await services.tasks.get(task_id)
    request = VerifyRequest(
        task_id=task_id,
        source=source,
        target=target,
        device=device,
        timeout_s=timeout_seconds,
        agent=agent,
        again=again,
    )

    async def verify(report: Report) -> Outcome:
        return await services.evaluations.verify(request, report)

    result = await _waited(ctx, "compile_and_verify", request, verify, wait_s)
    return answer(result.to_wire(), response_format)


async def benchmark_kernel(
    ctx: Ctx,
    *,
    task_id: str,
    kernel: Kernel = "",
    kernel_path: KernelPath = "",
    node_id: Node = "",
    baselines: Annotated[
        list[str],
        Field(
            max_length=5,
            description="own, eager, compile, max_autotune, node:<candidate_id>; default: the task's.",
        ),
    ] = [],  # noqa: B006 - never changed; the schema shows it
    effort: Annotated[Effort, Field(description="full: until the interval is narrow.")] = "quick",
    device: Device = "",
    timeout_seconds: TimeLimit = BENCHMARK_LIMIT_S,
    wait_seconds: Wait = DEFAULT_WAIT_S,
    agent: Annotated[str, Field(max_length=80)] = "",
    again: Again = False,
    response_format: Format = "concise",
) -> OutcomeAnswer:
    """Judge a candidate as compile_and_verify does and, if right, time it: is it faster, by how much?

    Judges nothing without a GPU. Gives timing: speedups with 95 % intervals, latencies, share of the roofline.
    """
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    source = await candidate_of(services, kernel, kernel_path, node_id)
    await services.tasks.get(task_id)
    request = BenchmarkRequest(
        task_id=task_id,
        source=source,
        device=device,
        timeout_s=timeout_seconds,
        agent=agent,
        baselines=baselines,
        effort=effort,
        again=again,
    )

    async def benchmark(report: Report) -> Outcome:
        return await services.evaluations.benchmark(request, report)

    more = {"baselines": baselines, "effort": "" if effort == "quick" else effort}
    result = await _waited(ctx, "benchmark_kernel", request, benchmark, wait_s, **more)
    return answer(result.to_wire(), response_format)


async def profile_kernel(
    ctx: Ctx,
    *,
    task_id: str,
    kernel: Kernel = "",
    kernel_path: KernelPath = "",
    node_id: Node = "",
    workload: Annotated[str, Field(max_length=80, description="Default: the first.")] = "",
    against: Annotated[
        str, Field(max_length=120, description="own or an id as in node_id: say what differs.")
    ] = "",
    target: Annotated[Literal["", Target], Field(description="GPU to compile for, without one.")] = "",
    timeout_seconds: TimeLimit = TIME_LIMIT_S,
    wait_seconds: Wait = DEFAULT_WAIT_S,
    agent: Annotated[str, Field(max_length=80)] = "",
    response_format: Format = "concise",
) -> JobAnswer:
    """Say what holds a kernel back: three causes at most, each with its evidence, how that is known, and a remedy.

    By hardware counters of one call on the GPU where they can be read, else by compiled code and launches; judges nothing.
    """
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    source = await candidate_of(services, kernel, kernel_path, node_id)
    await services.tasks.get(task_id)
    request = VerifyRequest(
        task_id=task_id, source=source, target=target, timeout_s=timeout_seconds, agent=agent
    )

    async def profile(report: Report) -> Profile:
        return await services.evaluations.profile(request, workload, report, against)

    more = {"workload": workload, "against": against}
    result = await _waited(ctx, "profile_kernel", request, profile, wait_s, **more)
    return answer(result.to_wire(), response_format)


async def _waited(
    ctx: Ctx,
    tool: str,
    request: VerifyRequest,
    work: Callable[[Report], Awaitable[V]],
    wait_s: float,
    **more: str | list[str],
) -> V | JobView:
    """Do what a tool was asked for a candidate, or answer with the job that goes on with it.

    Args:
        ctx: Of the call.
        tool: Its name.
        request: What was asked for, without the source the words that ask for it again.
        work: Does it.
        wait_s: How long the caller waits.
        more: Further words that ask for it again.
    """
    call: dict[str, str | float | list[str]] = {
        "task_id": request.task_id,
        **more,
        "target": request.target,
        "device": request.device,
        "agent": request.agent,
        "again": request.again,
    }
    usual = BENCHMARK_LIMIT_S if isinstance(request, BenchmarkRequest) else TIME_LIMIT_S
    if request.timeout_s != usual:
        call["timeout_seconds"] = request.timeout_s
    given = {key: value for key, value in call.items() if value}
    services = services_of(ctx)
    warnings = await warnings_of(services, request.source)
    return await services.jobs.run(
        Call(tool, given, request.source, warnings), work, wait_s=wait_s, notify=notifier(ctx)
    )


async def warnings_of(services: Services, source: bytes | None) -> list[str]:
    """Return what a source shows that a rule says cannot be done, a few at most, before anything of it runs."""
    return (await services.rules.warnings(source))[:SHOWN_WARNINGS] if source else []


async def candidate_of(services: Services, kernel: str, kernel_path: str, node_id: str) -> bytes:
    """Return the bytes of the candidate, however it was named.

    Raises:
        RequestError: It was named not once, cannot be read, or holds no code.
        NotFoundError: There is none with this id.
    """
    given = [
        name
        for name, value in (("kernel", kernel), ("kernel_path", kernel_path), ("node_id", node_id))
        if value
    ]
    if len(given) != 1:
        raise RequestError(
            f"{' and '.join(given) or 'No candidate'} {'were' if given else 'was'} given.",
            "Give the candidate as exactly one of kernel (its source text), kernel_path (a file below an allowed "
            "root) and node_id (a candidate_id of an earlier answer).",
        )
    if kernel:
        source = encoded(kernel, "kernel")
    elif kernel_path:
        roots = services.settings.roots
        file = allowed_path(kernel_path, roots)
        source = await anyio.to_thread.run_sync(read_file, file, roots)
    else:
        next_step = "Use the candidate_id of an earlier answer, or send the source as kernel."
        source = await known_candidate(services.store, node_id, next_step)
    refuse_empty(source)
    return source
