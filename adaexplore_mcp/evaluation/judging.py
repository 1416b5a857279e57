"""Decide about the outputs of one call: their description here, their bytes by the judge."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.buffers import Buffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import quoted, text
from adaexplore_mcp.evaluation.definition import bytes_per_element
from adaexplore_mcp.evaluation.memory import Memory
from adaexplore_mcp.evaluation.trials import MOST_OUTPUTS, Audit, Trial, TrialSet
from adaexplore_mcp.evaluation.wire import FrameError
from adaexplore_mcp.models import Policy

__all__ = ["Judging", "Mismatch", "audit", "check_entries", "other_layout", "room_for"]

STALE_NRMSE = 0.01
LARGEST_ITEM = 16  # bytes of a complex128
PADDING = 64
PLAIN_TOLERANCE = {"match": 1e-5, "relaxed": 1e-2, "kernelbench": 1e-4, "paper": 5e-2}
"""Of a number that is no tensor, relative: a reduction brought to the host, most often."""
SOLID_CHECKS = frozenset({"dtype", "unwritten"})
"""Checks of the judge that a lowered size cannot cause."""


@dataclass(frozen=True)
class Mismatch:
    """What was wrong.

    Args:
        check: Name of the check.
        trial: Name of the trial.
        evidence: Fields of `models.Evidence`: the judge's comparison, or what else was seen.
        solid: Wrong at any size, also where sizes are lowered.
        kernel: The kernel at fault, where one is known.
        line: In the candidate's source; 0 if unknown.
    """

    check: str
    trial: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    solid: bool = False
    kernel: str = ""
    line: int = 0


class Judging:
    """Judges the calls of one candidate.

    Args:
        buffers: Where the outputs lie, and whose judge is asked.
        candidate: Whose policy holds.
        trials: What is expected.
    """

    def __init__(self, buffers: Buffers, candidate: Candidate, trials: TrialSet) -> None:
        self._buffers = buffers
        self._trials = trials
        self._rule = rule_of(candidate.policy)
        self._forbids = candidate.policy.library_ops == "forbid"

    async def judge(
        self,
        trial: Trial,
        answer: Mapping[str, Any],
        memory: Memory,
        *,
        name: str,
        poison: str = "",
        inputs: Memory | None = None,
        later: bool = False,
    ) -> Mismatch | Mapping[str, Any]:
        """Judge what one call returned.

        Args:
            trial: What it was called with.
            answer: What the candidate's process says of its outputs.
            memory: Their bytes; sealed here, so that nobody changes them while they are judged.
            name: What was special about this call.
            poison: With what fresh memory was filled during it.
            inputs: The inputs as they are after the call; None to leave them out.
            later: Other calls came between: an output that may be an input has other values by now.

        Returns:
            A mismatch, or the comparison of the worst output that passed.

        Raises:
            FrameError: The process describes no outputs.
            TaskError: What the reference's process left is no yardstick.
            DeviceFullError: The GPU has too little memory left to compare.
        """
        got = _in_order(check_entries(answer.get("outputs")), trial.expected.message)
        if not self._buffers.settled(memory):
            return Mismatch(
                "outputs_kept_writable", name, {"detail": "its outputs stayed mapped for writing"}
            )
        if (found := self._described(trial, answer, got, name)) is not None:
            return found
        if self._buffers.gpu is None and os.fstat(memory.file).st_size > _described_bytes(got) + PADDING:
            raise FrameError("more bytes than its outputs have")
        changing = frozenset(self._trials.aliases) if later else frozenset()
        reply = await self._compare(trial, got, memory, inputs=inputs, poison=poison, left_out=changing)
        if changed := reply.pop("changed"):
            first = changed[0]
            if first.get("behind"):
                detail = f"it wrote {first['count']} bytes behind the end of input {first['path']}"
                return Mismatch(
                    "out_of_bounds", name, {"output": first["path"], "detail": detail}, solid=True
                )
            count = f"{first['count']} element{'s' * (first['count'] != 1)}"
            detail = f"input {first['path']} was changed in place ({count}); the reference leaves it as it is"
            evidence = {"output": first["path"], "index": first["index"], "detail": detail}
            return Mismatch("input_mutated", name, evidence, solid=True)
        if (found := self._aliased(answer, name)) is not None:
            return found
        if reply["passed"]:
            return reply
        if (other := await self._stale(trial, got, memory)) is not None:
            detail = f"it returned what belongs to another call ({other.name}): a cached or stale result"
            return Mismatch("stale_output", name, {**reply, "detail": detail})
        return Mismatch(str(reply["check"]), name, reply, solid=reply["check"] in SOLID_CHECKS)

    async def _compare(
        self,
        trial: Trial,
        got: Sequence[Mapping[str, Any]],
        memory: Memory,
        *,
        inputs: Memory | None = None,
        poison: str = "",
        left_out: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        def compared(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
            return [entry for entry in entries if "plain" not in entry and entry["path"] not in left_out]

        memories = [*trial.expected.memories, memory]
        look = False
        if inputs is not None and trial.inputs.file is not None:
            look = True
            memories += [*trial.inputs.memories, inputs]
        message = await self._buffers.judge(
            {
                "op": "compare",
                "expected": compared(trial.expected.message),
                "expected_bytes": trial.expected.held,
                "got": compared(got),
                "room": room_for(trial),
                "inputs": trial.inputs.message,
                "mutated": self._trials.mutated if look else [],
                "rule": self._rule,
                "accumulation": self._trials.accumulation,
                "poison": poison,
                "yardsticks": trial.yardsticks,
            },
            memories,
        )
        reply = message.body
        if "malformed" in reply:
            raise FrameError(reply["malformed"])
        if "no_yardstick" in reply:
            msg = f"The reference's process did not hand over what it computed: {reply['no_yardstick']}."
            raise TaskError(msg, "Register the operation alone, without code that touches its process.")
        trial.yardsticks |= reply.pop("yardsticks")
        return reply

    async def _stale(self, trial: Trial, got: Sequence[Mapping[str, Any]], memory: Memory) -> Trial | None:
        """Return the trial whose expected output this is, if it is another one's."""
        if self._trials.mutated:
            return None
        for other in self._trials.trials:
            same = other is trial or expects_the_same(other, trial)
            if same:
                continue
            reply = await self._compare(other, got, memory)
            # A wide tolerance passes much: what was cached is the other result to the last digits.
            # And what zeros or one number pass for as well is no result that somebody kept.
            telling = not (reply["zeros_would_pass"] or reply["mean_would_pass"])
            if reply["passed"] and telling and (reply["nrmse"] or 0.0) < STALE_NRMSE:
                return other
        return None

    def _described(
        self, trial: Trial, answer: Mapping[str, Any], got: Sequence[Mapping[str, Any]], name: str
    ) -> Mismatch | None:
        """Check number, kinds and places of the outputs."""
        expected = [entry for entry in trial.expected.message if not entry.get("input")]
        if strange := text(answer, "strange"):
            return Mismatch("output_type", name, {"detail": strange}, solid=True)
        if nowhere := text(answer, "nowhere"):
            return Mismatch("device", name, {"detail": nowhere}, solid=True)
        if answer.get("many"):
            detail = (
                f"returned more than {MOST_OUTPUTS:,} values, the reference returns {_structure(expected)}"
            )
            return Mismatch("structure", name, {"detail": detail}, solid=True)
        kinds = [[(each["path"], "plain" in each) for each in entries] for entries in (got, expected)]
        if kinds[0] != kinds[1]:
            detail = f"returned {_structure(got)}, the reference returns {_structure(expected)}"
            return Mismatch("structure", name, {"detail": detail}, solid=True)
        for mine, theirs in zip(got, expected, strict=True):
            if "plain" in theirs and not _same_plain(
                mine["plain"],
                theirs["plain"],
                self._rule,
                scale=float(theirs.get("typical", 0.0)),
            ):
                evidence = {"output": mine["path"], "got": mine["plain"], "expected": theirs["plain"]}
                detail = f"{mine['path']} is {quoted(mine['plain'])}, the reference returns {quoted(theirs['plain'])}"
                return Mismatch("values", name, {**evidence, "detail": detail})
            if mine.get("lazy") is True and (self._forbids or theirs.get("lazy") is not True):
                detail = f"{mine['path']} is negated or conjugated by a mark, which whoever reads it has to carry out"
                return Mismatch("output_type", name, {"output": mine["path"], "detail": detail}, solid=True)
            if mine.get("host") is True and theirs.get("host") is not True:
                detail = f"{mine['path']} is a CPU tensor, the reference returns it on the GPU"
                return Mismatch("device", name, {"output": mine["path"], "detail": detail}, solid=True)
        return None

    def _aliased(self, answer: Mapping[str, Any], name: str) -> Mismatch | None:
        """Refuse an output that is an input, where the reference makes a new tensor."""
        for output, source in _named(answer, "aliases").items():
            if output not in self._trials.aliases and source not in self._trials.mutated:
                detail = f"{output} shares the memory of input {source} (an alias); the reference makes a new tensor"
                return Mismatch(
                    "output_aliases_input", name, {"output": output, "detail": detail}, solid=True
                )
        return None


def other_layout(trial: Trial, got: Sequence[Mapping[str, Any]]) -> str:
    """Say which output lies in memory in another order than the reference's; empty where none does."""
    expected = {entry["path"]: entry for entry in trial.expected.message}
    for entry in got:
        theirs = expected.get(entry["path"], {})
        shape, one, two = entry.get("shape"), entry.get("stride"), theirs.get("stride")
        if (
            shape is None
            or shape != theirs.get("shape")
            or not (isinstance(one, list) and isinstance(two, list))
        ):
            continue
        mine, other = (
            [stride for stride, size in zip(strides, shape, strict=False) if size > 1]
            for strides in (one, two)
        )
        if mine != other and len(mine) == len(other) and math.prod(shape):
            return f"{entry['path']} has strides {mine}, the reference's {other}"
    return ""


def rule_of(policy: Policy) -> dict[str, Any]:
    """Return a policy as the judge reads it."""
    return {
        "precision": policy.precision,
        "atol": policy.atol,
        "rtol": policy.rtol,
        "max_outlier_share": policy.max_outlier_share,
    }


async def audit(buffers: Buffers, trial: Trial, policy: Policy, accumulation: int) -> Audit:
    """Try whether the judge can read what a reference gave; tell what else would pass in its place.

    Raises:
        TaskError: Its outputs have a dtype or a form that cannot be compared.
    """
    if trial.expected.file is None:
        return Audit()
    request = {
        "op": "audit",
        "expected": [entry for entry in trial.expected.message if "plain" not in entry],
        "expected_bytes": trial.expected.held,
        "inputs": trial.inputs.message,
        "rule": rule_of(policy),
        "accumulation": accumulation,
    }
    reply = (await buffers.judge(request, [*trial.expected.memories, *trial.inputs.memories])).body
    if "malformed" in reply:
        msg = f"The reference's outputs cannot be compared: {reply['malformed']}."
        raise TaskError(msg, "Return tensors of a dtype that torch can convert to float64 on the CPU.")
    return Audit(
        zeros_pass=reply["zeros_pass"],
        mean_pass=reply["mean_pass"],
        narrow=reply["narrow"],
        same_share=reply["same_share"],
        input_pass=str(next(iter(reply["input_pass"]), "")),
    )


def check_entries(entries: object) -> Sequence[Mapping[str, Any]]:
    """Check the description of outputs that a candidate's process sent.

    Raises:
        FrameError: It is none.
    """
    if not isinstance(entries, list) or len(entries) > MOST_OUTPUTS:
        raise FrameError("outputs are no list, or a very long one")
    for entry in entries:
        if not isinstance(entry, dict) or not text(entry, "path") or len(entry["path"]) > 200:
            raise FrameError("an output without a name")
        shape = entry.get("shape")
        described = (
            isinstance(entry.get("dtype"), str)
            and type(entry.get("start")) is int
            and isinstance(shape, list)
            and len(shape) <= 64
            and all(type(n) is int and 0 <= n < 1 << 48 for n in shape)
        )
        stride = entry.get("stride", [])
        laid_out = isinstance(stride, list) and len(stride) <= 64 and all(type(n) is int for n in stride)
        value = entry.get("plain")
        if not laid_out or ("plain" not in entry and not described):
            raise FrameError("an output that is described wrongly")
        if "plain" in entry and not (isinstance(value, str) and len(value) <= 400):
            raise FrameError("an output that is described wrongly")
    return entries


def _described_bytes(entries: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes of memory that outputs end before, at most, as they are described."""
    tensors = [entry for entry in entries if "plain" not in entry]
    return max((entry["start"] + math.prod(entry["shape"]) * LARGEST_ITEM for entry in tensors), default=0)


def _named(answer: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a mapping of names to names that a process sent, bounded; anything else in it is left out."""
    claim = answer.get(name)
    pairs = list(claim.items())[:MOST_OUTPUTS] if isinstance(claim, dict) else []
    return {key[:200]: value[:200] for key, value in pairs if isinstance(value, str)}


def _in_order(
    got: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return what was returned in the order of what is expected: dicts may be filled in any."""
    places = {entry["path"]: place for place, entry in enumerate(expected)}
    return sorted(got, key=lambda entry: places.get(entry["path"], len(places)))


def _structure(entries: Sequence[Mapping[str, Any]]) -> str:
    """Say in words what was returned."""
    if len(entries) == 1 and "plain" in entries[0] and entries[0]["path"] == "out":
        return str(entries[0]["plain"])[:80]
    tensors = sum("plain" not in entry for entry in entries)
    others = len(entries) - tensors
    names = ", ".join(str(entry["path"]) for entry in entries[:6])
    beside = f" and {others} other value{'s' * (others != 1)}" if others else ""
    return f"{tensors} tensor{'s' * (tensors != 1)}{beside} ({names}{', …' * (len(entries) > 6)})"


def _same_plain(got: str, expected: str, rule: Mapping[str, Any], *, scale: float) -> bool:
    """Tell whether two Python values are the same; numbers with a fraction within the policy's tolerance.

    That is relative to the number, or to what it usually is where that is more.
    """
    if got == expected or not {".", "e"} & set(expected):
        return got == expected
    try:
        mine, theirs = float(got), float(expected)
    except ValueError:  # no number
        return False
    if rule["precision"] == "custom":
        return bool(abs(mine - theirs) <= rule["atol"] + rule["rtol"] * abs(theirs))
    tolerance = PLAIN_TOLERANCE[rule["precision"]]
    return math.isclose(mine, theirs, rel_tol=tolerance, abs_tol=tolerance * scale)


def expects_the_same(one: Trial, other: Trial) -> bool:
    """Tell whether two trials expect the same bytes, as where a task's output is constant."""
    a, b = one.expected, other.expected
    return a.file is not None and b.file is not None and a.message == b.message and a.digests == b.digests


def room_for(trial: Trial) -> int:
    """Return the bytes that outputs take which are as a trial expects them, one after the other."""
    tensors = [entry for entry in trial.expected.message if "plain" not in entry]
    sizes = (math.prod(entry["shape"]) * bytes_per_element(entry["dtype"]) for entry in tensors)
    return max(64, sum(-(-int(size) // 64) * 64 for size in sizes))
