"""What the tools need from the domains: the seams at which tests put stand-ins."""

from typing import TYPE_CHECKING, Protocol

from adaexplore_mcp.models import (
    BenchmarkRequest,
    Check,
    Device,
    Outcome,
    Profile,
    Question,
    RegisterRequest,
    Review,
    RulePage,
    RulesRequest,
    RuleView,
    TaskPage,
    TaskSummary,
    VerifyRequest,
)

if TYPE_CHECKING:
    from adaexplore_mcp.evaluation.synthesis import Siblings
    from adaexplore_mcp.evaluation.synthesizer import Drawn, Operators

__all__ = ["Evaluations", "Notify", "Report", "Rules", "Synthesis", "Tasks"]


class Report(Protocol):
    """Says what an evaluation does now; called from the event loop, never waits."""

    def __call__(self, stage: str, /) -> None:
        """Take a few words such as `compiling add_kernel (2 of 5)`."""


class Notify(Protocol):
    """Tells the caller of a tool how far it is."""

    async def __call__(self, progress: float, message: str, /) -> None:
        """Send one progress notification; `progress` must be larger than the last."""


class Tasks(Protocol):
    """The tasks that candidates can be judged against."""

    async def register(self, request: RegisterRequest, report: Report) -> TaskSummary:
        """Load, examine and keep a task; equal content and policy give the same id.

        Raises:
            TaskError: It is not a task; says why.
        """
        ...

    async def list(self, query: str, limit: int, cursor: str) -> TaskPage:
        """Return registered and built-in tasks.

        Args:
            query: Words of which each must occur in the id, name or description; empty for all.
            limit: Most tasks to return.
            cursor: `next_cursor` of the page before; empty for the first.

        Raises:
            NotFoundError: The cursor is not one of ours.
        """
        ...

    async def get(self, task_id: str) -> TaskSummary:
        """Return one task.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
        """
        ...

    async def kept(self, task_id: str) -> TaskSummary:
        """Return one task once it is in the database, so that what is kept may name it; a built-in one that nobody has used is not.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
        """
        ...

    async def source(self, task_id: str) -> str:
        """Return a task's contract and source, to be read.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
        """
        ...


class Evaluations(Protocol):
    """The judge of candidates, and the machine it works on."""

    async def verify(self, request: VerifyRequest, report: Report) -> Outcome:
        """Judge one candidate and keep the outcome with its receipt and artifacts.

        A cancelled call ends every process that works on it before it returns.

        Raises:
            NotFoundError: There is no such task.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        ...

    @property
    def times(self) -> bool:
        """Whether candidates can be timed here."""
        ...

    def place(self, pinned: str) -> str:
        """Say in a few words where candidates are judged.

        Args:
            pinned: UUID of the only GPU that is used; empty for any.
        """
        ...

    def gpu(self, pinned: str) -> str:
        """Return the UUID of the GPU that a label, an index or a UUID means.

        Raises:
            RequestError: There is no such GPU, or none at all.
        """
        ...

    async def benchmark(self, request: BenchmarkRequest, report: Report) -> Outcome:
        """Judge one candidate and, once it is right, time it against baselines; keep the outcome as `verify` does.

        Raises:
            NotFoundError: There is no such task or node.
            RequestError: There is no such baseline, or the task has none.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        ...

    async def profile(
        self, request: VerifyRequest, workload: str, report: Report, against: str = ""
    ) -> Profile:
        """Say what holds one candidate back at one workload.

        Args:
            request: The candidate; its source is kept, and what a profiler said of it.
            workload: Its name; empty for the first.
            report: Told what is being done.
            against: own, or an id of the candidate to compare it with; empty for none.

        Raises:
            NotFoundError: There is no such task, workload or candidate.
            RequestError: The task has no kernel of its owner's.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        ...

    async def device(self) -> Device:
        """Say what this machine can judge, and what it cannot."""
        ...

    async def checks(self) -> list[Check]:
        """Examine the installation for the doctor: interpreter, torch, triton, GPU, isolation, one real run."""
        ...

    async def release_idle(self, after_s: float) -> None:
        """End worker processes that have not been used for `after_s` seconds; the next use starts them again."""

    def shutdown_now(self) -> None:
        """End every process of ours at once; called from a signal handler, must not wait."""

    async def aclose(self) -> None:
        """End every process of ours and remove what they left."""


class Reviews(Protocol):
    """Changes to rules."""

    async def review(self, review: Review) -> RuleView:
        """Do what an agent may do to a rule: reword, merge, propose to retire or to confirm.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        ...

    async def question(self, review: Review) -> Question | None:
        """Return what a person is to be asked about a change before it is made; None where none has to decide.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made; says why.
        """
        ...

    async def answered(self, review: Review, question: Question, *, agreed: bool, who: str) -> RuleView:
        """Do what an agent proposes and a person was asked about; keep the proposal and the decision.

        Args:
            review: What is proposed.
            question: What the person was asked.
            agreed: What the person answered.
            who: Label of the person.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: The change cannot be made, or the rule is not what the person was asked about any more.
        """
        ...

    async def decide(self, rule_id: str, action: str, who: str) -> RuleView:
        """Do what only a person may do: confirm or retire a rule, accept or decline what an agent proposed.

        Raises:
            NotFoundError: There is no such rule.
            RequestError: There is nothing proposed.
        """
        ...


class RuleChecks(Protocol):
    """Rules checked by their probes."""

    async def probe_if_due(self) -> None:
        """Run the probes where another Triton was seen; what fails is logged."""


class Rules(Protocol):
    """What failures taught."""

    @property
    def reviews(self) -> Reviews:
        """Changes to them."""
        ...

    @property
    def checks(self) -> RuleChecks:
        """Their probes."""
        ...

    async def get(self, request: RulesRequest) -> RulePage:
        """Return the rules that matter for a task, a kernel or a query, best first.

        Raises:
            NotFoundError: There is no such task.
        """
        ...

    async def rules_for(self, *, task_id: str = "", limit: int = 20) -> list[RuleView]:
        """Return the rules that matter most for a task, best first, and count them as shown to it."""
        ...

    async def warnings(self, source: bytes) -> list[str]:
        """Return what the source of a candidate shows that a rule says cannot be done; see `RuleService.warnings`."""
        ...

    async def lesson(
        self, outcome_or_candidate_id: Outcome | str, text: str, agent: str, *, task_id: str = ""
    ) -> RuleView:
        """Take an agent's wording of what one of its own failures teaches.

        Raises:
            NotFoundError: No such attempt.
            RequestError: It did not fail, is someone else's, has its lesson, or the text is none; says which and why.
        """
        ...

    async def teaches(self, candidate_id: str, task_id: str) -> bool:
        """Tell whether a candidate failed on a task in a way that teaches, and has no lesson for that yet."""
        ...


class Synthesis(Protocol):
    """Draws synthetic tasks."""

    async def operators(self) -> "Operators":
        """Return the operators of the installed torch.

        Raises:
            WorkerError: No worker can be had.
        """
        ...

    async def version(self) -> str:
        """Return what decides which operators there are.

        Raises:
            WorkerError: No worker can be had.
        """
        ...

    def use(self, operators: "Operators") -> None:
        """Take operators that were found before by the same version."""

    async def draw(self, seed: int, first: int, siblings: "Siblings", wanted: int) -> "Drawn":
        """Draw tasks that follow a draft, until there are as many as wanted.

        Raises:
            WorkerError: No worker can be had.
        """
        ...
