# ruff: noqa: N803, PLR0917  # kernels are written as kernels are: constants in capitals, as many arguments as they take
"""Programs that wait for each other: turns, deadlocks, what ends them all, flags that are read anew."""

import signal
import threading

import torch
import triton
import triton.language as tl
from support import INTERPRETER, call, expect

from adaexplore_mcp.evaluation.workers.interpreter import (
    Deadlock,
    KernelError,
    NotInterpretable,
    Sample,
    turns,
)


def ints(count):
    return torch.zeros(count, dtype=torch.int32)


@triton.jit
def arrive(count_ptr, expected):
    tl.atomic_add(count_ptr, 1, sem="acq_rel")
    while tl.atomic_add(count_ptr, 0, sem="acquire") < expected:
        pass


@triton.jit
def sums_of_all(x_ptr, part_ptr, count_ptr, y_ptr, G: tl.constexpr, ROUNDS: tl.constexpr):
    p = tl.program_id(0)
    x = tl.load(x_ptr + p)
    for i in range(ROUNDS):
        tl.store(part_ptr + i * G + p, x)
        arrive(count_ptr, (i + 1) * G)
        x = tl.sum(tl.load(part_ptr + i * G + tl.arange(0, G)), 0) + p
    tl.store(y_ptr + p, x)


def sums_by_hand(x, rounds):
    for _ in range(rounds):
        x = x.sum() + torch.arange(len(x))
    return x


def programs_meet_at_barriers_of_the_grid():
    x = torch.arange(16, dtype=torch.int32)
    for seed in (None, 1, 2):
        y = ints(16)
        with call(order_seed=seed) as recorder:
            sums_of_all[(16,)](x, ints(48), ints(1), y, G=16, ROUNDS=3)
        assert y.tolist() == sums_by_hand(x, 3).tolist()
        assert recorder.launches[0].programs == 16
        assert all(finding.atomics_used for finding in recorder.findings)
    assert threading.active_count() == 1


@triton.jit
def after_the_next(flag_ptr, y_ptr, HOW: tl.constexpr):
    p = tl.program_id(0)
    total = p
    if p < tl.num_programs(0) - 1:
        if HOW == "compare":
            while tl.atomic_cas(flag_ptr + p + 1, 1, 1) != 1:
                pass
        elif HOW == "volatile":
            while tl.load(flag_ptr + p + 1, volatile=True) == 0:
                pass
        elif HOW == "uncached":
            while tl.load(flag_ptr + p + 1, cache_modifier=".cv") == 0:
                pass
        elif HOW == "counted":
            tries = 0
            while (tl.atomic_or(flag_ptr + p + 1, 0) == 0) & (tries < 1000000000):
                tries += 1
        total += tl.load(y_ptr + p + 1)
    tl.store(y_ptr + p, total)
    tl.atomic_xchg(flag_ptr + p, 1, sem="release")


def a_program_may_wait_for_one_that_begins_later():
    for how in ("compare", "volatile", "uncached", "counted"):
        y = ints(40)
        with call() as recorder:
            after_the_next[(40,)](ints(40), y, HOW=how)
        assert y.tolist() == [sum(range(i, 40)) for i in range(40)], how
        assert all(finding.atomics_used for finding in recorder.findings), how


@triton.jit
def wait_for_each_other(flag_ptr, y_ptr):
    p = tl.program_id(0)
    turns = 0
    while tl.atomic_add(flag_ptr + 1 - p, 0) == 0:
        turns = 1
    tl.atomic_xchg(flag_ptr + p, 1)
    tl.store(y_ptr + p, turns)


def programs_that_wait_for_each_other_for_ever_are_said_to():
    with call() as recorder:
        error = expect(KernelError, lambda: wait_for_each_other[(2,)](ints(2), ints(2)))
    assert isinstance(error.__cause__, Deadlock)
    assert "2 of its 2 programs wait" in str(error)
    assert recorder.deadlock is error.__cause__
    assert threading.active_count() == 1


def a_program_that_waits_for_what_nobody_writes_is_said_to():
    with call():
        error = expect(KernelError, lambda: arrive[(1,)](ints(1), 2))
    assert "program (0, 0, 0) waits" in str(error)
    with call() as recorder:
        expect(KernelError, lambda: arrive[(3,)](ints(1), 4))
    assert recorder.launches[0].programs == 0


@triton.jit
def raise_after_others_wait(flag_ptr, B: tl.constexpr):
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.device_assert(tl.load(flag_ptr) == 1)
    while tl.load(flag_ptr, volatile=True) == 0:
        pass


def an_exception_in_one_program_ends_those_that_wait():
    with call() as recorder:
        error = expect(KernelError, lambda: raise_after_others_wait[(6,)](ints(1), B=1))
        assert isinstance(error.__cause__, AssertionError)
        y = torch.zeros(16)
        fill[(1,)](y, 1)
    assert y.sum() == 16
    assert [finding.kind for finding in recorder.findings] == ["device_assert"]
    assert threading.active_count() == 1


@triton.jit
def fill(y_ptr, value):
    tl.store(y_ptr + tl.arange(0, 16), value)


@triton.jit
def count_while_others_wait(flag_ptr, y_ptr):
    if tl.program_id(0) == 1:
        i = 0
        while tl.load(flag_ptr, volatile=True) == 0:
            i += 1
            tl.store(y_ptr, i)
    else:
        while tl.load(flag_ptr, volatile=True) == 0:
            pass


def a_limit_of_time_ends_those_that_wait():
    def over(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
    with call():
        error = expect(KernelError, lambda: count_while_others_wait[(3,)](ints(1), ints(1)))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    assert isinstance(error.__cause__, TimeoutError)
    assert threading.active_count() == 1


def more_programs_that_wait_at_once_than_there_can_be_threads_are_not_judged():
    turns.MOST_THREADS = 8
    with call() as recorder:
        error = expect(NotInterpretable, lambda: after_the_next[(40,)](ints(40), ints(40), HOW="compare"))
    assert "programs of a launch wait for another one at once" in str(error)
    assert recorder.refused


def a_sample_gives_up_programs_that_wait():
    sample = Sample(5.0)
    with INTERPRETER.call(sample=sample) as recorder:
        arrive[(4,)](ints(1), 4)
    assert sample.cut_short == {"arrive"}
    assert not recorder.findings


@triton.jit
def running_counts(x_ptr, y_ptr, status_ptr, N: tl.constexpr, LOOP: tl.constexpr):
    p = tl.program_id(0)
    total = tl.sum(tl.load(x_ptr + p * N + tl.arange(0, N)), 0)
    before = 0
    if p > 0:
        word = tl.load(status_ptr + p - 1, volatile=True)
        if LOOP:
            while word == 0:
                word = tl.load(status_ptr + p - 1, volatile=True)
        before = word - 1
    tl.store(status_ptr + p, before + total + 1)
    tl.store(y_ptr + p, before + total)


def a_flag_that_is_read_anew_in_a_loop_orders_what_follows():
    x = torch.ones(64, dtype=torch.int32)
    for seed in (None, 3):
        y = ints(8)
        with call(order_seed=seed) as recorder:
            running_counts[(8,)](x, y, ints(8), N=8, LOOP=True)
        assert y.tolist() == [8 * (i + 1) for i in range(8)]
        assert {finding.kind for finding in recorder.findings} == {"race"}
        assert all(finding.atomics_used for finding in recorder.findings)


def what_is_read_anew_without_a_loop_that_waits_for_it_is_a_race():
    with call() as recorder:
        running_counts[(8,)](torch.ones(64, dtype=torch.int32), ints(8), ints(8), N=8, LOOP=False)
    (finding,) = recorder.findings
    assert finding.kind == "race"
    assert not finding.atomics_used
