"""Compose the domains into what a caller asks for; the only place where they meet."""

from adaexplore_mcp.services.container import Collaborators, Connect, Services
from adaexplore_mcp.services.jobs import Call, JobService
from adaexplore_mcp.services.ports import Evaluations, Notify, Report, Rules, Tasks

__all__ = [
    "Call",
    "Collaborators",
    "Connect",
    "Evaluations",
    "JobService",
    "Notify",
    "Report",
    "Rules",
    "Services",
    "Tasks",
]
