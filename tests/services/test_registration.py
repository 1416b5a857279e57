"""Registering tasks as an agent does: through the tools of one server, examined by real workers."""

import re
import sys
import textwrap
from importlib import resources

import pytest
from mcp import Client

from adaexplore_mcp.server import build_server
from adaexplore_mcp.services import Services
from adaexplore_mcp.services.connect import connect
from adaexplore_mcp.settings import load_settings

pytestmark = pytest.mark.anyio

MEMORY_MIB = 1024


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


class Agent:
    """A client of one server, and the folder that the server reads."""

    def __init__(self, client, root):
        self.client = client
        self.root = root

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    async def refused(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        return result.content[0].text

    async def registered(self, **arguments):
        return await self.call("register_task", response_format="detailed", **arguments)

    async def task_id(self, **arguments):
        return (await self.registered(**arguments))["task_id"]

    async def verdict(self, task_id, kernel):
        return await self.call(
            "compile_and_verify", task_id=task_id, kernel=kernel, response_format="detailed"
        )

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
        return str(path)


@pytest.fixture(scope="module")
async def agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registration")
    root = folder / "work"
    root.mkdir()
    settings = load_settings(
        {
            "home": folder / "home",
            "scratch": folder / "scratch",
            "roots": [root],
            "worker_python": sys.executable,
            "memory_limit_mib": MEMORY_MIB,
            "parallel": 2,
        },
        {},
    )
    async with Client(build_server(settings, Services(settings, connect))) as client:
        yield Agent(client, root)
    assert list(settings.scratch.iterdir()) == []


# --- an operation in a package of its own ----------------------------------------------------------------

PACKAGE = {
    "__init__.py": "from .ops.projection import gather_project\n\n__all__ = ['gather_project']\n",
    "sizes.py": "TOKENS = 8\nHIDDEN = 32\nWIDTH = 16\nROWS = 40\n",
    "ops/__init__.py": "",
    "ops/packing.py": '''
        """Two weights of four bits in a byte: the even column in the low half, the odd one in the high half."""

        import torch


        def unpack(packed):
            pair = torch.stack([packed & 15, packed >> 4], dim=-1)
            return pair.flatten(-2).to(torch.int8) - 8
    ''',
    "ops/projection.py": '''
        from ..sizes import HIDDEN, ROWS, TOKENS, WIDTH
        from . import packing


        def gather_project(x, residual, ids, packed, scale):
            """Project the rows of x that ids name, by a weight of four bits, and add them to the residual."""
            weight = packing.unpack(packed).to(scale.dtype) * scale[:, None]
            residual.add_(x[ids] @ weight.T)
            return residual.relu()
    ''',
}
MAKE_INPUTS = """
import torch


def make_inputs(workload, device, seed):
    g = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(ROWS, HIDDEN, generator=g, device=device)
    residual = torch.randn(TOKENS, WIDTH, generator=g, device=device)
    ids = torch.randint(0, ROWS, (TOKENS,), generator=g, device=device)
    packed = torch.randint(0, 256, (WIDTH, HIDDEN // 2), generator=g, device=device, dtype=torch.uint8)
    scale = torch.rand(WIDTH, generator=g, device=device) + 0.5
    return [x, residual, ids, packed, scale]
"""
WORKLOADS = {
    "decode": {"TOKENS": 1, "HIDDEN": 64, "WIDTH": 32},
    "prefill": {"TOKENS": 12, "HIDDEN": 32, "WIDTH": 16},
    "odd": {"TOKENS": 5, "HIDDEN": 24, "WIDTH": 20},
}
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def project(x_ptr, residual_ptr, ids_ptr, packed_ptr, scale_ptr, out_ptr, hidden, width, W: tl.constexpr, K: tl.constexpr):
    token = tl.program_id(0)
    row = tl.load(ids_ptr + token)
    o = tl.arange(0, W)
    k = tl.arange(0, K)
    half = hidden // 2
    both = (o < width)[:, None] & (k < half)[None, :]
    byte = tl.load(packed_ptr + o[:, None] * half + k[None, :], mask=both, other=0)
    low = (byte & 15).to(tl.float32) - 8.0
    high = (byte >> 4).to(tl.float32) - 8.0
    even = tl.load(x_ptr + row * hidden + 2 * k, mask=k < half, other=0.0)
    odd = tl.load(x_ptr + row * hidden + 2 * k + 1, mask=k < half, other=0.0)
    total = tl.sum(low * even[None, :] + high * odd[None, :], axis=1)
    total *= tl.load(scale_ptr + o, mask=o < width, other=0.0)
    place = token * width + o
    total += tl.load(residual_ptr + place, mask=o < width, other=0.0)
    tl.store(residual_ptr + place, total, mask=o < width)
    tl.store(out_ptr + place, tl.maximum(total, 0.0), mask=o < width)


def gather_project(x, residual, ids, packed, scale):
    out = torch.empty_like(residual)
    tokens, width = residual.shape
    hidden = x.shape[1]
    project[(tokens,)](
        x, residual, ids, packed, scale, out, hidden, width,
        W=triton.next_power_of_2(width), K=triton.next_power_of_2(hidden // 2),
    )
    return out
"""


@pytest.fixture(scope="module")
async def projection(agent):
    """The whole of it in one call: no file is added to the package, and none is changed."""
    for name, text in PACKAGE.items():
        agent.write(f"src/quantized/{name}", text)
    return await agent.registered(
        name="int4 projection",
        source_path="src/quantized/ops/projection.py",
        entry="gather_project",
        import_root="src",
        source=MAKE_INPUTS,
        format="function",
        workloads=[{"name": name, "sizes": sizes} for name, sizes in WORKLOADS.items()],
        domains={"ids": "index(40)"},
        mutates=["residual"],
    )


async def test_an_operation_of_a_package_is_registered_as_it_is_with_one_call(agent, projection):
    assert (projection["name"], projection["format"]) == ("int4 projection", "function")
    assert projection["entry"] == "gather_project"
    assert projection["mutates"] == ["residual"]
    assert projection["task_id"] in projection["next_step"]
    assert not projection.get("findings")
    assert [workload["name"] for workload in projection["workloads"]] == list(WORKLOADS)
    for workload in projection["workloads"]:
        tokens, hidden, width = WORKLOADS[workload["name"]].values()
        specs = {one["name"]: (one["dtype"], one["shape"]) for one in workload["inputs"]}
        assert specs == {
            "x": ("float32", [40, hidden]),
            "residual": ("float32", [tokens, width]),
            "ids": ("int64", [tokens]),
            "packed": ("uint8", [width, hidden // 2]),
            "scale": ("float32", [width]),
        }
        assert [one["shape"] for one in workload["outputs"]] == [[tokens, width]]
        assert workload["flops"] == 2 * tokens * hidden * width
        inputs = 4 * (40 * hidden + tokens * width + width) + 8 * tokens + width * hidden // 2
        assert workload["bytes"] == inputs + 2 * 4 * tokens * width  # the output and the residual, written
        assert workload.get("judged_at", "own sizes") == "own sizes"


async def test_a_right_kernel_of_that_operation_is_correct_at_every_workload(agent, projection):
    outcome = await agent.verdict(projection["task_id"], KERNEL)
    assert outcome["status"] == "correct", outcome
    assert list(outcome["scope"]["workloads"]) == list(WORKLOADS)
    assert outcome["facts"]["launches"] == {"project": 1}


RESIDUAL = "tl.load(residual_ptr + place, mask=o < width, other=0.0)"
UPDATE = "    tl.store(residual_ptr + place, total, mask=o < width)\n"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(
            "(byte & 15).to(tl.float32) - 8.0\n    high = (byte >> 4)",
            "(byte >> 4).to(tl.float32) - 8.0\n    high = (byte & 15)",
            ("values", "out"),
            id="nibbles swapped",
        ),
        pytest.param(
            "(byte >> 4).to(tl.float32) - 8.0",
            "(byte.to(tl.int8, bitcast=True) >> 4).to(tl.float32)",
            ("values", "out"),
            id="upper nibble taken as signed",
        ),
        pytest.param(UPDATE, "", ("values", "residual"), id="residual not updated"),
        # Two hundredths of 32 sums may be taken for half precision.
        pytest.param(RESIDUAL, "0.0", ("values|precision_class", "out"), id="residual dropped"),
        pytest.param("tl.load(ids_ptr + token)", "token", ("values", "out"), id="index ignored"),
        pytest.param(", mask=both, other=0)", ")", ("out_of_bounds", ""), id="mask left out"),
    ],
)
async def test_a_subtly_wrong_kernel_of_that_operation_is_incorrect(agent, projection, old, new, found):
    assert KERNEL.count(old) == 1
    outcome = await agent.verdict(projection["task_id"], KERNEL.replace(old, new))
    assert outcome["status"] == "incorrect", outcome
    checks, output = found
    assert outcome["check"] in checks.split("|")
    assert outcome["evidence"].get("output", "") == output


async def test_a_file_named_with_its_entry_is_the_same_task_and_its_package_is_found(agent, projection):
    again = await agent.task_id(
        entry="src/quantized/ops/projection.py:gather_project",
        source=MAKE_INPUTS,
        format="function",
        workloads=[{"name": name, "sizes": sizes} for name, sizes in WORKLOADS.items()],
        domains={"ids": "index(40)"},
        mutates=["residual"],
    )
    assert again == projection["task_id"]


async def test_a_package_that_is_edited_is_another_task_and_the_first_one_stays(agent, projection):
    task_id = projection["task_id"]
    path = "src/quantized/ops/packing.py"
    edited = PACKAGE["ops/packing.py"].replace("- 8", "- 7")
    try:
        agent.write(path, edited)
        other = await agent.registered(
            entry="src/quantized/ops/projection.py:gather_project",
            source=MAKE_INPUTS,
            format="function",
            workloads=[{"name": "decode", "sizes": WORKLOADS["decode"]}],
            mutates=["residual"],
        )
        assert other["task_id"] != task_id
        sevens = KERNEL.replace("- 8.0", "- 7.0")
        assert (await agent.verdict(other["task_id"], sevens))["status"] == "correct"
        # Judged against what was registered, whatever the files have become.
        assert (await agent.verdict(task_id, KERNEL))["status"] == "correct"
        assert (await agent.verdict(task_id, sevens))["status"] == "incorrect"
    finally:
        agent.write(path, PACKAGE["ops/packing.py"])


# --- formats and what is found ---------------------------------------------------------------------------

MODULE = """
import torch
from torch import nn

BATCH = 6
IN_FEATURES = 20
OUT_FEATURES = 12


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("shift", torch.randn(out_features))

    def forward(self, x):
        return self.linear(x) + self.shift


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
"""
FUNCTION = """
import torch

N = 50


def reference(x, y):
    return x * y


def make_inputs(workload, device, seed):
    torch.manual_seed(seed)
    return [torch.randn(N, device=device), torch.randn(N, device=device)]
"""


@pytest.mark.parametrize("by", ["text", "file"])
async def test_a_module_is_registered_by_text_and_by_file(agent, by):
    given = (
        {"source": MODULE} if by == "text" else {"source_path": agent.write("by_file/01_linear.py", MODULE)}
    )
    task = await agent.registered(
        **given,
        workloads=[
            {"name": "small", "sizes": {"BATCH": 2}},
            {"name": "large", "sizes": {"BATCH": 9, "IN_FEATURES": 32, "OUT_FEATURES": 7}, "weight": 3},
        ],
    )
    assert (task["format"], task["entry"]) == ("kernelbench", "ModelNew")
    assert task["parameters"] == 20 * 12 + 12 + 12
    small, large = task["workloads"]
    # Each workload's product, and its input, weight, bias, buffer and output once, four bytes each.
    assert small["flops"] == 2 * 2 * 20 * 12
    assert small["bytes"] == 4 * (2 * 20 + 20 * 12 + 12 + 12 + 2 * 12)
    assert large["flops"] == 2 * 9 * 32 * 7
    assert large["bytes"] == 4 * (9 * 32 + 32 * 7 + 7 + 7 + 9 * 7)
    assert large["weight"] == 3
    assert large["inputs"] == [{"name": "x", "dtype": "float32", "shape": [9, 32]}]
    assert large["outputs"] == [{"name": "out", "dtype": "float32", "shape": [9, 7]}]


@pytest.mark.parametrize("by", ["text", "file"])
async def test_a_function_is_registered_by_text_and_by_file(agent, by):
    given = {"source": FUNCTION} if by == "text" else {"source_path": agent.write("by_file/op.py", FUNCTION)}
    task = await agent.registered(**given, format="function")
    assert task["entry"] == "reference"
    assert task.get("parameters", 0) == 0
    (workload,) = task["workloads"]
    assert workload.get("flops", 0) == 0
    assert workload["bytes"] == 3 * 50 * 4
    assert [one["name"] for one in workload["inputs"]] == ["x", "y"]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("x + 1, y", ["out[0]", "out[1]"]),
        ("[x + 1, (y * 2, x - y)]", ["out[0]", "out[1][0]", "out[1][1]"]),
        ("{'sum': x + y, 'mean': (x + y).mean()}", ["out['sum']", "out['mean']"]),
    ],
)
async def test_outputs_may_be_tuples_lists_and_dicts(agent, value, names):
    task = await agent.registered(
        source=FUNCTION.replace("return x * y", f"return {value.replace(', y', ', y + 1')}"),
        format="function",
    )
    outputs = task["workloads"][0]["outputs"]
    assert [one["name"] for one in outputs] == names
    assert all(one.get("shape", []) == ([] if "mean" in one["name"] else [50]) for one in outputs)
    assert all(one["dtype"] == "float32" for one in outputs)


async def test_a_task_too_large_for_a_cpu_is_costed_at_its_own_sizes_and_judged_at_lower_ones(agent):
    large = MODULE.replace("BATCH = 6", "BATCH = 4096").replace("FEATURES = 20", "FEATURES = 2048")
    task = await agent.registered(source=large.replace("FEATURES = 12", "FEATURES = 8192"))
    (workload,) = task["workloads"]
    assert workload["flops"] == 2 * 4096 * 2048 * 8192
    assert workload["bytes"] == 4 * (4096 * 2048 + 2048 * 8192 + 2 * 8192 + 4096 * 8192)
    assert workload["judged_at"] == "reduced sizes"
    assert set(workload["reduced"]) <= {"BATCH", "IN_FEATURES", "OUT_FEATURES"}
    assert workload["reduced"]
    assert any("too large" in finding for finding in task["findings"])


async def test_what_was_noticed_about_a_task_is_told(agent):
    task = await agent.registered(
        source=FUNCTION.replace("return x * y", "x.add_(y)\n    return torch.zeros_like(y)"),
        format="function",
    )
    assert task["mutates"] == ["x"]
    findings = " ".join(task["findings"])
    assert "changes x in place" in findings
    unchanged = await agent.registered(source=FUNCTION, format="function", mutates=["y"])
    assert any("y, which the reference left" in finding for finding in unchanged["findings"])


# --- ids -------------------------------------------------------------------------------------------------


async def test_equal_content_is_the_same_task_whatever_its_name(agent):
    first = await agent.registered(source=FUNCTION, format="function", name="one name")
    again = await agent.registered(source=FUNCTION, format="function", name="another name")
    assert again["task_id"] == first["task_id"]
    assert again["name"] == "another name"
    spelled_out = await agent.task_id(
        source=FUNCTION, format="function", entry="reference", policy={"precision": "match"}
    )
    assert spelled_out == first["task_id"]


async def test_whatever_changes_what_is_right_makes_another_task(agent):
    changes = [
        {},
        {"policy": {"precision": "relaxed"}},
        {"policy": {"library_ops": "forbid"}},
        {"policy": {"precision": "custom", "atol": 0.5}},
        {"policy": {"precision": "custom", "atol": 0.25}},
        {"workloads": [{"name": "default", "sizes": {"N": 50}}]},
        {"domains": {"x": "nonnegative"}},
        {"vary": {"N": {"min": 10, "max": 60}}},
        {"source": FUNCTION + "# a remark\n"},
    ]
    ids = [await agent.task_id(**{"source": FUNCTION, "format": "function"} | change) for change in changes]
    assert len(set(ids)) == len(changes)


async def test_the_order_of_what_has_no_order_makes_no_other_task(agent):
    source = FUNCTION.replace("return x * y", "x.add_(1)\n    y.add_(2)\n    return x * y")
    one = await agent.task_id(source=source, format="function", mutates=["x", "y"])
    other = await agent.task_id(source=source, format="function", mutates=["y", "x"])
    assert one == other


# --- baselines -------------------------------------------------------------------------------------------

PRODUCT = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    tl.store(z_ptr + o, x * tl.load(y_ptr + o, mask=o < n, other=0.0), mask=o < n)


def reference(x, y):
    z = torch.empty_like(x)
    product[(triton.cdiv(x.numel(), 32),)](x, y, z, x.numel(), BLOCK=32)
    return z
"""


@pytest.mark.parametrize("by", ["text", "file"])
async def test_the_owners_own_kernel_is_judged_with_the_task(agent, by):
    given = {"baseline": PRODUCT} if by == "text" else {"baseline_path": agent.write("own.py", PRODUCT)}
    task = await agent.registered(source=FUNCTION, format="function", **given)
    assert task["baseline"] == "correct"
    assert task["task_id"] != await agent.task_id(source=FUNCTION, format="function")


async def test_an_own_kernel_that_is_wrong_is_refused_and_nothing_is_registered(agent):
    wrong = PRODUCT.replace("x * tl", "x + tl")
    name = "with a wrong kernel"
    said = await agent.refused("register_task", source=FUNCTION, format="function", baseline=wrong, name=name)
    assert "baseline does not hold" in said
    assert (await agent.call("list_tasks", query=name))["tasks"] == []


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("class Model(", "class Modell(", ["needs Model", "Modell"], id="no Model"),
        pytest.param("def get_inputs", "def inputs", ["needs get_inputs"], id="no get_inputs"),
        pytest.param(
            "return [torch.randn(BATCH", "raise ValueError('no such luck')\n    return [torch.randn(BATCH",
            ["get_inputs() raised ValueError: no such luck", "line 21"], id="inputs raise",
        ),
        pytest.param(
            "return [IN_FEATURES, OUT", "return [IN_FEATURES, 0 // 0, OUT",
            ["get_init_inputs() raised ZeroDivisionError"], id="constructor's arguments raise",
        ),
        pytest.param(
            "return self.linear(x) + self.shift", "return 'done'", ["str", "Return tensors"], id="returns text"
        ),
        pytest.param(
            "return self.linear(x) + self.shift", "return self.linear(x).shape", ["no tensor"], id="returns sizes"
        ),
        pytest.param(
            "return self.linear(x)", "return nn.functional.dropout(self.linear(x), 0.5)",
            ["draws random numbers", "dropout"], id="random",
        ),
        pytest.param("(nn.Module)", "(object)", ["Model"], id="no module"),
        pytest.param("import torch\n", "import torch\nimport no_such_module\n", ["no_such_module"], id="import"),
        pytest.param("class Model(nn.Module):", "class Model(nn.Module)", ["line 10"], id="no Python"),
        pytest.param(
            "torch.randn(BATCH, IN_FEATURES)", "torch.randn(BATCH, IN_FEATURES + 1)", ["Model", "21"],
            id="sizes that do not fit",
        ),
    ],
)  # fmt: skip
async def test_what_is_no_task_is_refused_with_the_reason_and_not_kept(agent, old, new, said):
    source = MODULE.replace(old, new)
    assert source != MODULE
    name = f"refused, {new[:60]}"
    text = await agent.refused("register_task", source=source, name=name)
    for words in said:
        assert words in text
    assert "reference" in text.lower() or "task" in text
    assert "candidate" not in text
    assert (await agent.call("list_tasks", query="refused,"))["tasks"] == []


async def test_what_does_not_fit_in_memory_is_refused_with_its_size(agent):
    # No constant of either can be lowered.
    large = MODULE.replace("torch.randn(BATCH, IN_FEATURES)", "torch.zeros(int('53687091'), int('20'))")
    text = await agent.refused("register_task", source=large)
    assert re.search("4294967280 bytes|409[56] MiB", text)
    assert "--memory-limit-mib" in text
    large = FUNCTION.replace("torch.randn(N,", "torch.zeros(int('268435456'),")
    text = await agent.refused("register_task", source=large, format="function")
    assert "3072 MiB" in text
    assert f"{MEMORY_MIB} MiB" in text


async def test_a_size_that_nothing_uses_is_refused_or_told(agent):
    result = await agent.client.call_tool(
        "register_task",
        {"source": FUNCTION, "format": "function", "workloads": [{"name": "a", "sizes": {"NN": 60}}]},
    )
    findings = (result.structured_content or {}).get("findings", [])
    assert result.is_error or any("NN" in finding for finding in findings)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"source_path": "/etc/hostname"}, ["outside the folders", "/work"], id="outside"),
        pytest.param({"source_path": "../home/adaexplore.db"}, ["outside the folders"], id="outside, relative"),
        pytest.param(
            {"source_path": "src/quantized/ops/projecton.py"}, ["There is no file", "'projection.py'"],
            id="no such file",
        ),
        pytest.param({"source_path": "src/quantized"}, ["not a regular file"], id="a folder"),
        pytest.param({"source_path": "latin.py"}, ["not UTF-8", "0xe9 in line 2"], id="not UTF-8"),
        pytest.param(
            {"entry": "src/quantized/ops/projection.py:gather_projct"}, ["gather_projct", "gather_project"],
            id="no such entry",
        ),
        pytest.param(
            {"entry": "src/quantized/ops/projection.py:gather_project", "import_root": "/usr/lib"},
            ["outside the folders"], id="import root outside",
        ),
        pytest.param(
            {"entry": "src/quantized/ops/projection.py:gather_project", "import_root": "src/quantized/sizes.py"},
            ["not a folder"], id="import root is a file",
        ),
        pytest.param(
            {"entry": "src/quantized/ops/projection.py:gather_project", "domains": {"idx": "index(40)"}},
            ["'idx'", "x, residual, ids, packed, scale"], id="domain of no input",
        ),
        pytest.param(
            {"entry": "src/quantized/ops/projection.py:gather_project", "mutates": ["x"]},
            ["changes residual in place", "mutates=['residual', 'x']"], id="changes something else",
        ),
    ],
)  # fmt: skip
async def test_what_cannot_be_found_in_the_package_is_named_with_what_there_is(
    agent, projection, arguments, said
):
    (agent.root / "latin.py").write_bytes(b"import torch\n# caf\xe9\n")
    text = await agent.refused("register_task", format="function", source=MAKE_INPUTS, **arguments)
    for words in said:
        assert words in text
    assert "\n" not in text


async def test_a_link_out_of_the_roots_is_followed_neither_by_path_nor_by_import(agent, tmp_path):
    (tmp_path / "outside.py").write_text(MODULE, encoding="utf-8")
    (agent.root / "link.py").symlink_to(tmp_path / "outside.py")
    assert "outside the folders" in await agent.refused("register_task", source_path="link.py")
    reaching = MODULE.replace("import torch\n", "import torch\nfrom link import Model as Other\n", 1)
    agent.write("reaching.py", reaching)
    said = await agent.refused("register_task", source_path="reaching.py")
    assert "link.py is a link that leads out" in said


# --- finding them again ----------------------------------------------------------------------------------


async def test_registered_tasks_are_listed_latest_first_and_then_the_built_in_ones(agent):
    task_id = await agent.task_id(source=FUNCTION + "# the latest\n", format="function", name="the latest")
    page = await agent.call("list_tasks", limit=100)
    rows = page["tasks"]
    assert rows[0]["task_id"] == task_id
    assert rows[0]["name"] == "the latest"
    assert [row["name"] for row in rows[-6:]] == [
        "cross_entropy",
        "fused_add_rmsnorm",
        "gqa_paged_decode",
        "int8_weight_linear",
        "matmul_gelu",
        "softmax",
    ]
    assert all(row["example"] and row["description"] for row in rows[-6:])
    assert page["has_more"] is False

    seen, cursor = [], ""
    while True:
        part = await agent.call("list_tasks", limit=4, cursor=cursor)
        seen += [row["task_id"] for row in part["tasks"]]
        if not part["has_more"]:
            break
        cursor = part["next_cursor"]
    assert seen == [row["task_id"] for row in rows]

    found = await agent.call("list_tasks", query="PAGED decode")
    assert [row["name"] for row in found["tasks"]] == ["gqa_paged_decode"]


@pytest.mark.parametrize("tool", ["compile_and_verify", "benchmark_kernel"])
@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
async def test_a_gpu_that_is_not_there_is_named(agent, tool, device):
    task_id = await agent.task_id(source=FUNCTION, format="function")
    said = await agent.refused(tool, task_id=task_id, kernel="def f(): ...", device=device)
    assert f"There is no GPU '{device}'" in said


async def test_what_a_task_is_can_be_read_of_built_in_ones_too(agent):
    (row,) = (await agent.call("list_tasks", query="fused_add_rmsnorm"))["tasks"]
    text = (await agent.call("read_artifact", artifact_id=row["task_id"]))["text"]
    assert '"mutates": ["residual"]' in text.partition("\n")[0]
    assert "def make_inputs(workload, device, seed):" in text
    own = await agent.task_id(source=FUNCTION, format="function")
    assert FUNCTION in (await agent.call("read_artifact", artifact_id=own))["text"]


async def test_a_search_begins_on_a_built_in_task_that_nobody_has_used(agent):
    (row,) = (await agent.call("list_tasks", query="gqa_paged_decode"))["tasks"]
    begun = await agent.call("search_step", task_id=row["task_id"], max_steps=2)
    assert "def make_inputs(workload, device, seed):" in begun["text"]
    step = {"run_id": begun["run_id"], "step_id": begun["step_id"], "wait_seconds": 45}
    answer = await agent.call("search_step", **step, kernel="def gqa_paged_decode(: ...")
    assert (answer["status"], answer["steps_left"]) == ("compile_error", 1)


async def test_the_example_of_a_built_in_task_is_a_kernel_that_can_be_named(agent):
    (row,) = (await agent.call("list_tasks", query="fused_add_rmsnorm"))["tasks"]
    assert [*row["workloads"]] == ["decode", "prefill", "odd-width"]
    reference = resources.files("adaexplore_mcp") / "builtin/fused_add_rmsnorm/reference.py"
    small = await agent.task_id(
        source=reference.read_text(encoding="utf-8"),
        format="function",
        entry=row["entry"],
        workloads=[{"name": "small", "sizes": {"TOKENS": 3, "HIDDEN": 40}}],
        mutates=["residual"],
    )
    outcome = await agent.call("compile_and_verify", task_id=small, node_id=row["example"])
    assert outcome["status"] == "correct"
