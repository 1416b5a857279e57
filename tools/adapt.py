"""Drive the Adapt stage."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import AttemptOutcome, JobView, TaskToAttempt, VerifyRequest
from adaexplore_mcp.services import Call, Report
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.tools.answers import OutcomeAnswer, answer
from adaexplore_mcp.tools.evaluate import candidate_of, warnings_of
from adaexplore_mcp.tools.parameters import (
    DEFAULT_WAIT_S,
    MAX_TEXT,
    Ctx,
    Format,
    Wait,
    notifier,
    services_of,
    wait_of,
)

__all__ = ["adapt_on_task"]

TOOL = "adapt_on_task"


async def adapt_on_task(
    ctx: Ctx,
    *,
    task_id: Annotated[str, Field(description="Default: a synthetic task.")] = "",
    attempt_id: Annotated[str, Field(description="To go on: with a kernel, or a lesson.")] = "",
    kernel: Annotated[str, Field(max_length=MAX_TEXT)] = "",
    kernel_path: str = "",
    node_id: str = "",
    lesson: Annotated[
        str, Field(max_length=2000, description="What its latest failure, or node_id, teaches: You cannot …")
    ] = "",
    report: Annotated[bool, Field(description="What was tried and learned.")] = False,
    seed: Annotated[int, Field(ge=0, le=9999, description="Of synthetic tasks.")] = 0,
    wait_seconds: Wait = DEFAULT_WAIT_S,
    agent: Annotated[str, Field(max_length=80)] = "",
    response_format: Format = "concise",
) -> OutcomeAnswer:
    """Practise: get a task with the rules learned so far, send kernels for it, say what failures teach."""
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    sent = {"kernel": kernel, "kernel_path": kernel_path, "node_id": node_id, "lesson": lesson}
    given = [name for name, value in sent.items() if value]
    _check(given, task_id=task_id, attempt_id=attempt_id, report=report)
    if report:
        return answer((await services.adapt.report(seed)).to_wire(), response_format)
    if lesson and not attempt_id:
        return answer((await services.adapt.lesson_of(node_id, lesson, agent)).to_wire(), response_format)
    if attempt_id:
        attempt = await services.adapt.check(attempt_id, agent)
        if lesson:
            return answer((await services.adapt.lesson(attempt, lesson)).to_wire(), response_format)
        source = await candidate_of(services, kernel, kernel_path, node_id)
        request = VerifyRequest(task_id=attempt.task_id, source=source, agent=agent)
    elif task_id:
        await services.tasks.get(task_id)

    async def work(report: Report) -> AttemptOutcome | TaskToAttempt:
        if attempt_id:
            return await services.adapt.submit(attempt, request, report)
        return await services.adapt.take(agent, report, task_id=task_id, seed=seed)

    again = {"attempt_id": attempt_id, "task_id": task_id, "agent": agent, "seed": seed}
    result: AttemptOutcome | TaskToAttempt | JobView = await services.jobs.run(
        Call(
            TOOL,
            {name: value for name, value in again.items() if value},
            source if attempt_id else None,
            await warnings_of(services, source) if attempt_id else (),
        ),
        work,
        wait_s=wait_s,
        notify=notifier(ctx),
    )
    return answer(result.to_wire(), response_format)


def _check(given: Sequence[str], *, task_id: str, attempt_id: str, report: bool) -> None:
    """Refuse arguments that do not go together.

    Raises:
        RequestError: Names them.
    """
    if report and (given or task_id or attempt_id):
        names = [*given, *(["task_id"] if task_id else []), *(["attempt_id"] if attempt_id else [])]
        raise RequestError(
            f"report was given with {' and '.join(names)}.", "A report takes nothing but seed."
        )
    if task_id and attempt_id:
        raise RequestError(
            f"Both task_id and attempt_id {shortened(attempt_id)} were given.",
            "Give task_id to begin an attempt, attempt_id to go on with one.",
        )
    if given == ["node_id", "lesson"] and not (attempt_id or task_id):
        return
    if given and not attempt_id:
        raise RequestError(
            f"{' and '.join(given)} came without attempt_id.",
            "Call adapt_on_task without them to get a task and its attempt_id; compile_and_verify judges kernels outside of it, "
            "and lesson with the node_id of one is kept.",
        )
    if attempt_id and not given:
        raise RequestError(
            f"attempt_id {shortened(attempt_id)} came alone.",
            "Give kernel, kernel_path or lesson with it, or nothing at all for the next task.",
        )
    if len(given) > 1:
        raise RequestError(
            f"{' and '.join(given)} were given.",
            "Send a kernel first, what its failure teaches in a call of its own.",
        )
