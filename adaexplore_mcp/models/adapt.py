"""The Adapt stage: a task to attempt, what became of a kernel, what was learned, and how far it has come."""

from adaexplore_mcp.models.outcomes import Outcome
from adaexplore_mcp.models.rules import RuleView
from adaexplore_mcp.models.values import FiniteFloat, Value

__all__ = ["AdaptReport", "AttemptOutcome", "Learned", "TaskToAttempt", "TensOfTasks"]


class TaskToAttempt(Value):
    """A task in the hands of an agent."""

    summary: str
    next_step: str = ""
    attempt_id: str
    """Handle under which kernels and lessons for it are sent."""
    task_id: str
    name: str = ""
    operators: list[str] = []
    """Of a synthetic task, in the order in which they are applied."""
    instructions: str = ""
    rules: list[RuleView] = []
    """What was learned so far and matters here, best first."""
    text: str = ""
    """The task's source."""


class AttemptOutcome(Outcome):
    """What became of a kernel of an attempt."""

    attempt_id: str = ""
    lesson_wanted: bool = False
    """It failed, and nothing was said yet of what that teaches."""


class Learned(Value):
    """What a lesson went to."""

    summary: str
    next_step: str = ""
    attempt_id: str = ""
    """Empty where it is about a kernel outside of an attempt."""
    candidate_id: str
    """The kernel that it is about: as it was named where it was judged outside of an attempt."""
    rule: RuleView


class TensOfTasks(Value):
    """How kernels did on ten different tasks."""

    tasks: str
    """Which of those tried, in the order in which they were first taken: 1-10."""
    kernels: int = 0
    failing: int = 0
    failing_share: FiniteFloat = None
    """Of the kernels; None without any."""
    first_failing_share: FiniteFloat = None
    """Of the first kernel of each task, whatever attempt it was of: what was known before the task was tried."""


class AdaptReport(Value):
    """What was tried, what was learned."""

    summary: str
    next_step: str = ""
    attempts: int = 0
    """A task can be attempted more than once."""
    tasks_taken: int = 0
    """Different ones, as are those below."""
    tasks_tried: int = 0
    """With one kernel at least."""
    tasks_solved: int = 0
    kernels: int = 0
    lessons: int = 0
    rules: dict[str, int] = {}
    """Number by state."""
    tasks_drawn: int = 0
    """Synthetic ones, of this seed."""
    operators_covered: int = 0
    """In the synthetic tasks that were taken."""
    operators_known: int = 0
    pairs_covered: int = 0
    """Operators that follow each other there."""
    by_tens: list[TensOfTasks] = []
