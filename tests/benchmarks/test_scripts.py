"""What the benchmarks make of what they measured; nothing is measured here."""

import ast
import importlib
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_every_script_fits_what_it_measures(script, name):
    assert script(name).__doc__


def test_leaving_transformed_inputs_out_leaves_other_weights_in(script):
    from adaexplore_mcp.evaluation import preparation
    from adaexplore_mcp.evaluation.trials import SCHEDULE

    task = {"weighted": True, "products": False, "declared": True}
    usual = preparation.applicable(**task)
    with script("cost_of_checks").CHECKS["inputs that are scaled, negated, whole, of one sign"]():
        fewer = preparation.applicable(**task)
    left_out = {SCHEDULE[at][2] for at in set(usual) - set(fewer)}
    assert left_out == {"negated", "some negated", "small", "all negative", "all positive"}
    assert {SCHEDULE[at][1] for at in fewer} == {SCHEDULE[at][1] for at in usual}


# --- throughput

TIMELINE = [
    {"stage": stage, "at": float(number), "seconds": 1.0}
    for number, stage in enumerate([
        "compiling for sm_90",
        "waiting for the GPU",
        "running the reference",
        "importing the candidate",
        "running first inputs",
        "running: kernel kernel",
        "preparing candidate",
        "importing the candidate",
        "calling it for the first time",
        "waiting to time alone",
        "waiting for the GPU to be free (1 ahead)",
        "tuning candidate",
        "calling it for the first time",
        "warming up",
        "timing",
        "timing: 20 rounds",
    ])
]  # fmt: skip


def test_stages_of_a_receipt_are_grouped(script):
    assert script("throughput").stages(TIMELINE) == {
        "compile": 1,
        "queue": 3,
        "reference": 1,
        "load": 2,
        "check": 2,
        "start": 1,
        "first calls": 2,
        "timing": 4,
    }


def test_the_gpu_is_held_alone_from_tuning_to_the_end_of_the_rounds(script):
    assert script("gpu_use").alone_s(TIMELINE) == 5
    assert script("gpu_use").alone_s([*TIMELINE, {"stage": "preparing candidate", "seconds": 9.0}]) == 5
    assert script("gpu_use").alone_s(TIMELINE[:11]) == 0


KERNEL = '''
import triton

@triton.autotune([], key=[])
@triton.jit
def kernel(x, BLOCK):
    """Add."""
    pass

@triton.jit(debug=True)
def other(x):
    y = x
    return y

def call(x):
    kernel[(1,)](x)
'''


def test_an_edited_kernel_differs_in_every_kernel_and_in_nothing_else(script):
    edited = script("throughput").edited(KERNEL, 7)
    assert edited.count("edited_7 = 7") == 2
    without = "".join(line for line in edited.splitlines(keepends=True) if "edited_7" not in line)
    assert without == KERNEL
    kernel, other, call = [node for node in ast.parse(edited).body if isinstance(node, ast.FunctionDef)]
    assert [len(each.body) for each in (kernel, other, call)] == [3, 3, 1]


def test_a_source_without_a_kernel_is_edited_at_its_end(script):
    assert script("throughput").edited("x = 1", 2) == "x = 1\nedited_2 = 2\n"
    assert script("throughput").broken("x = 1").endswith("tl.there_is_no_such_function(0)\n")


def measured(kind, seconds, status="correct"):
    row = {"kind": kind, "seconds": seconds, "status": status, "alone_s": seconds / 10, "timed_calls": 0}
    row |= {"stages": {"check": seconds / 2}, "gpu_used": status == "correct"}
    return row | ({"timing": {"speedups": []}, "timed_calls": 40} if status == "correct" else {})


def rows(parallel, edits, names, *, broken=False):
    return [
        {
            "name": name,
            "parallel": parallel,
            "edits": edits,
            "piece": 1,
            "register_s": 1.0,
            "at": 6.0 * (number + 1),
            "runs": [
                measured("first", 4.0),
                *[measured("edited", 2.0) for _ in range(edits)],
                *([measured("broken", 0.5, "compile_error")] if broken else []),
            ],
        }
        for number, name in enumerate(names)
    ]


def test_a_table_says_how_many_kernels_an_hour_by_how_many_were_in_flight(script):
    lines = "\n".join(script("throughput").table([*rows(6, 0, "abc"), *rows(1, 2, "ab", broken=True)]))
    assert "6 at a time, 3 kernels: 600 an hour (3 in 18 s), 4320 while all places are taken" in lines
    # Two registrations, two kernels and four edits; copies that do not compile are left out.
    assert "one at a time, 2 kernels and 2 edits of each: 1200 an hour (6 in 18 s)" in lines
    assert "edited, verdict and number: median 2.00 s, p90 2.00 s" in lines
    assert "GPU held alone: median 0.40 s" in lines
    assert "does not compile: the GPU used by 0 of 2, median 0.50 s" in lines


def test_pieces_of_a_run_that_was_cut_short_add_up(script):
    later = [row | {"piece": 2} for row in rows(6, 0, "d")]
    lines = script("throughput").table([*rows(6, 0, "abc"), *later])
    assert lines[0] == "6 at a time, 4 kernels: 600 an hour (4 in 24 s), 4320 while all places are taken"


@asynccontextmanager
async def free(report):
    yield


@pytest.mark.anyio
async def test_round_trips_are_counted_by_where_and_what(script, monkeypatch):
    trips_module = script("round_trips")

    async def asked(channel, body, descriptors):
        await anyio.sleep(0.002)
        return body["op"]

    async def judge(self, body, descriptors, gpu=None):
        return await trips_module.pool._asked(None, body, descriptors)

    monkeypatch.setattr(trips_module.pool, "_asked", asked)
    monkeypatch.setattr(WorkerPool, "judge", judge)
    workers, gpu = object.__new__(WorkerPool), Gpu(0, "GPU-0", "stand-in", 1 << 37, (9, 0))
    lock = SimpleNamespace(alone=free)
    devices = Devices([gpu], {gpu.uuid: lock})
    with trips_module.counted() as trips:
        assert await workers.judge({"op": "compare"}, []) == "compare"
        async with devices.alone(gpu, str):
            await workers.judge({"op": "refill"}, [])
        await workers.judge({"op": "refill"}, [])
    await workers.judge({"op": "later"}, [])
    assert {key: len(taken) for key, taken in trips.items()} == {
        ("beside others", "judge: compare"): 1,
        ("beside others", "judge answers: compare"): 1,
        ("beside others", "judge: refill"): 1,
        ("beside others", "judge answers: refill"): 1,
        ("alone on the GPU", "judge: refill"): 1,
        ("alone on the GPU", "judge answers: refill"): 1,
    }
    (title, first, *_) = trips_module.table_of_trips(
        {("beside others", "a"): [0.5, 0.5], ("beside others", "b"): [2.0]}, 2
    )
    assert title.startswith("  round trips beside others")
    assert first.split() == ["b", "0.5", "2000.0", "1.000"]


def test_a_run_whose_tasks_were_registered_before_stands_by_itself(script):
    ahead = [row | {"ahead": True, "register_s": 0.0} for row in rows(6, 0, "abc")]
    lines = script("throughput").table([*rows(6, 0, "abc"), *ahead])
    assert [line for line in lines if line.startswith("6 at a time")] == [
        "6 at a time, 3 kernels: 600 an hour (3 in 18 s), 4320 while all places are taken",
        "6 at a time, 3 kernels: 600 an hour (3 in 18 s), 5400 while all places are taken",
    ]
    assert "  their tasks were registered before" in lines


def test_the_ratio_to_the_harness_is_over_the_kernels_that_both_had(script):
    harness = [
        {"name": name, "seconds": 10.0, "verdict": verdict}
        for name, verdict in (("a", "correct"), ("b", "incorrect"), ("x", "timeout"))
    ]
    lines = "\n".join(script("throughput").table([*rows(6, 0, "abc"), *rows(1, 2, "ab")], harness))
    assert "on 2 kernels: 12.0 while all places are taken, 1.7 over the whole run of 3 kernels" in lines
    assert "on 2 kernels: 3.3; 2.0 for the first of each task alone\n" in lines
    assert "verdicts that differ: b correct, there incorrect" in lines
    assert "reference harness: 3 kernels" in lines


# --- the paper's harness


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        ('noise\n{"compiled": true, "correctness": true, "runtime_stats": {"mean": 1, "fast_p": 2}}', "correct"),
        ('{"compiled": true, "correctness": true}', "correct, not timed"),
        ('{"compiled": true, "correctness": false, "metadata": {}}', "incorrect"),
        ('{"compiled": true, "metadata": {"runtime_error_name": "ValueError"}}', "raised"),
        ('{"compiled": false, "metadata": {}}', "not compiled"),
        ('{"error": "CUDA is not available"}', "failed"),
        ("null", "no result"),
        ("Segmentation", "no result"),
        ("", "no result"),
    ],
)  # fmt: skip
def test_what_the_harness_says_is_read(script, output, verdict):
    assert script("reference_harness").verdict(output)["verdict"] == verdict


RUNNER = """
import json, subprocess, sys, time
asked = json.loads(sys.argv[1])
if "hang" in asked["custom_model_src"]:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    time.sleep(600)
stats = {"mean": 1.0, "fast_p": 2.0, "baseline_time": 2.0, "num_trials": asked["num_perf_trials"]}
print(json.dumps({"compiled": True, "correctness": True, "metadata": {}, "runtime_stats": stats}))
"""


def test_the_harness_runs_on_each_kernel_once_and_what_hangs_is_ended(script, tmp_path):
    (tmp_path / "checkout/src").mkdir(parents=True)
    (tmp_path / "checkout/src/eval_subprocess_runner.py").write_text(RUNNER)
    for folder in ("kernels", "tasks"):
        (tmp_path / folder / "level2").mkdir(parents=True)
    for number, source in ((1, "fast"), (2, "hang")):
        (tmp_path / f"kernels/level2/{number}.py").write_text(source)
        (tmp_path / f"tasks/level2/{number}_Task.py").write_text("")
    like = tmp_path / "throughput.jsonl"
    like.write_text("".join(json.dumps(row) + "\n" for row in rows(1, 0, ["level2/1"])))
    paths = ("checkout", "kernels", "tasks")
    command = [sys.executable, SCRIPTS / "reference_harness.py", *(tmp_path / name for name in paths)]
    command += ["--timeout", "5", "--like", like, "--out", tmp_path / "out.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "2 kernels: {'correct': 1, 'timeout': 1}" in done.stdout
    fast, hanging = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (fast["verdict"], fast["calls"], fast["speedup"]) == ("correct", 40, 2.0)
    assert (hanging["verdict"], hanging["calls"]) == ("timeout", 100)
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert len(again.stdout.splitlines()) == 2
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_what_stands_in_for_pydantic_does_what_the_harness_needs(script, tmp_path):
    code = script("reference_harness").STAND_INS["pydantic"]
    use = "class Result(BaseModel):\n    compiled: bool = False\n    metadata: dict = {}\nr = Result(compiled=True)"
    names = {}
    exec(f"{code}\n{use}", names)
    assert (names["r"].compiled, names["r"].metadata) == (True, {})


@pytest.mark.parametrize(
    ("count", "found"), [(0, [*range(10)]), (3, [0, 3, 6]), (10, [*range(10)]), (99, [*range(10)])]
)
def test_a_sample_is_spread_evenly(script, count, found):
    assert script("published_kernels").sampled(range(10), count) == found


# --- clocks


def clocked(name, events_us, cupti_us):
    row = {"name": name, "events_us": 1.05 * events_us, "events_under_cupti_us": events_us}
    return row | {"cupti_us": cupti_us, "calls": 40}


def test_clocks_disagree_by_more_than_two_percent_on_long_kernels_only(script):
    script = script("clock_agreement")
    found = [clocked("good", 201.0, 200.0), clocked("short", 6.0, 4.0), clocked("bad", 97.0, 100.0)]
    found.append({"name": "unseen", "problem": "CUPTI saw 0 of 4 kernels"})
    assert [row["name"] for row in script.disagreeing(found)] == ["bad", "unseen"]
    lines = list(script.table(found))
    assert next(number for number, line in enumerate(lines) if line.startswith("shorter")) == 3
    assert lines[-1] == "2 kernels of 100 us and more: at most 3.00% (bad)"


def test_durations_of_nsight_compute_are_read_in_order(script):
    output = (
        '==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","clocked_add","gpu__time_duration.sum","ns","123,456"\n'
        '"1","clocked_add","gpu__time_duration.sum","us","7.5"\n==PROF== Disconnected\n'
    )
    assert script("clock_agreement").durations_us(output) == pytest.approx([123.456, 7.5])


def test_every_clocked_kernel_has_a_name_that_profilers_can_find(script):
    kernels = script("clocked_kernels")
    named = [name for name in vars(kernels) if hasattr(getattr(kernels, name), "run")]
    assert len(named) >= 9
    assert all(name.startswith(kernels.PREFIX) for name in named)
    assert len({case.name for case in kernels.CASES}) == len(kernels.CASES) >= 10


# --- recovery


def recovered(kind, status, recovery_s, **fields):
    return {
        "kind": kind,
        "status": status,
        "next": "correct",
        "recovery_s": recovery_s,
        "answer_s": 0.2,
        "next_s": 0.9,
        "gpu_at_once_mib": 0,
        "gpu_settled_mib": 0,
        **fields,
    }


HOST = {"kind": "memory", "processes": 9, "mib": 3000.0, "by_rss": 0, "contexts": 3, "context_mib": 400.0}


def test_goals_that_are_missed_are_said(script):
    missed = script("recovery").missed
    good = [recovered("illegal memory access", "crashed", 1.0), recovered("endless kernel", "timeout", 1.9)]
    assert missed([*good, recovered("allocation bomb", "out_of_memory", 30.0), HOST]) == []
    assert len(missed([recovered("endless kernel", "timeout", 2.1)])) == 1
    assert len(missed([recovered("device assert", "correct", 0.1)])) == 1
    assert len(missed([recovered("device assert", "crashed", 0.1, gpu_settled_mib=400)])) == 1
    assert missed([HOST | {"mib": 4000.0}]) == ["the server takes 2800 MiB beyond its CUDA contexts"]


def test_a_table_of_recovery_has_a_line_for_each_kind_and_the_memory(script):
    some = [recovered("illegal memory access", "crashed", seconds) for seconds in (0.5, 1.0, 1.5)]
    lines = list(script("recovery").table([*some, HOST]))
    assert lines[1].startswith("illegal memory access        3     1.00 s, at most  1.50 s")
    assert lines[-1].endswith("1800 MiB beyond them, goal 2048 MiB")


def test_the_last_stage_counts_from_its_beginning_whatever_it_says_of_itself(script):
    timeline = [
        {"stage": "importing the candidate", "at": 0.0, "seconds": 1.0},
        {"stage": "running first inputs", "at": 1.0, "seconds": 0.5},
        {"stage": "running: kernel kernel", "at": 1.5, "seconds": 4.0},
        {"stage": "leaving the GPU", "at": 5.5, "seconds": 0.25},
    ]
    assert script("recovery").last_stage_s(timeline) == 4.75


def test_the_memory_of_this_process_can_be_read(script):
    mib, _ = script("recovery").held_mib("self")
    assert mib > 1


def test_candidates_that_come_to_grief_are_sources(script):
    for trouble in script("recovery").TROUBLES:
        ast.parse(trouble.source)


# --- several GPUs


def receipt(uuid, began_s, stages):
    timeline, at = [], 0.0
    for stage, seconds in stages:
        timeline.append({"stage": stage, "at": at, "seconds": seconds})
        at += seconds
    began = datetime.fromtimestamp(1_000_000 + began_s, UTC).isoformat(timespec="milliseconds")
    return {"device": {"uuid": uuid}, "began_at": began, "timeline": timeline}


TIMED_ALONE = (
    ("compiling", 1),
    ("running the reference", 1),
    ("waiting to time alone", 2),
    ("warming up", 3),
)


@pytest.mark.parametrize(
    ("uuid", "began_s", "stages", "times"),
    [
        ("GPU-1", 3.0, [("compiling", 1.0), ("waiting for the GPU", 4.0), ("running first inputs", 1.0)], 0),
        ("GPU-1", 5.0, [("running first inputs", 2.0)], 1),
        ("GPU-2", 5.0, [("running first inputs", 2.0)], 0),
        ("GPU-1", 5.0, [("tuning candidate", 2.0)], 2),  # each in the other's way
        ("GPU-1", 5.0, [("compiling", 9.0)], 0),
    ],
)
def test_a_gpu_is_disturbed_by_who_uses_it_while_another_holds_it_alone(script, uuid, began_s, stages, times):
    gpus = script("gpu_use")
    held = gpus.spans("one", receipt("GPU-1", 0.0, TIMED_ALONE))
    other = gpus.spans("two", receipt(uuid, began_s, stages))
    found = gpus.overlaps([*held, *other])
    assert len(found) == times
    assert all(seconds == pytest.approx(2.0) for _, _, seconds in found)


# --- adapt


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("index_block:block", True),
        ("name_missing:triton.language", True),
        ("out_of_resource:shared memory@sm_90", True),
        ("other:tl.dot:CompilationError:0a", True),
        ("check:values@float16", False),
        ("check:deadline", False),
        ("own_check:host", False),
        ("syntax:source", False),
        ("undefined_name:host", False),
        ("call_keyword:a function", False),
        ("attribute_missing:own", False),
        ("other:host:IndexError", False),
        ("other:kernel:CompilationError:f3", False),
    ],
)
def test_a_rule_that_says_only_what_goes_wrong_names_no_construct(script, key, named):
    assert script("adapt").names_construct(key) is named


def failing(adapt, trace, error, code=""):
    return adapt.Kernel(str(trace), "1", code, error, right=False, found=adapt.told(error))


def test_what_is_foretold_by_a_catch_all_is_counted_apart(script, capsys):
    adapt = script("adapt")
    rows = [failing(adapt, trace, "incorrect output") for trace in range(4)]
    rows += [
        failing(adapt, trace, "AttributeError: module 'triton.language' has no attribute 'tanh'")
        for trace in range(4)
    ]
    for row in rows[:4]:
        row.found = adapt.Fingerprint("check", "values", "numeric", "You cannot return other values.")
    adapt.leave_one_out(rows, shipped=False)
    said = capsys.readouterr().out
    assert "foretold by a rule of any kind: 8 of 8" in said
    assert "foretold by a rule that names its construct: 4 of 8" in said
    assert "kinds that name no construct: {'check:values': 4}" in said


def test_names_and_sizes_that_a_rule_takes_from_a_message_are_printed(script, capsys):
    adapt = script("adapt")
    words = "You cannot call {construct} so."
    rows = [
        failing(adapt, 1, "", "def my_helper(x):\n    self.weight_a = x\n"),
        failing(adapt, 2, "", "shared = 1\n"),
        failing(adapt, 3, "", "shared = 2\ndef broken(:\n"),
        failing(adapt, 4, "", "shared = 3\n"),
    ]
    for row, construct in zip(rows, ("my_helper", "shared", "weight_a", "257"), strict=True):
        row.found = adapt.Fingerprint("other", construct, "language", words)
    adapt.show_names(rows)
    said = capsys.readouterr().out
    assert "lines or sizes: 257 in other:257\n" in said
    assert "one task alone defines: my_helper in other:my_helper; weight_a in other:weight_a\n" in said
    assert "several tasks define: shared in other:shared\n" in said


def test_right_kernels_of_the_traced_tasks_are_left_out(script, tmp_path, capsys):
    adapt = script("adapt")
    kernel = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x):\n    tl.store(x, tl.tanh(tl.load(x)))\n\n\nk[(1,)](x)\n"
    for name in ("level2/1.py", "level2/2.py", "level3/1.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(kernel if name != "level3/1.py" else "x = 1\n")
    adapt.show_others([failing(adapt, 1, "")], tmp_path)
    said = capsys.readouterr().out
    assert "warned of: 1 of 2" in said
    assert "level2/2.py: name_missing:triton.language" in said


# --- rules_scale


@pytest.mark.anyio
async def test_recording_is_timed_as_a_whole_and_in_parts(script, capsys):
    await script("rules_scale").measure(rules=20, failures=600, calls=2)
    said = capsys.readouterr().out
    for part in ("the row of the rule alone", "all that is learned", "outcome and learning"):
        assert f"record: {part}" in said
