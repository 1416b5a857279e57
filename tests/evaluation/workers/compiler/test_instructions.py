"""What real kernels are made of, as the compiler of this machine wrote them."""

from adaexplore_mcp.evaluation.workers.compiler.instructions import instructions

COPY = """
@triton.jit
def copy(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets{times}, mask=offsets < n)
    tl.store(y_ptr + offsets, x, mask=offsets < n)


def run():
    x = torch.ones(1 << 20, device="cuda")
    copy[(512,)](x, torch.empty_like(x), 1 << 20, 32, BLOCK=2048, num_warps=4)
"""
MATMUL = """
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * BM + m[None, :])
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + m[:, None] * BM + m[None, :], acc)


def run():
    a = torch.ones(64, 512, device="cuda", dtype=torch.float16)
    matmul[(1,)](a, a.view(512, 64), torch.zeros(64, 64, device="cuda"), 512, BM=64, BK=32, num_stages=3)
"""


def made_of(outcome):
    assert outcome.error is None, outcome.error
    return outcome.builds[-1].instructions


def test_contiguous_addresses_are_loaded_sixteen_bytes_at_a_time(compiled):
    found = made_of(compiled(COPY.format(times="")))
    assert found.keys() == {"load_128", "store_128"}


def test_strided_addresses_are_loaded_one_element_at_a_time(compiled):
    found = made_of(compiled(COPY.format(times=" * stride")))
    assert found["load_32"] == 16  # 2,048 elements for 128 threads
    assert "load_128" not in found


def test_a_product_uses_tensor_cores_and_copies_ahead_and_adds_atomically(compiled):
    found = made_of(compiled(MATMUL, target="sm_80"))
    assert found["tensor_core"] > 0
    assert found["async_copies"] > 0
    assert found["atomics"] > 0


def test_every_build_has_an_occupancy(compiled):
    outcome = compiled(COPY.format(times=""))
    assert 0 < outcome.builds[-1].occupancy <= 1
    assert outcome.builds[-1].occupancy_limit in {"registers", "threads", "blocks", "shared memory"}


def test_kinds_are_told_from_their_names():
    ptx = """
        ld.global.b32 %r1, [%rd1];
        @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
        ld.global.L1::evict_last.v2.b32 { %r1, %r2 }, [ %rd1 ];
        ld.shared.b32 %r1, [%r2];
        st.global.b16 [ %rd2 ], { %rs1 };
        cp.async.cg.shared.global [ %r1 ], [ %rd1 ], 0x10, 0x10;
        cp.async.commit_group;
        wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %rd1, %rd2;
        fma.rn.f64 %fd1, %fd2, %fd3, %fd4;
        div.full.f32 %f1, %f2, %f3;
    """
    assert instructions(ptx) == {
        "load_32": 1, "load_128": 1, "load_64": 1, "store_16": 1,
        "tensor_core": 1, "async_copies": 1, "shared_single": 1, "fp64": 1, "divisions": 1,
    }  # fmt: skip
