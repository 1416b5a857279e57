"""Judge a candidate, time it, and say what holds it back."""

from typing import Annotated, Any, Literal

import anyio.to_thread
from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import BenchmarkRequest, Effort, JobView, Outcome, Profile, Target, VerifyRequest
from adaexplore_mcp.services import Call, Report, Services
from adaexplore_mcp.services.files import allowed_path, read_file
from adaexplore_mcp.services.messages import not_found
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

__all__ = ["benchmark_kernel", "candidate_of", "compile_and_verify", "profile_kernel"]

Kernel = Annotated[
    str,
    Field(max_length=MAX_TEXT, description="Source text. Give exactly one of kernel, kernel_path, node_id."),
]
KernelPath = Annotated[str, Field(description="File below an allowed root.")]
Node = Annotated[str, Field(description="candidate_id from an earlier answer.")]
Device = Annotated[str, Field(max_length=80, description="cuda:0, …; cpu: no GPU.")]
TimeLimit = Annotated[float, Field(ge=1, le=600, description="Per stage.")]
TIME_LIMIT_S, BENCHMARK_LIMIT_S = 60.0, 120.0


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
    )

    async def verify(report: Report) -> Outcome:
        return await services.evaluations.verify(request, report)

    again: dict[str, str | float] = {
        "task_id": task_id,
        "target": target,
        "device": device,
        "agent": agent,
    }
    if timeout_seconds != TIME_LIMIT_S:
        again["timeout_seconds"] = timeout_seconds
    result: Outcome | JobView = await services.jobs.run(
        Call("compile_and_verify", {key: value for key, value in again.items() if value}, source),
        verify,
        wait_s=wait_s,
        notify=notifier(ctx),
    )
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
    response_format: Format = "concise",
) -> OutcomeAnswer:
    """Judge a candidate as compile_and_verify does and, if it is right, time it: is it faster, and by how much?

    Needs a GPU. Gives timing: speedups with 95 % intervals, latencies, share of the roofline.
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
    )

    async def benchmark(report: Report) -> Outcome:
        return await services.evaluations.benchmark(request, report)

    again: dict[str, Any] = {
        "task_id": task_id,
        "device": device,
        "agent": agent,
        "baselines": baselines,
    }
    if timeout_seconds != BENCHMARK_LIMIT_S:
        again["timeout_seconds"] = timeout_seconds
    if effort != "quick":
        again["effort"] = effort
    result: Outcome | JobView = await services.jobs.run(
        Call("benchmark_kernel", {key: value for key, value in again.items() if value}, source),
        benchmark,
        wait_s=wait_s,
        notify=notifier(ctx),
    )
    return answer(result.to_wire(), response_format)


async def profile_kernel(
    ctx: Ctx,
    *,
    task_id: str,
    kernel: Kernel = "",
    kernel_path: KernelPath = "",
    node_id: Node = "",
    workload: Annotated[str, Field(max_length=80, description="Default: the first.")] = "",
    target: Annotated[Literal["", Target], Field(description="GPU to compile for, without one.")] = "",
    timeout_seconds: TimeLimit = TIME_LIMIT_S,
    wait_seconds: Wait = DEFAULT_WAIT_S,
    agent: Annotated[str, Field(max_length=80)] = "",
    response_format: Format = "concise",
) -> JobAnswer:
    """Say what holds a kernel back: three causes at most, each with its evidence, how that is known, and a remedy.

    Reads compiled code and launches; judges nothing.
    """
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    source = await candidate_of(services, kernel, kernel_path, node_id)
    await services.tasks.get(task_id)
    request = VerifyRequest(
        task_id=task_id, source=source, target=target, timeout_s=timeout_seconds, agent=agent
    )

    async def profile(report: Report) -> Profile:
        return await services.evaluations.profile(request, workload, report)

    again: dict[str, str | float] = {
        "task_id": task_id,
        "workload": workload,
        "target": target,
        "agent": agent,
    }
    if timeout_seconds != TIME_LIMIT_S:
        again["timeout_seconds"] = timeout_seconds
    result: Profile | JobView = await services.jobs.run(
        Call("profile_kernel", {key: value for key, value in again.items() if value}, source),
        profile,
        wait_s=wait_s,
        notify=notifier(ctx),
    )
    return answer(result.to_wire(), response_format)


async def candidate_of(services: Services, kernel: str, kernel_path: str, node_id: str) -> bytes:
    """Return the bytes of the candidate, however it was named.

    Raises:
        RequestError: It was named not once, or cannot be read.
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
        return encoded(kernel, "kernel")
    if kernel_path:
        roots = services.settings.roots
        file = allowed_path(kernel_path, roots)
        return await anyio.to_thread.run_sync(read_file, file, roots)
    source = await services.store.evaluations.candidate(node_id)
    if source is None:
        latest = await services.store.evaluations.ids("candidate")
        next_step = "Use the candidate_id of an earlier answer, or send the source as kernel."
        raise not_found("candidate", node_id, latest, next_step)
    return source
