# ruff: noqa: N803  # kernels are written as kernels are: constants in capitals, one branch per operation
"""Autotuning: which configuration runs, and how often."""

import torch
import triton
import triton.language as tl
from support import TRITON, call, expect
from triton.compiler.errors import CompileTimeAssertionFailure

CONFIGS = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]


@triton.jit
def _add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + o, tl.load(x_ptr + o, mask=o < n, other=0.0), mask=o < n)


def _tuned(configs=CONFIGS, key=("n",), **options):
    return triton.autotune(configs=configs, key=list(key), **options)(_add)


def _grid(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def _run(kernel, n=64, **options):
    x, y = torch.randn(n), torch.zeros(n)
    with call(**options) as recorder:
        kernel[_grid(n)](x, y, n)
    return x, y, recorder


def without_tuning_the_first_configuration_runs_once():
    x, y, recorder = _run(_tuned())
    assert torch.equal(x, y)
    assert recorder.autotuned == {"_add": 3}
    (launch,) = recorder.launches
    assert (launch.grid, launch.config, launch.tuning, launch.programs) == ((4, 1, 1), 0, False, 4)


def a_configuration_can_be_chosen_and_counts_around():
    kernel = _tuned()
    for config, programs in ((0, 4), (1, 2), (2, 1), (4, 2)):
        x, y, recorder = _run(kernel, config=config)
        assert torch.equal(x, y)
        assert [(launch.config, launch.programs) for launch in recorder.launches] == [(config % 3, programs)]


def tuning_runs_every_configuration_once_and_then_the_chosen_one():
    x, y, recorder = _run(_tuned(), tune=True)
    assert torch.equal(y, x * 4)  # nothing resets the sum: what a first call on a GPU gives, and worse
    assert [(launch.config, launch.tuning) for launch in recorder.launches] == [
        (0, True),
        (1, True),
        (2, True),
        (0, False),
    ]


def reset_to_zero_and_restore_value_repair_that():
    x, y, _ = _run(_tuned(reset_to_zero=["y_ptr"]), tune=True)
    assert torch.equal(x, y)
    x, y, _ = _run(_tuned(restore_value=["y_ptr"]), tune=True)
    assert torch.equal(x, y)


def hooks_run_with_each_configuration():
    seen = []
    configs = [
        triton.Config({"BLOCK": b}, pre_hook=lambda args: seen.append(args["BLOCK"])) for b in (16, 32)
    ]
    kernel = _tuned(configs)
    _run(kernel, config=1)
    assert seen == [32]
    seen.clear()
    _run(kernel, tune=True)
    assert seen == [16, 32, 16]


def pruned_configurations_do_not_count():
    prune = {"early_config_prune": lambda configs, _args, **_: [c for c in configs if c.kwargs["BLOCK"] > 16]}
    kernel = _tuned(prune_configs_by=prune)
    for config, programs in ((None, 2), (0, 2), (1, 1), (2, 2)):
        x, y, recorder = _run(kernel, config=config)
        assert torch.equal(x, y)
        assert recorder.autotuned == {"_add": 2}
        assert [launch.programs for launch in recorder.launches] == [programs]
    ranked = _tuned(prune_configs_by={"perf_model": lambda **kw: -kw["BLOCK"], "top_k": 2})
    _, _, recorder = _run(ranked)
    assert recorder.autotuned == {"_add": 2}
    assert recorder.launches[0].programs == 1


def one_configuration_is_no_tuning():
    x, y, recorder = _run(_tuned(CONFIGS[:1]), tune=True)
    assert torch.equal(x, y)
    assert recorder.autotuned == {}
    assert recorder.launches[0].config is None


def every_key_is_tuned_and_caches_do_not_outlive_a_call():
    kernel = _tuned()
    x, y = torch.randn(64), torch.zeros(64)
    for _ in range(2):
        with call(tune=True) as recorder:
            for n in (64, 64, 32):
                kernel[_grid(n)](x, y, n)
        assert [launch.tuning for launch in recorder.launches] == [True] * 3 + [False] * 2 + [True] * 3 + [
            False
        ]


def benchmarks_of_the_user_and_cuda_graphs_are_never_reached():
    def fail(*_, **__):
        raise AssertionError

    kernels = [_tuned(do_bench=fail)]
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernels += [_tuned(use_cuda_graph=True), _tuned(warmup=1, rep=1)]
    for kernel in kernels:
        x, y, _ = _run(kernel, tune=False)
        assert torch.equal(x, y)
        _, _, recorder = _run(kernel, tune=True)
        assert len(recorder.launches) == 4


@triton.autotune(configs=[triton.Config({"A": 16}), triton.Config({"A": 32})], key=[])
@triton.heuristics({"B": lambda args: args["A"] * 2})
@triton.jit
def nested(out_ptr, A: tl.constexpr, B: tl.constexpr):
    tl.store(out_ptr, A * 1000 + B)


def heuristics_below_autotune_see_the_configuration():
    out = torch.zeros(1, dtype=torch.int32)
    for config, expected in ((None, 16032), (1, 32064)):
        with call(config=config):
            nested[(1,)](out)
        assert out.item() == expected


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def picky(y_ptr, n, LEAST: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= LEAST)
    tl.store(y_ptr + tl.arange(0, BLOCK), BLOCK)


def a_configuration_that_does_not_compile_is_passed_over():
    y = torch.zeros(64)
    for options, expected in (({}, 32), ({"config": 1}, 32), ({"config": 2}, 64), ({"tune": True}, 32)):
        with call(**options) as recorder:
            picky[(1,)](y, 64, 32)
        assert y[0] == expected, options
        assert recorder.launches[-1].config == (expected // 32)
    with call():
        expect(CompileTimeAssertionFailure, lambda: picky[(1,)](y, 64, 128))


def the_driver_answers_as_the_device():
    active = triton.runtime.driver.active
    assert active.get_current_target().arch == 90
    assert active.utils.get_device_properties(active.get_current_device())["multiprocessor_count"] == 132
    assert str(active.get_active_torch_device()) == "cpu"
    assert TRITON >= (3, 4)
