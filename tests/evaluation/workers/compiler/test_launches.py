"""What a launch checks, and what an autotuner does, when nothing runs."""

import pytest

KERNEL = """
@triton.jit
def fill(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 1.0, mask=offsets < n)


y = torch.empty(1024, device="cuda")
"""


def launched(statement):
    return f"{KERNEL}\n\ndef run():\n    {statement}\n"


def test_a_tensor_in_host_memory_is_refused_as_triton_refuses_it(compiled):
    outcome = compiled(launched("fill[(8,)](torch.empty(1024), 1024, BLOCK=128)"))
    assert outcome.raised == "ValueError"
    assert "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)" in outcome.error.message
    assert "`y_ptr`, float32[1024], is in host memory" in outcome.error.message
    assert outcome.error.source.startswith("fill[(8,)]")
    assert outcome.error.kernel == "fill"
    assert outcome.launches == []


@pytest.mark.parametrize(
    ("grid", "raised"),
    [
        ("(1, 70000)", "RuntimeError"),
        ("(1, 1, 70000)", "RuntimeError"),
        ("(2**31,)", "OverflowError"),
        ("(8.0,)", "TypeError"),
    ],
)
def test_a_grid_that_cuda_refuses_is_refused(compiled, grid, raised):
    outcome = compiled(launched(f"fill[{grid}](y, 1024, BLOCK=128)"))
    assert outcome.raised == raised
    assert outcome.error.source.startswith("fill[")
    assert outcome.launches == []


def test_grids_of_every_form_are_recorded(compiled):
    outcome = compiled(
        launched(
            "fill[(8,)](y, 1024, BLOCK=128); fill[lambda meta: (1024 // meta['BLOCK'], 2)](y, 1024, BLOCK=128); "
            "fill[(0,)](y, 1024, BLOCK=128)"
        )
    )
    assert outcome.error is None
    assert [launch.grid for launch in outcome.launches] == [[8, 1, 1], [8, 2, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("statement", "raised", "words"),
    [
        ("fill[(8,)](y, BLOCK=128)", "TypeError", "fill() missing 1 required positional argument: 'n'"),
        ("fill[(8,)](y, 1024, BLOCK=128, warps=4)", "KeyError", "warps"),
        ("fill[(8,)](y, 1024, 128, BLOCK=128)", "TypeError", "BLOCK"),
        ("fill(y, 1024, BLOCK=128)", "RuntimeError", "fill[grid](...)"),
        ("fill[(8,)](y, 1024, BLOCK=128, num_warps=3)", "AssertionError", "num_warps must be a power of 2"),
        ("fill[(8,)](y.tolist(), 1024, BLOCK=128)", "TypeError", ""),
    ],
)
def test_a_wrong_call_is_explained_at_its_line(compiled, statement, raised, words):
    outcome = compiled(launched(statement), fake=False)
    assert outcome.raised == raised
    assert words in outcome.error.message
    assert outcome.error.kernel == "fill"
    assert outcome.error.line == len(outcome.lines)
    assert outcome.error.source == statement


def test_a_kernel_that_needs_scratch_memory_asks_for_the_allocator(compiled):
    source = """
    @triton.jit
    def copy(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
        x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
        y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
        y.store([0, 0], x.load([0, 0]))


    def run():
        {allocator}
        x = torch.ones(64, 64, device="cuda")
        copy[(1,)](x, torch.empty_like(x), 64, 64, BLOCK=32)
    """
    outcome = compiled(source.format(allocator="pass"))
    assert "no allocator was set" in outcome.error.message
    allocator = (
        "triton.set_allocator(lambda size, align, stream: torch.empty(size, device='cuda', dtype=torch.int8))"
    )
    outcome = compiled(source.format(allocator=allocator))
    assert outcome.error is None
    assert len(outcome.launches) == 1


TUNED = """
@triton.autotune(configs={configs}, key=["K"]{options})
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * K + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * K + n[None, :], acc.to(tl.float16))


def run():
    a = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    matmul[(1,)](a, a, torch.empty_like(a), 512)
    return str(getattr(matmul.best_config, "kwargs", None))
"""
CONFIGS = """[
    triton.Config({"BM": 256, "BK": 256}, num_warps=8, num_stages=4),
    triton.Config({"BM": 64, "BK": 32}, num_warps=4, num_stages=3),
    triton.Config({"BM": 32, "BK": 32}, num_warps=4, num_stages=2),
]"""


def tuned(configs=CONFIGS, options=""):
    return TUNED.replace("{configs}", configs).replace("{options}", options)


def test_every_configuration_is_compiled_and_those_beyond_the_target_are_skipped(compiled):
    outcome = compiled(tuned())
    assert outcome.error is None
    assert [build.failure for build in outcome.builds] == ["resources", None, None]
    assert list(outcome.tuned.values()) == [[False, True, True]]
    assert [build.constants["BM"] for build in outcome.builds] == ["256", "64", "32"]
    assert outcome.value == "{'BM': 64, 'BK': 32}"
    assert outcome.session_notes == []


def test_the_first_configuration_that_builds_can_be_enough(compiled):
    outcome = compiled(tuned(), all_configurations=False)
    assert [build.constants["BM"] for build in outcome.builds] == ["256", "64"]
    assert outcome.skipped == 1
    assert outcome.session_notes == ["1 autotuner configurations were not compiled: one is enough"]
    assert outcome.value == "{'BM': 64, 'BK': 32}"


def test_configurations_beyond_the_time_limit_are_skipped_and_that_is_said(compiled):
    outcome = compiled(tuned(), time_limit_s=0.08)
    built = [build for build in outcome.builds if build.failure is None]
    assert len(built) <= 1
    if built:
        assert outcome.error is None
        assert "limit of 0.08 s" in outcome.session_notes[0]
    else:
        assert outcome.raised == "CompileTimeout"


def test_a_benchmarker_of_the_codes_own_is_not_asked_for_times(compiled):
    times = ', do_bench=lambda call, quantiles: (_ for _ in ()).throw(SystemError("timed"))'
    outcome = compiled(tuned(options=times))
    assert outcome.error is None
    assert len(outcome.builds) == 3


def test_a_wrong_configuration_surfaces_as_on_the_machine(compiled):
    configs = '[triton.Config({"BM": 64, "BK": 32}), triton.Config({"BM": 48, "BK": 32})]'
    outcome = compiled(tuned(configs))
    assert outcome.raised == "CompilationError"
    assert [build.failure for build in outcome.builds] == [None, "language"]
    assert "power" in outcome.error.message


def test_timing_by_hand_is_refused(compiled):
    outcome = compiled(launched("print(triton.testing.do_bench(lambda: fill[(8,)](y, 1024, BLOCK=128)))"))
    assert outcome.raised == "NotHere"
    assert outcome.refused == ["torch.cuda.Event.elapsed_time"]


def test_the_driver_tells_the_limits_of_the_target(compiled):
    outcome = compiled(
        """
        def run():
            driver = triton.runtime.driver.active
            properties = driver.utils.get_device_properties(torch.cuda.current_device())
            return [properties["multiprocessor_count"], properties["max_shared_mem"],
                    driver.get_current_target().arch, str(driver.get_active_torch_device())]
        """,
        target="sm_80",
    )
    assert outcome.value == [108, 166912, 80, "cuda:0"]
