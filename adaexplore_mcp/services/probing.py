"""Run probes: minimal kernels that must fail as a rule says, compiled for a target without a GPU."""

from collections.abc import Sequence

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Compilation, CompileReport
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.trials import Attachment
from adaexplore_mcp.models import Policy
from adaexplore_mcp.rules import PRESENT, PROBE_ENTRY, Observation, fingerprint_of, names_probe

__all__ = ["Prober"]

TIMEOUT_S = 30.0
_NOTHING = {
    "tree": {"$": "dict", "v": [["args", []], ["kwargs", {"$": "dict", "v": []}]]},
    "table": [],
    "storages": [],
    "size": 0,
}
_VECTOR = {
    "tree": {"$": "dict", "v": [["args", [{"$": "tensor", "v": 0}]], ["kwargs", {"$": "dict", "v": []}]]},
    "table": [
        {"path": "['args'][0]", "dtype": "float32", "shape": [128], "stride": [1], "offset": 0, "storage": 0}
    ],
    "storages": [(0, 512)],
    "size": 4096,
}
"""One float32 vector of 128 elements, as `workers.tensors.outline` describes it."""


class Prober:
    """Compiles probes in the workers that compile candidates.

    Args:
        pool: Where processes come from.
        target: What to compile for.
    """

    def __init__(self, pool: WorkerPool, target: str) -> None:
        self._pool = pool
        self._target = target

    async def triton(self) -> str:
        """Return the version of Triton that the workers use.

        Raises:
            WorkerError: They cannot be started.
        """
        return str((await self._pool.workers()).versions.get("triton", ""))

    async def fails_as(self, probe: str) -> str | None:
        """Return the fingerprint with which a probe fails, the empty string where it compiles, None where nothing is known.

        Raises:
            WorkerError: A worker of ours failed.
        """
        report = await self._compiled(probe)
        if report.compiled:
            return ""
        failure = report.failure
        if failure is None:
            return None
        launched = failure.kind == "language" and failure.type in {"TypeError", "KeyError", "AssertionError"}
        stage = (
            "launch" if launched else "compile" if failure.kernel or failure.kind == "resources" else "run"
        )
        found = fingerprint_of(
            Observation(
                stage=stage,
                type=failure.type,
                message=failure.message,
                source=failure.source,
                kernel=failure.kernel,
            )
        )
        return found.key if found is not None else None

    async def present(self, names: Sequence[str]) -> set[str]:
        """Return those of some names that exist in triton.language.

        Raises:
            WorkerError: A worker of ours failed.
        """
        asked = [name for name in names if all(part.isidentifier() for part in name.split("."))]
        report = await self._compiled(names_probe(asked))
        said = report.failure.message if report.failure is not None else ""
        return set(said.partition(PRESENT)[2].split(",")) & set(asked) if PRESENT in said else set()

    async def _compiled(self, probe: str) -> CompileReport:
        compilation = Compilation(
            self._pool,
            Candidate(probe.encode(), "function", PROBE_ENTRY, Policy()),
            target=self._target,
            timeout_s=TIMEOUT_S,
            report=lambda _: None,
        )
        try:
            return await compilation.run(
                changes=[], init=Attachment(_NOTHING, None), inputs=Attachment(_VECTOR, None), fake=True
            )
        finally:
            await compilation.close()
