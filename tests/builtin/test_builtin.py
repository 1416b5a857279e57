"""The built-in tasks: each is a task, and its kernel is right and compiles."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import adaexplore_mcp
from adaexplore_mcp.models import Domain, Policy, Workload

FOLDER = Path(adaexplore_mcp.__file__).parent / "builtin"
TASKS = sorted(path.parent.name for path in FOLDER.glob("*/task.json"))
SHARED_LIMIT = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}  # bytes a program may use, by target


def about(task):
    return json.loads((FOLDER / task / "task.json").read_text(encoding="utf-8"))


def content(task, sizes=()):
    from adaexplore_mcp.evaluation.workers.content import TaskContent

    source = (FOLDER / task / "reference.py").read_text(encoding="utf-8")
    told = about(task)
    message = {
        "format": told["format"],
        "entry": told["entry"],
        "files": {"task.py": source},
        "sizes": dict(sizes),
    }
    return TaskContent.from_wire(message)


def run(script, cases, **environment):
    """Run a script beside this file on cases; return one result per case."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script), json.dumps(cases)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=110,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- descriptions ----------------------------------------------------------------------------------------


def test_all_six_are_there_and_are_no_packages():
    expected = [
        "cross_entropy",
        "fused_add_rmsnorm",
        "gqa_paged_decode",
        "int8_weight_linear",
        "matmul_gelu",
        "softmax",
    ]
    assert expected == TASKS
    assert not list(FOLDER.rglob("__init__.py"))


@pytest.mark.parametrize("task", TASKS)
def test_the_description_is_one_that_could_be_registered(task):
    told = about(task)
    assert told.keys() == {
        "name", "title", "description", "format", "entry", "workloads", "domains", "mutates", "policy"
    }  # fmt: skip
    assert told["name"] == task
    workloads = [Workload(**workload) for workload in told["workloads"]]
    assert 2 <= len(workloads) <= 3
    assert len({workload.name for workload in workloads}) == len(workloads)
    Policy(**told["policy"])
    TypeAdapter(dict[str, Domain]).validate_python(told["domains"])


@pytest.mark.parametrize(
    ("task", "workload"), [(task, each["name"]) for task in TASKS for each in about(task)["workloads"]]
)
def test_every_workload_runs_at_its_real_sizes_without_computing(tmp_path, task, workload):
    from adaexplore_mcp.evaluation.workers.task import trial

    told = about(task)
    sizes = next(each["sizes"] for each in told["workloads"] if each["name"] == workload)
    assert sizes.keys() <= content(task).constants().keys()
    result = trial(content(task, sizes), tmp_path)
    names = {each.name for each in result.inputs}
    assert told["domains"].keys() <= names
    assert set(told["mutates"]) <= names
    assert result.cost.bytes > 1 << 20, "real sizes: a GPU has something to do"
    assert result.cost.peak_bytes < 16 << 30, "and a small one has room"


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_judged_in_the_interpreter(tmp_path, task):
    from adaexplore_mcp.evaluation.workers.task import lower_task

    for workload in about(task)["workloads"]:
        lowering = lower_task(content(task, workload["sizes"]), tmp_path)
        assert lowering.within, workload["name"]
        assert lowering.confirmed


@pytest.mark.parametrize("task", TASKS)
def test_inputs_differ_by_seed_and_the_reference_is_repeatable(tmp_path, task):
    import torch

    from adaexplore_mcp.evaluation.workers.task import load, lower_task

    small = content(task).with_edits(lower_task(content(task), tmp_path).edits)
    loaded = load(small, tmp_path)
    model, _ = loaded.construct(0)
    first, again, other = (loaded.call(model, loaded.inputs(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.isfinite().all()


# --- kernels ---------------------------------------------------------------------------------------------

INTERPRETED = [
    ("fused_add_rmsnorm", {"TOKENS": 5, "HIDDEN": 200, "DTYPE": "float32"}),
    ("fused_add_rmsnorm", {"TOKENS": 3, "HIDDEN": 130}),
    ("softmax", {"ROWS": 7, "COLUMNS": 100}),
    ("softmax", {"ROWS": 2, "COLUMNS": 20001}),
    ("matmul_gelu", {"TOKENS": 20, "IN_FEATURES": 200, "OUT_FEATURES": 130}),
    ("matmul_gelu", {"TOKENS": 17, "IN_FEATURES": 130, "OUT_FEATURES": 70, "DTYPE": "float32"}),
    ("gqa_paged_decode", {"REQUESTS": 2, "PAGES_PER_REQUEST": 40, "QUERY_HEADS": 6, "KEY_HEADS": 2, "DTYPE": "float32"}),
    (
        "gqa_paged_decode",
        {"REQUESTS": 3, "PAGES_PER_REQUEST": 5, "PAGE_SIZE": 7, "QUERY_HEADS": 4, "KEY_HEADS": 4, "HEAD_DIM": 40},
    ),
    ("int8_weight_linear", {"TOKENS": 5, "IN_FEATURES": 300, "OUT_FEATURES": 70}),
    ("int8_weight_linear", {"TOKENS": 33, "IN_FEATURES": 300, "OUT_FEATURES": 70, "DTYPE": "float32"}),
    ("int8_weight_linear", {"TOKENS": 130, "IN_FEATURES": 70, "OUT_FEATURES": 40, "DTYPE": "float32"}),
    ("cross_entropy", {"TOKENS": 9, "VOCABULARY": 5003}),
    ("cross_entropy", {"TOKENS": 4, "VOCABULARY": 50}),
]  # fmt: skip


@pytest.fixture(scope="module")
def interpreted():
    cases = [
        {"task": task, "sizes": sizes, "strided": strided}
        for task, sizes in INTERPRETED
        for strided in (False, True)
    ]
    return list(zip(cases, run("interpret.py", cases), strict=True))


@pytest.mark.parametrize("task", TASKS)
def test_the_kernel_agrees_with_the_reference(interpreted, task):
    results = [(case, result) for case, result in interpreted if case["task"] == task]
    assert results
    for case, result in results:
        assert result["same_kind"], case
        assert result["findings"] == [], case
        # A few roundings of a half output; 64 of a float32 one, whose sums are added up in another order.
        roundings = 64 if result["eps"] < 1e-6 else 4
        assert result["error"] <= roundings * result["eps"] * max(1.0, result["scale"]), case
        assert result["inputs_error"] <= 2 * result["eps"], (
            "what it may change it changes alike, the rest it leaves"
        )


# Triton specialises a stride of one at a launch.
INNERMOST = dict.fromkeys(
    ["x_inner_stride", "weight_inner_stride", "query_strides_2", "key_strides_3", "value_strides_3"], 1
)
COMPILED = {
    "add_rmsnorm_kernel": (
        "fused_add_rmsnorm", {"x": "bf16", "residual": "bf16", "weight": "bf16", "out": "bf16"}, {"BLOCK": 8192}, {"num_warps": 16}
    ),
    "softmax_kernel": ("softmax", {"x": "fp32", "out": "fp32"}, {"BLOCK": 1024}, {"num_warps": 2}),
    "wide_softmax_kernel": ("softmax", {"x": "fp32", "out": "fp32"}, {"BLOCK": 4096}, {"num_warps": 8}),
    "matmul_gelu_kernel": (
        "matmul_gelu",
        {"x": "fp16", "weight": "fp16", "bias": "fp16", "out": "fp16"},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8} | INNERMOST,
        {"num_warps": 8, "num_stages": 4},
    ),
    "decode_part_kernel": (
        "gqa_paged_decode",
        {"query": "bf16", "key": "bf16", "value": "bf16", "table": "i32", "lengths": "i32", "part": "fp32", "part_peak": "fp32", "part_sum": "fp32"},
        {"GROUP": 16, "DIM": 128, "TOKENS": 64} | INNERMOST,
        {"num_warps": 4, "num_stages": 3},
    ),
    "combine_kernel": (
        "gqa_paged_decode",
        {"part": "fp32", "part_peak": "fp32", "part_sum": "fp32", "out": "bf16"},
        {"PARTS": 64, "DIM": 128},
        {"num_warps": 4},
    ),
    "int8_linear_kernel": (
        "int8_weight_linear",
        {"x": "fp16", "weight": "i8", "scale": "fp16", "out": "fp16"},
        {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256} | INNERMOST,
        {"num_warps": 4, "num_stages": 4},
    ),
    "cross_entropy_kernel": (
        "cross_entropy", {"logits": "fp32", "targets": "i64", "loss": "fp32"}, {"BLOCK": 4096}, {"num_warps": 8}
    ),
}  # fmt: skip


def test_the_kernels_compile_for_gpus_that_are_not_here(tmp_path):
    # Matrix instructions differ from one generation to the next; loads, sums and stores do not.
    cases = [
        {
            "task": task,
            "kernel": kernel,
            "pointers": pointers,
            "constants": constants,
            "options": options,
            "target": target,
        }
        for kernel, (task, pointers, constants, options) in COMPILED.items()
        for target in (SHARED_LIMIT if "num_stages" in options else [90])
    ]
    results = run("compile_only.py", cases, TRITON_CACHE_DIR=str(tmp_path))
    assert len(results) == len(cases)
    for case, result in zip(cases, results, strict=True):
        assert result["cubin"] > 0
        assert result["shared"] <= SHARED_LIMIT[case["target"]], (case["kernel"], case["target"])


def test_every_kernel_is_compiled():
    kernels = {
        line.removeprefix("def ").partition("(")[0]
        for task in TASKS
        for line in (FOLDER / task / "kernel.py").read_text(encoding="utf-8").splitlines()
        if line.startswith("def ") and "_kernel(" in line
    }
    assert kernels == COMPILED.keys()
