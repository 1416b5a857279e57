"""What is compiled, for which target, with which resources."""

import os
import subprocess
import sys

import pytest

from adaexplore_mcp.evaluation.workers.targets import TARGETS

ADD = """
@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(y_ptr + offsets, x + 1, mask=inside)


def run(n=4096, block=256, dtype=torch.float32, **options):
    x = torch.ones(n, device="cuda", dtype=dtype)
    y = torch.empty_like(x)
    add[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, **options)
"""

MATMUL = """
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16))


def run(bm=64, bn=64, bk=32, **options):
    a = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    b = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    c = torch.empty_like(a)
    matmul[(512 // bm, 512 // bn)](a, b, c, 512, 512, BM=bm, BN=bn, BK=bk, **options)
"""


def called(source, call):
    return source + f"\n\ndef again(run=run):\n    return {call}\n\n\nrun = again\n"


def test_the_parent_of_the_children_stays_single_threaded(children):
    assert children.threads == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_compiles_for_every_target(compiled, target):
    outcome = compiled(MATMUL, target=target)
    assert outcome.error is None
    [build] = outcome.builds
    assert build.kernel == "matmul"
    assert build.failure is None
    assert 16 <= build.registers <= 255
    assert build.shared_bytes > 0
    assert build.spill_bytes == 0
    assert not build.cached


def test_a_launch_is_specialised_as_on_the_machine(compiled):
    outcome = compiled(called(ADD, "run(), run(n=4097), run(n=1, block=1), run(dtype=torch.float16)"))
    aligned, odd, one, half = outcome.builds
    assert aligned.signature == {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert aligned.constants == {"BLOCK": "256"}
    assert odd.signature == aligned.signature
    assert one.constants == {"n": "1", "BLOCK": "1"}
    assert half.signature["x_ptr"] == "*fp16"
    assert aligned.options == {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}


def test_a_specialisation_is_compiled_once(compiled):
    outcome = compiled(called(ADD, "run(), run(), run(n=8192)"))
    assert len(outcome.builds) == 1
    assert [launch.grid for launch in outcome.launches] == [[16, 1, 1], [16, 1, 1], [32, 1, 1]]


def test_options_of_the_launch_are_recorded(compiled):
    outcome = compiled(called(ADD, "run(num_warps=8, num_stages=2, maxnreg=64)"))
    [build] = outcome.builds
    assert build.options == {"num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": 64}
    assert build.registers <= 64
    [launch] = outcome.launches
    assert launch.num_warps == 8
    assert launch.arguments == {
        "x_ptr": "float32[4096]",
        "y_ptr": "float32[4096]",
        "n": "4096",
        "BLOCK": "256",
    }


def test_spilled_registers_are_told_in_bytes(compiled):
    source = called(MATMUL, "run(bm=128, bn=128, num_warps=4, maxnreg=64)")
    [build] = compiled(source, target="sm_80").builds
    assert build.failure is None
    assert build.spill_bytes > 0
    assert build.stack_bytes > 0
    assert build.registers <= 64


@pytest.mark.parametrize("target", ["sm_86", "sm_90"])
def test_shared_memory_over_the_limit_of_the_target_is_refused_before_it_is_assembled(compiled, target):
    outcome = compiled(called(MATMUL, "run(bm=128, bn=128, bk=64, num_stages=5)"), target=target)
    [build] = outcome.builds
    if target == "sm_90":
        assert outcome.error is None
        assert build.shared_bytes <= 232448
        return
    assert outcome.raised == "OutOfResources"
    assert build.failure == "resources"
    assert build.registers is None
    assert outcome.error.type == "OutOfResources"
    assert "Hardware limit: 101376" in outcome.error.message
    assert outcome.error.kernel == "matmul"
    assert "matmul[" in outcome.error.source
    assert outcome.launches == []


def test_more_threads_than_a_block_has_are_refused(compiled):
    outcome = compiled(called(ADD, "run(num_warps=64)"))
    assert outcome.raised == "OutOfResources"
    [build] = outcome.builds
    assert build.failure == "resources"
    assert "threads, Required: 2048, Hardware limit: 1024" in build.excerpt.message
    assert build.excerpt.message == outcome.error.message


def test_the_allocation_that_is_looked_at_early_is_the_final_one(compiled):
    within = compiled(called(MATMUL, "run(bm=128, bn=128, bk=32, num_stages=4)"))
    beyond = compiled(called(MATMUL, "run(bm=128, bn=256, bk=128, num_stages=8)"))
    assert within.builds[0].failure is None
    assert beyond.builds[0].failure == "resources"
    assert int(beyond.error.message.split("Required: ")[1].split(",")[0]) > 232448


def test_real_tensors_serve_as_well_as_fake_ones(compiled):
    fake, real = compiled(ADD, fake=True), compiled(ADD, fake=False)
    for outcome in (fake, real):
        assert outcome.error is None
    assert fake.builds[0].signature == real.builds[0].signature
    assert fake.builds[0].registers == real.builds[0].registers
    assert fake.launches == real.launches


def test_an_earlier_build_on_disk_serves_and_its_resources_are_read_from_the_binary(compiled):
    source = (
        ADD
        + """

def again(run=run):
    run()
    add.device_caches.clear()
    run()

run = again
"""
    )
    outcome = compiled(source)
    first, second = outcome.builds
    assert not first.cached
    assert second.cached
    assert (second.registers, second.shared_bytes) == (first.registers, first.shared_bytes)


def test_nothing_is_left_behind_and_nothing_is_printed(compiled):
    for source in (ADD, called(MATMUL, "run(bm=256, bn=256, bk=128, num_stages=8)")):
        outcome = compiled(source)
        assert outcome.left_behind == []
        assert outcome.printed == ""


def test_what_a_kernel_prints_while_it_is_compiled_is_passed_on(compiled):
    outcome = compiled(
        ADD.replace("inside = offsets < n", 'inside = offsets < n\n    tl.static_print("block", BLOCK)')
    )
    assert outcome.error is None
    assert "block" in outcome.printed


def test_a_refusal_by_ptxas_keeps_its_words_and_not_the_whole_listing(compiled):
    outcome = compiled(
        """
        @triton.jit
        def odd(y_ptr):
            x = tl.inline_asm_elementwise("no.such.instruction $0, $1;", "=r,r", [tl.arange(0, 32)],
                                          dtype=tl.int32, is_pure=True, pack=1)
            tl.store(y_ptr + tl.arange(0, 32), x)


        def run():
            odd[(1,)](torch.empty(32, dtype=torch.int32, device="cuda"))
        """
    )
    assert outcome.raised == "PTXASError"
    assert outcome.builds[0].failure == "assembler"
    assert outcome.error.message.startswith("ptxas failed: ")
    assert "instruction" in outcome.error.message
    assert ".ptx" not in outcome.error.message
    assert ".visible" not in outcome.error.message
    assert outcome.error.kernel == "odd"
    assert outcome.error.source.startswith("odd[(1,)]")
    assert outcome.printed == ""
    assert outcome.left_behind == []


def test_time_that_is_used_up_ends_a_compilation_in_its_words(compiled):
    outcome = compiled(called(ADD, "run()"), time_limit_s=0)
    assert outcome.raised == "CompileTimeout"
    assert outcome.builds[0].failure == "time"
    assert "limit of 0 s for all kernels" in outcome.error.message
    outcome = compiled(called(ADD, "run()"), per_kernel_limit_s=0)
    assert "limit of 0 s for one kernel" in outcome.error.message


def test_kernels_that_are_interpreted_cannot_be_compiled():
    code = (
        "from adaexplore_mcp.evaluation.workers import compiler, targets\n"
        "try:\n    compiler.Compiler.install(targets.DEFAULT_TARGET)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "TRITON_INTERPRET is set" in done.stdout, done.stderr


def test_another_target_can_be_installed_and_everything_put_back(compiled):
    source = """
    from adaexplore_mcp.evaluation.workers.compiler import Compiler
    from adaexplore_mcp.evaluation.workers.targets import target


    @triton.jit
    def fill(y_ptr):
        tl.store(y_ptr, 1.0)


    def run():
        current = Compiler._installed
        before = triton.compile
        try:
            current.session()
        except RuntimeError as error:
            refused = str(error)
        other = Compiler.install(target("sm_80"))
        with other.session() as session:
            fill[(1,)](torch.empty(1, device="cuda"))
        arch = triton.runtime.driver.active.get_current_target().arch
        other.uninstall()
        return [refused, session.builds[0].kernel, arch, triton.compile is not before, triton.compile.__module__]
    """
    refused, kernel, arch, changed, module = compiled(source).value
    assert refused == "a session of this compiler is open already"
    assert (kernel, arch, changed, module) == ("fill", 80, True, "triton.compiler.compiler")
