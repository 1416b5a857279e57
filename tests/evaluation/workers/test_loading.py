import linecache
import sys

import pytest

from adaexplore_mcp.evaluation.workers.loading import load_candidate


@pytest.fixture(autouse=True)
def _forget_the_module():
    yield
    sys.modules.pop("candidate", None)
    linecache.clearcache()


def load(tmp_path, source, changes=(), entry="f"):
    return load_candidate(tmp_path, source, changes, entry=entry)


def test_sizes_are_changed_and_lines_stay_where_they_were(tmp_path):
    source = b"N = 4096  # rows\n\n\ndef f():\n    return N\n"
    module = load(tmp_path, source, [{"N": (4096, 64)}])
    assert module.entry() == 64
    assert module.changed == ["N"]
    assert (tmp_path / "candidate.py").read_bytes() == source.replace(b"4096", b"64")


def test_a_declared_encoding_is_honoured_in_the_file_too(tmp_path):
    source = "# -*- coding: latin-1 -*-\nNAME = 'é'\ndef f(): return NAME\n".encode("latin-1")
    assert load(tmp_path, source).entry() == "é"
    assert (tmp_path / "candidate.py").read_bytes() == source


@pytest.mark.parametrize(
    ("source", "says", "line"),
    [
        (b"def f():\n    return 1  # \xe9\n", "utf-8 cannot decode byte 0xe9", 2),
        (b"# coding: nonsense\n", "unknown encoding", 1),
        (b"\xff\xfe\x00x", "utf-8", 1),
        (b"def f():\n  x = (1,\n", "never closed", 2),
        (b"x = 1\ny = '\x00'\n", "null bytes", 2),
    ],
)
def test_what_is_no_python_text_is_a_syntax_error_with_its_line(tmp_path, source, says, line):
    with pytest.raises(SyntaxError, match=says) as raised:
        load(tmp_path, source)
    assert raised.value.lineno == line


def test_a_missing_entry_names_what_there_is(tmp_path):
    with pytest.raises(AttributeError, match="defines no f; it defines g, K"):
        load(tmp_path, b"import os\ndef g(): ...\nclass K: ...\n")


@pytest.mark.parametrize(("value", "says"), [(b"3", "f is an int,"), (b"'x'", "f is a str,")])
def test_an_entry_that_cannot_be_called_is_missing_too(tmp_path, value, says):
    with pytest.raises(AttributeError, match=says):
        load(tmp_path, b"f = " + value + b"\n")


@pytest.mark.parametrize("changes", [(), [{"N": (8, 4)}]])
def test_a_long_sum_that_python_imports_is_imported(tmp_path, changes):
    source = b"N = 8\nS = " + b" + ".join([b"'ab'"] * 1500) + b"\ndef f():\n    return len(S)\n"
    module = load(tmp_path, source, changes)
    assert module.entry() == 3000
    assert module.changed == ["N"] * len(changes)


@pytest.mark.parametrize("expression", [" + ".join(["n"] * 100_000), "-" * 100_000 + "n"])
def test_an_expression_too_deep_for_the_parser_is_an_error_of_the_text(tmp_path, expression):
    source = f"def f(n):\n    return {expression}\n".encode()
    for changes in ((), [{"N": (8, 4)}]):
        with pytest.raises(SyntaxError, match="nests too deeply"):
            load(tmp_path, source, changes)


def test_a_recursion_of_its_own_stays_what_it_is(tmp_path):
    with pytest.raises(RecursionError):
        load(tmp_path, b"def f():\n    return f()\nf()\n")
