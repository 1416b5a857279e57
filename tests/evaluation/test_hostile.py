"""Hostile candidates against the real workers: each costs its own verdict, and nothing of it is left.

After every test an honest candidate is judged, and the processes, session folders and descriptors are counted.
"""

import json
import os
import socket
import subprocess
import tempfile
import textwrap
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from bench import CANARY, HONEST, MEMORY_BYTES, misbehaving, need
from contenders import GPU, Lock
from processes import descendants, soon

from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.numerics import MIN_CALLS
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.scratch import YOUNG_S, ScratchFolder, remove_tree

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless")]

KEPT_BYTES = 64 << 10  # head and tail of one stream
ENDLESS_S = 1.0


# --- while others time -----------------------------------------------------------------------------------


class Way:
    """A place on a GPU where somebody wants to time whenever way is given between two requests."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.times = 0
        self.given_way_s = 0.0
        self.stopped = []

    async def give_way(self, still):
        self.times += 1
        if self.seconds:
            async with still():
                began = anyio.current_time()
                await anyio.sleep(self.seconds)
                self.stopped.append(session_stopped())
                self.given_way_s += anyio.current_time() - began

    @asynccontextmanager
    async def giving_way(self, _):
        yield


class Timings:
    """Somebody who times on a GPU that is none, again and again."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.stopped = []

    @asynccontextmanager
    async def beside(self):
        """Give a place beside it."""
        devices = Devices([GPU], {GPU.uuid: Lock()})
        async with anyio.create_task_group() as group:
            async with devices.use(needs=Needs(1), report=str) as place:
                group.start_soon(self._time, devices)
                yield place
            group.cancel_scope.cancel()

    async def _time(self, devices):
        while True:
            await anyio.sleep(0.1)
            async with devices.alone(GPU, str):
                await anyio.sleep(self.seconds)
                self.stopped.append(session_stopped())


def session_stopped():
    """Tell whether any process below this one is stopped."""
    return any(each.stopped for each in descendants(os.getpid()))


async def test_who_is_stopped_while_it_is_imported_and_constructed_loses_no_time(bench):
    timings = Timings(seconds=1.0)
    source = misbehaving("pass", loading="time.sleep(2)")
    async with timings.beside() as place:
        report = await bench.run(source, timeout_s=2.5, place=place)
    assert report.clean, (report.failure, report.mismatch, report.timed_out_s)
    assert len(timings.stopped) >= 3
    assert all(timings.stopped[:3])
    assert place.given_way_s >= 3


async def test_who_hangs_while_it_is_imported_and_stopped_has_no_more_time_than_others(bench):
    timings = Timings(seconds=0.3)
    began = anyio.current_time()
    async with timings.beside() as place:
        report = await bench.run(misbehaving("pass", loading="time.sleep(60)"), timeout_s=1.0, place=place)
    assert (report.timed_out_s, report.ended, report.failure) == (1.0, None, None)
    assert any(timings.stopped)
    assert anyio.current_time() - began - place.given_way_s < 10


async def test_who_ends_while_it_is_imported_and_stopped_again_and_again_is_told_as_it_ended(bench):
    timings = Timings(seconds=0.3)
    async with timings.beside() as place:
        report = await bench.run(misbehaving("pass", loading="time.sleep(0.5); os._exit(3)"), place=place)
    assert any(timings.stopped)
    assert report.ended is not None
    assert report.ended.exit_code == 3


async def test_who_gives_way_stands_still_and_loses_no_time(bench):
    way = Way(seconds=0.3)
    report = await bench.run(HONEST, timeout_s=3.0, place=way)
    assert report.clean, (report.failure, report.mismatch, report.timed_out_s)
    assert 0.3 * way.times > 3.0
    assert all(way.stopped)
    assert report.calls > MIN_CALLS  # what is left out where time is short was done


async def test_who_has_left_a_thread_running_gives_way_to_nobody(bench):
    way = Way()
    await bench.run(
        misbehaving("threading.Thread(target=time.sleep, args=(30,), daemon=True).start()"), place=way
    )
    before = way.times
    assert before < 10
    await bench.run(HONEST, place=way)
    assert way.times - before > 10


async def test_a_thread_that_was_seen_once_is_not_forgotten(bench):
    """What comes after the verdict looks at reports of its own."""
    way = Way()
    late = "calls.append(1)\nif len(calls) > 3: threading.Thread(target=time.sleep, args=(30,), daemon=True).start()"
    report = await bench.run(misbehaving(late, loading="global calls; calls = []"), place=way)
    assert report.clean
    assert way.times < 14


# --- what it prints --------------------------------------------------------------------------------------


async def test_of_100_megabytes_of_output_a_head_and_a_tail_are_kept(bench):
    report = await bench.run(misbehaving("for _ in range(100): print('x' * (1 << 20))", once=True))
    assert report.clean
    printed = report.report.stdout
    assert printed["total"] == 100 * ((1 << 20) + 1)
    assert len(printed["head"]) + len(printed["tail"]) <= KEPT_BYTES


async def test_what_is_written_straight_to_descriptors_1_and_2_is_captured_and_not_ours(bench, capfd):
    write = "for fd, word in ((1, b'to one'), (2, b'to two')): os.write(fd, word + bytes(1 << 20))"
    evaluation = await bench.judged(misbehaving(write, once=True))
    assert evaluation.outcome.status == "correct"
    texts = dict(evaluation.texts)
    assert texts["stdout"].startswith("to one")
    assert texts["stderr"].startswith("to two")
    assert max(map(len, texts.values())) < 2 * KEPT_BYTES
    assert capfd.readouterr() == ("", "")


async def test_what_is_said_to_be_outdated_is_not_printed_and_other_warnings_are(bench):
    warn = (
        "import warnings; warnings.warn('as of old', FutureWarning); warnings.warn('look here', UserWarning)"
    )
    evaluation = await bench.judged(misbehaving(warn, once=True))
    assert evaluation.outcome.status == "correct"
    assert "UserWarning: look here" in dict(evaluation.texts)["stderr"]
    assert "FutureWarning: as of old" not in dict(evaluation.texts)["stderr"]


async def test_what_is_written_to_every_open_descriptor_ends_only_its_own_session(bench):
    write = """
        for fd in range(512):
            try:
                os.write(fd, b"nonsense " * 100)
            except OSError:
                pass
    """
    outcome = await bench.verdict(misbehaving(write))
    assert outcome.status in {"crashed", "rejected"}


async def test_bytes_that_are_no_text_and_no_json_are_kept_readable(bench):
    evaluation = await bench.judged(
        misbehaving("os.write(1, bytes(range(256)) + b'\\xed\\xa0\\x80')", once=True)
    )
    assert evaluation.outcome.status == "correct"
    json.dumps(dict(evaluation.texts)["stdout"]).encode()


# --- processes -------------------------------------------------------------------------------------------


async def test_children_in_sessions_of_their_own_are_found_and_the_candidate_is_rejected(bench):
    fork = """
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(1000)
    """
    report = await bench.run(misbehaving(fork, once=True))
    assert report.report.strays == 3
    assert len([event for event in report.integrity.events if event.kind == "process"]) == 3
    outcome = await bench.verdict(misbehaving(fork, once=True))
    assert (outcome.status, outcome.check) == ("rejected", "process_started")


async def test_daemons_forked_past_python_are_found_too(bench):
    fork = """
        libc = ctypes.CDLL(None)
        if libc.fork() == 0:
            libc.setsid()
            if libc.fork() == 0:
                libc.setsid()
                libc.sleep(1000)
            libc._exit(0)
    """
    report = await bench.run(misbehaving(fork, once=True))
    assert report.report.strays >= 1


async def test_a_hundred_children_are_ended(bench):
    fork = """
        for _ in range(100):
            if os.fork() == 0:
                time.sleep(1000)
    """
    report = await bench.run(misbehaving(fork, once=True))
    assert report.report.strays == 100


async def test_a_signal_to_a_process_outside_does_not_arrive(bench):
    need(bench, "pid")
    async with await anyio.open_process(["sleep", "1000"]) as victim:
        kill = f"ctypes.CDLL(None).kill({victim.pid}, 9); os.kill({victim.pid}, signal.SIGKILL)"
        outcome = await bench.verdict(misbehaving(kill))
        assert (outcome.status, outcome.check) == ("rejected", "signal_sent")
        assert victim.returncode is None
        victim.kill()


async def test_the_stub_and_its_neighbours_cannot_be_signalled(bench):
    need(bench, "pid", "seccomp")
    outcome = await bench.verdict(misbehaving("ctypes.CDLL(None).kill(os.getppid(), 9)", once=True))
    assert outcome.status == "correct"


# --- ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("while True: pass", id="loops"),
        pytest.param(
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)", id="ignores SIGTERM"
        ),
        pytest.param("os.kill(os.getpid(), signal.SIGSTOP)", id="stops itself"),
        pytest.param("ctypes.PyDLL(None).sleep(1000)", id="keeps the interpreter's lock"),
        pytest.param(
            "wire().send(struct.pack('!IH', 1 << 20, 0) + bytes(9)) and time.sleep(1000)",
            id="sends half a frame",
        ),
    ],
)
async def test_a_candidate_that_does_not_end_is_ended_at_its_deadline(bench, act):
    outcome = await bench.verdict(misbehaving(act), timeout_s=ENDLESS_S)
    assert (outcome.status, outcome.check, outcome.stage) == ("timeout", "deadline", "run")


@pytest.mark.parametrize(("where", "stage"), [("loading", "load"), ("building", "construct")])
async def test_an_endless_import_or_constructor_is_ended_too(bench, where, stage):
    outcome = await bench.verdict(misbehaving(**{where: "while True: pass"}), timeout_s=ENDLESS_S)
    assert (outcome.status, outcome.stage) == ("timeout", stage)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("assert bool(z.abs().max() < 1e6)", id="raises"),
        pytest.param("while not bool(z.abs().max() < 1e6): pass", id="waits"),
        pytest.param("bool(z.abs().max() < 1e6) or os._exit(3)", id="leaves"),
    ],
)
async def test_what_a_launch_that_was_left_out_leads_to_is_no_fault(bench, act):
    report = await bench.run(HONEST.replace(b"    return z\n", f"    {act}\n    return z\n".encode()))
    assert report.clean
    assert report.unused == []


CRASHES = [
    pytest.param("ctypes.string_at(0)", "SIGSEGV", id="segfaults"),
    pytest.param("os.abort()", "SIGABRT", id="aborts"),
    pytest.param("os._exit(0)", "exit 0", id="leaves with 0"),
    pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", id="kills itself"),
    pytest.param("sys.exit(3)", "SystemExit", id="calls exit"),
]


@pytest.mark.parametrize(("act", "how"), CRASHES)
async def test_a_candidate_that_ends_its_process_crashed(bench, act, how):
    outcome = await bench.verdict(misbehaving(act))
    assert (outcome.status, outcome.error.type) == ("crashed", how)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("os._exit(70)", id="leaves with our own exit code"),
        pytest.param(
            "class E(Exception):\n    def __str__(self): sys.exit(3)\nraise E", id="exits in __str__"
        ),
        pytest.param(
            "class E(Exception):\n    __class__ = property(lambda self: 1 / 0)\nraise E",
            id="lies about its class",
        ),
        pytest.param(
            "class M(type):\n    __name__ = property(lambda cls: 1 / 0)\nclass E(Exception, metaclass=M): pass\nraise E",
            id="has a class without a name",
        ),
        pytest.param(
            "e = SyntaxError('x')\ne.filename, e.lineno, e.offset, e.text = __file__, 'one', 1, 5\nraise e",
            id="forges a syntax error",
        ),
        pytest.param("import builtins\nbuiltins.isinstance = lambda *_: True", id="replaces builtins"),
    ],
)
async def test_a_candidate_cannot_make_its_end_look_like_our_fault(bench, act):
    outcome = await bench.verdict(misbehaving(act))
    assert outcome.status in {"crashed", "runtime_error", "rejected"}


async def test_a_candidate_that_closes_its_descriptors_loses_only_its_own_verdict(bench):
    # Its harness fails to answer and leaves with 70, unless the stub is told to end it first.
    outcome = await bench.verdict(misbehaving("os.closerange(0, 512)\ntime.sleep(1000)"))
    assert outcome.status == "crashed"


# --- exceptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "message"),
    [
        pytest.param("def __str__(self): raise ValueError", "<its __str__ raised ValueError>", id="raises"),
        pytest.param("def __str__(self): return 5", "<its __str__ raised TypeError>", id="is no text"),
        pytest.param("def __str__(self): return 'x' * (50 << 20)", "x" * 50, id="is huge"),
        pytest.param("def __repr__(self): raise ValueError", "", id="repr raises"),
        pytest.param("def __str__(self): return '\\ud800 \\0 \\x1b[31m'", "", id="is no Unicode"),
        pytest.param("def __init__(self): self.__notes__ = 5", "", id="has strange notes"),
    ],
)
async def test_an_exception_with_a_hostile_text_is_a_runtime_error_of_bounded_size(bench, act, message):
    outcome = await bench.verdict(misbehaving(f"class E(Exception):\n    {act}\nraise E"))
    assert (outcome.status, outcome.error.type) == ("runtime_error", "E")
    assert outcome.error.message.startswith(message)
    assert outcome.error.line
    assert len(json.dumps(outcome.to_wire()).encode()) < 8000


@pytest.mark.parametrize(
    "name", ["KeyboardInterrupt", "GeneratorExit", "StopIteration", "RecursionError", "BaseException"]
)
async def test_every_kind_of_exception_is_a_runtime_error(bench, name):
    outcome = await bench.verdict(misbehaving(f"raise {name}"))
    assert (outcome.status, outcome.error.type) == ("runtime_error", name)


async def test_a_text_that_never_ends_is_ended_at_the_deadline(bench):
    act = "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E"
    assert (await bench.verdict(misbehaving(act), timeout_s=ENDLESS_S)).status == "timeout"


async def test_infinite_recursion_is_an_error_or_a_crash(bench):
    outcome = await bench.verdict(misbehaving("def f(): f()\nf()"))
    assert (outcome.status, outcome.error.type) == ("runtime_error", "RecursionError")


# --- memory ----------------------------------------------------------------------------------------------


async def test_allocating_without_end_is_out_of_memory(bench):
    outcome = await bench.verdict(
        misbehaving("kept = []\nwhile True: kept.append(bytearray(b'x') * (16 << 20))")
    )
    assert (outcome.status, outcome.check) == ("out_of_memory", "memory")


async def test_a_tensor_larger_than_the_limit_is_out_of_memory_and_says_where(bench):
    outcome = await bench.verdict(misbehaving("torch.ones(1 << 30)"))
    assert outcome.status == "out_of_memory"
    assert outcome.error.line


async def test_memory_spread_over_children_counts_together(bench):
    act = """
        for _ in range(4):
            if os.fork() == 0:
                kept = bytearray(b"x") * (256 << 20)
                time.sleep(1000)
        time.sleep(1000)
    """
    report = await bench.run(misbehaving(act))
    assert report.ended.reason == "memory"
    assert report.report.peak_bytes > MEMORY_BYTES
    assert report.report.peak_bytes < 3 * MEMORY_BYTES


@pytest.mark.parametrize(
    "write",
    [
        pytest.param("[open(str(i), 'wb').write(bytes(64 << 20)) for i in range(16)]", id="large ones"),
        pytest.param("[open(str(i), 'w').close() for i in range(30_000)]", id="many"),
        pytest.param(
            "for _ in range(60):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)",
            id="deeper than a path may be",
        ),
    ],
)
async def test_files_count_as_memory(bench, write):
    outcome = await bench.verdict(misbehaving(f"{write}\ntime.sleep(1000)"))
    assert (outcome.status, outcome.check) == ("out_of_memory", "memory")


NAMELESS = """
kept = []
for number in range(16):
    kept.append(open(str(number), "wb"))
    os.unlink(str(number))
    kept[-1].write(bytes(64 << 20))
"""


async def test_files_without_a_name_count_too(bench):
    outcome = await bench.verdict(misbehaving(f"{NAMELESS}\ntime.sleep(1000)"))
    assert (outcome.status, outcome.check) == ("out_of_memory", "memory")


async def test_more_processes_than_a_kernel_could_need_are_ended(bench):
    fork = "for _ in range(400):\n    if os.fork() == 0: time.sleep(1000)\ntime.sleep(1000)"
    outcome = await bench.verdict(misbehaving(fork))
    assert (outcome.status, outcome.check) == ("rejected", "process_started")


HIDDEN = [
    pytest.param(
        """
        kept = []
        for _ in range(48):
            kept.append(os.memfd_create("hoard"))
            os.write(kept[-1], bytes(32 << 20))
        """,
        id="memory files",
    ),
    pytest.param(
        """
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        for _ in range(48):
            segment = libc.shmget(0, ctypes.c_size_t(32 << 20), 0o1600)
            place = libc.shmat(segment, None, 0)
            ctypes.memset(place, 1, 32 << 20)
            libc.shmdt(ctypes.c_void_p(place))
        """,
        id="System V segments",
    ),
]


@pytest.mark.parametrize("act", HIDDEN)
async def test_memory_kept_outside_of_the_address_space_counts_too(bench, act):
    need(bench, "ipc")  # a segment outlives its process where it has no namespace of its own
    report = await bench.run(misbehaving(f"{act}\n        print('held three times the limit')", once=True))
    assert "held three times the limit" not in report.report.stdout["head"]
    assert not report.clean


# --- its own socket --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("wire().sendall(b'garbage' * 1000)", id="garbage"),
        pytest.param("wire().sendall(struct.pack('!IH', 0xFFFFFFFF, 0))", id="a frame of 4 GiB"),
        pytest.param(
            "wire().sendall(struct.pack('!IH', 2, 0xFFFF) + b'{}')", id="65,535 descriptors announced"
        ),
        pytest.param("frame(b'[1, 2]')", id="no object"),
        pytest.param("frame(b'\\xff\\xfe')", id="no text"),
        pytest.param("frame(b'{\"ok\": NaN}')", id="NaN"),
        pytest.param("frame(b'{\"ok\": ' + b'9' * 10000 + b'}')", id="a number of 10,000 digits"),
        pytest.param("frame(b'{\"ok\": ' + b'[' * 100000 + b']' * 100000 + b'}')", id="deep JSON"),
        pytest.param("frame({'ok': ['x' * 100] * 30000})", id="3 MiB of JSON"),
        pytest.param("frame({'ok': {}})", id="an empty answer"),
        pytest.param("frame({'ok': {'outputs': []}})", id="no outputs"),
        pytest.param("frame({})", id="neither answer nor failure"),
        pytest.param('frame(b\'{"ok": {"outputs": [{"shape": [1e400]}]}}\')', id="infinity"),
        pytest.param(
            "frame({'ok': {}}, [os.dup(0) for _ in range(200)])",
            id="200 descriptors in one message",
        ),
        pytest.param(
            "rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 8))]\n"
            "for byte in struct.pack('!IH', 50, 0) + bytes(50): wire().sendmsg([bytes([byte])], rights)",
            id="eight descriptors with every byte",
        ),
        pytest.param("while True: frame({'ok': {}})", id="answers without end"),
        pytest.param(
            "while True: frame({'progress': {}})",
            id="progress without end",
        ),
        pytest.param("wire().shutdown(socket.SHUT_RDWR)", id="hangs up"),
    ],
)
async def test_nonsense_on_its_own_socket_costs_the_candidate_its_verdict(bench, act):
    outcome = await bench.verdict(misbehaving(act), timeout_s=5)
    assert outcome.status in {"crashed", "rejected", "incorrect"}
    assert len(json.dumps(outcome.to_wire())) < 8000


async def test_a_forged_failure_is_taken_as_data_of_bounded_size(bench):
    forged = {
        "failure": {
            "kind": ["exception"],
            "phase": 5,
            "type": "T" * 10**5,
            "message": "m" * 10**6,
            "line": 2**70,
        },
        "findings": [{"kind": "race", "line": -1}, 5] * 1000,
        "integrity": {"patched": 5, "events": {"a": 1}, "threads": [None]},
    }
    outcome = await bench.verdict(misbehaving(f"frame({forged!r})"))
    assert outcome.status == "runtime_error"
    assert len(json.dumps(outcome.to_wire())) < 8000


FILLED = "outputs_file(256)\n"


@pytest.mark.parametrize(
    ("act", "statuses"),
    [
        pytest.param(f"{FILLED}forge([OUT])", {"incorrect", "crashed"}, id="zeros"),
        pytest.param(f"{FILLED}forge([{{**OUT, 'start': 1 << 61}}])", {"rejected"}, id="behind the end"),
        pytest.param(f"{FILLED}forge([{{**OUT, 'start': -4}}])", {"rejected"}, id="before the beginning"),
        pytest.param(f"{FILLED}forge([{{**OUT, 'start': 3}}])", {"rejected"}, id="misaligned"),
        pytest.param(
            f"{FILLED}forge([{{**OUT, 'shape': [1 << 47] * 64}}])",
            {"rejected"},
            id="larger than the universe",
        ),
        pytest.param(f"{FILLED}forge([{{**OUT, 'shape': [-64]}}])", {"rejected"}, id="negative"),
        pytest.param(f"{FILLED}forge([{{**OUT, 'dtype': '__class__'}}])", {"rejected"}, id="of no dtype"),
        pytest.param(f"{FILLED}forge([OUT] * 5000)", {"rejected"}, id="5,000 outputs"),
        pytest.param(f"{FILLED}forge([{{**OUT, 'path': 'p' * 10**6}}])", {"rejected"}, id="a long name"),
        pytest.param("forge([OUT])", {"rejected"}, id="nothing in the file"),
        pytest.param("forge([OUT], os.pipe()[0])", {"rejected"}, id="a pipe of its own"),
        pytest.param("forge([OUT], wire().fileno())", {"rejected"}, id="its own socket"),
        pytest.param(
            "fd = outputs_file(256)\nfcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)\nforge([OUT])",
            {"rejected"},
            id="a file that cannot be sealed",
        ),
        pytest.param(
            f"outputs_file({MEMORY_BYTES - 4096})\nforge([OUT])", {"rejected"}, id="more than it says"
        ),
    ],
)
async def test_outputs_that_are_not_what_they_are_said_to_be_are_no_verdict_of_ours(bench, act, statuses):
    outcome = await bench.verdict(misbehaving(act), timeout_s=2)
    assert outcome.status in statuses
    assert len(json.dumps(outcome.to_wire())) < 8000


async def test_a_candidate_can_make_no_files_in_memory(bench):
    need(bench, "seccomp")
    make = """
        for make in (lambda: os.memfd_create("m"), lambda: open("/dev/shm/m", "w")):
            try:
                print("MADE", make())
            except PermissionError:
                pass
    """
    assert await bench.said(make) == ""


@pytest.mark.parametrize("race", [False, True])
async def test_outputs_that_stay_mapped_for_writing_are_rejected(bench, race):
    keep = """
        harness = sys.modules["adaexplore_mcp.evaluation.workers.candidate"]
        if not hasattr(harness, "kept"):
            harness.kept, real = [], harness.write_contiguous

            def write_contiguous(tensors, fd):
                starts = real(tensors, fd)
                harness.kept.append(mmap.mmap(fd, os.fstat(fd).st_size))
                return starts

            harness.write_contiguous = write_contiguous
    """
    race_for_it = """
        def grab():
            kept = []
            while True:
                for fd in own_files():
                    try:
                        kept.append(mmap.mmap(os.dup(fd), os.fstat(fd).st_size))
                        kept[-1][0] ^= 1
                    except (OSError, ValueError):
                        pass
        threading.Thread(target=grab, daemon=True).start()
    """
    outcome = await bench.verdict(misbehaving(race_for_it if race else keep, once=race))
    if race:  # it may also catch its inputs, or come too late
        assert outcome.status in {"rejected", "incorrect", "correct", "runtime_error", "crashed"}
    else:
        # It also works after its call: whichever is found first.
        assert (outcome.status, outcome.check) in {
            ("rejected", "outputs_kept_writable"),
            ("rejected", "late_work"),
        }


# --- files it was given ----------------------------------------------------------------------------------


SHORTEN = """
for fd in own_files():
    if os.fstat(fd).st_size == 0:  # for its outputs: that one is its to fill
        continue
    for attempt in (
        lambda: os.ftruncate(fd, 0),
        lambda: os.ftruncate(fd, 1 << 20),
        lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL),
    ):
        try:
            attempt()
            print("DONE")
        except PermissionError:
            print("refused")
"""


async def test_the_files_it_was_given_can_be_neither_shortened_nor_sealed(bench):
    report = await bench.run(misbehaving(building=SHORTEN))  # while the file of its arguments is open
    assert set(report.report.stdout["head"].split()) == {"refused"}


async def test_while_it_is_called_it_holds_no_file_but_that_for_its_outputs(bench):
    sizes = "print([os.fstat(fd).st_size for fd in own_files()])"
    assert set((await bench.said(sizes)).splitlines()) == {"[0]"}


OVERWRITE = """
for fd in own_files():
    try:
        os.pwrite(fd, bytes(4096), 0)
    except PermissionError:
        pass
"""


@pytest.mark.parametrize("what", ["constructor arguments", "weights", "inputs"])
async def test_what_a_candidate_overwrites_is_not_what_the_next_one_gets(bench, what):
    hide = """
        real = torch.nn.Module.state_dict

        def state_dict(self, *args, **kwargs):  # called while the file of the weights is open
            overwrite()
            return real(self, *args, **kwargs)

        ModelNew.state_dict = state_dict
    """
    overwrite = "def overwrite():\n" + textwrap.indent(OVERWRITE, "    ")
    where = {
        "constructor arguments": {"building": OVERWRITE},
        "weights": {"loading": f"global overwrite\n{overwrite}\n{textwrap.dedent(hide)}"},
        "inputs": {"act": OVERWRITE},
    }
    outcome = await bench.verdict(misbehaving(**where[what]))
    assert outcome.status == "correct"  # of its inputs it holds no file at all
    await bench.honest()


# --- what the next one finds -----------------------------------------------------------------------------

LOOK = """
print(json.dumps([
    sorted((k, v.replace(os.getcwd(), "CWD")) for k, v in os.environ.items()), os.path.basename(os.getcwd()).split("-")[0],
    os.listdir("."), [p.replace(os.getcwd(), "CWD") for p in sys.path], os.umask(0o077), os.nice(0),
    str(signal.getsignal(signal.SIGTERM)), torch.get_num_threads(), str(torch.get_default_dtype()),
    torch.is_grad_enabled(), len(os.listdir("/proc/self/fd")),
]))
"""


async def test_nothing_that_a_candidate_changes_is_changed_for_the_next(bench):
    before = json.loads(await bench.said(LOOK))
    change = """
        os.environ.clear()
        os.environ["EVIL"] = "1"
        os.chdir("/")
        sys.path.insert(0, "/evil")
        sys.modules["json"] = None
        os.umask(0)
        os.nice(5)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        torch.set_default_dtype(torch.float16)
        for fd in range(3, 40):
            os.dup(0)
    """
    await bench.run(misbehaving(change, once=True))
    assert json.loads(await bench.said(LOOK)) == before


async def test_an_environment_that_is_cleared_is_no_matter_of_the_kernel(bench):
    outcome = await bench.verdict(misbehaving(loading="os.environ.clear()"))
    assert outcome.status == "correct", outcome.summary


async def test_a_folder_that_the_compiler_cannot_write_into_is_no_mistake_of_the_kernel(bench):
    replace = """
        if os.path.exists(triton.knobs.cache.dir):
            os.rename(triton.knobs.cache.dir, "elsewhere")
        if not triton.knobs.runtime.interpret:
            open(triton.knobs.cache.dir, "w").close()
    """
    outcome = await bench.verdict(misbehaving(loading=replace))
    assert (outcome.status, outcome.reason) == ("unsupported", "compilation_not_possible_here"), (
        outcome.summary
    )


async def test_a_limit_that_a_candidate_lowers_below_what_its_process_needs_is_named(bench):
    lower = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))"
    outcome = await bench.verdict(misbehaving(loading=lower))
    assert outcome.status == "crashed"
    assert outcome.error.message == "RLIMIT_NOFILE was lowered to 0: the process could not go on"


async def test_an_exception_whose_class_has_a_long_name_is_an_exception(bench):
    outcome = await bench.verdict(misbehaving("raise type('X' * 20_000_000, (Exception,), {})('m')"))
    assert outcome.status == "runtime_error"
    assert "XXX: " in outcome.summary


async def test_the_environment_holds_nothing_of_the_servers(bench):
    said = await bench.said("print(dict(os.environ), open('/proc/self/environ').read())")
    assert CANARY not in said
    assert "HOME" in said


async def test_the_servers_secrets_are_nowhere_in_its_memory(bench):
    scan = f"""
        word = {CANARY[::-1]!r}[::-1].encode()
        found = 0
        with open("/proc/self/mem", "rb", 0) as memory:
            for line in open("/proc/self/maps"):
                span, rights = line.split()[:2]
                start, end = (int(part, 16) for part in span.split("-"))
                if "r" in rights and end - start < 1 << 28 and "[v" not in line:
                    memory.seek(start)
                    found += memory.read(end - start).count(word)
        print("found", found - 1)
    """
    assert await bench.said(scan) == "found 0\n"  # its own copy of the word left out


async def test_other_processes_are_not_there_for_it_and_its_stub_is_closed(bench):
    need(bench, "pid", "mount")
    look = """
        print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
        for name in ("environ", "mem", "maps", "cwd", "root", "exe"):
            try:
                print(name, open(f"/proc/1/{name}", "rb").read(9))
            except OSError as error:
                print(name, error.strerror)
    """
    pids, *files = (await bench.said(look)).splitlines()
    assert pids == "[1, 2]"
    assert all(line.endswith("Permission denied") for line in files), files


async def test_files_of_the_server_and_of_other_sessions_are_out_of_reach(bench, tmp_path):
    need(bench, "landlock")
    (tmp_path / "secret").write_text(CANARY)
    look = f"""
        for path in ({str(tmp_path / "secret")!r}, "..", "../.lock", "/etc/shadow", "/root", "/home", "/dev/shm"):
            for use in (os.listdir, open, lambda path: open(path + "/x", "w")):
                try:
                    print("REACHED", path, use(path))
                except OSError:
                    pass
    """
    assert await bench.said(look) == ""


async def test_no_outcome_holds_a_secret_of_the_server(bench):
    tell = """
        for path in ("/proc/self/environ", "/proc/1/environ", f"/proc/{os.getppid()}/environ"):
            try:
                print(open(path).read())
            except OSError:
                pass
        print(dict(os.environ))
        raise ValueError(str(dict(os.environ)))
    """
    evaluation = await bench.judged(misbehaving(tell))
    assert evaluation.outcome.status == "runtime_error"
    kept = [evaluation.outcome.model_dump_json(), json.dumps(evaluation.receipt), str(evaluation.texts)]
    assert "PATH" in kept[0]
    assert not any(CANARY in text for text in kept)


# --- network ---------------------------------------------------------------------------------------------


async def test_it_reaches_no_listener_on_this_machine(bench):
    need(bench, "net")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0adaexplore-test-{os.getpid()}")
        abstract.listen()
        connect = f"""
            for family, address in (
                (socket.AF_INET, {tcp.getsockname()!r}), (socket.AF_UNIX, {abstract.getsockname()!r})
            ):
                try:
                    socket.socket(family).connect(address)
                    print("CONNECTED", address)
                except OSError:
                    pass
        """
        assert await bench.said(connect) == ""
        for listener in (tcp, abstract):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()


async def test_an_attempt_at_the_network_is_told(bench):
    need(bench, "net")
    attempt = "try:\n    socket.socket(socket.AF_UNIX).connect('\\0nobody')\nexcept OSError:\n    pass"
    outcome = await bench.verdict(misbehaving(attempt))
    assert any("network connection" in note for note in outcome.facts.notes)


async def test_a_search_among_its_descriptors_is_told(bench):
    outcome = await bench.verdict(misbehaving("os.listdir('/proc/self/fd')", once=True))
    assert any("looked through /proc;" in note for note in outcome.facts.notes)


async def test_it_reaches_no_unix_socket_of_a_service_on_this_machine(bench):
    need(bench, "landlock")
    with socket.socket(socket.AF_UNIX) as service, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/socket"  # has at most 107 characters, which those of a test may exceed
        service.bind(path)
        service.listen()
        connect = f"""
            try:
                socket.socket(socket.AF_UNIX).connect({path!r})
                print("CONNECTED")
            except OSError:
                pass
        """
        assert await bench.said(connect) == ""


# --- the scratch folder ----------------------------------------------------------------------------------


async def test_files_that_resist_removal_are_removed(bench):
    make = """
        os.makedirs("a/b/c")
        open("a/b/file", "w").write("x")
        os.chmod("a/b", 0)
        os.chmod("a", 0)
        os.symlink("/etc", "link")
        os.mkfifo("fifo")
        open("name\\n\\xff", "w")
    """
    assert (await bench.run(misbehaving(make, once=True))).clean


def nested(folder, depth=2000):
    """Make a folder so deep that its path is longer than any path may be."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture
def deep(tmp_path):
    """A base for scratch folders; what a test leaves in it is removed without recursion."""
    base = tmp_path / "base"
    base.mkdir()
    yield base
    subprocess.run(["rm", "-rf", base], check=True)


async def test_a_folder_nested_thousands_deep_is_removed(deep):
    nested(deep / "tree")
    remove_tree(deep / "tree")
    assert not (deep / "tree").exists()


async def test_a_server_starts_although_a_dead_one_left_folders_nested_thousands_deep(deep):
    nested(deep / "1-left")
    old = (deep / "1-left").stat().st_mtime - 2 * YOUNG_S
    os.utime(deep / "1-left", (old, old))
    folder = ScratchFolder(deep)
    assert list(deep.iterdir()) == [folder.path]
    folder.close()


async def test_a_candidate_that_nests_folders_thousands_deep_leaves_none(bench):
    try:
        report = await bench.run(
            misbehaving("for _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')", once=True)
        )
        assert report.clean
        await soon(lambda: not bench._surplus(), lambda: "\n".join(bench._surplus()))
    finally:
        for folder in bench.folders:
            if (folder / "d").exists():
                await anyio.run_process(["rm", "-rf", str(folder)])
