"""Whose work a result is, seen after a candidate was found right; facts, that change no verdict."""

from collections.abc import Sequence

from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.conversation import Conversation, Decided, NumericsReport
from adaexplore_mcp.evaluation.session import SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Trial
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["WhoseWork"]

STUBBED_FACTOR = 2.0
STUBBED_S = 0.5  # for leaving out one kernel after the other
MOST_STUBBED = 4


class WhoseWork(Conversation):
    """Calls that tell who did the work of those before."""

    async def who_did_the_work(self) -> None:
        """See how long the device works for its own kernels, and whether its outputs rest on them.

        The verdict stands by now. What a call shows in which launches are left out is no fault, so these calls report to
        nobody; only misconduct counts in them too.
        """
        seen = self.seen
        kernels = list(seen.facts.launches)[:MOST_STUBBED]
        trial = self.trials.named(self.weights)[-1]
        groups = [kernels] if kernels else []
        if len(kernels) > 1 and len(kernels) * self.longest_call_s < STUBBED_S:
            groups += [[name] for name in kernels]
        try:
            if not self.interpreted and self._affordable():
                self.seen = NumericsReport(stage="run")
                await self._call(trial, slot=0, timed=True)
                seen.shares = self.seen.facts
            for group in groups:
                if self._affordable() and await self._right_without(group, trial):
                    seen.unused = group
                    break
        except (Decided, SessionEndedError, SessionTimeoutError, DeviceFullError, FrameError):
            pass
        finally:
            if self.seen.integrity.misconduct:
                seen.integrity = self.seen.integrity
            self.seen = seen

    async def _right_without(self, kernels: Sequence[str], trial: Trial) -> bool:
        """Tell whether a call is right although the launches of some kernels do nothing.

        A whole call with other values comes before, so that no workspace still holds what is right for these.
        """
        others = [other for other in self.trials.named(self.weights) if other is not trial]
        if not others:
            return False
        self.seen = NumericsReport(stage="run")
        limit_s = STUBBED_FACTOR * self.longest_call_s + 1.0
        try:
            await self._call(others[0], slot=0, limit_s=limit_s)
            await self._call(trial, slot=0, stubbed=kernels, limit_s=limit_s)
        except Decided:
            if self.seen.integrity.misconduct or (self.seen.failure and self.seen.failure.kind == "device"):
                raise
            return False
        # One that packs weights is launched once, and a name that was cut means no kernel.
        facts = self.seen.facts
        return set(kernels) <= set(facts.launches) and facts.left_out >= len(kernels)
