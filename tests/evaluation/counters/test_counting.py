"""Whatever stands in the place of Nsight Compute, a profile comes to an end, says why it has no counters, and leaves nothing behind."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import adaexplore_mcp
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.counters import counting
from adaexplore_mcp.evaluation.counters.counting import NEEDED_LAYERS, Profiler, Work
from adaexplore_mcp.evaluation.counters.ncu import Ncu
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.sandbox import Layers
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet
from adaexplore_mcp.evaluation.workers.tensors import encode
from adaexplore_mcp.models import Policy
from tests.support.counters import answer_of, stand_in

pytestmark = pytest.mark.anyio

GPU = Gpu(0, "GPU-none", "a GPU that is not there", 0, (9, 0))
NOTHING = Attachment({"table": [], "storages": [], "tree": None}, None)
TRIALS = TrialSet(
    1, 2, NOTHING, NOTHING, {}, [Trial("first", "constructor", NOTHING, NOTHING, 1, [])], [], {}, 1, []
)
WORK = Work(Candidate(b"", "kernelbench", "ModelNew", Policy()), TRIALS, timeout_s=10.0)

SPEAK = f"""
sys.path.insert(0, {str(Path(adaexplore_mcp.__file__).parents[1])!r})
import socket
from adaexplore_mcp.evaluation.wire import Connection
door = socket.socket(socket.AF_UNIX)
door.connect(worker[-1])
request, files = Connection(door).receive()
server = Connection(socket.socket(fileno=files[0]))
server.send({{"ok": {{}}}})
while (received := server.receive()) is not None:
    op = received[0]["op"]
    if op == "leave":
        break
    PLACE
    server.send({{"ok": {{}}}})
"""
"""Speaks in the place of a candidate's process."""


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def pool(tmp_path_factory):
    pool = WorkerPool(Path(sys.executable), tmp_path_factory.mktemp("counters"), 4 << 30)
    if missing := [name for name in NEEDED_LAYERS if not (await pool.workers()).layers.on(name)]:
        await pool.aclose()
        pytest.skip(f"this machine has no {', '.join(missing)}")
    yield pool
    await pool.aclose()


async def counted(pool, folder, body):
    file = stand_in(folder, body)
    found = await Profiler(pool, GPU, Ncu(str(file), "2025.3")).count(WORK)
    assert len(pool.pids()) < 8  # supervisor, base, judge, two parents: no session of ours
    return found


def speaking(end, place="pass"):
    return SPEAK.replace("PLACE", place) + end


async def test_counters_are_read(pool, tmp_path):
    found = await counted(pool, tmp_path, speaking(f"open(log, 'w').write({answer_of(('kernel', {}))!r})"))
    assert not found.problem
    assert [each.kernel for each in found.launches] == ["kernel"]
    assert found.raw == answer_of(("kernel", {}))


async def test_a_driver_that_refuses_is_told(pool, tmp_path):
    end = "open(log, 'w').write('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\\n')"
    found = await counted(pool, tmp_path, speaking(end))
    assert "only administrators" in found.problem
    assert not found.ours  # a candidate's code had run by then, and could have written that


async def test_garbage_is_no_counter(pool, tmp_path):
    found = await counted(
        pool, tmp_path, speaking("open(log, 'wb').write(bytes(range(256)) * 50)\nsys.exit(9)")
    )
    assert "it answered nothing that can be read (exit code 9)" in found.problem
    assert not found.launches


async def test_a_flood_is_cut(pool, tmp_path):
    said = f"open(log, 'w').write({answer_of(('kernel', {}))!r} + '\"0\",\"x\"\\n' * (4 << 20))\nprint('x' * (32 << 20))"
    found = await counted(pool, tmp_path, speaking(said))
    assert len(found.raw) <= 2 << 20
    assert len(found.launches) == 1


async def test_a_log_that_is_a_link_is_not_followed(pool, tmp_path):
    found = await counted(pool, tmp_path, speaking("import os\nos.symlink('/etc/passwd', log)"))
    assert "root:" not in found.raw
    assert not found.launches


async def test_one_that_starts_nothing_is_not_asked_again(pool, tmp_path):
    found = await counted(pool, tmp_path, "print('==ERROR== Cannot find its libraries')\nsys.exit(1)")
    assert found.ours
    assert 'it says "Cannot find its libraries"' in found.problem


async def test_one_that_hangs_ends_with_its_time(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "START_S", 0.5)
    found = await counted(pool, tmp_path, "time.sleep(600)")
    assert found.ours
    assert "no process came up under it within 0.5 s" in found.problem


async def test_one_that_hangs_later_ends_with_its_time(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "CALLS_S", 0.5)
    found = await counted(pool, tmp_path, speaking("", "time.sleep(600) if op == 'profiled' else None"))
    assert not found.ours
    assert "a call under it took more than 0.5 s" in found.problem


async def test_a_candidate_that_takes_its_process_along_is_told(pool, tmp_path):
    found = await counted(
        pool, tmp_path, speaking("", "import os; os._exit(3) if op == 'profiled' else None")
    )
    assert "under it the candidate raised ProfilerEnded" in found.problem or "ended" in found.problem
    assert not found.launches


async def test_without_cuda_the_real_process_says_so(pool, tmp_path):
    found = await counted(pool, tmp_path, "sys.exit(subprocess.run(worker).returncode)")
    assert found.ours
    assert "it ended before it was given a candidate" in found.problem


async def test_it_reaches_nothing_but_its_folder_and_unix_sockets(pool, tmp_path):
    body = f"""
        import os, socket
        seen = []
        for path in ({str(Path.home())!r}, {str(tmp_path.parent)!r}):
            try:
                os.listdir(path)
                seen.append(path)
            except OSError:
                pass
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            try:
                socket.socket(family)
                seen.append(str(family))
            except OSError:
                pass
        home = socket.socket(socket.AF_UNIX)
        home.bind("door")
        home.listen()
        socket.socket(socket.AF_UNIX).connect("door")
        print("==ERROR== reached", seen, sorted(os.listdir("/proc"))[:1])
        sys.exit(1)
    """
    found = await counted(pool, tmp_path, body)
    assert "reached []" in found.problem, found.problem
    assert os.getpid() > 0


WITHOUT_CUDA = f"""
import sys
import types

package = types.ModuleType("adaexplore_mcp")
package.__path__ = [{str(Path(adaexplore_mcp.__file__).parent)!r}]
sys.modules["adaexplore_mcp"] = package
from adaexplore_mcp.evaluation.workers.cuda import profiled


class Engine(profiled.CudaEngine):
    space = profiled.CandidateProcess.__init__.__globals__["InterpretingEngine"].space
    __init__ = start = guard = mark = settle = lambda *_: None
    place = lambda self, model: model
    explain = lambda self, error: (error, {{}})
    fault = lambda self: {{}}


profiled.CudaEngine = Engine
profiled.start_if_room = lambda: ""
profiled._start_triton = lambda: None
profiled.watched_call = lambda function, inputs, _: function(*inputs[0], **inputs[1])
sys.exit(profiled.main(sys.argv[1:]))
"""
"""The real process, and all that it does to itself, without what needs a GPU."""
HOSTILE = """
import os, signal, socket
import torch

reached = []
for attempt in (
    lambda: os.listdir(os.path.expanduser("~root")),
    lambda: os.listdir("/tmp"),
    lambda: socket.create_connection(("127.0.0.1", 1), 1),
    lambda: open(f"/proc/{os.getppid()}/mem", "r+b"),
    lambda: open("/proc/1/comm", "w"),
    lambda: os.memfd_create("x"),
):
    try:
        attempt()
        reached.append(attempt.__code__.co_firstlineno)
    except PermissionError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self):
        if reached:
            raise type(f"Reached{len(reached)}", (Exception,), {})
"""


async def test_the_candidate_is_as_confined_as_ever(pool, tmp_path):
    (tmp_path / "inner.py").write_text(WITHOUT_CUDA)
    body = f"""
        code = subprocess.run([worker[0], "-P", {str(tmp_path / "inner.py")!r}, worker[-1]]).returncode
        if code == 0:
            open(log, "w").write({answer_of(("kernel", {}))!r})
        sys.exit(code)
    """
    empty = Attachment(encode({"args": (), "kwargs": {}}).message(), None)
    trials = replace(TRIALS, init=empty, trials=[replace(TRIALS.trials[0], inputs=empty)])
    work = replace(WORK, candidate=replace(WORK.candidate, source=HOSTILE.encode()), trials=trials)
    found = await Profiler(pool, GPU, Ncu(str(stand_in(tmp_path, body)), "2025.3")).count(work)
    assert not found.problem, found.problem + found.raw
    assert [each.kernel for each in found.launches] == ["kernel"]


async def test_without_confinement_nothing_is_profiled(pool, monkeypatch):
    workers = await pool.workers()
    monkeypatch.setattr(workers, "layers", Layers({**workers.layers.state, "net": "not permitted"}))
    found = await Profiler(pool, GPU, Ncu("/usr/bin/ncu", "1")).unusable()
    assert found is not None
    assert "without these layers of isolation: net" in found.problem
    assert (await Profiler(pool, GPU, Ncu(problem="none here")).unusable()).problem == "none here"
