"""Configurations that children compile side by side: the account is the one of a process that is alone."""

import pytest

KERNEL = """
@triton.autotune(configs={configs}, key=["K"]{options})
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BK: tl.constexpr, WAY: tl.constexpr = 0):
    m, n, k = tl.arange(0, BM), tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * K + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.static_assert(WAY != 1, "not one")
    if WAY == 2:
        acc = tl.inline_asm_elementwise("no.such.instruction $0, $1;", "=r,r", [acc], dtype=tl.float32,
                                        is_pure=True, pack=1)
    if WAY == 3:
        tl.static_print("printed for", BM)
    if WAY == 4:
        acc = acc[K]
    if WAY == 5:  # LLVM ends the process
        acc = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [acc], dtype=tl.float32, is_pure=True, pack=1)
    if WAY == 6:  # no limit of time ends this from inside
        for i in tl.static_range(100000):
            acc = acc * 0.5 + i
    tl.store(c_ptr + m[:, None] * K + n[None, :], acc.to(tl.float16))


def run():
    print("called once")
    a = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    matmul[(1,)](a, a, torch.empty_like(a), 512)
    return str(getattr(matmul.best_config, "kwargs", None))
"""


def config(bm=32, bk=32, way=0, warps=4, stages=2):
    return f'triton.Config({{"BM": {bm}, "BK": {bk}, "WAY": {way}}}, num_warps={warps}, num_stages={stages})'


def tuned(*configs, options=""):
    return KERNEL.replace("{configs}", f"[{', '.join(configs)}]").replace("{options}", options)


PASSED_OVER = (
    config(bm=256, bk=256, warps=8, stages=4),  # shared memory
    config(way=1),
    config(),
    config(way=2),
    config(warps=64),  # threads, found out when it is loaded
    config(bm=64, way=3),
    config(),  # the third again
    config(bm=64, stages=3),
)


def account(outcome):
    """Return everything that a run leaves behind, but how long it took."""
    said = vars(outcome).copy()
    for build in said["builds"]:
        del build.seconds
    return {name: value for name, value in said.items() if name not in {"lines", "file"}}


def test_children_change_nothing_in_the_account(compiled):
    source = tuned(*PASSED_OVER)
    alone, helped = compiled(source), compiled(source, jobs=4)
    assert [build.failure for build in alone.builds] == [
        "resources", "language", None, "assembler", "resources", None, None,
    ]  # fmt: skip
    assert alone.printed == "called once\nprinted for 64\n"
    assert account(helped) == account(alone)


def test_a_child_that_built_says_how_long_it_took_and_what_the_binary_alone_does_not_tell(compiled):
    spilling = 'triton.Config({"BM": 128, "BK": 32}, num_warps=4, maxnreg=64)'
    outcome = compiled(tuned(config(), spilling), jobs=2, target="sm_80")
    for build in outcome.builds:
        assert not build.cached
        assert build.seconds > 0.02
    assert outcome.builds[1].spill_bytes > 0


@pytest.mark.parametrize("way", [4, 5])
def test_a_configuration_that_ends_the_tuning_ends_it_at_the_same_place(compiled, way):
    source = tuned(config(), config(way=way), config(bm=64), config(bm=64, stages=3))
    alone, helped = compiled(source), compiled(source, jobs=3)
    assert account(helped) == account(alone)
    if way == 4:
        assert [build.failure for build in helped.builds] == [None, "language"]
        assert "cannot be indexed" in helped.error.message
    else:
        assert helped.died
        assert "while it compiled matmul" in helped.said["message"]


def test_when_no_configuration_builds_the_last_attempt_fails_as_the_first_did(compiled):
    source = tuned(config(bm=256, bk=256, warps=8, stages=4), config(way=2))
    alone, helped = compiled(source), compiled(source, jobs=2)
    assert alone.raised == "OutOfResources"
    assert account(helped) == account(alone)


def test_only_configurations_that_are_left_after_pruning_are_compiled(compiled, tmp_path):
    said = tmp_path / "said"
    options = (
        ', prune_configs_by={"early_config_prune": lambda configs, args, **kwargs: '
        '[each for each in configs if each.kwargs["BM"] == 32]}, '
        f"pre_hook=lambda args, reset_only=False: open({str(said)!r}, 'a').write(str(args['BM']) + ' ')"
    )
    source = tuned(config(), config(bm=64), config(stages=3), options=options)
    outcome = compiled(source, jobs=2)
    assert [build.constants["BM"] for build in outcome.builds] == ["32", "32"]
    # Two in children, two here, and once more for the one that is chosen.
    assert set(said.read_text().split()) == {"32"}


def test_a_tuning_without_anything_to_compile_is_left_to_this_process(compiled):
    source = tuned(*(config(bm=bm, stages=stages) for bm in (16, 32) for stages in (2, 3, 4)))
    again = (
        "\n\ndef again(run=run):\n    run()\n    matmul.cache.clear()\n    return run()\n\n\nrun = again\n"
    )
    alone, helped = compiled(source + again), compiled(source + again, jobs=2)
    assert len(helped.builds) == 6
    assert account(helped) == account(alone)


def test_a_hopeless_configuration_holds_up_nothing_but_itself(compiled):
    source = tuned(config(way=6), config(), config(bm=64), config(bm=64, stages=3))
    outcome = compiled(source, jobs=2, per_kernel_limit_s=6)
    assert [build.failure for build in outcome.builds] == ["time", None, None, None]
    assert outcome.builds[0].excerpt.type == "CompileTimeout"
    assert (
        outcome.builds[0].excerpt.message
        == "compilation was given up: the limit of 6 s for one kernel was reached"
    )
    assert outcome.value == "{'BM': 32, 'BK': 32, 'WAY': 0}"
    assert outcome.error is None
    assert outcome.session_notes == [
        "1 autotuner configurations took longer than 6 s to compile: timing leaves them out"
    ]
    assert outcome.left_behind == []


def test_the_limit_for_configurations_counts_the_time_that_passes(compiled):
    source = tuned(config(way=6), config(), config(bm=64))
    outcome = compiled(source, jobs=2, configurations_limit_s=8)
    assert [(build.failure, build.constants["BM"]) for build in outcome.builds] == [
        (None, "32"),
        (None, "64"),
    ]
    assert outcome.skipped == 1
    assert outcome.session_notes == [
        "1 autotuner configurations were not compiled: the limit of 8 s for them was reached; timing leaves them out"
    ]
    assert outcome.left_behind == []


def test_time_that_is_used_up_fails_what_is_being_compiled(compiled):
    outcome = compiled(tuned(config(way=6), config(way=6, bm=64)), jobs=2, time_limit_s=2)
    assert outcome.raised == "CompileTimeout"
    assert {build.failure for build in outcome.builds} == {"time"}
    assert "limit of 2 s for all kernels" in outcome.error.message


def test_code_with_threads_of_its_own_is_compiled_by_this_process_alone(compiled):
    source = tuned(config(), config(bm=64)).replace(
        "def run():",
        "def run():\n    import threading\n    threading.Thread(target=threading.Event().wait, daemon=True).start()",
    )
    outcome = compiled(source, jobs=2)
    assert outcome.error is None
    assert len(outcome.builds) == 2
