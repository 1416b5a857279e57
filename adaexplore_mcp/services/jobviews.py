"""Say where a job stands, in words that tell the reader what to do next."""

import json
import logging
import secrets

from adaexplore_mcp.errors import AdaExploreError, RequestError, StoreError
from adaexplore_mcp.memory_store import JobRecord
from adaexplore_mcp.models import JobView

__all__ = ["failure_of", "view_of"]

logger = logging.getLogger(__name__)


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
            summary, next_step = f"{job.tool} was cancelled {took}.", f"To ask again: {_again(job)}"
        case "interrupted":
            summary = f"The server that ran {job.tool} ended before it had a result, {took}."
            next_step = f"Ask again: {_again(job)}"
    return JobView(
        summary=summary,
        next_step=next_step,
        status=job.status,
        job_id=job.job_id,
        tool=job.tool,
        stage=job.stage,
        elapsed_seconds=round(seconds, 1),
        result=dict(job.result),
    )


def failure_of(error: Exception, tool: str) -> tuple[str, str]:
    """Say what went wrong, and the next step, of whatever was raised while a tool was served.

    What was not raised on purpose is logged with its traceback under an id that the text names.
    """
    match error:
        case RequestError(problem=problem, next_step=next_step):
            return problem, next_step
        case StoreError():
            return str(error), "Then call again; nothing was recorded."
        case AdaExploreError():
            text = str(error).rstrip(".")
            return f"{tool} failed on the server's side: {text}. Nobody's kernel is to blame.", "Call again."
    incident = secrets.token_hex(4)
    logger.error("incident %s while serving %s", incident, tool, exc_info=error)
    return (
        f"{tool} failed on the server's side (incident {incident}). Nobody's kernel is to blame.",
        "Call again; if it recurs, report the incident with the server's log.",
    )


def _again(job: JobRecord) -> str:
    """Write the call that asks for a job's evaluation again."""
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in job.arguments.items())
    return f"{job.tool}({arguments})."
