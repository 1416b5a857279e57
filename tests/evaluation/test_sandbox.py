"""Each layer is tried in a process of its own, confined as a candidate is; what the machine lacks is skipped."""

import platform
import subprocess
import sys
import textwrap

import pytest

from adaexplore_mcp.evaluation.sandbox import Layers, probe

SETUP = """
import ctypes, fcntl, os, resource, signal, socket, sys
from adaexplore_mcp.evaluation.sandbox import Layers, Limits, confine, enter_namespaces, mount_private_proc, probe
scratch = sys.argv[1]
layers = probe(scratch)
layers = Layers({name: "off" if name in WITHOUT else state for name, state in layers.state.items()})

def confined(attempt, **limits):
    "Run an attempt in a confined process; print what came of it."
    sys.stdout.flush()
    detached = os.fork()
    if detached == 0:
        enter_namespaces(layers)
        first = os.fork()
        if first == 0:
            if layers.on("pid"):
                mount_private_proc()
            child = os.fork()
            if child == 0:
                confine(layers, Limits(**limits), writable=[scratch])
                try:
                    print("did", attempt(), flush=True)
                except BaseException as error:
                    print("refused", type(error).__name__, flush=True)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                print("ended by", signal.Signals(os.WTERMSIG(status)).name, flush=True)
            os._exit(0)
        os.waitpid(first, 0)
        os._exit(0)
    os.waitpid(detached, 0)
"""


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    code = (
        "import json, sys; from adaexplore_mcp.evaluation.sandbox import probe;"
        "print(json.dumps(dict(probe(sys.argv[1]).state)))"
    )
    folder = tmp_path_factory.mktemp("probe")
    out = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    import json

    return Layers(json.loads(out.stdout))


def confined(tmp_path, attempt, limits="", without=()):
    script = f"WITHOUT = {tuple(without)!r}\n{SETUP}confined({attempt}{limits})\n"
    (tmp_path / "scratch").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "scratch")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def need(layers, *names):
    for name in names:
        if not layers.on(name):
            pytest.skip(f"this machine has no {name}: {layers.state[name]}")


def test_what_needs_nothing_works_inside(tmp_path, layers):
    attempt = "lambda: (open(scratch + '/f', 'w').write('x'), os.system('true'), len(os.listdir(scratch)))"
    assert confined(tmp_path, attempt) == "did (1, 0, 1)"


@pytest.mark.parametrize(
    "attempt",
    [
        "lambda: open('/tmp/adaexplore-escape', 'w')",
        "lambda: os.listdir(os.path.expanduser('~root') if os.geteuid() == 0 else os.path.expanduser('~'))",
        "lambda: open('/etc/shadow').read()",
    ],
)
def test_files_outside_are_out_of_reach(tmp_path, layers, attempt):
    need(layers, "landlock")
    assert confined(tmp_path, attempt) == "refused PermissionError"


def test_other_processes_are_neither_seen_nor_signalled(tmp_path, layers):
    need(layers, "pid")
    assert (
        confined(tmp_path, "lambda: sorted(int(p) for p in os.listdir('/proc') if p.isdigit())")
        == "did [1, 2]"
    )


@pytest.mark.parametrize("victim", ["os.getppid()", "1", "-1"])
def test_a_signal_to_another_process_is_refused_or_hits_nobody(tmp_path, layers, victim):
    need(layers, "seccomp")
    said = confined(tmp_path, f"lambda: os.kill({victim}, signal.SIGKILL)")
    assert said in {"refused PermissionError", "refused ProcessLookupError", "ended by SIGKILL"}


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET"])
def test_no_internet_socket_can_be_made(tmp_path, layers, family):
    need(layers, "seccomp")
    assert confined(tmp_path, f"lambda: socket.socket(socket.{family}, socket.SOCK_RAW)").startswith(
        "refused"
    )


def test_unix_sockets_remain_since_drivers_need_them_but_connect_to_nobody(tmp_path, layers):
    assert confined(tmp_path, "lambda: socket.socket(socket.AF_UNIX).family.name") == "did AF_UNIX"
    need(layers, "seccomp")
    assert (
        confined(tmp_path, "lambda: socket.socket(socket.AF_UNIX).connect('nowhere')")
        == "refused PermissionError"
    )


@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW"])
def test_no_socket_can_be_made_that_needs_no_connection(tmp_path, layers, kind):
    need(layers, "seccomp")
    for make in ("socket.socket", "socket.socketpair"):
        assert (
            confined(tmp_path, f"lambda: {make}(socket.AF_UNIX, socket.{kind})") == "refused PermissionError"
        )


@pytest.mark.parametrize(
    "call",
    [
        "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "fcntl.fcntl(0, 10, signal.SIGKILL)",  # F_SETSIG
        "fcntl.ioctl(0, 0x8901, b'1234')",  # FIOSETOWN
    ],
)
def test_no_file_can_be_made_to_signal_another_process(tmp_path, layers, call):
    need(layers, "seccomp")
    assert confined(tmp_path, f"lambda: {call}") == "refused PermissionError"


@pytest.mark.parametrize("call", ["200, ", "234, {victim}, "])  # tkill, tgkill
def test_without_a_process_namespace_no_way_of_sending_a_signal_is_left(tmp_path, layers, call):
    need(layers, "seccomp")
    if platform.machine() != "x86_64":
        pytest.skip("numbers of system calls for x86_64")
    with subprocess.Popen(["sleep", "60"]) as victim:
        number = call.format(victim=victim.pid)
        attempt = f"lambda: ctypes.CDLL(None).syscall({number}{victim.pid}, 9)"
        assert confined(tmp_path, attempt, without=["pid"]) == "did -1"
        assert victim.poll() is None
        victim.kill()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("ptrace", "ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0)"),
        ("shmat", "ctypes.CDLL(None, use_errno=True).shmat(0, None, 0)"),
        ("mq_open", "ctypes.CDLL(None, use_errno=True).mq_open(b'/x', 0o102, 0o600, None)"),
        ("unshare", "ctypes.CDLL(None, use_errno=True).unshare(0x10000000)"),
        ("mount", "ctypes.CDLL(None, use_errno=True).mount(b'x', b'/', b'tmpfs', 0, None)"),
    ],
)
def test_system_calls_that_no_kernel_needs_are_refused(tmp_path, layers, name, call):
    need(layers, "seccomp")
    assert confined(tmp_path, f"lambda: {call}") == "did -1"


def test_threads_and_processes_can_still_be_made(tmp_path, layers):
    attempt = (
        "lambda: __import__('threading').Thread(target=print, args=('in a thread',)).run() or "
        "__import__('subprocess').run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout"
    )
    assert "did 5" in confined(tmp_path, attempt)


def test_memory_is_limited(tmp_path, layers):
    assert (
        confined(tmp_path, "lambda: len(bytearray(3 << 30))", ", memory_bytes=1 << 30")
        == "refused MemoryError"
    )


def test_a_file_cannot_grow_past_its_limit(tmp_path, layers):
    attempt = "lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), open(scratch + '/big', 'wb').write(bytes(2 << 20)))"
    assert confined(tmp_path, attempt, ", file_bytes=1 << 20") == "refused OSError"


def test_no_capability_is_left(tmp_path, layers):
    need(layers, "capabilities")
    attempt = (
        "lambda: [l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapBnd'))]"
    )
    assert confined(tmp_path, attempt).startswith("did ['0000000000000000'")


def test_the_level_says_what_is_missing():
    every = dict.fromkeys(Layers.ORDER, "on")
    assert Layers(every).level == "strong"
    assert Layers(every | {"pid": "no"}).level == "partial"
    assert Layers(every | {"landlock": "no"}).level == "partial"
    assert Layers(every | {"seccomp": "no"}).level == "weak"
    assert Layers({}).level == "weak"


def test_probing_leaves_nothing_behind(tmp_path):
    before = sorted(tmp_path.iterdir())
    code = "import sys; from adaexplore_mcp.evaluation.sandbox import probe; probe(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=60)
    assert sorted(tmp_path.iterdir()) == before
    assert probe.__doc__
