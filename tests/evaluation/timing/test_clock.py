import random
from dataclasses import replace

import pytest

from adaexplore_mcp.evaluation.timing.clock import (
    AROUND_US,
    Burst,
    Ceilings,
    against_the_clock,
    estimate,
    impossible,
    roofline_us,
)

FLUSH_US = 30.0
H200 = Ceilings(4e12, {"fp32": 50e12, "bf16": 700e12}, FLUSH_US, 1.3)


def bursts(call_us, *, claimed_us=None, calls=32, noise_us=0.0, after_us=0.0, late=False, held_us=2_000.0):
    """Return what a process says whose calls take so long, flush before each, in bursts of two sizes."""
    chance = random.Random(1)
    made = []
    for number in range(20):
        count = calls if number % 2 else max(1, calls // 2)
        total = count * (call_us + FLUSH_US)
        claims = [call_us if claimed_us is None else claimed_us] * count
        around = 300 + abs(chance.gauss(0, noise_us))
        made.append(Burst(claims, total, held_us + total + around + after_us * count, held_us, late))
    return made


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (bursts(6_000, calls=1), "confirmed"),
        (bursts(1_000, calls=2), "confirmed"),
        (bursts(50), "confirmed"),
        # What one call takes is less than what the clock can tell.
        (bursts(50, noise_us=400), "unconfirmed"),
        # It may have waited for the host.
        (bursts(50, late=True), "unconfirmed"),
        # Most of the work is done outside its events: before them, or after the last.
        (bursts(100, claimed_us=5), None),
        (bursts(5, after_us=3_000), None),
        # Its calls are said to take longer than all of it.
        (bursts(100, claimed_us=300), None),
        # More of the device's time than there was.
        (bursts(1_000, calls=2, after_us=-500), None),
    ],
)
def test_the_judges_clock_bounds_what_the_process_says(given, found):
    assert against_the_clock(given, FLUSH_US) == found


def test_a_claim_a_little_off_is_not_called_false_where_the_clock_is_coarse():
    assert against_the_clock(bursts(5, claimed_us=8, noise_us=200), FLUSH_US) == "unconfirmed"


def test_the_clock_shows_a_call_without_what_passes_around_a_burst():
    seen = estimate(bursts(50), FLUSH_US)
    assert seen.call_us == pytest.approx(50, abs=0.5)
    assert estimate(bursts(50, calls=1), FLUSH_US) is None  # all of one size


def test_what_is_false_in_less_than_half_of_the_bursts_is_false():
    honest, lies = bursts(100), bursts(100, claimed_us=1)
    mixed = [
        lie if number % 5 < 2 else truth for number, (truth, lie) in enumerate(zip(honest, lies, strict=True))
    ]
    assert against_the_clock(mixed, FLUSH_US) != "confirmed"


def test_one_long_wait_of_the_server_makes_no_claim_false():
    calm = bursts(50)
    stalled = [calm[0], replace(calm[1], wall_us=calm[1].wall_us + 300_000), *calm[2:]]
    assert against_the_clock(stalled, FLUSH_US) == "confirmed"


def test_what_restoring_inputs_takes_is_not_held_against_a_call():
    restored = []
    for each in bursts(70):
        more_us = 32 * len(each.device_us)
        restored.append(replace(each, total_us=each.total_us + more_us, wall_us=each.wall_us + more_us))
    assert against_the_clock(restored, FLUSH_US) is None
    known = [replace(each, restore_us=32.0) for each in restored]
    assert against_the_clock(known, FLUSH_US) == "confirmed"


def test_what_passes_around_a_burst_is_no_contradiction():
    few = Burst([100.0], 1_100, 1_100 + AROUND_US)
    assert against_the_clock([few], FLUSH_US) is not None


def test_the_roofline_is_the_larger_of_memory_and_arithmetic():
    assert roofline_us(4_000_000, 0, H200, "fp32") == pytest.approx(1.0)
    assert roofline_us(4_000_000, 10**9, H200, "fp32") == pytest.approx(20.0)
    assert roofline_us(4_000_000, 10**9, H200, "bf16") == pytest.approx(10 / 7)


def test_a_rate_that_was_not_measured_bounds_nothing():
    assert roofline_us(4_000_000, 10**12, H200, "fp64") == pytest.approx(1.0)


def test_well_below_the_bound_is_impossible_and_a_little_below_is_not():
    assert impossible(8.0, 10.0)
    assert not impossible(9.5, 10.0)
    assert not impossible(5.0, 0.0)


# --- honest measurements on a busy host, and answers made up to please the clock -------------------------------


def measured(chance, call_us, around, *, calls, slow=1.0, restore_us=0.0, rounds=20, stalls=0.02, late=0.0):
    """Return what an honest process says whose flush is not quite the judge's, on a host that does other things too."""
    flush_us, reckoned_us = FLUSH_US * chance.uniform(0.9, 1.1), restore_us * chance.uniform(0.6, 1.03)
    made = []
    for number in range(rounds):
        count = calls if number % 2 == 0 else max(1, calls // 2)
        claims = [call_us * (slow if call % 3 == 2 else 1.0) * chance.gauss(1, 0.01) for call in range(count)]
        total = sum(claims) + count * (flush_us + restore_us + chance.uniform(0.5, 2.5))
        wall = 2_300 + total + 3 * restore_us + around() + (5_000 if chance.random() < stalls else 0)
        made.append(Burst(claims, total, wall, 2_000, chance.random() < late, reckoned_us, 3 * reckoned_us))
    return made


HOSTS = {
    "quiet": lambda chance: abs(chance.gauss(0, 60)),
    "heavy tail": lambda chance: 200 * (chance.paretovariate(1.5) - 1),
    "busy": lambda chance: 1_500 * chance.lognormvariate(0, 1),
    "two ways": lambda chance: 1_000.0 * (chance.random() < 0.4),
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "unlike",
    [
        {},
        {"stalls": 0.2},
        {"late": 0.5},
        {"slow": 4.0},  # one of three inputs takes longer
        {"restore_us": 100.0},
    ],
    ids=lambda unlike: next(iter(unlike), "plain"),
)
def test_no_honest_measurement_is_contradicted_whatever_the_host_does(host, unlike):
    chance = random.Random(f"{host} {unlike}")
    for call_us, calls in ((2, 16), (15, 16), (100, 15), (700, 2), (5_000, 2), (20_000, 1)):
        for _ in range(30):
            found = measured(chance, call_us, lambda: HOSTS[host](chance), calls=calls, **unlike)
            assert against_the_clock(found, FLUSH_US) is not None, (call_us, host)


def test_inputs_that_are_restored_before_each_call_are_no_part_of_it():
    chance = random.Random(5)
    given = measured(chance, 100, lambda: 0.0, calls=16, restore_us=20.0, stalls=0)
    assert against_the_clock(given, FLUSH_US) == "confirmed"
    assert estimate(given, FLUSH_US).call_us == pytest.approx(100, abs=15)


def test_what_a_call_left_in_the_cache_is_written_back_while_it_is_flushed():
    """As on an H200 after a call that writes more than its L2 cache holds: 60 MB, 14 us."""
    written = [
        replace(
            each,
            wall_us=each.wall_us + 14 * len(each.device_us),
            total_us=each.total_us + 14 * len(each.device_us),
        )
        for each in bursts(34, calls=16)
    ]
    assert against_the_clock(written, FLUSH_US) is None
    assert against_the_clock([replace(each, restore_us=14.0) for each in written], FLUSH_US) == "confirmed"
    elsewhere = [replace(each, unwritten_us=14.0) for each in written]  # no output: it may have been, or not
    assert against_the_clock(elsewhere, FLUSH_US) == "unconfirmed"


def test_a_call_cannot_leave_more_in_the_cache_than_it_had_time_to_write():
    late = [
        replace(each, wall_us=each.wall_us + 20 * len(each.device_us), unwritten_us=14.0)
        for each in bursts(5, calls=16)
    ]
    assert against_the_clock(late, FLUSH_US) is None


def test_what_two_events_take_is_no_part_of_a_call():
    given = [
        replace(each, device_us=[value - 3.0 for value in each.device_us], pair_us=3.0)
        for each in bursts(100, calls=16)
    ]
    assert estimate(given, FLUSH_US).call_us == pytest.approx(
        estimate(bursts(100, calls=16), FLUSH_US).call_us - 3.0
    )
    assert against_the_clock(given, FLUSH_US) == "confirmed"


def test_half_of_the_calls_said_to_be_short_and_the_others_long_are_not_confirmed():
    def told(burst):
        count = len(burst.device_us)
        short = count // 2 + 1
        rest = (sum(burst.device_us) - 100 * short) / (count - short)
        return replace(burst, device_us=[100.0] * short + [rest] * (count - short))

    given = [told(burst) for burst in bursts(1_000, calls=16)]
    assert against_the_clock(given, FLUSH_US) == "unconfirmed"


def test_a_process_that_delays_the_answers_of_short_bursts_is_not_confirmed():
    """So that the difference between two sizes is what it claims."""
    honest = bursts(300, calls=16)
    longest = max(burst.wall_us for burst in honest)
    given = [
        replace(
            burst,
            device_us=[100.0] * len(burst.device_us),
            wall_us=longest - (16 - len(burst.device_us)) * (100 + FLUSH_US),
            total_us=longest - (16 - len(burst.device_us)) * (100 + FLUSH_US) - 2_300,
        )
        for burst in honest
    ]
    assert against_the_clock(given, FLUSH_US) == "unconfirmed"
    assert (
        against_the_clock([replace(each, wall_us=each.wall_us + 40_000) for each in given], FLUSH_US) is None
    )
