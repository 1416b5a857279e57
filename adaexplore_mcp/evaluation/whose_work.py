"""Whose work a result is, and of which call, seen after a candidate was found right.

These are facts, that change no verdict, but for one: what is right without launches for values that a process has seen, and
wrong without them for values that it has not, is a result that was kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.conversation import Conversation, Decided, NumericsReport, same_layout
from adaexplore_mcp.evaluation.session import SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Trial, Weights
from adaexplore_mcp.evaluation.wire import FrameError
from adaexplore_mcp.evaluation.workers.omission import EVERY

__all__ = ["RightWithout", "WhoseWork"]

STUBBED_FACTOR = 2.0
STUBBED_S = 0.5  # for leaving out one kernel after the other
CONSTRUCT_S = 2.0  # for constructing it once more
MOST_STUBBED = 4
MOST_CALLS_BEFORE = 24


@dataclass(frozen=True)
class RightWithout:
    """Launches without which a candidate was right for values that it had seen.

    Args:
        trial: Whose values.
        kernels: Whose launches did nothing; `*` for all.
        programs: By trial, the programs after which launches did nothing; empty for any number.
    """

    trial: Trial
    kernels: Sequence[str] = ()
    programs: Mapping[int, int] = field(default_factory=dict)

    @property
    def omit(self) -> dict[str, Any]:
        """What a call leaves out, as `workers.omission` reads it."""
        return {"kernels": list(self.kernels), "most_programs": self.programs.get(id(self.trial), -1)}

    def __str__(self) -> str:
        """Say it in words."""
        if self.programs:
            least = self.programs[id(self.trial)]
            return f"with no more than the {least} program{'s' * (least != 1)} that run when the same values come again,"
        return f"without the launches of {'any kernel' if EVERY in self.kernels else ', '.join(self.kernels)}"


class WhoseWork(Conversation):
    """Calls that tell who did the work of those before, and in which."""

    async def who_did_the_work(self) -> list[RightWithout]:
        """See how long the device works for its own kernels, and whether its outputs rest on them.

        The verdict stands by now. What a call shows in which launches are left out is no fault, so these calls report to
        nobody; only misconduct counts in them too.

        Returns:
            Without which launches it was right, no two with the same values; see `kept_without`.
        """
        seen = self.seen
        found: list[RightWithout] = []
        try:
            if not self.interpreted and self._affordable():
                self.seen = NumericsReport(stage="run")
                await self._call(self.trials.named(self.weights)[-1], slot=0, timed=True)
                seen.shares = self.seen.facts
            if any(self.first_programs.values()) or seen.facts.launches:
                self.seen = NumericsReport(stage="run")
                if self.weights != "constructor" and self.construct_s < CONSTRUCT_S:
                    await self._build()
                await self._leave_out(seen, found)
        except (Decided, SessionEndedError, SessionTimeoutError, DeviceFullError, FrameError):
            pass
        finally:
            if self.seen.integrity.misconduct:
                seen.integrity = self.seen.integrity
            self.seen = seen
        return found

    async def _leave_out(self, seen: NumericsReport, found: list[RightWithout]) -> None:
        """Leave out the launches of all kernels, then of one after the other, and add what makes no difference."""
        kernels = list(seen.facts.launches)
        first, *others = self._alike(self.weights)
        spare = (others or self.trials.named(self.weights)[1:])[-1:]
        less = [trial for trial in others if self.fewer_programs(trial)][-1:]
        # One of the others is left for calls between. Other weights have too few trials to tell what was kept.
        unused = [trial for trial in others if trial not in less][-1:0:-1]
        if less and len(others) > 1:
            found.append(RightWithout(less[0], programs=self.least_programs))
        groups: list[list[str]] = [[EVERY]]
        if len(kernels) > 1 and len(kernels) * self.longest_call_s < STUBBED_S:
            groups += [[name] for name in kernels[:MOST_STUBBED]]
        for group in groups:
            if not spare or not self._affordable():
                break
            without = RightWithout([*unused, *spare][0], group)
            if not await self._right_without(without, first):
                continue
            if unused:
                found.append(without)
                del unused[0]
            # One that packs weights is launched once, and a name that was cut means no kernel.
            named, facts = kernels if group == [EVERY] else group, self.seen.facts
            if not seen.unused and set(named) <= set(facts.launches) and facts.left_out >= len(named):
                seen.unused = named
            if group == [EVERY]:
                break

    async def kept_without(self, found: Sequence[RightWithout], calls: int) -> RightWithout | None:
        """Return that without which results were kept, in a new process that has called the candidate once.

        Whatever an honest candidate makes once (a table, packed weights, a graph) is made in as many calls as the other
        process made. Then launches are left out for values that were seen in these calls, and for values that were not.
        Where only the first is right, and it was right for the very values of the second in a process that had seen them,
        nothing else tells the two apart.
        """
        held_back = [without.trial for without in found]
        first, *others = (trial for trial in self._alike("constructor") if trial not in held_back)
        for number in range(min(calls, MOST_CALLS_BEFORE)):
            if not self._affordable():
                return None
            await self._call([*others, first][number % (len(others) + 1)], slot=0)
        for without in found:
            if not await self._right_without(replace(without, trial=first), others[0]):
                continue
            try:
                await self._call(without.trial, slot=0, omit=without.omit, required=True)
            except Decided:
                failure = self.seen.failure
                if self.seen.integrity.misconduct or (failure is not None and failure.kind != "exception"):
                    raise
                return without
        return None

    def _alike(self, weights: Weights) -> list[Trial]:
        """Return the trials that differ in the elements of tensors alone: what is made by a number or a shape may be kept."""
        first, *others = self.trials.named(weights)
        return [first, *(trial for trial in others if same_layout(first, trial))]

    async def _right_without(self, without: RightWithout, other: Trial) -> bool:
        """Tell whether a call is right although some launches do nothing.

        A whole call with its values comes before, for what keeps few results, and then one with other values, so that no
        workspace still holds what is right for these.
        """
        self.seen = NumericsReport(stage="run")
        limit_s = STUBBED_FACTOR * self.longest_call_s + 1.0
        try:
            await self._call(without.trial, slot=0, limit_s=limit_s)
            await self._call(other, slot=0, limit_s=limit_s)
            await self._call(without.trial, slot=0, omit=without.omit, limit_s=limit_s)
        except Decided:
            if self.seen.integrity.misconduct or (self.seen.failure and self.seen.failure.kind == "device"):
                raise
            return False
        return True
