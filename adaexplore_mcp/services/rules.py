"""What failures taught: learns from every failing outcome, and gives out what matters for a task or a kernel."""

from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import Outcome, Review, RulePage, RulesRequest, RuleView

__all__ = ["RuleService"]


class RuleService:
    """The rule memory of one store.

    Args:
        store: Where rules are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def learn(self, outcome: Outcome, source: bytes, agent: str = "") -> Outcome:
        """Learn from a recorded outcome; return it with the rules that it, or its source, touches."""
        raise NotImplementedError

    async def lesson(self, outcome_or_candidate_id: Outcome | str, text: str, agent: str) -> RuleView:
        """Take an agent's wording of what one of its own failures teaches.

        Args:
            outcome_or_candidate_id: The failing attempt.
            text: One sentence that begins "You cannot".
            agent: Label of who asks: that of the attempt.

        Raises:
            NotFoundError: No such attempt.
            RequestError: It did not fail, is someone else's, has its lesson, or the text is none; says which and why.
        """
        raise NotImplementedError

    async def rules_for(self, *, task_id: str = "", limit: int = 20) -> list[RuleView]:
        """Return the rules that matter most for a task, best first, and count them as shown to it."""
        raise NotImplementedError

    async def get(self, request: RulesRequest) -> RulePage:
        """Return the rules that matter for a task, a kernel or a query, best first."""
        raise NotImplementedError

    async def review(self, review: Review) -> RuleView:
        """Do what an agent may do to a rule."""
        raise NotImplementedError
