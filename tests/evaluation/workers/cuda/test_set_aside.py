"""What a candidate sets aside of the L2 cache while it is timed, told from what the driver always keeps."""

import types

import pytest

from adaexplore_mcp.evaluation.workers.candidate import CandidateProcess
from adaexplore_mcp.evaluation.workers.cuda import candidate

BY_THE_DRIVER = 3 << 20


@pytest.fixture
def process(monkeypatch):
    """Return a process that will be timed, of which the driver keeps some of the cache whatever the limit is."""
    cache = {"kept": 5 << 20}

    def forget():
        cache["kept"] = BY_THE_DRIVER

    monkeypatch.setattr(candidate, "Bursts", lambda _: object())
    monkeypatch.setattr(candidate, "forget_persisting_lines", forget)
    monkeypatch.setattr(candidate, "persisting_bytes", lambda: cache["kept"])
    watch = types.SimpleNamespace(patched=lambda **_: [], events=[], new_threads=list)
    monkeypatch.setattr(
        CandidateProcess, "load", lambda self, *_: setattr(self, "watch", watch)
    )  # importing a candidate takes a sandbox
    made = candidate._TimedProcess(None, None, types.SimpleNamespace())
    made.cache = cache
    return made


def test_what_the_driver_keeps_is_not_the_candidates(process):
    process.load({"timing": True, "l2_bytes": 1}, ())
    assert process.integrity()["kept_bytes"] == 0


def test_what_is_set_aside_after_loading_is(process):
    process.load({"timing": True, "l2_bytes": 1}, ())
    process.cache["kept"] = 32 << 20
    assert process.integrity()["kept_bytes"] == (32 << 20) - BY_THE_DRIVER


def test_it_is_not_asked_for_where_nothing_is_timed(process):
    process.load({}, ())
    assert "kept_bytes" not in process.integrity()
