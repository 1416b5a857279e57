from hypothesis import given
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.claims import CallFacts, Event, Failure, Integrity, builds, findings, tuned

NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = (
    "failure",
    "integrity",
    "findings",
    "builds",
    "launches",
    "programs",
    "operators",
    "autotuned",
    "notes",
)


@given(st.dictionaries(st.sampled_from(FIELDS), NONSENSE))
def test_nonsense_counts_as_said_nothing(reply):
    Failure.of(reply)
    Integrity.of(reply)
    findings(reply)
    builds(reply)
    facts = CallFacts.of(reply)
    assert all(type(count) is int for count in facts.launches.values())
    assert all(type(note) is str for note in facts.notes)


def test_what_is_said_is_bounded():
    facts = CallFacts.of({"notes": ["x" * 10_000] * 10_000, "launches": {f"k{i}": 1 for i in range(10_000)}})
    assert len(facts.notes) == len(facts.launches) == 200
    assert len(facts.notes[0]) == 400
    failure = Failure.of({"failure": {"kind": "exception", "message": "x" * 100_000, "line": 10**40}})
    assert len(failure.message) == 3000
    assert failure.line == 0


def test_numbers_that_are_none_are_dropped():
    assert CallFacts.of({"launches": {"a": 1, "b": -1, "c": True, "d": 1.5, "e": "2"}}).launches == {"a": 1}


def test_which_configurations_built_is_taken_where_it_is_said_as_it_should_be():
    said = {"good": [True, False], "numbers": [1, 0], "text": "yes", "long": [True] * 5000}
    assert tuned({"tuned": said}) == {"good": [True, False]}
    assert tuned({"tuned": [True]}) == {}
    assert tuned({}) == {}


def test_what_no_kernel_has_a_reason_to_do_is_misconduct():
    def seen(kind, phase="run"):
        return Integrity(events=[Event(kind, phase, "x")])

    assert Integrity(patched=["torch.allclose"]).misconduct
    assert seen("signal", "construct").misconduct
    assert seen("process").misconduct
    assert Integrity.of({"integrity": {"patched": [], "kept_bytes": 1 << 20}}).misconduct
    assert not Integrity.of({"integrity": {"patched": [], "kept_bytes": 0}}).misconduct
    assert not Integrity.of({"integrity": {"patched": [], "kept_bytes": "much"}}).misconduct
    assert not seen("process", "load").misconduct
    assert not seen("thread").misconduct


def test_what_steers_a_terminal_or_turns_a_line_around_is_left_out():
    said = {"failure": {"message": "a\x1b[2J\u202eb\x00\r\nc\td\x9b"}}
    assert Failure.of(said).message == "a[2Jb\nc\td"


def test_what_is_said_is_text_that_any_file_and_terminal_takes():
    facts = CallFacts.of({"notes": ["half \ud800 of it", "red \x1b[31m \u202e left"]})
    assert facts.notes == ["half \ufffd of it", "red [31m  left"]
    "".join(facts.notes).encode()
