"""What one process compiled is found by another, at another place, and nothing else travels."""

import importlib.metadata
import json
import os
import struct
import subprocess
import sys

import pytest

from adaexplore_mcp.evaluation.workers.cuda import cache
from adaexplore_mcp.evaluation.workers.cuda.cache import pack, unpack

# One launch for each thing that a specialisation or an option can depend on. `at` says where tensors are.
KERNELS = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

SCALE = tl.constexpr(3)


@triton.jit
def scaled(x):
    return x * SCALE


@triton.jit
def add(x_ptr, y_ptr, n, c, flag, nothing, BLOCK: tl.constexpr, KIND: tl.constexpr = tl.float32):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = scaled(tl.load(x_ptr + offsets, mask=offsets < n).to(KIND)) + c
    if flag:
        x += 1
    tl.store(y_ptr + offsets, x, mask=offsets < n)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x_ptr"])
def plain(x_ptr, n):
    tl.store(x_ptr + n, 1)


@triton.jit
def power(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, libdevice.pow(tl.load(x_ptr + offsets), 1.5))


@triton.jit
def described(source, y_ptr, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    tl.store(y_ptr + row[:, None] * BLOCK + row[None, :], source.load([0, 0]))


@triton.autotune([triton.Config({"BM": bm}, num_warps=warps) for bm in (16, 32) for warps in (2, 4)], key=["K"])
@triton.heuristics({"EVEN": lambda args: args["K"] % 16 == 0})
@triton.jit
def matmul(a_ptr, c_ptr, K, BM: tl.constexpr, EVEN: tl.constexpr):
    m, k = tl.arange(0, BM), tl.arange(0, 16)
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, K, 16):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        acc = tl.dot(a, tl.trans(a), acc)
    tl.store(c_ptr + m[:, None] * BM + m[None, :], acc)


def run(at):
    x, y = torch.ones(4096, device=at), torch.empty(4096, device=at)
    add[(16,)](x, y, 4096, 0.5, True, None, BLOCK=256)
    add[(16,)](x[1:], y[4:], 4095, 2, False, None, BLOCK=256)
    add[(1,)](x, y, 1, 2**40, True, None, BLOCK=256, KIND=tl.float16)
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn):
        add[(16,)](x.to(dtype), y, 4096, 16, True, None, BLOCK=256)
    for options in (
        {"num_warps": 8}, {"num_stages": 2}, {"num_ctas": 2}, {"maxnreg": 64}, {"enable_fp_fusion": False},
        {"launch_cooperative_grid": True}, {"launch_pdl": True}, {"debug": True}, {"sanitize_overflow": True},
    ):
        add[(16,)](x, y, 4096, 0.5, True, None, BLOCK=256, **options)
    plain[(1,)](x, 16)
    plain[(1,)](x[1:], 7)
    power[(1,)](x, y, BLOCK=128)
    described[(1,)](TensorDescriptor.from_tensor(x.view(64, 64), [32, 32]), y, BLOCK=32)
    matmul[(1,)](x.half(), y, 64)
"""

COMMON = """
import json, os, sys, types
from pathlib import Path
import torch, triton

def load(file):
    module = types.ModuleType("candidate")
    module.__file__ = file
    sys.modules["candidate"] = module
    exec(compile(Path(file).read_text(), file, "exec"), module.__dict__)
    return module
"""

COMPILES = (
    COMMON
    + """
from adaexplore_mcp.evaluation.workers import compiler, standin
from adaexplore_mcp.evaluation.workers.cuda.cache import pack
from adaexplore_mcp.evaluation.workers.targets import target

_, file, packed = sys.argv
sm_90 = target("sm_90")
standin.warm_up()
world = standin.StandIn(sm_90, [file], fake=True)
installed = compiler.Compiler.install(sm_90, world.on_device)
with installed.session(files=[file], jobs=2, launchers=True) as session, world:
    load(file).run("cuda")
with open(packed, "w+b") as into:
    size = pack(Path(os.environ["TRITON_CACHE_DIR"]), into.fileno())
print(json.dumps({"builds": [build.kernel for build in session.builds], "bytes": size}))
"""
)

# Triton as it is, with the answers of a driver on a machine that has an sm_90, and launches that do nothing.
LAUNCHES = (
    COMMON
    + """
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia import driver as nvidia_driver
from triton.runtime import build
from adaexplore_mcp.evaluation.workers.cuda.cache import unpack

launchers = []

def launcher(src, metadata):
    "Do nothing but look for the launcher that Triton would use, in versions that build one."
    if hasattr(nvidia_driver, "make_launcher"):
        build._load_module_from_path = lambda name, path: launchers.append(path) or types.SimpleNamespace(launch=None)
        build._build = lambda *arguments: sys.exit("it had to be built")
        nvidia_driver.CudaLauncher(src, metadata)
    return lambda *arguments: None

class Driver(DriverBase):
    def __init__(self):
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=lambda name, kernel, shared, device: (object(), 0, 32, 0, 1024),
            unload_module=lambda module: None,
        )
        self.launcher_cls = launcher
    is_active = classmethod(lambda cls: True)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device=0: 0
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_active_torch_device = lambda self: torch.device("cpu")
    get_benchmarker = lambda self: lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]
    map_python_to_cpp_type = lambda self, kind: kind
    get_device_interface = get_empty_cache_for_benchmark = clear_cache = None

_, file, packed = sys.argv
folder = Path(os.environ["TRITON_CACHE_DIR"])
with open(packed, "rb") as source:
    count = unpack(source.fileno(), folder)
before = sorted(path.name for path in folder.iterdir())
hits = {}
triton.runtime.driver.set_active(Driver())
triton.knobs.compilation.listener = lambda src, metadata, metadata_group, times, cache_hit: hits.setdefault(
    src.name, []).append(cache_hit)
load(file).run("cpu")
print(json.dumps({"hits": hits, "before": before, "after": sorted(path.name for path in folder.iterdir()),
                  "files": count, "launchers": len(launchers)}))
"""
)


def python(code, *arguments, cache_folder, **environment):
    environment = {
        name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"
    } | environment
    environment |= {"TRITON_CACHE_DIR": str(cache_folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compiled_and_launched(folder, **environment):
    file, packed = folder / "candidate.py", folder / "packed"
    file.write_text(KERNELS)
    compiled = python(COMPILES, file, packed, cache_folder=folder / "compiled", **environment)
    assert compiled["bytes"] == packed.stat().st_size
    return compiled, python(LAUNCHES, file, packed, cache_folder=folder / "elsewhere", **environment)


PER_SIGNATURE = tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) < (3, 7)


@pytest.mark.skipif(PER_SIGNATURE, reason="this version of Triton builds a launcher for each signature")
def test_a_launch_with_tritons_own_driver_finds_what_was_compiled_without_one(tmp_path):
    compiled, launched = compiled_and_launched(tmp_path)
    assert all(hit for hits in launched["hits"].values() for hit in hits), launched["hits"]
    assert sum(map(len, launched["hits"].values())) == len(compiled["builds"])
    assert launched["after"] == launched["before"]
    suffixes = {path.suffix for path in (tmp_path / "elsewhere").rglob("*.*")}
    assert suffixes == {".json", ".cubin"}


@pytest.mark.skipif(
    not PER_SIGNATURE, reason="this version of Triton launches everything with one and the same code"
)
def test_a_launch_finds_the_launchers_too_where_each_signature_has_its_own(tmp_path):
    cuda = tmp_path / "cuda"
    cuda.mkdir()
    empty = tmp_path / "empty.c"
    empty.write_text("")
    for name in ("libcuda.so.1", "libcuda.so"):  # the library is linked by its name, and not loaded
        subprocess.run(["gcc", "-shared", "-o", str(cuda / name), str(empty)], check=True)
    _, launched = compiled_and_launched(tmp_path, TRITON_LIBCUDA_PATH=str(cuda))
    assert all(hit for hits in launched["hits"].values() for hit in hits), launched["hits"]
    assert launched["launchers"] >= 20
    assert launched["after"] == launched["before"]
    suffixes = {path.suffix for path in (tmp_path / "elsewhere").rglob("*.*")}
    assert suffixes == {".json", ".cubin", ".so"}


@pytest.mark.skipif(
    not PER_SIGNATURE, reason="this version of Triton launches everything with one and the same code"
)
def test_without_cudas_library_kernels_are_compiled_all_the_same(tmp_path):
    (tmp_path / "candidate.py").write_text(KERNELS)
    compiled = python(
        COMPILES,
        tmp_path / "candidate.py",
        tmp_path / "packed",
        cache_folder=tmp_path / "compiled",
        TRITON_LIBCUDA_PATH=str(tmp_path / "nowhere"),
    )
    assert "matmul" in compiled["builds"]
    assert not list((tmp_path / "compiled").rglob("*.so"))


# --- what travels, and what does not -------------------------------------------------------------------------


FOLDER = "A" * 52


@pytest.fixture
def kernels(tmp_path):
    """A cache as Triton leaves it: a kernel, one that is not finished, a launcher, and what is nobody else's."""
    folder = tmp_path / "kernels"
    files = {
        f"{FOLDER}/softmax.{kind}": kind.encode()
        for kind in ("json", "cubin", "source", "ttir", "ttgir", "llir", "ptx")
    }
    files |= {f"{FOLDER}/__grp__softmax.json": json.dumps({"child_paths": {"softmax.json": "/x"}}).encode()}
    files |= {f"{FOLDER}/softmax.autotune.json": b"{}", f"{FOLDER}/tmp.pid_7_1/softmax.cubin": b"half"}
    files |= {f"{'B' * 52}/torn.json": b"{}", f"{'B' * 52}/torn.cubin": b"half"}
    files |= {f"{'C' * 52}/__triton_launcher.cpython-312.so": b"ELF"}
    files |= {"assemble-1/kernel.cubin": b"half", "compiler-said-7": b"words"}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / ("D" * 52)).symlink_to(folder / FOLDER)
    (folder / FOLDER / "link.so").symlink_to("/etc/passwd")
    return folder


@pytest.fixture
def file():
    descriptor = os.memfd_create("packed")
    yield descriptor
    os.close(descriptor)


def below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_what_a_launch_needs_is_packed(kernels, file, tmp_path):
    os.write(file, b"what was there before" * 1000)
    size = pack(kernels, file)
    assert size == os.fstat(file).st_size
    other = tmp_path / "other"
    assert unpack(file, other) == 3
    found = below(other)
    note = json.loads(found.pop(f"{FOLDER}/__grp__softmax.json"))
    assert found == {
        f"{FOLDER}/softmax.json": b"json",
        f"{FOLDER}/softmax.cubin": b"cubin",
        f"{'C' * 52}/__triton_launcher.cpython-312.so": b"ELF",
    }
    assert note == {
        "child_paths": {name: str(other / FOLDER / name) for name in ("softmax.cubin", "softmax.json")}
    }


def test_a_cache_that_is_not_there_is_packed_as_an_empty_one(file, tmp_path):
    pack(tmp_path / "nowhere", file)
    assert unpack(file, tmp_path / "other") == 0


def test_a_cache_that_is_too_large_is_not_packed(kernels, file, monkeypatch):
    monkeypatch.setattr(cache, "MAX_FILES", 2)
    with pytest.raises(ValueError, match="3 files are too many"):
        pack(kernels, file)
    monkeypatch.setattr(cache, "MAX_FILES", 20)
    monkeypatch.setattr(cache, "MAX_BYTES", 150)
    with pytest.raises(ValueError, match="too much to pack"):
        pack(kernels, file)
    assert os.fstat(file).st_size == 0


def forged(*entries, magic=b"adxcache", count=None, end=b""):
    body = struct.pack("<8sI", magic, len(entries) if count is None else count)
    for name, content, *size in entries:
        body += struct.pack("<HQ", len(name), size[0] if size else len(content)) + name + content
    return body + end


GOOD = (b"A" * 52 + b"/k.cubin", b"binary")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        forged(GOOD)[:-1],
        forged(GOOD, end=b"x"),
        forged(GOOD, magic=b"adxcachf"),
        forged(GOOD, count=2),
        forged(GOOD, count=20_001),
        forged(GOOD, GOOD),
        forged((GOOD[0], b"binary", 1 << 63)),
        forged((GOOD[0], b"binary", 7)),
        *(
            forged((name, b"x"))
            for name in (
                b"",
                b"k.cubin",
                b"/k.cubin",
                b"../k.cubin",
                b"./k.cubin",
                b"A/../k.cubin",
                b"A/B/k.cubin",
                b"A/..",
                b"A/",
                b"A/.cubin/k",
                b"A/k.cubin/",
                b"A/k.py",
                b"A/k\0.cubin",
                b"a/k.cubin",
                b"A\n/k.cubin",
                b"/etc/k.so",
                b"A/__grp__k.json",
                b"A/k.autotune.json",
                b"A" * 65 + b"/k.so",
                b"A/" + b"k" * 201 + b".so",
            )
        ),
    ],
)
def test_a_file_that_is_not_packed_by_us_is_refused_and_puts_nothing_elsewhere(content, file, tmp_path):
    os.write(file, content)
    with pytest.raises(ValueError, match=r"cache|bytes"):
        unpack(file, tmp_path / "inside" / "cache")
    assert set(below(tmp_path)) <= {f"inside/cache/{GOOD[0].decode()}"}


def test_a_file_that_is_too_large_is_not_read(file, tmp_path):
    os.ftruncate(file, (1 << 30) + 1)
    with pytest.raises(ValueError, match="too large"):
        unpack(file, tmp_path)


def test_metadata_without_its_binary_is_no_kernel(file, tmp_path):
    os.write(file, forged((b"A/k.json", b"{}")))
    assert unpack(file, tmp_path) == 1
    assert set(below(tmp_path)) == {"A/k.json"}
