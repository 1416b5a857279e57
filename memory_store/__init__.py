"""Everything the product remembers, in one SQLite file; nothing else knows SQL."""

from pathlib import Path

from adaexplore_mcp.memory_store.adapt import (
    AdaptTable,
    AttemptKernel,
    AttemptRecord,
    Campaign,
    SyntheticRecord,
)
from adaexplore_mcp.memory_store.ceilings import CeilingTable
from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.evaluations import EvaluationTable, candidate_id_of
from adaexplore_mcp.memory_store.handles import content_handle, new_handle
from adaexplore_mcp.memory_store.jobs import JobTable
from adaexplore_mcp.memory_store.records import (
    ArtifactRecord,
    JobRecord,
    JobStatus,
    Owner,
    ReceiptRecord,
    TaskRecord,
)
from adaexplore_mcp.memory_store.rulerecords import (
    Change,
    Failing,
    Merge,
    NewRule,
    Outlook,
    RuleBrief,
    RuleDetails,
    RuleRecord,
    SpeedChange,
)
from adaexplore_mcp.memory_store.rules import RuleTable
from adaexplore_mcp.memory_store.runrecords import (
    FreshNode,
    NodeRecord,
    RunRecord,
    StepRecord,
    TreeRow,
    node_handle,
    read_node_handle,
)
from adaexplore_mcp.memory_store.runs import Claim, RunState, RunTable, Submission, Submitted
from adaexplore_mcp.memory_store.tasks import TaskTable

__all__ = [
    "AdaptTable",
    "ArtifactRecord",
    "AttemptKernel",
    "AttemptRecord",
    "Campaign",
    "CeilingTable",
    "Change",
    "Claim",
    "EvaluationTable",
    "Failing",
    "FreshNode",
    "JobRecord",
    "JobStatus",
    "JobTable",
    "Merge",
    "NewRule",
    "NodeRecord",
    "Outlook",
    "Owner",
    "ReceiptRecord",
    "RuleBrief",
    "RuleDetails",
    "RuleRecord",
    "RuleTable",
    "RunRecord",
    "RunState",
    "RunTable",
    "SpeedChange",
    "StepRecord",
    "Store",
    "Submission",
    "Submitted",
    "SyntheticRecord",
    "TaskRecord",
    "TaskTable",
    "TreeRow",
    "candidate_id_of",
    "content_handle",
    "new_handle",
    "node_handle",
    "read_node_handle",
]


class Store:
    """The tables of one database file; nothing is opened before the first use.

    Args:
        path: The SQLite file; made, with its folder, where it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path)
        self.tasks = TaskTable(self._database)
        self.evaluations = EvaluationTable(self._database)
        self.jobs = JobTable(self._database)
        self.ceilings = CeilingTable(self._database)
        self.runs = RunTable(self._database)
        self.rules = RuleTable(self._database)
        self.adapt = AdaptTable(self._database)

    async def check(self) -> str:
        """Open the database, look for damage, and say how much it holds.

        Raises:
            StoreError: It cannot be used; says what to do.
        """
        return await self._database.check()

    async def aclose(self) -> None:
        """Close the file; a later use opens it again."""
        await self._database.aclose()
