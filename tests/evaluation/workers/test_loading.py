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
    with pytest.raises(TypeError, match="f is a int"):
        load(tmp_path, b"f = 3\n")
