"""The builder's loads and stores: every lane checked, poison where nothing is defined.

A lane that leaves the storage its pointer was derived from is reported, masked off, and the kernel goes on; a
load gives poison there. Pointers carry their storage with them (`Handle.origin`), so an access that runs from
one tensor into the next is seen even where both are alive. Reading and writing is numpy's on a view of the
storage: 2 us for 1,024 lanes against 28 us of the stock interpreter's loop, which pays for the checks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.findings import Call, Finding, FindingKind, candidate_frame
from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle, numpy_dtype
from adaexplore_mcp.evaluation.workers.interpreter.numbers import (
    NARROW_FLOATS,
    Array,
    poison_value,
)
from adaexplore_mcp.evaluation.workers.interpreter.regions import (
    EARLY_READ_LIMIT_LANES,
    MANY,
    SHADOW_LIMIT_BYTES,
    AddressSpace,
    Region,
    place_of,
)
from adaexplore_mcp.evaluation.workers.interpreter.turns import Abandoned
from adaexplore_mcp.evaluation.workers.interpreter.versions import ir, stock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from adaexplore_mcp.evaluation.workers.interpreter.turns import Turns

__all__ = ["Memory", "bits"]

READ_ANEW = ("cv", ir.CACHE_MODIFIER.CV)
"""Cache modifiers of loads that are to see what others wrote meanwhile, in the words of Triton 3.9 and of those before."""
VERBS: dict[FindingKind, str] = {
    "out_of_bounds_load": "read",
    "out_of_bounds_store": "write",
    "out_of_bounds_atomic": "update",
}


class Piece(NamedTuple):
    """Lanes of one access that lie in one storage.

    Attributes:
        region: The storage.
        elements: Their numbers in it; of the access's shape if `lanes` is None, else one-dimensional.
        lanes: Which lanes they are, as a mask; None means all.
    """

    region: Region
    elements: Array
    lanes: Array | None


class Memory(stock.InterpreterBuilder):  # type: ignore[misc]  # Triton is untyped
    """Loads, stores and atomics of one launch."""

    order: Sequence[int] = ()
    """Linear numbers of the launch's programs, in the order in which they begin."""
    turns: Turns | None = None
    """Who runs them; None where those that wait are given up."""

    def begin_launch(self, kernel: str, space: AddressSpace, recorder: Call, poison: str) -> None:
        """Forget the last launch. The grid must have been set; `program` counts the programs from one."""
        self.program = 0
        self.reads_anew = self.changes = 0
        self._read_anew_before = self._changes_before = 0
        self._in_the_end: dict[tuple[str, int], tuple[tuple[int, int, int], str]] = {}
        self.kernel = kernel
        self.space = space
        self.recorder = recorder
        self.poison = poison
        self.atomics_used = self.may_be_ordered = self.flags_read = self.loops = False
        self.shared = int(np.prod(self.grid_dim)) > 1

    def end_launch(self) -> None:
        """Tell what only the end decides, and let go of the shadows, which may be large."""
        for (file, line), (program, detail) in self._in_the_end.items():
            self._record("race", file, line, program, partial(str, detail), ordered=self.loops)
        self._in_the_end = {}
        self.space = AddressSpace(())
        self.turns = None

    # ---- reports

    def report(self, kind: FindingKind, detail: Callable[[], str], *, one_access: bool = False) -> None:
        """Record a finding at the candidate's current line; only the first of a place needs its sentence.

        Args:
            kind: What it is.
            detail: Returns the sentence.
            one_access: It lies within one access of one program, which nothing orders.
        """
        by_flags = self.flags_read and self.loops
        ordered = (by_flags or (self.atomics_used and self.may_be_ordered)) and not one_access
        self._record(kind, *candidate_frame(), self.grid_idx, detail, ordered=ordered)

    def _record(
        self,
        kind: FindingKind,
        file: str,
        line: int,
        program: tuple[int, int, int],
        detail: Callable[[], str],
        *,
        ordered: bool,
    ) -> None:
        if not self.recorder.seen(kind, self.kernel, file, line, atomics_used=ordered):
            self.recorder.add(Finding(kind, self.kernel, file, line, program, detail(), atomics_used=ordered))

    def act_on_answer(self) -> None:
        """Note that a program acts on what an atomic operation gave back: what it does then may be ordered."""
        self.may_be_ordered = True

    def loop(self, frame: FrameType) -> None:
        """Let other programs run where this one spins: since the loop's last turn it read anew, and changed nothing.

        Args:
            frame: Of the loop.

        Raises:
            Abandoned: Where waiting programs are given up, and where another one raised.
        """
        if self.turns is not None and self.turns.over:
            raise Abandoned
        spins = self.reads_anew != self._read_anew_before and self.changes == self._changes_before
        if spins:
            self.wait(frame)
        self._read_anew_before, self._changes_before = self.reads_anew, self.changes

    def wait(self, frame: FrameType) -> None:
        """Let other programs run; raises as `loop` does."""
        if self.turns is None:
            raise Abandoned
        self.turns.wait(frame)

    def _program_name(self, number: int) -> str:
        if number == MANY:
            return "other programs"
        return f"program {place_of(self.order[number - 1], self.grid_dim)}"

    # ---- bounds

    def _pieces(self, kind: FindingKind, pointer: Handle, mask: Array | None) -> list[Piece]:
        """Return the admissible lanes by storage; what is not admissible is reported and left out."""
        addresses, lanes = pointer.data, None
        if mask is not None and not mask.all():
            if not mask.any():
                return []
            lanes = np.broadcast_to(mask, addresses.shape)
            addresses = addresses[lanes]
        size = numpy_dtype(pointer.dtype.element_ty).itemsize
        region = getattr(pointer, "origin", None)
        known = region is not None
        if region is None:
            region = self.space.find(int(addresses.item(0)), anywhere=True)
        if region is not None:
            offset = (addresses - region.base).view(np.int64)
            index = offset if size == 1 else offset >> (size.bit_length() - 1)
            aligned = (known and region.aligned) or not (offset & (size - 1)).any()
            if aligned and index.min() >= 0 and int(index.max()) < (region.end - region.start) // size:
                return [Piece(region, index, lanes)]
        return self._sorted_out(kind, pointer, addresses, lanes)

    def _sorted_out(
        self, kind: FindingKind, pointer: Handle, addresses: Array, lanes: Array | None
    ) -> list[Piece]:
        """Do lane by lane, by distinct storage, what `_pieces` does for the common case."""
        size = numpy_dtype(pointer.dtype.element_ty).itemsize
        origin = getattr(pointer, "origin", None)
        flat = addresses.reshape(-1)
        positions = np.flatnonzero(np.ones(pointer.data.shape, dtype=bool) if lanes is None else lanes)
        open_lanes, pieces = np.ones(flat.shape, dtype=bool), []
        misplaced = np.zeros(flat.shape, dtype=bool)
        while open_lanes.any():
            first = int(flat[open_lanes.argmax()])
            region = origin or self.space.find(first, anywhere=True)
            if region is None:
                misplaced |= open_lanes & (flat == np.uint64(first))
                open_lanes &= flat != np.uint64(first)
                continue
            offset = (flat - region.base).view(np.int64)
            inside = open_lanes & (offset >= 0) & (offset <= region.end - region.start - size)
            if origin is not None:
                misplaced = open_lanes & ~inside
                open_lanes[:] = False
            else:
                inside |= open_lanes & (flat == np.uint64(first))
                misplaced |= inside & (offset > region.end - region.start - size)
                open_lanes &= ~inside
            crooked = inside & (offset & (size - 1) != 0)
            if crooked.any():
                self._report_misaligned(region, size, int(crooked.sum()), flat.size)
            inside &= ~crooked & ~misplaced
            if inside.any():
                selected = np.zeros(pointer.data.shape, dtype=bool)
                selected.reshape(-1)[positions[inside]] = True
                pieces.append(Piece(region, offset[inside] >> (size.bit_length() - 1), selected))
        if misplaced.any():
            self._report_bounds(kind, origin, flat[misplaced], flat.size, size)
        return pieces

    def _report_misaligned(self, region: Region, size: int, bad: int, active: int) -> None:
        self.report(
            "misaligned_access",
            lambda: (
                f"{bad} of {active} active lanes access {region.describe()} at addresses that are no "
                f"multiple of {size} bytes"
            ),
        )

    def _report_bounds(
        self, kind: FindingKind, origin: Region | None, bad: Array, active: int, size: int
    ) -> None:
        def detail() -> str:
            first = int(bad[0])
            start = f"{bad.size} of {active} active lanes {VERBS[kind]}"
            if origin is None:
                return f"{start} where no live tensor is, the first at address {first:#x}"
            if first < origin.start:
                where = f"before the start of {origin.describe()}, the first by {origin.start - first} bytes"
            else:
                where = f"past the end of {origin.describe()}, the first by {first + size - origin.end} bytes"
            other = self.space.find(first, anywhere=False)
            return f"{start} {where}" + (f", into {other.describe()}" if other not in (None, origin) else "")

        self.report(kind, detail)

    # ---- races

    def _check_load(self, piece: Piece, size: int, *, flag: bool) -> None:
        region, program = piece.region, self.program
        if program == 1:
            if not region.stored and region.early_lanes < EARLY_READ_LIMIT_LANES:
                region.early_lanes += piece.elements.size
                shadow = region.shadow(size)
                if shadow is not None:
                    shadow.early_reads.append(piece.elements)
            if not region.stored:
                return
        elif not region.stored:
            return
        shadow = region.shadow(size)
        if shadow is None:
            return
        writers = shadow.foreign_writer(piece.elements, program)
        if writers is not None:
            self._report_race(region, writers, "read", "stored", flag=flag)
        shadow.record_read(piece.elements, program)

    def _check_store(self, piece: Piece, values: Array) -> None:
        """Compare with what other programs did; call before the values are written."""
        region, size, program = piece.region, values.dtype.itemsize, self.program
        region.stored = True
        shadow = region.shadow(size)
        if shadow is None:
            self.recorder.note(
                f"races in {region.describe()} of {self.kernel} were not looked for: its storage of "
                f"{(region.end - region.start) >> 20} MiB needs a shadow above {SHADOW_LIMIT_BYTES >> 20} MiB"
            )
            return
        for others, did in (
            (shadow.foreign_writer(piece.elements, program), "stored"),
            (shadow.foreign_reader(piece.elements, program), "loaded"),
        ):
            if others is not None:
                present = region.view(values.dtype)[piece.elements]
                different = (others != 0) & (bits(present) != bits(values))
                if different.any():
                    self._report_race(region, np.where(different, others, 0), "store another value over", did)
                    break
        shadow.writers[piece.elements] = program

    def _report_race(self, region: Region, others: Array, verb: str, did: str, *, flag: bool = False) -> None:
        def detail() -> str:
            lanes = np.flatnonzero(others)
            other = self._program_name(int(others.reshape(-1)[lanes[0]]))
            return (
                f"{lanes.size} of {others.size} active lanes {verb} what {other} {did} at {region.describe()} "
                "in the same launch"
            )

        if flag and not self.loops:  # the loop that waits for it may follow
            self._in_the_end.setdefault(candidate_frame(), (self.grid_idx, detail()))
        else:
            self.report("race", detail)

    def _check_duplicates(self, piece: Piece, values: Array) -> None:
        """Look for lanes of one store that wrote different values to one address; call after writing."""
        lost = bits(piece.region.view(values.dtype)[piece.elements]) != bits(values)
        if lost.any():
            self.report(
                "race",
                lambda: (
                    f"{int(lost.sum())} of {lost.size} active lanes of one store write to an address of "
                    f"{piece.region.describe()} that another lane gives a different value"
                ),
                one_access=True,
            )

    # ---- loads and stores

    def get_cache_policy(self, modifier: object, _eviction: object) -> object:
        """Return what matters of a cache policy: `.cv` reads anew, `.cg` only says from which cache."""
        return modifier

    def create_load(self, pointer: Handle, *options: object) -> Handle:
        """Load every lane."""
        return self.create_masked_load(pointer, None, None, *options)

    def create_store(self, pointer: Handle, value: Handle, *_: object) -> None:
        """Store every lane."""
        self.create_masked_store(pointer, value, None)

    def create_masked_load(
        self, pointer: Handle, mask: Handle | None, other: Handle | None, *options: object
    ) -> Handle:
        """Load the lanes of the mask; the others get `other`, or poison."""
        flag = bool(options) and (options[-1] is True or options[0] in READ_ANEW)
        if flag:  # that another program may set
            self.may_be_ordered = self.flags_read = True
            self.reads_anew += 1
        dtype = pointer.dtype.element_ty
        array_dtype = numpy_dtype(dtype)
        if dtype.name in NARROW_FLOATS:
            self.recorder.narrow_types.add(dtype.name)
        pieces = self._pieces("out_of_bounds_load", pointer, None if mask is None else mask.data)
        if self.shared:
            for piece in pieces:
                self._check_load(piece, array_dtype.itemsize, flag=flag)
        if len(pieces) == 1 and pieces[0].lanes is None:
            return Handle(pieces[0].region.view(array_dtype)[pieces[0].elements], dtype)
        result = np.empty(pointer.data.shape, dtype=array_dtype)
        if other is not None:
            result[...] = other.data
        if other is None or (mask is not None and self._left_out(pieces, mask.data)):
            undefined = poison_value("uint64" if dtype.is_ptr() else dtype.name, self.poison)
            if other is None:
                result.fill(undefined)
            elif mask is not None:
                result[np.broadcast_to(mask.data, result.shape)] = undefined
        for piece in pieces:
            result[piece.lanes if piece.lanes is not None else ...] = piece.region.view(array_dtype)[
                piece.elements
            ]
        return Handle(result, dtype)

    @staticmethod
    def _left_out(pieces: list[Piece], mask: Array) -> bool:
        """Return whether some active lane was not admitted."""
        return sum(piece.elements.size for piece in pieces) < int(np.count_nonzero(mask))

    def create_masked_store(self, pointer: Handle, value: Handle, mask: Handle | None, *_: object) -> None:
        """Store the lanes of the mask."""
        self.changes += 1
        dtype = numpy_dtype(pointer.dtype.element_ty)
        lanes = value.data if value.data.dtype == dtype else value.data.view(dtype)
        if lanes.shape != pointer.data.shape:
            lanes = np.broadcast_to(lanes, pointer.data.shape)
        for piece in self._pieces("out_of_bounds_store", pointer, None if mask is None else mask.data):
            values = lanes if piece.lanes is None else lanes[piece.lanes]
            if self.shared:
                self._check_store(piece, values)
            piece.region.view(dtype)[piece.elements] = values
            if values.size > 1:
                self._check_duplicates(piece, values)

    def create_addptr(self, pointer: Handle, offset: Handle) -> Handle:
        """Move a pointer by a number of elements: the offset is sign-extended, the sum wraps at 64 bits."""
        size = numpy_dtype(pointer.dtype.element_ty).itemsize
        steps = offset.data.astype(np.int64)
        if size > 1:
            steps *= size
        return Handle(pointer.data + steps.view(np.uint64), pointer.dtype, getattr(pointer, "origin", None))


def bits(values: Array) -> Array:
    """Return the bit patterns, so that NaN equals itself and -0.0 differs from 0.0."""
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))
