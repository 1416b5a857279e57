"""Ask which accesses of a candidate leave their tensors at a task's full size, where nobody can compute its numbers."""

import base64
from dataclasses import dataclass, field

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import Finding, counts, findings, texts
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.session import SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["ACCESSES", "Sampled", "sample"]

ACCESSES = frozenset({
    "out_of_bounds_load", "out_of_bounds_store", "out_of_bounds_atomic", "misaligned_access", "gather_index",
})  # fmt: skip
"""Kinds of findings that say where an address is."""
SAMPLE_S = 6.0
GRACE_S = 6.0  # to import and construct it, and for the program that is running when the time is over


@dataclass(frozen=True)
class Sampled:
    """What some programs of each launch showed at full size, on memory that holds nothing.

    Args:
        programs: How many ran, by kernel.
        cut_short: Kernels for which there was too little time.
        accesses: Accesses that left their tensors while whatever is loaded was zero.
        of_values: Kernels and lines of accesses that follow from loaded values: where they lead is not known.
    """

    programs: dict[str, int] = field(default_factory=dict)
    cut_short: list[str] = field(default_factory=list)
    accesses: list[Finding] = field(default_factory=list)
    of_values: frozenset[tuple[str, int]] = frozenset()

    def inside(self, kernel: str, line: int) -> bool:
        """Whether every access of a kernel that was tried lies in its tensor, that of a line whatever values are."""
        tried = self.programs.get(kernel, 0) > 0 and kernel not in self.cut_short
        known = (kernel, line) not in self.of_values
        return tried and known and all(each.kernel != kernel for each in self.accesses)


async def sample(pool: WorkerPool, candidate: Candidate, plan: Plan, *, target: str) -> Sampled | None:
    """Run some programs of a candidate's launches at a workload's full size; None where that showed nothing.

    Args:
        pool: Where its process comes from.
        candidate: What to run.
        plan: The workload.
        target: What to imitate.
    """
    request = {
        "op": "sample",
        "source": base64.b64encode(candidate.source).decode("ascii"),
        "format": candidate.format,
        "entry": candidate.entry,
        "changes": plan.changes,
        "init": plan.init_outline,
        "inputs": plan.inputs_outline,
        "target": target,
        "limit_s": SAMPLE_S,
    }
    try:
        async with pool.session("candidate", "interpret") as session:
            reply = (await session.request(request, timeout_s=SAMPLE_S + GRACE_S)).body
            await session.end()
    except (SessionTimeoutError, SessionEndedError, FrameError):
        return None
    answer = reply.get("ok")
    if not isinstance(answer, dict):
        return None
    accesses = [finding for finding in findings(answer) if finding.kind in ACCESSES]
    of_values = findings({"findings": answer.get("of_values")})
    return Sampled(
        counts(answer, "programs"),
        texts(answer, "cut_short", 120),
        accesses,
        frozenset((each.kernel, each.line) for each in of_values if each.kind in ACCESSES),
    )
