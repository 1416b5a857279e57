"""What the judge of a GPU does with memory, with files of the host in the place of the GPU's."""

import json
import os
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from adaexplore_mcp.evaluation.workers import judge as module
from adaexplore_mcp.evaluation.workers.cuda import memory
from adaexplore_mcp.evaluation.workers.cuda.kept import KeptSpace
from adaexplore_mcp.evaluation.workers.judge import Judge
from adaexplore_mcp.evaluation.workers.spaces import GUARD, GUARD_BYTES, HostSpace, file_bytes, map_file
from adaexplore_mcp.evaluation.workers.tensors import copy_contiguous, decode, encode

RULE = {"precision": "match", "atol": 0.0, "rtol": 0.0, "max_outlier_share": 0.0}


class GuardedSpace(HostSpace):
    """Files that are laid out and filled as GPU memory is."""

    guard = GUARD_BYTES

    def make(self, size):
        memory, descriptor = super().make(size + self.guard)
        return memory.fill_(GUARD), descriptor


class GpuLike(GuardedSpace):
    """The same, taken for memory of a GPU by the judge; a mapping of that is always shared."""

    device = "cuda"

    def open(self, descriptor, extents, size, *, shared):
        return super().open(descriptor, extents, size, shared=True)


class FileMemory:
    """Stands for a mapping of GPU memory; maps a file."""

    opened = 0

    def __init__(self, descriptor, size):
        FileMemory.opened += 1
        self.size = memory.rounded(size)
        self._bytes = map_file(descriptor, os.fstat(descriptor).st_size, shared=True)

    def tensor(self, start=0, size=None):
        return self._bytes[start:] if size is None else self._bytes[start : start + size]

    @classmethod
    def allocate(cls, size):
        descriptor = file_bytes(size)
        return cls(descriptor, size), descriptor


class KeptLike(KeptSpace):
    """A space that keeps mappings, of files."""

    def settle(self):
        """Do nothing: it is."""


class Court:
    """A judge, and a trial y = 2 x of two inputs, of which one changes in place."""

    def __init__(self, space):
        self.judge = Judge(space)
        self.closed = []
        self.x, self.state = torch.randn(100), torch.zeros(7)
        self.inputs = encode({"args": (self.x, self.state), "kwargs": {}}, space=GuardedSpace())
        for entry, name in zip(self.inputs.table, ("x", "state"), strict=True):
            entry["path"] = name
        self.expected, self.room = self.written([self.x * 2])
        self.slot = self.made({"op": "copy", "size": self.inputs.size}, [self.inputs.file])
        self.given = decode(self.inputs.message(), self.slot, shared=True, space=GuardedSpace())["args"]

    def written(self, tensors):
        memory, descriptor = GuardedSpace().make(4096)
        assert copy_contiguous(tensors, memory) is not None
        return descriptor, 4096

    def made(self, request, descriptors=()):
        _, (descriptor,) = self.asked({**request, "name": "made"}, descriptors)
        return descriptor

    def asked(self, request, descriptors=(), lease="ours"):
        names = ["made" if each == getattr(self, "slot", None) else f"file {each}" for each in descriptors]
        named = {"lease": lease, "names": names, "closed": self.closed}
        with self.judge.serving(request | named, descriptors):
            return self.judge.operations[request["op"]](request | named, descriptors)

    def entry(self, **fields):
        return {"path": "out", "dtype": "float32", "shape": [100], "start": 0, "wide": None, **fields}

    def compare(self, output, *, entries=None, **fields):
        request = {
            "op": "compare",
            "expected": entries or [self.entry()],
            "expected_bytes": self.room,
            "got": [self.entry()],
            "room": self.room,
            "inputs": self.inputs.message(),
            "mutated": ["state"],
            "rule": RULE,
            "accumulation": 1,
            "poison": "nan",
            "yardsticks": {},
            **fields,
        }
        return self.asked(request, [self.expected, output, self.inputs.file, self.slot])[0]


@pytest.fixture
def _files_for_memory(monkeypatch):
    monkeypatch.setattr(module, "context_error", lambda: None)
    monkeypatch.setattr(memory, "granularity", lambda: 4096)
    monkeypatch.setattr(memory, "open_memory", FileMemory)
    monkeypatch.setattr(memory, "allocate", FileMemory.allocate)


@pytest.fixture(params=[GpuLike, KeptLike])
def court(_files_for_memory, request):
    return Court(request.param())


@pytest.fixture
def keeper(_files_for_memory):
    return Court(KeptLike())


def test_what_passed_is_overwritten_so_that_it_is_not_taken_for_the_next_call(court):
    output, _ = court.written([court.x * 2])
    assert court.compare(output)["passed"]
    assert set(os.pread(output, 400, 0)) == {GUARD}


def test_what_did_not_pass_can_be_looked_at_again(court):
    output, _ = court.written([court.x * 3])
    assert not court.compare(output)["passed"]
    assert not court.compare(output)["passed"]
    assert set(os.pread(output, 400, 0)) != {GUARD}


def test_inputs_as_given_are_unchanged_and_one_that_may_change_may(court):
    output, _ = court.written([court.x * 2])
    court.given[1].add_(1)
    assert court.compare(output)["changed"] == []
    court.given[0][3] = 9.0
    output, _ = court.written([court.x * 2])
    (changed,) = court.compare(output)["changed"]
    assert (changed["path"], changed["count"], changed["index"]) == ("x", 1, [3])


def test_a_store_behind_an_input_is_seen(court):
    output, _ = court.written([court.x * 2])
    start, size = court.inputs.storages[1]
    os.pwrite(court.slot, b"\0" * 12, start + size + 4)
    (found,) = court.compare(output)["changed"]
    assert found == {"path": "state", "count": 12, "index": [], "behind": True}


def test_a_slot_can_be_filled_with_other_values_at_the_same_addresses(court):
    other = encode({"args": (court.x + 1, court.state), "kwargs": {}}, space=GuardedSpace())
    court.asked({"op": "refill", "size": other.size}, [court.slot, other.file])
    assert torch.equal(court.given[0], court.x + 1)


def test_equal_contents_have_equal_digests(court):
    request = {"parts": court.inputs.storages, "size": court.inputs.size}
    (one, other), (mine, _) = (
        court.asked(request | {"op": "digest"}, [file])[0]["digests"]
        for file in (court.inputs.file, court.slot)
    )
    assert one == mine
    assert one != other


@pytest.mark.parametrize(
    "entry",
    [
        {"wide": {"dtype": "float64", "shape": [50], "start": 448}},
        {"start": 1 << 64},
        {"start": 3},
        {"shape": [1 << 40]},
    ],
    ids=["another shape in float64", "behind the end", "odd", "too large"],
)
def test_a_reference_that_describes_what_is_not_there_is_no_yardstick(court, entry):
    output, _ = court.written([court.x * 2])
    described = court.entry(**entry)
    answer = court.compare(output, entries=[described], got=[{**court.entry(), "shape": described["shape"]}])
    assert "no_yardstick" in answer


def test_a_judge_whose_context_is_broken_ends(court, monkeypatch):
    monkeypatch.setattr(module, "context_error", lambda: ("CUDA_ERROR_ILLEGAL_ADDRESS", "…"))
    with pytest.raises(SystemExit):
        court.judge.check_device()


def test_what_an_output_is_measured_by_is_found_once(court, monkeypatch):
    output, _ = court.written([court.x * 2 + 1e-3])
    first = court.compare(output)
    assert list(first["yardsticks"]) == ["out"]
    again, _ = court.written([court.x * 2 + 1e-3])
    monkeypatch.setattr(module, "yardstick_of", None)
    second = court.compare(again, yardsticks=json.loads(json.dumps(first["yardsticks"])))
    assert second == first | {"yardsticks": {}}
    assert not second["passed"]


# --- what a judge keeps mapped -----------------------------------------------------------------------------


def opened(ask):
    """Return what somebody is answered, and how often memory was mapped for that."""
    before = FileMemory.opened
    return ask(), FileMemory.opened - before


def test_memory_is_mapped_once_for_all_requests_about_it(keeper):
    output, _ = keeper.written([keeper.x * 2])
    assert opened(lambda: keeper.compare(output)["passed"]) == (
        True,
        2,
    )  # it has made the slot, of the inputs
    os.pwrite(output, (keeper.x * 2).numpy().tobytes(), 0)
    assert opened(lambda: keeper.compare(output)["passed"]) == (True, 0)
    assert opened(lambda: keeper.compare(output)["passed"]) == (False, 0)  # it was overwritten, and read anew


def test_memory_that_nobody_names_is_mapped_for_its_request_alone(keeper):
    request = {"parts": keeper.inputs.storages, "size": keeper.inputs.size}
    for _ in range(2):
        assert opened(lambda: keeper.judge.digest(request, [keeper.inputs.file]))[1] == 1


def test_what_is_closed_or_released_is_not_kept(keeper):
    output, _ = keeper.written([keeper.x * 2])
    keeper.compare(output)
    leases = keeper.judge.space._leases
    assert set(leases["ours"]) == {"made"} | {
        f"file {file}" for file in (keeper.expected, output, keeper.inputs.file)
    }
    kept = weakref.ref(leases["ours"][f"file {output}"])
    keeper.closed = [f"file {output}", "unknown"]
    keeper.asked({"op": "digest", "parts": [], "size": keeper.inputs.size}, [keeper.inputs.file])
    assert kept() is None
    keeper.asked({"op": "release", "released": "ours"}, lease="")
    assert not leases
    keeper.closed = []
    output, _ = keeper.written([keeper.x * 2])
    assert keeper.compare(output)["passed"]


def test_leases_keep_to_themselves(keeper):
    request = {"op": "digest", "parts": keeper.inputs.storages, "size": keeper.inputs.size}
    for lease in ("one", "other"):
        assert opened(lambda lease=lease: keeper.asked(request, [keeper.inputs.file], lease))[1] == 1
    keeper.asked({"op": "release", "released": "one"}, lease="")
    assert opened(lambda: keeper.asked(request, [keeper.inputs.file], "other"))[1] == 0
    assert opened(lambda: keeper.asked(request, [keeper.inputs.file], "one"))[1] == 1


def test_a_size_that_memory_has_not_is_no_way_to_what_is_kept(keeper):
    request = {"op": "digest", "parts": [], "size": keeper.inputs.size}
    keeper.asked(request, [keeper.inputs.file])
    assert opened(lambda: keeper.asked(request | {"size": 1 << 30}, [keeper.inputs.file]))[1] == 1


def test_where_memory_is_short_nothing_is_kept(keeper, monkeypatch):
    output, _ = keeper.written([keeper.x * 2])
    keeper.compare(output)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1, 2))
    assert keeper.judge.no_memory() == {"out_of_memory": {"free": 1, "total": 2}}
    assert not keeper.judge.space._leases["ours"]


def test_an_output_is_overwritten_before_anybody_hears_that_it_passed(keeper, monkeypatch):
    output, _ = keeper.written([keeper.x * 2])
    seen = []
    monkeypatch.setattr(KeptLike, "settle", lambda _: seen.append(set(os.pread(output, 400, 0))))
    keeper.compare(output)
    assert seen == [{GUARD}]


def test_memory_for_outputs_is_filled_before_anybody_hears_of_it(keeper, monkeypatch):
    filled = []
    monkeypatch.setattr(KeptLike, "settle", lambda space: filled.append(space._present["made"].tensor(0, 64)))
    keeper.made({"op": "make", "size": 64})
    assert filled[0].eq(GUARD).all()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room"), ValueError("no memory")])
def test_a_copy_that_fails_leaves_no_descriptor_which_would_keep_the_memory(keeper, monkeypatch, error):
    request = {"op": "copy", "size": keeper.inputs.size, "name": "other"}
    for owner, name in ((memory, "open_memory"), (torch.Tensor, "copy_")):
        with monkeypatch.context() as patched:

            def fails(*_):
                raise error

            patched.setattr(owner, name, fails)
            before = len(list(Path("/proc/self/fd").iterdir()))
            with pytest.raises(type(error)):
                keeper.asked(request, [keeper.inputs.file], lease=name)
            assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_a_request_had_by_then_is_let_go_of_before_the_rest_is_told(keeper, monkeypatch):
    replies, held = [], []

    def short(request, descriptors):
        tensor = torch.zeros(3)
        held.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(keeper.judge, "operations", {"copy": short})
    monkeypatch.setattr(keeper.judge, "no_memory", lambda: {"held": held[0]() is not None})
    requests = iter([({"op": "copy"}, []), None])
    connection = SimpleNamespace(receive=lambda: next(requests), send=lambda *reply: replies.append(reply))
    module._answer(SimpleNamespace(connection=connection), keeper.judge)
    assert replies == [({"held": False}, [])]
