import sys
import textwrap

import pytest
import torch
from torch import nn

from adaexplore_mcp.evaluation.workers.content import TaskContent, TaskFault
from adaexplore_mcp.evaluation.workers.lowering import SMALL
from adaexplore_mcp.evaluation.workers.sizes import replace
from adaexplore_mcp.evaluation.workers.task import load, lower_task, trial

MODEL = """
import torch
from torch import nn

BATCH, WIDTH = 64, 128
SCALE = 0.5

class Model(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = scale

    def forward(self, x):
        return self.linear(x) * self.scale

def get_inputs():
    return [torch.randn(BATCH, WIDTH)]

def get_init_inputs():
    return [WIDTH, SCALE]
"""

FUNCTION = """
import torch

TOKENS = 32
HIDDEN = 2 * 32
DTYPE = "float32"
CAUSAL = True

def scale(x, factor):
    return x * factor

def make_inputs(workload, device, seed):
    x = torch.randn(workload["TOKENS"], workload["HIDDEN"], device=device, dtype=getattr(torch, workload["DTYPE"]))
    return [x, 2.0]
"""


def content(source=MODEL, **fields):
    source = textwrap.dedent(source)
    return TaskContent.from_wire({"format": "kernelbench", "files": {"task.py": source}} | fields)


def function(source=FUNCTION, **fields):
    return content(source, format="function", entry=fields.pop("entry", "scale"), **fields)


def fault(call):
    with pytest.raises(TaskFault) as caught:
        call()
    return caught.value


def kernelbench(
    forward="return x", *, inputs="[torch.ones(3)]", init="[]", signature="self, x", parameters="self"
):
    """The source of a kernelbench task with some parts replaced."""
    return (
        textwrap.dedent("""
        import collections
        import torch
        from torch import nn
        Point = collections.namedtuple("Point", "x y")
        class Broken(dict):
            def items(self):
                raise RuntimeError("no items")
        class Model(nn.Module):
            def __init__(PARAMETERS):
                super().__init__()
                self.given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
            def forward(SIGNATURE):
                FORWARD
        def get_inputs():
            return INPUTS
        def get_init_inputs():
            return INIT
        """)
        .replace("PARAMETERS", parameters)
        .replace("SIGNATURE", signature)
        .replace("FORWARD", forward)
        .replace("INPUTS", inputs)
        .replace("INIT", init)
    )


# --- the message -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("text", "got str"),
        ({"format": "kernelbench"}, "got one with 'format'"),
        ({"format": "kernelbench", "files": {"task.py": ""}, "surprise": 1}, "'surprise'"),
        ({"format": "flashinfer", "files": {"task.py": ""}}, "not 'flashinfer'"),
        ({"format": "kernelbench", "files": {}}, "at least one"),
        ({"format": "kernelbench", "files": {"../task.py": ""}}, "../task.py"),
        ({"format": "kernelbench", "files": {"/etc/task.py": ""}}, "/etc/task.py"),
        ({"format": "kernelbench", "files": {"a/./task.py": ""}}, "a/./task.py"),
        ({"format": "kernelbench", "files": {"task.txt": ""}}, "only Python"),
        ({"format": "kernelbench", "files": {"task.py": "x = '\ud800'"}}, "UTF-8"),
        (
            {"format": "kernelbench", "files": {"task.py": ""}, "module": "other"},
            "no file holds module 'other'",
        ),
        ({"format": "function", "files": {"task.py": ""}}, "entry"),
        ({"format": "kernelbench", "files": {"task.py": ""}, "entry": "a.b"}, "'a.b'"),
        ({"format": "kernelbench", "files": {"task.py": ""}, "sizes": {"N": None}}, "'N': None"),
        ({"format": "kernelbench", "files": {"task.py": ""}, "edits": {"N": [8]}}, "'N': [8]"),
    ],
)
def test_a_message_that_describes_no_task_is_refused(message, told):
    error = fault(lambda: TaskContent.from_wire(message))
    assert error.reason == "content"
    assert told in error.detail


def test_a_fault_crosses_as_data():
    assert TaskFault("call", "it fell", 7).to_wire() == {"reason": "call", "detail": "it fell", "line": 7}


# --- sizes -----------------------------------------------------------------------------------------------


def test_a_workload_replaces_constants_before_the_module_runs(tmp_path):
    task = load(content(sizes={"BATCH": 4, "WIDTH": 8}), tmp_path)
    assert task.inputs(0).args[0].shape == (4, 8)
    assert task.construct(0)[0].linear.weight.shape == (8, 8)


def test_an_unknown_size_of_a_kernelbench_task_names_the_known_ones():
    error = fault(content(sizes={"HEIGHT": 3}).prepare)
    assert (error.reason, "BATCH, SCALE, WIDTH" in error.detail) == ("sizes", True)


def test_the_workload_of_a_function_holds_every_constant_and_the_overrides(tmp_path):
    task = load(function(sizes={"TOKENS": 5, "EXPERTS": 3}), tmp_path)
    assert task.workload == {"TOKENS": 5, "HIDDEN": 64, "DTYPE": "float32", "CAUSAL": True, "EXPERTS": 3}


def test_edits_apply_on_top_of_the_workload():
    task = function(
        sizes={"TOKENS": 512, "EXPERTS": 64}, edits={"TOKENS": [512, 8], "workload:EXPERTS": [64, 4]}
    )
    assert task.prepare().workload["TOKENS"] == 8
    assert task.prepare().workload["EXPERTS"] == 4
    assert task.constants()["TOKENS"] == 512


def test_an_edit_that_does_not_fit_is_a_fault():
    assert (
        fault(content(edits={"BATCH": [65, 8]}).prepare).detail
        == "task.py: BATCH is 64 in the source, not 65"
    )
    assert fault(function(edits={"workload:N": [8, 4]}).prepare).reason == "sizes"


def test_integers_that_may_be_lowered():
    assert content(sizes={"BATCH": 100}).integers() == {"BATCH": 100, "WIDTH": 128}
    assert function(sizes={"EXPERTS": 16}).integers() == {"TOKENS": 32, "HIDDEN": 64, "workload:EXPERTS": 16}


def test_constants_come_from_the_module_that_defines_them(tmp_path):
    files = {
        "pkg/__init__.py": "",
        "pkg/config.py": "HIDDEN = 64\nUNUSED = 1024\n",
        "pkg/ops.py": "import torch\nfrom .config import HIDDEN\nTOKENS = 16\n"
        + FUNCTION.split('DTYPE = "float32"')[1],
    }
    task = TaskContent.from_wire(
        {
            "format": "function",
            "files": files,
            "module": "pkg.ops",
            "entry": "scale",
            "extra": 'DTYPE = "float64"\n',
            "sizes": {"HIDDEN": 96, "DTYPE": "float16"},
        }
    )
    assert task.integers() == {"TOKENS": 16, "pkg/config.py:HIDDEN": 96}
    lowered = task.with_edits({"pkg/config.py:HIDDEN": (96, 12)})
    loaded = load(lowered, tmp_path)
    assert loaded.workload == {"HIDDEN": 12, "TOKENS": 16, "DTYPE": "float16", "CAUSAL": True}
    assert loaded.inputs(0).args[0].shape == (16, 12)


def test_a_candidate_follows_constants_of_the_same_name_and_value():
    task = content(sizes={"BATCH": 32}, edits={"BATCH": [32, 8], "WIDTH": [128, 16]})
    text = "BATCH = 64\nWIDTH = 256\nBLOCK = 128\ndef get_inputs():\n    return 128\n"
    for changes in task.candidate_changes():
        text, _ = replace(text, changes, strict=False)
    assert text.splitlines()[:3] == ["BATCH = 8", "WIDTH = 256", "BLOCK = 128"]


def test_a_candidate_written_for_one_workload_follows_too():
    text = "BATCH = 32\n"
    for changes in content(sizes={"BATCH": 32}, edits={"BATCH": [32, 8]}).candidate_changes():
        text, _ = replace(text, changes, strict=False)
    assert text == "BATCH = 8\n"


# --- loading ---------------------------------------------------------------------------------------------


def test_sources_are_real_files_that_can_be_inspected(tmp_path):
    import inspect

    task = load(function(), tmp_path)
    assert inspect.getsource(task.entry).startswith("def scale(x, factor):")
    assert (tmp_path / "task.py").exists()


def test_line_numbers_stay_through_sizes(tmp_path):
    task = load(function(sizes={"HIDDEN": 7}), tmp_path)
    assert task.entry.__code__.co_firstlineno == load(function(), tmp_path).entry.__code__.co_firstlineno


def test_nothing_of_a_task_stays_importable(tmp_path):
    before = set(sys.modules)
    task = load(function(), tmp_path)
    task.inputs(0)
    assert set(sys.modules) - before <= {"adaexplore_mcp"}
    with pytest.raises(ModuleNotFoundError):
        __import__("task")


def test_two_versions_within_a_second_are_two_versions(tmp_path):
    values = [
        load(function(sizes={"TOKENS": n}), tmp_path).inputs(0).args[0].shape[0] for n in (32, 33, 34, 35)
    ]
    assert values == [32, 33, 34, 35]


def test_imports_inside_functions_work_while_the_task_runs(tmp_path):
    files = {
        "task.py": kernelbench(
            "from helpers import twice; import late.deep; return late.deep.same(twice(x))"
        ),
        "helpers.py": "def twice(x):\n    return 2 * x\n",
        "late/deep.py": "def same(x):\n    return x\n",
    }
    task = load(TaskContent.from_wire({"format": "kernelbench", "files": files}), tmp_path)
    assert task.call(task.construct(0)[0], task.inputs(0)).tolist() == [2, 2, 2]
    assert "helpers" not in sys.modules


def test_a_task_may_hide_a_module_of_the_same_name_while_it_runs(tmp_path, monkeypatch):
    import types

    other = types.ModuleType("helpers")
    monkeypatch.setitem(sys.modules, "helpers", other)
    files = {
        "task.py": kernelbench("return twice(x)") + "from helpers import twice\n",
        "helpers.py": "twice = abs",
    }
    load(TaskContent.from_wire({"format": "kernelbench", "files": files}), tmp_path)
    assert sys.modules["helpers"] is other


def test_a_file_named_like_an_installed_module_is_refused(tmp_path):
    task = TaskContent.from_wire({"format": "kernelbench", "files": {"torch.py": ""}, "module": "torch"})
    assert "'torch' is the name of an installed module" in fault(lambda: load(task, tmp_path)).detail


def test_names_that_are_no_identifiers_can_be_imported(tmp_path):
    task = {"format": "kernelbench", "files": {"43_min-gpt.py": MODEL}, "module": "43_min-gpt"}
    assert load(TaskContent.from_wire(task), tmp_path).inputs(0).args[0].shape == (64, 128)


def test_extra_text_sees_the_names_of_the_module_and_adds_its_own(tmp_path):
    source = "import torch\nHIDDEN = 4\ndef norm(x):\n    return x / x.norm()\n"
    extra = "TOKENS = 3\ndef make_inputs(workload, device, seed):\n    return {'x': torch.ones(workload['TOKENS'], HIDDEN)}\n"
    task = load(function(source, entry="norm", extra=extra, sizes={"TOKENS": 5}), tmp_path)
    assert task.inputs(0).kwargs["x"].shape == (5, 4)
    assert task.inputs.__self__.workload == {"HIDDEN": 4, "TOKENS": 5}


def test_text_with_another_encoding_declared_is_utf_8(tmp_path):
    source = "# -*- coding: latin-1 -*-\nNAME = 'é'\n" + kernelbench()
    assert load(content(source), tmp_path)._namespace["NAME"] == "é"


def test_a_byte_order_mark_is_dropped(tmp_path):
    load(content("\ufeff" + MODEL), tmp_path)


# --- what makes it no task -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason", "told", "line"),
    [
        ("def (:\n", "syntax", "invalid syntax", 1),
        ("x = 1\0\n", "syntax", "null", None),
        ("x = 1\nraise ValueError('no luck')\n", "import", "importing task raised ValueError: no luck", 2),
        ("import sys\nsys.exit(3)\n", "import", "SystemExit", 2),
        ("raise KeyboardInterrupt\n", "import", "KeyboardInterrupt", 1),
        ("import nowhere.atall\n", "import", "no module 'nowhere': it is not installed where tasks run", 1),
        (
            "class Net: pass\ndef get_inputs(): return []\n",
            "entry",
            "needs Model, which the source does not define; it defines Net",
            0,
        ),
        (
            "Model = 3\ndef get_inputs(): return []\n",
            "entry",
            "Model is of type int, which cannot be called",
            0,
        ),
        ("class Model: pass\n", "entry", "needs get_inputs", 0),
    ],
)
def test_a_source_that_cannot_be_loaded(tmp_path, source, reason, told, line):
    error = fault(lambda: load(content(source), tmp_path))
    assert error.reason == reason
    assert told in error.detail
    assert line is None or error.line == line


def test_a_missing_module_of_the_snapshot_is_told_apart(tmp_path):
    files = {
        "pkg/__init__.py": "",
        "pkg/ops.py": "import importlib\nimportlib.import_module('pkg.kernels')\n",
    }
    task = {"format": "kernelbench", "files": files, "module": "pkg.ops"}
    error = fault(lambda: load(TaskContent.from_wire(task), tmp_path))
    assert "among the task's files: only files below import_root" in error.detail
    assert error.line == 2


def test_a_syntax_error_in_another_file_names_it(tmp_path):
    files = {"task.py": "import helpers\n", "helpers.py": "\n\nx = = 1\n"}
    error = fault(lambda: load(TaskContent.from_wire({"format": "kernelbench", "files": files}), tmp_path))
    assert (error.reason, error.line) == ("syntax", 3)
    assert "helpers.py" in error.detail


def test_an_exception_that_cannot_be_printed_is_still_a_fault(tmp_path):
    source = "class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd\n"
    assert "Odd: (its text cannot be read)" in fault(lambda: load(content(source), tmp_path)).detail


def test_a_long_message_is_cut(tmp_path):
    assert len(fault(lambda: load(content("raise ValueError('x' * 99999)"), tmp_path)).detail) < 1400


@pytest.mark.parametrize(
    ("parts", "reason", "told"),
    [
        ({"inputs": "1 / 0"}, "inputs", "get_inputs() raised ZeroDivisionError"),
        ({"inputs": "torch.ones(3)"}, "inputs", "get_inputs() gives Tensor; return a list"),
        ({"inputs": "[1, 2]"}, "inputs", "gives 2 values, but Model takes (x): too many positional"),
        ({"inputs": "{'y': 1}"}, "inputs", "gives y, but Model takes (x): missing a required argument: 'x'"),
        ({"inputs": "{3: 1}"}, "inputs", "keywords must be strings"),
        ({"inputs": "[{'a': [object()]}]"}, "inputs", "x['a'][0] is of type object; only tensors"),
        ({"inputs": "[Broken(a=1)]"}, "inputs", "get_inputs() raised RuntimeError: no items"),
        ({"inputs": "[Point(1, 2)]"}, "inputs", "x is of type task.Point"),
        ({"inputs": "[{(1, 2): 3}]"}, "inputs", "x has a key of type tuple"),
        ({"inputs": "[torch.eye(3).to_sparse()]"}, "inputs", "x is a sparse_coo tensor"),
        ({"inputs": "[torch.ones(3, device='meta')]"}, "inputs", "x is a meta tensor"),
        (
            {"inputs": "[torch.nn.UninitializedParameter()]"},
            "inputs",
            "x is of type torch.nn.parameter.Uninitialized",
        ),
        ({"init": "1 / 0"}, "construct", "get_init_inputs() raised ZeroDivisionError"),
        ({"init": "3"}, "init_arguments", "get_init_inputs() gives int, not a list"),
        ({"init": "[3]"}, "init_arguments", "gives 1 values, but Model takes (): too many positional"),
        (
            {"init": "[object()]", "parameters": "self, a"},
            "init_arguments",
            "get_init_inputs()[0] is of type object",
        ),
        ({"parameters": "self, a"}, "init_arguments", "missing a required argument: 'a'"),
        ({"forward": "return 1 / 0"}, "call", "Model raised ZeroDivisionError: division by zero"),
        ({"forward": "return None"}, "outputs", "returns no tensor but NoneType: None"),
        ({"forward": "return [1, {}]"}, "outputs", "returns no tensor but list"),
        ({"forward": "return 'text'"}, "outputs", "out is of type str"),
        ({"forward": "return {'a': [x, object()]}"}, "outputs", "out['a'][1] is of type object"),
        ({"forward": "return x.to_sparse()"}, "outputs", "out is a sparse_coo tensor"),
        ({"forward": "y = [x]; y.append(y); return y"}, "outputs", "nest deeper than 32"),
        ({"forward": "return torch.empty(1 << 50)"}, "out_of_memory", "DefaultCPUAllocator"),
        ({"forward": "raise MemoryError"}, "out_of_memory", "MemoryError"),
    ],
)
def test_a_run_that_is_none(tmp_path, parts, reason, told):
    def run():
        task = load(content(kernelbench(**parts)), tmp_path)
        task.call(task.construct(0)[0], task.inputs(1))

    error = fault(run)
    assert error.reason == reason
    assert told in error.detail


def test_a_class_that_builds_no_module_is_refused(tmp_path):
    source = "class Model: pass\ndef get_inputs(): return []\n"
    error = fault(lambda: load(content(source), tmp_path).construct(0))
    assert (error.reason, error.detail) == ("entry", "Model(...) gives Model, not a torch.nn.Module")


def test_parameters_without_a_shape_are_refused(tmp_path):
    source = kernelbench().replace("super().__init__()", "super().__init__(); self.l = nn.LazyLinear(3)")
    assert (
        "l.weight has no shape before the first call"
        in fault(lambda: load(content(source), tmp_path).construct(0)).detail
    )


def test_the_line_is_the_task_s_own(tmp_path):
    source = kernelbench("y = x.t()\n        return torch.mm(x, y[:2])", inputs="[torch.ones(3, 4)]")
    task = load(content(source), tmp_path)
    error = fault(lambda: task.call(task.construct(0)[0], task.inputs(0)))
    assert source.splitlines()[error.line - 1].strip() == "return torch.mm(x, y[:2])"


def test_a_subclass_of_tensor_is_no_output(tmp_path):
    source = kernelbench("return x.as_subclass(Lazy)") + "class Lazy(torch.Tensor): pass\n"
    task = load(content(source), tmp_path)
    assert (
        "out is of type task.Lazy, a subclass"
        in fault(lambda: task.call(task.construct(0)[0], task.inputs(0))).detail
    )


# --- building and calling --------------------------------------------------------------------------------


def test_one_seed_gives_one_model_and_one_input(tmp_path):
    task = load(content(), tmp_path)
    first, again, other = (task.construct(seed)[0].linear.weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(task.inputs(3).args[0], task.inputs(3).args[0])
    assert not torch.equal(task.inputs(3).args[0], task.inputs(4).args[0])


def test_numpy_and_random_are_seeded_too(tmp_path):
    source = (
        kernelbench(inputs="[np.random.rand(), random.random()]", signature="self, x, y")
        + "import random\nimport numpy as np\n"
    )
    task = load(content(source), tmp_path)
    assert task.inputs(5) == task.inputs(5)
    assert task.inputs(5) != task.inputs(6)


def test_a_candidate_with_the_same_arguments_and_seed_has_the_same_weights(tmp_path):
    task = load(content(), tmp_path)
    model, init = task.construct(7)
    torch.manual_seed(7)
    again = task.entry(*init.args, **init.kwargs)
    assert torch.equal(model.linear.weight, again.linear.weight)
    assert init.named() == {"width": 128, "scale": 0.5}


@pytest.mark.parametrize(
    ("init", "parameters", "given"),
    [
        ("[1, 2]", "self, a, b", {"a": 1, "b": 2}),
        ("(1, [2, 3])", "self, a, b", {"a": 1, "b": [2, 3]}),
        ("{'b': 1}", "self, a=0, b=0", {"a": 0, "b": 1}),
        ("[[1], {'b': 2}]", "self, a, b", {"a": 1, "b": 2}),
        ("[[], {}]", "self", {}),
        ("[[3, 4], {'x': 1}]", "self, layers, config", {"layers": [3, 4], "config": {"x": 1}}),
        ("[{'a': 1, 'b': 2}]", "self, a, b", {"a": 1, "b": 2}),
        ("[{'x': 1}]", "self, config", {"config": {"x": 1}}),
        ("[{'x': 1}]", "self, config=None, **rest", {"config": {"x": 1}, "rest": {}}),
        (
            "[torch.float16, torch.Size([2]), range(3), None, b'']",
            "self, *a",
            {"a": (torch.float16, torch.Size([2]), range(3), None, b"")},
        ),
    ],
)
def test_the_forms_of_constructor_arguments(tmp_path, init, parameters, given):
    model, _ = load(content(kernelbench(init=init, parameters=parameters)), tmp_path).construct(0)
    assert model.given == given


def test_a_constructor_that_changes_its_arguments_leaves_ours_alone(tmp_path):
    source = kernelbench(init="[[1, 2], torch.zeros(2)]", parameters="self, a, b").replace(
        "super().__init__()", "super().__init__(); a.pop(); b.add_(1)"
    )
    _, init = load(content(source), tmp_path).construct(0)
    assert init.args[0] == [1, 2]
    assert init.args[1].tolist() == [0, 0]


def test_leaves_are_named_by_the_signature(tmp_path):
    inputs = "[{'keep': torch.ones(1), 'bias': None}, 2, torch.ones(2), [torch.ones(3)]]"
    task = load(content(kernelbench(inputs=inputs, signature="self, batch, n, *xs")), tmp_path)
    names = [name for name, _ in task.inputs(0).leaves()]
    assert names == ["batch['keep']", "batch['bias']", "n", "xs[0]", "xs[1][0]"]
    assert [tensor.numel() for tensor in task.inputs(0).tensors()] == [1, 2, 3]


def test_arguments_by_name_are_named_so(tmp_path):
    source = kernelbench(
        "return x + y", signature="self, x, *, y", inputs="{'y': torch.ones(2), 'x': torch.ones(2)}"
    )
    task = load(content(source), tmp_path)
    assert list(task.inputs(0).named()) == ["y", "x"]
    assert task.call(task.construct(0)[0], task.inputs(0)).tolist() == [2, 2]


def test_mapping_makes_new_containers(tmp_path):
    task = load(content(kernelbench(inputs="[[torch.ones(2), 3]]")), tmp_path)
    before = task.inputs(0)
    after = before.map(lambda path, leaf: path)
    assert after.args == (["x[0]", "x[1]"],)
    assert before.args[0][1] == 3


def test_inputs_keep_strides_and_shared_memory(tmp_path):
    source = kernelbench(
        inputs="[BASE[2:5].t(), BASE, nn.Parameter(torch.ones(2))]", signature="self, a, b, c"
    )
    task = load(content(source + "BASE = torch.ones(6, 4)\n"), tmp_path)
    a, b, c = task.inputs(0).args
    assert a.stride() == (1, 4)
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    assert type(c) is torch.Tensor
    assert not c.requires_grad


def test_inputs_are_moved_with_their_strides(tmp_path):
    source = (
        kernelbench(inputs="[BASE[1:3, ::2], BASE[2:]]", signature="self, a, b") + "BASE = torch.ones(6, 4)\n"
    )
    a, b = load(content(source), tmp_path, device="meta").inputs(0).args
    assert (a.device.type, a.shape, a.stride(), a.storage_offset()) == ("meta", (2, 2), (4, 2), 4)
    assert a.untyped_storage()._cdata == b.untyped_storage()._cdata


def test_a_caller_may_place_modules_and_tensors_itself(tmp_path):
    placed = []
    task = load(content(), tmp_path, device="cuda", place=lambda value: placed.append(type(value)) or value)
    model, _ = task.construct(0)
    task.call(model, task.inputs(0))
    assert [kind.__name__ for kind in placed] == ["Model", "Tensor"]


def test_make_inputs_is_told_workload_device_and_seed(tmp_path):
    source = "def make_inputs(workload, device, seed):\n    return [workload, device, seed]\ndef f(w, d, s):\n    return w\n"
    task = load(function(source, entry="f", sizes={"N": 3}), tmp_path, device="cuda")
    assert task.inputs(9).args == ({"N": 3}, "cuda", 9)


def test_a_function_is_its_own_model(tmp_path):
    task = load(function(), tmp_path)
    model, init = task.construct(0)
    assert model is task.entry
    assert init.named() == {}
    assert task.call(model, task.inputs(0)).shape == (32, 64)


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("return x, None, 3", tuple),
        ("return {'a': x, 'b': [x, 1.5]}", dict),
        ("return x[:0]", torch.Tensor),
        ("return x.max(dim=0)", tuple),
        ("return nn.Parameter(x)", torch.Tensor),
        ("return x.to(torch.complex64).conj()", torch.Tensor),
    ],
)
def test_outputs_come_back_plain(tmp_path, forward, expected):
    task = load(content(kernelbench(forward)), tmp_path)
    value = task.call(task.construct(0)[0], task.inputs(0))
    assert type(value) is expected
    assert not isinstance(value, torch.Tensor) or not (value.requires_grad or value.is_conj())


def test_no_gradients_are_kept(tmp_path):
    task = load(content(), tmp_path)
    assert not task.call(task.construct(0)[0], task.inputs(0)).requires_grad


# --- trials ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fake", [True, False])
def test_a_trial_tells_cost_inputs_and_outputs(tmp_path, fake):
    result = trial(content(), tmp_path, fake=fake)
    assert result.cost.flops == 2 * 64 * 128 * 128
    assert [(each.name, each.dtype, each.shape) for each in result.inputs] == [("x", "float32", (64, 128))]
    assert [(each.name, each.dtype, each.shape) for each in result.outputs] == [("out", "float32", (64, 128))]


def test_a_fake_trial_takes_no_memory(tmp_path):
    result = trial(content(sizes={"BATCH": 1 << 20, "WIDTH": 1 << 18}), tmp_path)
    assert result.cost.peak_bytes > 1 << 40


def test_plain_values_are_specified_by_their_type(tmp_path):
    specified = trial(function(), tmp_path).inputs
    assert [(each.name, each.dtype, each.shape) for each in specified][1] == ("factor", "float", ())


def test_a_constructor_that_looks_at_values_is_run_on_real_tensors(tmp_path):
    source = kernelbench().replace(
        "super().__init__()", "super().__init__(); self.n = torch.linspace(0, 1, 3)[1].item()"
    )
    assert trial(content(source), tmp_path).outputs[0].shape == (3,)


def test_a_call_that_looks_at_values_needs_a_real_trial(tmp_path):
    source = kernelbench("return x[: int(x.sum().item())]")
    assert fault(lambda: trial(content(source), tmp_path)).reason == "call"
    assert trial(content(source), tmp_path, fake=False).outputs[0].shape == (3,)


def test_a_task_is_lowered_and_still_runs(tmp_path):
    task = content(sizes={"BATCH": 4096, "WIDTH": 4096})
    lowering = lower_task(task, tmp_path)
    assert lowering.within
    assert lowering.confirmed
    result = trial(task.with_edits(lowering.edits), tmp_path, fake=False)
    assert result.cost == lowering.after
    assert SMALL.excess(result.cost) == 1


def test_lowering_empties_no_output(tmp_path):
    source = kernelbench("return x[:, 100:].clone()", inputs="[torch.ones(1 << 20, WIDTH)]") + "WIDTH = 128\n"
    lowering = lower_task(content(source), tmp_path)
    assert lowering.edits.get("WIDTH", (0, 128))[1] > 100


def test_an_index_out_of_the_lowered_range_is_noticed(tmp_path):
    source = (
        kernelbench(
            "return self.table(x)",
            inputs="[torch.randint(0, 5000, (512,))]",
            init="[VOCABULARY]",
            parameters="self, n",
        ).replace("super().__init__()", "super().__init__(); self.table = nn.Embedding(n, 64)")
        + "VOCABULARY = 5000\n"
    )
    lowering = lower_task(content(source), tmp_path)
    assert lowering.confirmed
    loaded = load(content(source).with_edits(lowering.edits), tmp_path)
    assert isinstance(loaded.construct(0)[0], nn.Module)
    loaded.call(loaded.construct(0)[0], loaded.inputs(1))


def test_a_task_that_cannot_run_is_not_lowered(tmp_path):
    assert fault(lambda: lower_task(content(kernelbench("return 1 / 0")), tmp_path)).reason == "call"
