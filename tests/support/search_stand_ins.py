"""A stand-in that judges and times kernels by one line of their source.

`IS = "correct 1.7"` is right and 1.7 times as fast as the baseline, at least 0.9 of that for certain; `IS = "incorrect"`,
`compile_error`, `unsupported`, … have that status; `IS = "gated"` waits until the test opens the gate; `lost` is our fault.
"""

import re

import anyio
import anyio.lowlevel
from stand_ins import StandInEvaluations, collaborators

from adaexplore_mcp.errors import WorkerLostError
from adaexplore_mcp.models import ErrorExcerpt, Facts, Latency, Outcome, Speedup, Timing
from adaexplore_mcp.services import Services


def kernel(verdict="correct 1.0", *, body="1"):
    return f'IS = "{verdict}"\ndef f(x):\n    return x * {body}\n'


class Judge(StandInEvaluations):
    def __init__(self, store, home, *, times=True):
        super().__init__(store, home)
        self.times = times
        self.judged = []
        self.devices = []
        self.edited = []
        self.rules = []
        self.delay_s = 0.0
        self.efforts = []
        self.final_scale = 1.0
        """By what the last evaluations differ from those within the search."""

    async def benchmark(self, request, report):
        self.efforts.append(request.effort)
        return await self.verify(request, report)

    async def _verify(self, request, report):
        report("judging")
        self.judged.append(request.source)
        self.devices.append(request.device)
        self.edited.append(request.edits)
        said = re.search(rb'IS = "([^"]*)', request.source)
        status, *rest = (said[1].decode() if said else "correct 1.0").split()
        if status == "gated":
            await self.gate.wait()
            status, rest = "correct", rest or ["1.0"]
        if status == "lost":
            raise WorkerLostError("the judge ended")
        await anyio.sleep(self.delay_s)
        outcome = Outcome(summary=f"It is {status}.", status=status, task_id=request.task_id)
        if status == "compile_error":
            error = ErrorExcerpt(type="CompilationError", message="no such name: foo", line=2)
            return outcome.model_copy(update={"error": error, "rules": self.rules})
        if status != "correct":
            return outcome
        own = 0.0 if "library" in rest else 1.0
        update = {"facts": Facts(own_share=own)}
        if self.times:
            speedup = float(rest[0]) if rest else 1.0
            if getattr(request, "effort", "") == "full":
                speedup *= self.final_scale
            share = float(rest[1]) if len(rest) > 1 and rest[1] != "library" else 0.3
            update["timing"] = Timing(
                effort=getattr(request, "effort", "quick"),
                device="stand-in",
                latencies={
                    "base": Latency(
                        median_us=10 / speedup,
                        p25_us=9 / speedup,
                        p75_us=11 / speedup,
                        calls=9,
                        roofline_share=share,
                    )
                },
                speedups=[
                    Speedup(
                        baseline="eager",
                        speedup=speedup,
                        low=0.9 * speedup,
                        high=1.1 * speedup,
                        conclusion="faster",
                    )
                ],
            )
        return outcome.model_copy(update=update)


def services_of(settings, *, times=True):
    def connect(settings, store):
        return collaborators(store, Judge(store, settings.home, times=times))

    return Services(settings, connect)
