"""Let the programs of a launch take turns where they wait for each other.

Programs run one after another, each to its end. One that spins, in a while loop that reads anew what others may write and
changes nothing itself, stays on its thread, and another thread begins those that have not begun; when all have, those that
wait go on in turn. One thread runs at a time. Where neither memory nor any variable of those that are left changes while each
has its turn, none of them can ever go on.
"""

from __future__ import annotations

import contextvars

# By these names themselves: a candidate's threads are counted by what `threading` finds there later.
from _thread import allocate_lock, stack_size, start_new_thread
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle
from adaexplore_mcp.evaluation.workers.interpreter.regions import place_of

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Iterable
    from types import FrameType

    from adaexplore_mcp.evaluation.workers.interpreter.memory import Memory

__all__ = ["Abandoned", "Turns"]

MOST_THREADS = 1024
STACK_BYTES = 2 << 20  # of a thread; helpers of kernels do not nest deeply
PLAIN = (bool, int, float, str, type(None))


class Abandoned(BaseException):
    """Ends a program that is not to go on, since another one raised."""


@dataclass(eq=False)
class _Waiting:
    """A program that waits.

    Attributes:
        program: Its number, from one.
        place: Its place in the grid.
        baton: Released to let it go on.
        called: Whether it was.
        seen: What memory and its variables were when it last looked.
        stuck: Whether they had been the same before.
    """

    program: int
    place: tuple[int, int, int]
    baton: LockType = field(default_factory=allocate_lock)
    called: bool = False
    seen: tuple[int, list[Any]] = (-1, [])
    stuck: bool = False


class Turns:
    """Runs the programs of one launch.

    Args:
        builder: Knows which program runs, and how often memory changed.
        numbers: Linear numbers of the programs, in the order in which they begin.
        program: Runs the one that the builder knows.
    """

    def __init__(self, builder: Memory, numbers: Iterable[int], program: Callable[[], None]) -> None:
        self._builder = builder
        self._numbers = iter(numbers)
        self._program = program
        self._begun = 0
        self._all_begun = False
        self._threads = 0
        self._waiting: deque[_Waiting] = deque()
        self._waited: dict[int, _Waiting] = {}
        self._error: BaseException | None = None
        self._ended = _Waiting(0, (0, 0, 0))
        """This thread, when its own programs are over."""

    def run(self) -> None:
        """Run every program.

        Raises:
            Deadlock: Those that are left wait for each other without end.
            NotInterpretable: More of them wait than there can be threads.
        """
        self._work()
        if self._waiting:
            self._ended.baton.acquire()
            self._hand_on()
            self._await(self._ended)
        if self._error is not None:
            raise self._error

    @property
    def over(self) -> bool:
        """Whether one raised: the others are not to go on."""
        return self._error is not None

    def wait(self, frame: FrameType) -> None:
        """Let others run, and return when it is this program's turn again.

        Args:
            frame: In which it spins.

        Raises:
            Deadlock: Nobody can go on.
            NotInterpretable: More programs wait than there can be threads.
        """
        builder = self._builder
        own = self._waited.setdefault(builder.program, _Waiting(builder.program, builder.grid_idx))
        if not self._may_begin():
            seen = builder.changes, _variables(frame)
            own.stuck, own.seen = own.seen == seen, seen
            if own.stuck and all(other.stuck and other.seen[0] == builder.changes for other in self._waiting):
                raise self._nobody_goes_on()
            if not self._waiting:
                return
        own.baton, own.called = allocate_lock(), False
        own.baton.acquire()
        self._waiting.append(own)
        self._hand_on()
        self._await(own)
        if self._error is not None:
            raise Abandoned
        builder.program, builder.grid_idx = own.program, own.place

    def _work(self) -> None:
        """Begin one program after the other, until there is none or one raised."""
        builder = self._builder
        try:
            for number in self._numbers:
                self._begun += 1
                builder.program, builder.grid_idx = self._begun, place_of(number, builder.grid_dim)
                self._program()
                if self._error is not None:
                    return
            self._all_begun = True
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where the launch was called
            self._fail(error)

    def _work_elsewhere(self) -> None:
        self._work()
        self._hand_on()

    def _may_begin(self) -> bool:
        return not self._all_begun and self._threads < MOST_THREADS

    def _hand_on(self) -> None:
        """Let another thread run; this one then waits, or ends."""
        if self._error is None and self._may_begin():
            before = stack_size(STACK_BYTES)
            try:
                start_new_thread(contextvars.copy_context().run, (self._work_elsewhere,))
            except RuntimeError:  # the system has no more
                self._threads = MOST_THREADS
            else:
                self._threads += 1
                return
            finally:
                stack_size(before)
        following = self._waiting.popleft() if self._waiting else self._ended
        following.called = True
        following.baton.release()

    def _await(self, own: _Waiting) -> None:
        """Wait for the baton. What a signal raises meanwhile ends all programs, each in its turn."""
        while not own.called:
            try:
                own.baton.acquire()
            except BaseException as error:  # noqa: BLE001 - a limit of time
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error

    def _nobody_goes_on(self) -> Exception:
        if not self._all_begun:
            sentence = f"more than {self._begun - 1:,} programs of a launch wait for another one at once"
            return self._builder.recorder.refuse(sentence)
        count = len(self._waiting) + 1
        return self._builder.recorder.stop(
            f"{count:,} of its {self._begun:,} programs wait, in a loop, for what no program is going to write"
            if count > 1
            else f"program {self._builder.grid_idx} waits, in a loop, for what no program is going to write"
        )


class _Object:
    """Equal to itself alone."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self._value is other._value

    __hash__ = None  # type: ignore[assignment]  # compared only


def _variables(frame: FrameType | None) -> list[Any]:
    """Return what the variables of a program hold, in all of its functions."""
    held: list[Any] = []
    while frame is not None and frame.f_code.co_filename != __file__:
        held += [frame.f_code, frame.f_lasti, _held(dict(frame.f_locals))]
        frame = frame.f_back
    return held


def _held(value: Any) -> Any:  # noqa: ANN401 - any value of a kernel
    if isinstance(value, PLAIN):
        return value
    if type(value) in (tuple, list):
        return [_held(each) for each in value]
    if type(value) is dict:
        return {name: _held(each) for name, each in value.items()}
    handle = getattr(value, "handle", value)
    if isinstance(handle, Handle):
        return handle.data.tobytes()
    return _Object(value)
