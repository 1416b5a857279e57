"""Children that work for a process: what they tell arrives, and they end, whatever they do."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

PROLOGUE = """
import json, os, select, signal, sys, time
from adaexplore_mcp.evaluation import sandbox
from adaexplore_mcp.evaluation.workers.compiler.children import Child, alone, end_process

def gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

def spin(tell=None):
    while True:
        pass

def refuse_signals():
    "As a sandbox without a process namespace does."
    sandbox._seccomp(signals_confined=False, memory_files=False)
"""


def run(statements):
    """Run statements in a process of their own; return what they print, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROLOGUE + textwrap.dedent(statements)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_what_a_child_tells_arrives_and_what_it_prints_does_not():
    assert run("""
        def work(tell):
            print("not heard")
            os.write(2, b"nor this")
            tell({"first": "x" * 200_000})
            tell({"second": [1, None]})
            raise SystemExit("not seen")
        child = Child(work, 20)
        while child.read():
            pass
        child.end()
        print(json.dumps([len(child.messages[0]["first"]), child.messages[1], gone(child.pid)]))
    """) == [200_000, {"second": [1, None]}, True]


def test_a_child_that_never_stops_telling_is_ended():
    assert run("""
        def work(tell):
            while True:
                tell({"again": "x" * 10_000})
        child = Child(work, 20)
        while child.read():
            pass
        child.end()
        print(json.dumps([len(child.messages) < 200, gone(child.pid)]))
    """) == [True, True]


def test_a_child_ends_with_its_parent_and_so_does_what_it_started():
    assert run("""
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            child = Child(spin, 60)
            os.write(write_end, str(child.pid).encode())
            os._exit(0)
        pid = int(os.read(read_end, 20))
        until(lambda: gone(pid))
        print(json.dumps(True))
    """)


@pytest.mark.parametrize("before", ["", "refuse_signals()"])
def test_a_child_is_ended_when_its_time_is_over_even_where_no_process_may_end_another(before):
    assert run(f"""
        {before}
        child = Child(spin, 0.3)
        while child.read():  # until the kernel has ended it
            pass
        child.end()
        print(json.dumps([child.late, gone(child.pid)]))
    """) == [True, True]


@pytest.mark.parametrize("before", ["", "refuse_signals()"])
def test_a_process_is_ended_at_once_or_after_a_second_of_work(before):
    assert run(f"""
        import subprocess
        {before}
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        at_once = end_process(process.pid)
        print(json.dumps([at_once, process.wait(20) in (-signal.SIGKILL, -signal.SIGXCPU)]))
    """) == [not before, True]


def test_a_child_takes_no_signal_that_is_meant_for_its_parent():
    assert run("""
        os.setsid()
        told = []
        signal.signal(signal.SIGTERM, lambda *ignored: told.append(1))
        signal.signal(signal.SIGALRM, lambda *ignored: told.append(2))
        child = Child(lambda tell: (tell({"handlers": [signal.getsignal(each) == signal.SIG_DFL for each in (
            signal.SIGTERM, signal.SIGALRM)]}), time.sleep(60)), 20)
        child.read()
        os.kill(0, signal.SIGTERM)
        alive = os.waitpid(child.pid, os.WNOHANG) == (0, 0)
        child.end()
        print(json.dumps([child.messages, alive, told, gone(child.pid)]))
    """) == [[{"handlers": [True, True]}], True, [1], True]


def test_a_process_with_threads_is_not_alone():
    assert run("""
        import threading
        before = alone()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print(json.dumps([before, alone()]))
        sys.stdout.flush()
        os._exit(0)
    """) == [True, False]
