"""Say where a job stands, in words that tell the reader what to do next."""

import json
from collections.abc import Mapping
from typing import Any

from adaexplore_mcp.memory_store import JobRecord
from adaexplore_mcp.models import JobView

__all__ = ["view_of"]


def view_of(job: JobRecord) -> JobView:
    """Return the view of a job as its row tells it."""
    seconds = job.progress
    took = f"after {seconds:.0f} s"
    match job.status:
        case "running":
            summary = f"{job.tool} has been running for {seconds:.0f} s: {job.stage}."
            next_step = f"Call job_status with job_id {job.job_id!r} to wait for its end."
        case "done":
            summary = f"{job.tool} ended {took}. {job.result.get('summary', '')}".strip()
            next_step = str(job.result.get("next_step", ""))
        case "failed":
            summary = f"{job.tool} failed {took}: {job.problem}"
            next_step = job.next_step
        case "cancelled":
            summary = f"{job.tool} was cancelled {took}. {job.problem}".strip()
            next_step = job.next_step or f"To ask again: {_again(job)}"
        case "interrupted":
            summary = f"The server that ran {job.tool} ended before it had a result, {took}."
            next_step = f"Ask again: {_again(job)}"
    return JobView(
        summary=summary,
        next_step=next_step,
        status=job.status,
        job_id=job.job_id,
        tool=job.tool,
        about=_about(job.arguments),
        stage=job.stage,
        elapsed_seconds=round(seconds, 1),
        result=dict(job.result),
    )


def _about(arguments: Mapping[str, Any]) -> str:
    """Say in a few words what a job's arguments ask for."""
    named = (arguments.get(name) for name in ("task_id", "name", "entry", "node_id", "run_id", "step_id"))
    return " ".join(str(each) for each in named if each)[:200]


def _again(job: JobRecord) -> str:
    """Write the call that asks for a job's evaluation again."""
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in job.arguments.items())
    return f"{job.tool}({arguments})."
