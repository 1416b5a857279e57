"""What is decided about a candidate, and the decisions that follow from how its code or its process ended."""

from dataclasses import dataclass

from adaexplore_mcp.evaluation.claims import Failure, quoted
from adaexplore_mcp.evaluation.reporting import brief, excerpt
from adaexplore_mcp.evaluation.session import EndReport
from adaexplore_mcp.evaluation.wording import fix
from adaexplore_mcp.models import ErrorExcerpt, Evidence, Stage, Status

__all__ = ["Decision", "doing", "of_end", "of_exception", "of_fault", "stage_of"]


HARNESS_FAILED = 70
"""Exit code of a process whose harness could not go on, as `workers.stub` gives it."""
STAGES: dict[str, Stage] = {"load": "load", "construct": "construct", "run": "run", "done": "done"}


@dataclass
class Decision:
    """Status, reason and advice; fields as in `models.Outcome`."""

    status: Status
    stage: Stage
    summary: str
    next_step: str
    check: str = ""
    reason: str = ""
    error: ErrorExcerpt | None = None
    evidence: Evidence | None = None


FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        "illegal_memory_access",
        "Mask the access: every lane must lie inside its tensor.",
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": ("misaligned_address", "Align the address to the width of the access."),
    "CUDA_ERROR_ASSERT": ("device_assert", "Look at the condition of the assert: it was false."),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": ("illegal_instruction", "Look at inline assembly and traps."),
    "CUDA_ERROR_LAUNCH_FAILED": ("launch_failed", "Look for accesses outside of memory, and traps."),
}
"""By name of the driver's error: the check, and what to do."""


def of_fault(failure: Failure) -> Decision:
    """Decide about a candidate that broke its CUDA context."""
    check, next_step = FAULTS.get(
        failure.type, ("device_fault", "Look at the kernel that was launched last.")
    )
    kernel = f" in kernel {failure.kernel}" if failure.kernel else ""
    return Decision(
        "crashed",
        stage_of(failure.phase),
        f"Crashed{kernel}: {brief(failure)} ({doing(failure.phase)}).",
        next_step,
        check=check,
        error=excerpt(failure),
    )


def of_exception(failure: Failure) -> Decision:
    """Decide about a candidate whose code raised."""
    stage = stage_of(failure.phase)
    error = excerpt(failure)
    match failure.kind:
        case "exit":
            return Decision(
                "crashed",
                stage,
                f"The candidate ended its process: {quoted(failure.message)} ({doing(stage)}).",
                "Remove the exit and submit again.",
                check="exit",
                error=error,
            )
        case "memory":
            return Decision(
                "out_of_memory",
                stage,
                f"Out of memory ({doing(stage)}): {brief(failure)}.",
                "Allocate less; sizes are in the error.",
                check="memory",
                error=error,
            )
        case "no_space":
            return Decision(
                "unsupported",
                stage,
                f"Cannot be judged now: the disk of the scratch folder is full ({brief(failure)}).",
                "Free some space, or start the server with --scratch on another disk, and submit again.",
                reason="disk_full",
            )
        case "no_room":
            return Decision(
                "out_of_memory",
                stage,
                f"Out of memory before the candidate ran: {failure.message}.",
                "Free memory of the GPU, use another device, or register smaller sizes. The candidate is not to blame.",
                check="memory",
            )
        case "deadlock":
            kernel = f" {failure.kernel}" if failure.kernel else ""
            return Decision(
                "timeout",
                stage,
                f"Timeout: kernel{kernel} never ends: {quoted(failure.message)} ({doing(stage)}).",
                "Look at what the loop waits for, and at who writes it when; programs may wait for what others write before they "
                "wait themselves.",
                check="deadline",
                error=error,
            )
        case "not_here":
            return Decision(
                "unsupported",
                stage,
                f"Cannot be judged here: {quoted(failure.message)}.",
                "Leave it out, or check it on a GPU yourself.",
                reason="needs_gpu",
                error=error,
            )
    return Decision(
        "runtime_error",
        stage,
        f"The candidate raised {brief(failure)} ({doing(stage)}).",
        fix(failure),
        error=error,
    )


def of_end(report: EndReport, stage: Stage) -> Decision:
    """Decide about a candidate whose process ended before it answered."""
    if report.reason == "processes":
        return Decision(
            "rejected",
            stage,
            f"Rejected: it started hundreds of processes ({doing(stage)}). A kernel that does this cannot be measured.",
            "Remove it and submit again.",
            check="process_started",
        )
    if report.reason == "memory":
        return Decision(
            "out_of_memory",
            stage,
            f"Out of memory: the candidate, its children and its files took {_size(report)} ({doing(stage)}).",
            "Allocate less, write fewer files, and submit again.",
            check="memory",
        )
    how = f"by {report.signal}" if report.signal else f"with exit code {report.exit_code}"
    next_step = "Look for an access outside of memory, an abort or an exit in the candidate."
    if report.signal == "SIGKILL":
        next_step = (
            "No access to memory ends a process so: something outside did, such as a machine that ran short of memory. "
            "Submit it again."
        )
    message = _last_words(report)
    if report.exit_code == HARNESS_FAILED:
        message = report.last_line  # what is above is our own
        next_step = "Look for an exit, and for what the candidate changes of its process: limits, descriptors, modules."
    return Decision(
        "crashed",
        stage,
        f"The candidate's process ended {how} before it gave a result ({doing(stage)}).",
        next_step,
        check="signal" if report.signal else "exit",
        error=ErrorExcerpt(type=report.signal or f"exit {report.exit_code}", message=message),
    )


def stage_of(name: str) -> Stage:
    """Return the stage that a process names, or run."""
    return STAGES.get(name, "run")


def doing(stage: str) -> str:
    """Say in words what a candidate was doing in a stage."""
    doing = {
        "load": "while it was imported",
        "construct": "in its constructor",
        "compile": "while it was compiled",
    }
    return doing.get(stage, "while it was called")


def _size(report: EndReport) -> str:
    return f"{report.peak_bytes >> 20} MiB" if report.peak_bytes < 1 << 60 else "more than can be counted"


def _last_words(report: EndReport) -> str:
    text = str(report.stderr.get("tail") or report.stderr.get("head") or "")
    return text.strip()[-600:]
