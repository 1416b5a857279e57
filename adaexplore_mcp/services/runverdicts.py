"""How a run has its kernels judged, and what of an outcome its search keeps."""

from typing import Any

from adaexplore_mcp.memory_store import FreshNode, RunRecord
from adaexplore_mcp.models import BenchmarkRequest, Outcome, TaskSummary, VerifyRequest
from adaexplore_mcp.search import makes_node
from adaexplore_mcp.services.ports import Evaluations, Report

__all__ = ["fresh_node", "judged"]

NO_WORK = 0.005
"""Share of the work below which a candidate's own kernels count as doing none."""


async def judged(
    evaluations: Evaluations,
    run: RunRecord,
    source: bytes,
    *,
    agent: str,
    last: bool,
    edits: str | None = None,
    report: Report,
) -> Outcome:
    """Judge a kernel for a run, on its GPU if it has one, and time it where that can be done.

    Args:
        evaluations: Who judges.
        run: Whose kernel it is.
        source: The kernel.
        agent: Label of who asks.
        last: Judge it anew, and time it until the interval is narrow: that is what is taken away.
        edits: candidate_id of the kernel that it is an edit of; empty for a new one.
        report: Told what is being done.

    Raises:
        RequestError: This server does not use the run's GPU.
        WorkerError: A worker of ours failed; the kernel is not to blame.
    """
    asked: dict[str, Any] = {
        "task_id": run.task_id,
        "source": source,
        "agent": agent,
        "device": run.device,
        "again": last,
        "edits": edits,
    }
    if not evaluations.times:
        return await evaluations.verify(VerifyRequest.model_validate(asked), report)
    timed = BenchmarkRequest.model_validate(asked | {"effort": "full" if last else "quick"})
    return await evaluations.benchmark(timed, report)


def fresh_node(outcome: Outcome, task: TaskSummary) -> FreshNode | None:
    """Return what an outcome says about the node it makes; None where it makes none."""
    if not makes_node(outcome.status):
        return None
    speedup = low = share = None
    if outcome.timing is not None and outcome.status == "correct":
        if outcome.timing.speedups:
            speedup, low = outcome.timing.speedups[0].speedup, outcome.timing.speedups[0].low
        shares = [latency.roofline_share for latency in outcome.timing.latencies.values()]
        known = [each for each in shares if each is not None]
        share = min(known) if known and len(known) == len(shares) else None
    own = None if outcome.facts is None else outcome.facts.own_share
    eligible = own is None or own >= NO_WORK or task.policy.library_ops == "allow"
    return FreshNode(status=outcome.status, speedup=speedup, low=low, eligible=eligible, roofline_share=share)
