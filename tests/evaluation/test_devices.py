"""GPUs as NVML tells of them, which a stand-in module does here."""
# ruff: noqa: N801, N802, N815, N818 - names that pynvml gave

import sys
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace

import pytest

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.evaluation.devices import Gpu, Occupant, Usage, find, usage
from adaexplore_mcp.settings import load_settings

FIRST, SECOND, THIRD = "GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000"


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


@dataclass
class Card:
    """What the driver says of one GPU; an exception is raised instead of given."""

    uuid: object
    name: object = "NVIDIA H200"
    memory: object = field(default_factory=lambda: SimpleNamespace(total=100, used=30, free=70))
    capability: object = (9, 0)
    minor: object = 0
    mode: object = 0
    mig: object = field(default_factory=lambda: [0, 0])
    processes: object = ()


class Nvml(ModuleType):
    """Stands in for pynvml."""

    NVML_COMPUTEMODE_PROHIBITED = 2
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
    NVMLError = NVMLError
    NVMLError_LibraryNotFound = NVMLError_LibraryNotFound
    NVMLError_DriverNotLoaded = NVMLError_DriverNotLoaded

    def __init__(self, *cards, start=None):
        super().__init__("pynvml")
        self.cards = cards
        self.start = start
        self.open = 0

    def nvmlInit(self):
        if self.start is not None:
            raise self.start
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        assert self.open
        return "580.82"

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return said(self.cards[index])

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for card in self.cards:
            if isinstance(card, Card) and card.uuid == uuid:
                return card
        raise NVMLError("not found")

    nvmlDeviceGetUUID = staticmethod(lambda card: said(card.uuid))
    nvmlDeviceGetName = staticmethod(lambda card: said(card.name))
    nvmlDeviceGetMemoryInfo = staticmethod(lambda card: said(card.memory))
    nvmlDeviceGetCudaComputeCapability = staticmethod(lambda card: said(card.capability))
    nvmlDeviceGetMinorNumber = staticmethod(lambda card: said(card.minor))
    nvmlDeviceGetComputeMode = staticmethod(lambda card: said(card.mode))
    nvmlDeviceGetMigMode = staticmethod(lambda card: said(card.mig))
    nvmlDeviceGetComputeRunningProcesses_v3 = staticmethod(lambda card: said(card.processes))


def said(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture
def machine(monkeypatch):
    """Give the machine some GPUs; NVML must be closed again at the end."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = []

    def build(*cards, start=None):
        made.append(Nvml(*cards, start=start))
        monkeypatch.setitem(sys.modules, "pynvml", made[-1])

    yield build
    assert all(nvml.open == 0 for nvml in made)


@pytest.fixture
def two(machine):
    machine(Card(FIRST), Card(SECOND, "NVIDIA L4", capability=(8, 9), minor=3, mode=3))


def uuids(choice=()):
    return [gpu.uuid for gpu in find(choice)]


def test_each_gpu_is_described(two):
    first, second = find(())
    assert first == Gpu(0, FIRST, "NVIDIA H200", 100, (9, 0), 0, "580.82", exclusive=False, position=0)
    assert second == Gpu(1, SECOND, "NVIDIA L4", 100, (8, 9), 3, "580.82", exclusive=True, position=1)
    assert (second.node, second.arch, second.label) == ("/dev/nvidia3", "sm_89", "cuda:1")


@pytest.mark.parametrize(
    "start",
    [NVMLError_LibraryNotFound(), NVMLError_DriverNotLoaded(), NVMLError("Driver/library version mismatch")],
)
def test_without_a_driver_there_is_no_gpu(machine, start, caplog):
    machine(start=start)
    assert find(()) == []
    assert ("mismatch" in caplog.text) == (type(start) is NVMLError)


def test_a_driver_without_a_gpu_is_no_error(machine):
    machine()
    assert find(()) == []


def test_the_real_library_is_asked_without_an_exception(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for gpu in find(()):
        assert gpu.memory_bytes > 0
        assert usage(gpu).used_bytes is not None


def test_a_gpu_that_does_not_answer_is_left_out_and_the_others_keep_their_index(machine, caplog):
    machine(NVMLError("GPU is lost"), Card(SECOND))
    (gpu,) = find(())
    assert (gpu.index, gpu.label) == (1, "cuda:0")
    assert "GPU 0 is left out: GPU is lost" in caplog.text


def test_what_an_old_driver_does_not_know_is_unknown(machine):
    unknown = NVMLError("not supported")
    machine(Card(FIRST, memory=unknown, minor=unknown, mode=unknown, mig=unknown, processes=unknown))
    (gpu,) = find(())
    assert (gpu.memory_bytes, gpu.minor, gpu.node, gpu.exclusive) == (0, -1, "", False)
    assert usage(gpu) == Usage(None, None, None)


def test_a_gpu_split_by_mig_is_left_out(machine):
    machine(Card(FIRST, mig=[1, 1]), Card(SECOND, mig=[0, 1]))
    assert uuids() == [SECOND]
    with pytest.raises(RequestError, match="'0' is split by MIG") as caught:
        find(["0"])
    assert f"There are: 1 (NVIDIA H200, {SECOND})." in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "visible"),
    [
        ("0,1,2", [FIRST, SECOND, THIRD]),
        ("2, 0", [THIRD, FIRST]),
        (SECOND, [SECOND]),
        ("GPU-bbbb", [THIRD]),
        ("1,GPU-bbbb", [SECOND, THIRD]),
        ("1,7,0", [SECOND]),
        ("1,-1,0", [SECOND]),
        ("2,GPU-aaaa,0", [THIRD]),
        ("1,1", []),
        (f"1,{SECOND}", []),
        ("", []),
        ("-1", []),
        ("none", []),
        ("MIG-aaaa1111", []),
    ],
)
def test_what_cuda_is_not_shown_is_not_used(machine, monkeypatch, variable, visible):
    machine(Card(FIRST), Card(SECOND), Card(THIRD))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert uuids() == visible


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (["1"], [SECOND]),
        (["cuda:1", "0"], [SECOND, FIRST]),
        ([FIRST], [FIRST]),
        (["GPU-aaaa2"], [SECOND]),
        (["1", SECOND, "cuda:1"], [SECOND]),
        (["none"], []),
    ],
)
def test_the_choice_wins_over_what_cuda_is_shown(two, monkeypatch, choice, chosen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert uuids(choice) == chosen
    assert [gpu.label for gpu in find(choice)] == [f"cuda:{place}" for place in range(len(chosen))]


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (["0", "7"], "There is no GPU '7'."),
        (["cuda:-1"], "There is no GPU 'cuda:-1'."),
        (["GPU-cccc"], "There is no GPU 'GPU-cccc'."),
        (["L4"], "There is no GPU 'L4'."),
        (["GPU-aaaa"], "'GPU-aaaa' means 2 GPUs."),
        (["none", "0"], "'none' cannot stand beside other GPUs."),
    ],
)
def test_an_unknown_gpu_is_named_beside_those_there_are(two, choice, problem):
    with pytest.raises(RequestError) as caught:
        find(choice)
    assert caught.value.problem == f"{problem} There are: 0 (NVIDIA H200, {FIRST}), 1 (NVIDIA L4, {SECOND})."
    assert "--device none" in caught.value.next_step


def test_a_choice_on_a_machine_without_a_gpu_is_refused(machine):
    machine(start=NVMLError_LibraryNotFound())
    with pytest.raises(RequestError, match=r"There is no GPU '0'\. No GPU can be used here\."):
        find(["0"])
    assert find(["none"]) == []


def test_usage_names_the_processes_that_are_not_ours(machine):
    there = [
        SimpleNamespace(pid=7, usedGpuMemory=5),
        SimpleNamespace(pid=8, usedGpuMemory=6),
        SimpleNamespace(pid=9, usedGpuMemory=None),
    ]
    machine(Card(FIRST, processes=there))
    (gpu,) = find(())
    assert usage(gpu, {8}) == Usage(30, 70, (Occupant(7, 5), Occupant(9, None)))
    assert usage(replace(gpu, uuid="GPU-gone")) == Usage(None, None, None)


def test_usage_of_a_gpu_whose_driver_went_away_is_unknown(machine):
    machine(Card(FIRST))
    (gpu,) = find(())
    machine(start=NVMLError("unknown error"))
    assert usage(gpu) == Usage(None, None, None)


@pytest.mark.parametrize(
    ("flags", "variable", "chosen"),
    [
        (None, "", ()),
        (None, "0, 1", ("0", "1")),
        (["0,1", "GPU-aaaa"], "", ("0", "1", "GPU-aaaa")),
        (["1"], "0", ("1",)),
        (None, "none", ("none",)),
    ],
)
def test_the_setting_is_a_list_with_commas(flags, variable, chosen):
    assert load_settings({"devices": flags}, {"ADAEXPLORE_DEVICES": variable}).devices == chosen


def test_the_flag_may_be_repeated():
    from adaexplore_mcp import cli

    given = cli._parser().parse_args(["doctor", "--device", "0,1", "--devices", "GPU-aaaa"])
    assert cli._settings(given).devices == ("0", "1", "GPU-aaaa")
