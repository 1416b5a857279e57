"""Make the domains that the tools work with."""

from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.services.container import Collaborators
from adaexplore_mcp.services.evaluation import EvaluationService
from adaexplore_mcp.services.tasks import TaskService
from adaexplore_mcp.settings import Settings

__all__ = ["connect"]


def connect(settings: Settings, store: Store) -> Collaborators:
    """Return the services of this process; no worker is started before the first use."""
    memory_bytes = settings.memory_limit_mib << 20
    pool = WorkerPool(settings.worker_python, settings.scratch, memory_bytes)
    evaluator = Evaluator(pool, settings.target, memory_bytes)
    tasks = TaskService(store, evaluator)
    return Collaborators(tasks, EvaluationService(settings, store, tasks, evaluator))
