"""An autotuner's configurations, compiled by children of this process before it goes through them itself.

Children compile side by side into the kernel cache that they share with this process, and say of each build what the
cache does not: how long it took, what it takes of the machine, how it failed. The process then tries one configuration
after the other as if it were alone. It finds what was built in the cache and raises at once what took long to fail, so
that one place keeps account of builds, limits and failures, in one order, however many helped.
"""

import contextlib
import copy
import hashlib
import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from triton.runtime.errors import OutOfResources, PTXASError

from .capture import forget_last_words
from .children import Child, Tell, alone
from .records import Resources
from .resources import CompileTimeout

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Found", "Tuning", "build_ahead", "identity", "outcome"]

LATE_S = 1.0  # a child that finds out by itself that its time is over says so in better words
MAX_PRINTED_CHARACTERS = 50_000


@dataclass(slots=True)
class Tuning:
    """One run of an autotuner: the configurations that it is about to try, and what is known of them."""

    configs: Sequence[Any]
    known: set[int] = field(default_factory=set)
    """Of those that children built or failed to build: what `id` says of them."""
    built: bool = False
    """Whether one of them can be launched."""
    begun: bool = False
    current: Any = None
    """The configuration that is being tried."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a child found out about one build."""

    seconds: float
    cached: bool = False
    usage: Resources | None = None
    diagnostics: str = ""
    printed: str = ""
    raised: Exception | None = None
    """What an autotuner would pass over; whatever it would not is found out again, since it ends the run."""

    def fail_again(self) -> None:
        """Raise a copy of what was raised, if anything was."""
        if self.raised is not None:
            raise copy.copy(self.raised)


def identity(src: Any, options: Mapping[str, Any]) -> str:  # noqa: ANN401 - an ASTSource, or a path
    """Return what two builds have in common exactly if one serves for the other, in this process and its children."""
    source = src.hash() if hasattr(src, "hash") else str(src)
    return hashlib.sha256(f"{source}-{sorted(options.items())}".encode()).hexdigest()


def outcome(found: Found) -> dict[str, Any]:
    """Return what was found out about a build as a message."""
    error, usage = found.raised, found.usage
    raised: list[Any] | None = None
    if isinstance(error, OutOfResources):
        raised = ["resources", error.required, error.limit, error.name]
    elif isinstance(error, PTXASError):
        raised = ["time" if isinstance(error, CompileTimeout) else "assembler", error.error_message]
    return {
        "seconds": found.seconds,
        "cached": found.cached,
        "usage": usage and [usage.registers, usage.stack_bytes, usage.spill_bytes],
        "diagnostics": found.diagnostics,
        "printed": found.printed[:MAX_PRINTED_CHARACTERS],
        "raised": raised,
        "failed": error is not None,
    }


def _found(message: Mapping[str, Any]) -> Found | None:
    """Read a message of `outcome`; None if it tells of a failure that is to be found out again."""
    raised: Exception | None = None
    if message["failed"]:
        if not message["raised"]:
            return None
        kind, *words = message["raised"]
        raised = {"resources": OutOfResources, "time": CompileTimeout, "assembler": PTXASError}[kind](*words)
    return Found(
        seconds=float(message["seconds"]),
        cached=bool(message["cached"]),
        usage=Resources(*message["usage"]) if message["usage"] else None,
        diagnostics=str(message["diagnostics"]),
        printed=str(message["printed"]),
        raised=raised,
    )


def build_ahead(session: "Session", tuning: Tuning, attempt: Callable[[Any, Tell], object]) -> None:
    """Let children try the configurations of a tuning, `session.jobs` of them at a time; note down what they found.

    It ends early where the process itself would: at a configuration that ends the tuning, at the limits of time, and
    where the configurations turn out to need no compilation.

    Args:
        session: Is charged with the time that passes.
        tuning: Which configurations; is told which are known.
        attempt: Tries one, in a child, and tells of it: `begins` with the identity of each build, `ends` with it and its
            `outcome`, `done` with whether the configuration can be launched, can be passed over, or ends the tuning.
    """
    tuning.begun = True
    if len(tuning.configs) < 2 or session.out_of_time or not alone():
        return
    _Race(session, tuning, attempt).run()


@dataclass(slots=True)
class _Runner:
    """A child that tries one configuration."""

    index: int
    child: Child
    started: float
    timeout: CompileTimeout
    """What it runs into if it does not end in time."""


class _Race:
    def __init__(self, session: "Session", tuning: Tuning, attempt: Callable[[Any, Tell], object]) -> None:
        self.session = session
        self.tuning = tuning
        self.attempt = attempt
        self.waiting = deque(range(len(tuning.configs)))
        self.running: list[_Runner] = []
        self._started, self._before = time.monotonic(), session.seconds

    def run(self) -> None:
        try:
            while self.waiting or self.running:
                self._charge()
                if self.session.seconds >= self._limit_s():
                    break
                self._start()
                self._wait()
        finally:
            self._charge()
            used_up = self.session.seconds >= self.session.time_limit_s
            for each in self.running:
                each.child.end()
                self._note(each, late=used_up)
            self._charge()

    def _charge(self) -> None:
        self.session.seconds = self._before + time.monotonic() - self._started

    def _limit_s(self) -> float:
        """Return how much the session may be charged with before nothing more is tried."""
        return self.session.configurations_limit_s if self.tuning.built else self.session.time_limit_s

    def _start(self) -> None:
        session = self.session
        while self.waiting and len(self.running) < session.jobs:
            index = self.waiting.popleft()
            work = partial(self.attempt, self.tuning.configs[index])
            limit_s = max(0.0, min(session.per_kernel_limit_s, session.time_limit_s - session.seconds))
            started = time.monotonic()
            try:
                child = Child(work, limit_s + LATE_S)
            except OSError:  # no more processes: what is not known is tried as if there were no children
                self.waiting.clear()
                return
            self.running.append(_Runner(index, child, started, session.timeout()))

    def _wait(self) -> None:
        """Wait until a child tells something or a limit is reached."""
        if not self.running:
            return
        ends = [each.child.deadline for each in self.running]
        ends.append(self._started + self._limit_s() - self._before)
        descriptors = [each.child.descriptor for each in self.running]
        ready, _, _ = select.select(descriptors, [], [], max(0.0, min(ends) - time.monotonic()))
        silent = [each for each in self.running if each.child.descriptor in ready and not each.child.read()]
        for each in self.running[:]:
            if each in self.running and (each in silent or each.child.late):
                self.running.remove(each)
                each.child.end()
                self._judge(each)

    def _judge(self, runner: _Runner) -> None:
        """Note down what a child found, and see what that means for the configurations to come."""
        late = runner.child.late
        builds, done = self._note(runner, late=late)
        if done == "launched":
            self.tuning.built = True
            if not builds:  # it had been launched before: so will the others have been
                self.waiting.clear()
        elif done == "raised" or not (done or late):
            # This process will not get past this one either.
            self.waiting = deque(index for index in self.waiting if index < runner.index)
            for each in [each for each in self.running if each.index > runner.index]:
                self.running.remove(each)
                each.child.end()
                forget_last_words(each.child.pid)

    def _note(self, runner: _Runner, *, late: bool) -> tuple[int, str]:
        """Note down what a child found; return how many builds it made, and how its attempt ended."""
        begun: set[str] = set()
        builds, done = 0, ""
        for message in runner.child.messages:
            # A child has run the candidate's code, as this process has: what makes no sense is not known.
            with contextlib.suppress(KeyError, TypeError, ValueError):
                if "begins" in message:
                    begun.add(str(message["begins"]))
                elif "ends" in message:
                    name = str(message["ends"])
                    begun.discard(name)
                    builds += 1
                    found = _found(message)
                    # Of two configurations that are alike, one may have found what the other built.
                    if found is not None and not (found.cached and name in self.session.ahead):
                        self.session.ahead[name] = found
                elif "done" in message:
                    done = str(message["done"])
        if not done:
            forget_last_words(runner.child.pid)
            if late:
                builds += len(begun)
                taken = Found(seconds=time.monotonic() - runner.started, raised=runner.timeout)
                self.session.ahead |= dict.fromkeys(begun, taken)
        if builds:
            self.tuning.known.add(id(self.tuning.configs[runner.index]))
        return builds, done
