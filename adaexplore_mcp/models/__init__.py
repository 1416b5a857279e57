"""Values that cross the boundary: what callers send, what tools answer, what the store keeps.

Frozen pydantic models that refuse unknown fields. A field that does not apply keeps its empty default and is left
out on the wire, so an answer costs no tokens for what it does not say. No float is ever NaN or infinite: such a value
becomes None.
"""

from adaexplore_mcp.models.jobs import JobPage, JobView
from adaexplore_mcp.models.machine import Check, Device, DeviceState
from adaexplore_mcp.models.outcomes import (
    ArtifactPage,
    ArtifactRef,
    BenchmarkRequest,
    CompiledKernel,
    ErrorExcerpt,
    Evidence,
    Facts,
    Outcome,
    PrecisionClass,
    Scope,
    Stage,
    Status,
    Target,
    VerifyRequest,
)
from adaexplore_mcp.models.rules import (
    Review,
    ReviewAction,
    RuleFix,
    RulePage,
    RulesRequest,
    RuleState,
    RuleView,
)
from adaexplore_mcp.models.tasks import (
    Domain,
    LibraryOps,
    Policy,
    Precision,
    RegisterRequest,
    RewardBaseline,
    SizeRange,
    TaskFormat,
    TaskPage,
    TaskSummary,
    TensorSpec,
    Workload,
    WorkloadReport,
)
from adaexplore_mcp.models.timing import Clock, Conclusion, Effort, Latency, Speedup, Timing, WorkloadSpeedup
from adaexplore_mcp.models.values import FiniteFloat, Parameter, Value, json_safe

__all__ = [
    "ArtifactPage",
    "ArtifactRef",
    "BenchmarkRequest",
    "Check",
    "Clock",
    "CompiledKernel",
    "Conclusion",
    "Device",
    "DeviceState",
    "Domain",
    "Effort",
    "ErrorExcerpt",
    "Evidence",
    "Facts",
    "FiniteFloat",
    "JobPage",
    "JobView",
    "Latency",
    "LibraryOps",
    "Outcome",
    "Parameter",
    "Policy",
    "Precision",
    "PrecisionClass",
    "RegisterRequest",
    "Review",
    "ReviewAction",
    "RewardBaseline",
    "RuleFix",
    "RulePage",
    "RuleState",
    "RuleView",
    "RulesRequest",
    "Scope",
    "SizeRange",
    "Speedup",
    "Stage",
    "Status",
    "Target",
    "TaskFormat",
    "TaskPage",
    "TaskSummary",
    "TensorSpec",
    "Timing",
    "Value",
    "VerifyRequest",
    "Workload",
    "WorkloadReport",
    "WorkloadSpeedup",
    "json_safe",
]
