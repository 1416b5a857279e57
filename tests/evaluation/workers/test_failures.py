import json

import pytest
import torch

from adaexplore_mcp.evaluation.workers.failures import describe, shorten


def raised_by(tmp_path, source, phase="run", **options):
    file = tmp_path / "candidate.py"
    file.write_text(source)
    try:
        exec(compile(source, str(file), "exec"), {"torch": torch})
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the subject
        return describe(error, str(file), phase=phase, **options)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("source", "phase", "kind"),
    [
        ("import no_such_module", "load", "import"),
        ("import no_such_module", "run", "exception"),
        ("undefined_name", "load", "import"),
        ("raise ValueError('x')", "load", "exception"),
        ("raise SystemExit(0)", "load", "exit"),
        ("raise KeyboardInterrupt", "run", "exception"),
        ("raise MemoryError", "run", "memory"),
        ("torch.empty(1 << 60, dtype=torch.uint8)", "run", "memory"),
        ("raise RuntimeError('out of memory')", "run", "exception"),
    ],
)
def test_the_class_of_an_exception_decides_not_its_words(tmp_path, source, phase, kind):
    assert raised_by(tmp_path, source, phase)["kind"] == kind


def test_the_innermost_line_of_the_candidate_is_reported(tmp_path):
    source = "def f(x):\n    return torch.ones(3) @ torch.ones(x)\n\nf(4)\n"
    found = raised_by(tmp_path, source)
    assert (found["line"], found["source"]) == (2, "return torch.ones(3) @ torch.ones(x)")


def test_a_cause_leads_to_the_line_where_it_began(tmp_path):
    source = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('wrapped') from e\n"
    assert raised_by(tmp_path, source)["line"] == 4


def test_what_the_machine_lacks_is_told_apart_wherever_it_is_in_the_chain(tmp_path):
    source = (
        "try:\n    raise LookupError('no GPU')\nexcept LookupError as e:\n    raise ValueError('x') from e\n"
    )
    assert raised_by(tmp_path, source, not_here=(LookupError,))["kind"] == "not_here"


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("from torch._C import _cuda_getNothing", "torch._C._cuda_getNothing"),
        ("torch._C._cuda_getNothing(0)", "torch._C._cuda_getNothing"),
        ("torch.ones(3, device='cuda')", "torch.ones(3, device='cuda')"),
        ("torch.cuda._exchange_device(0)", "torch.cuda._exchange_device(0)"),
        (
            "torch._C._dynamo.guards._empty_strided_cuda((1,), (1,), torch.float32)",
            "torch._C._dynamo.guards.",
        ),
        (
            "torch.ops.aten._flash_attention_forward.default(*[torch.ones(1)] * 5, 1, 1, 0.0, False, False)",
            "torch.ops.",
        ),
        ("raise RuntimeError('Could not find an active GPU backend')", "raise RuntimeError"),
        (
            "try:\n    torch.ones(3).cuda()\nexcept Exception as e:\n    raise ValueError('x') from e",
            "raise ValueError",
        ),
    ],
)
@pytest.mark.parametrize("phase", ["load", "run"])
def test_what_a_build_without_cuda_lacks_needs_a_gpu_and_is_named(tmp_path, source, asked, phase):
    found = raised_by(tmp_path, source, phase, without_gpu=True)
    assert found["kind"] == "not_here"
    assert found["message"].startswith(asked)
    assert " is not available without a GPU: " in found["message"]


@pytest.mark.parametrize(
    "source", ["torch._C._cuda_getNothing(0)", "raise AssertionError('Torch not compiled with CUDA enabled')"]
)
def test_on_a_gpu_such_an_error_stays_what_it_is(tmp_path, source):
    found = raised_by(tmp_path, source)
    assert (found["kind"], "without a GPU" in found["message"]) == ("exception", False)


@pytest.mark.parametrize(
    "source",
    [
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "class E(Exception):\n    def __repr__(self): raise ValueError\n    __str__ = __repr__\nraise E",
        "raise ValueError('x' * 10_000_000)",
        "raise ValueError('\\udce9')",
        "e = ValueError('x')\ne.__cause__ = e\nraise e",
        "raise type('X' * 5_000_000, (Exception,), {})('m')",
        "class E(Exception):\n    def __str__(self): raise type('X' * 5_000_000, (Exception,), {})\nraise E",
    ],
)
def test_a_hostile_exception_is_still_described_in_a_few_lines(tmp_path, source):
    assert len(json.dumps(raised_by(tmp_path, source))) < 60_000


def test_a_long_text_keeps_head_and_tail_and_says_what_was_cut():
    short = shorten("a" * 1000 + "b" * 1000, 100)
    assert short.startswith("a" * 50)
    assert short.endswith("b" * 50)
    assert "1900 characters cut" in short
