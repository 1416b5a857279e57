import ast
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.workers.sizes import SizeError, find, replace


def keys(text):
    return {constant.key: constant.value for constant in find(text)}


# --- what is found ---------------------------------------------------------------------------------------


def test_finds_assignments_of_every_literal_type():
    text = 'N = 8\nEPS = 1e-5\nDTYPE = "float16"\nCAUSAL = True\nM: int = 16\nOFFSET = -3\n'
    assert keys(text) == {"N": 8, "EPS": 1e-5, "DTYPE": "float16", "CAUSAL": True, "M": 16, "OFFSET": -3}


def test_unpacked_names_get_their_own_keys():
    assert keys("B, C = 16, 32\n(D, E) = [1, 2]\n") == {"B": 16, "C": 32, "D": 1, "E": 2}


def test_arithmetic_on_literals_is_one_constant():
    text = "N = 4 * 1024 + 2\n"
    [constant] = find(text)
    assert (constant.key, constant.value, constant.kind) == ("N", 4098, "literal")
    assert text[constant.start : constant.stop] == "4 * 1024 + 2"


def test_a_constant_computed_from_others_is_derived():
    kinds = {constant.key: (constant.kind, constant.value) for constant in find("N = 64\nHALF = N // 2\n")}
    assert kinds == {"N": ("literal", 64), "HALF": ("derived", 32)}


def test_elements_of_containers_are_named_by_where_they_are():
    text = "shape = (N, 1, 64)\nconfig = {'width': 100, 'depths': [3, 4]}\nlayers = [7] * 9\n"
    assert keys(text) == {
        "shape[1]": 1,
        "shape[2]": 64,
        "config['width']": 100,
        "config['depths'][0]": 3,
        "config['depths'][1]": 4,
        "layers#0": 7,
        "layers#1": 9,
    }


def test_literals_of_input_functions_are_found_and_of_others_not():
    text = (
        "def get_inputs():\n    return [rand(16, 2 * 8)]\ndef helper():\n    return 99\nclass A:\n    n = 5\n"
    )
    assert keys(text) == {"get_inputs#0": 16, "get_inputs#1": 16}


def test_a_second_assignment_has_a_key_of_its_own_and_the_same_name():
    first, second = find("N = 8\nN = 16\n")
    assert (first.key, second.key) == ("N", "N@2")
    assert first.name == second.name == "N"


@pytest.mark.parametrize("source", ["N = 1 // 0", "N = 10 ** 10 ** 10", "N = (-8) ** 0.5", "N = 'a' * 3"])
def test_arithmetic_that_gives_no_size_is_left_alone(source):
    assert "N" not in keys(source)


def test_truth_values_are_no_integers():
    assert {type(constant.value) for constant in find("FLAG = True\n")} == {bool}


def test_literals_inside_formatted_strings_are_left_alone():
    assert keys("def get_inputs():\n    return [f'{64}', 8]\n") == {"get_inputs#0": 8}


# --- what is replaced ------------------------------------------------------------------------------------


def test_replaces_by_position_and_keeps_the_rest():
    text = "# größe 4096\né = 'ü'; N = 4096  # N = 4096\n"
    changed, done = replace(text, {"N": (4096, 8)})
    assert changed == "# größe 4096\né = 'ü'; N = 8  # N = 4096\n"
    assert done == ["N"]


def test_an_expression_over_several_lines_still_spans_them():
    text = "N = 2 * \\\n  1024\nM = (4 *\n  8)\nLAST = 1\n"
    changed, _ = replace(text, {"N": (2048, 3), "M": (32, 5)})
    assert keys(changed) == {"N": 3, "M": 5, "LAST": 1}
    assert changed.splitlines()[-1] == "LAST = 1"
    assert len(changed.splitlines()) == len(text.splitlines())


def test_values_of_any_type_can_be_put_in_place():
    changed, _ = replace(
        "A = 1\nB = 'x'\nC = False\n", {"A": (1, 0.5), "B": ("x", "it's"), "C": (False, True)}
    )
    assert keys(changed) == {"A": 0.5, "B": "it's", "C": True}


def test_an_unknown_key_is_an_error():
    with pytest.raises(SizeError, match="no constant M"):
        replace("N = 8\n", {"M": (8, 4)})


def test_another_old_value_is_an_error():
    with pytest.raises(SizeError, match="N is 8 in the source, not 16"):
        replace("N = 8\n", {"N": (16, 4)})


def test_without_strictness_what_does_not_fit_is_skipped():
    text = "N = 8\nM = 8.0\nK = 9\n"
    assert replace(text, {"N": (8, 4), "M": (8, 4), "K": (8, 4), "Z": (8, 4)}, strict=False) == (
        "N = 4\nM = 8.0\nK = 9\n",
        ["N"],
    )


def test_a_source_that_is_not_python_says_so():
    with pytest.raises(SyntaxError):
        find("def (:\n")


NAMES = st.sampled_from(["BATCH", "hidden", "größe", "N2", "数"])
NUMBERS = st.integers(0, 1 << 20)
STATEMENTS = st.one_of(
    st.builds("{} = {}".format, NAMES, NUMBERS),
    st.builds("{}: int = {}  # naïve, größer".format, NAMES, NUMBERS),
    st.builds("text = 'äöü{{}}'; {} = {} * {}".format, NAMES, NUMBERS, st.integers(1, 9)),
    st.builds("{} = (\n    {} *\n    {}  # π\n)".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{} = ('é', {}, [{}, 7])".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{}, other = {}, 0x{:x}".format, NAMES, NUMBERS, NUMBERS),
    st.builds(
        "def get_inputs():\n    '''größe'''\n    return [rand({}, n={}), 'é']".format, NUMBERS, NUMBERS
    ),
    st.just("class A:\n    '''\n    N = 3\n    '''\n"),
    st.just("\f\nx = f'{1 + 1}é' # \u2028 no line break here"),
)
TEXTS = st.builds(
    lambda statements, newline: "\n".join(statements).replace("\n", newline),
    st.lists(STATEMENTS, max_size=8),
    st.sampled_from(["\n", "\r\n"]),
)


@settings(deadline=None)
@given(TEXTS, st.data())
def test_replacing_keeps_lines_and_everything_else(text, data):
    integers = [constant for constant in find(text) if type(constant.value) is int]
    chosen = data.draw(st.lists(st.sampled_from(integers), unique=True) if integers else st.just([]))
    changes = {constant.key: (constant.value, data.draw(st.integers(1, 1 << 20))) for constant in chosen}
    # A bare name stands for each of its assignments, so leave names with several out of this property.
    changes = {key: change for key, change in changes.items() if f"{key}@2" not in keys(text)}
    changed, done = replace(text, changes)
    assert sorted(done) == sorted(changes)
    breaks = re.compile(r"\r\n|\r|\n")
    assert breaks.findall(changed) == breaks.findall(text)
    before, after = keys(text), keys(changed)
    derived = {constant.key for constant in find(text) if constant.kind == "derived"}
    assert before.keys() == after.keys()
    for key in before.keys() - derived:
        assert after[key] == (changes[key][1] if key in changes else before[key])
    # Every statement still begins on its line.
    lines = [node.lineno for node in ast.parse(text).body]
    assert [node.lineno for node in ast.parse(changed).body] == lines


@settings(deadline=None)
@given(TEXTS)
def test_spans_hold_what_the_constant_evaluates_to(text):
    for constant in find(text):
        if constant.kind != "derived":
            written = text[constant.start : constant.stop]
            assert eval(f"({written}\n)", {}) == constant.value


@pytest.mark.parametrize("expression", [" + ".join(["8"] * 1500), "rand(" + " + ".join(["N"] * 1500) + ")"])
def test_an_expression_as_deep_as_no_size_is_looked_into_so_far_only(expression):
    assert keys(f"N = 8\nM = {expression}\nK = 4\n").items() >= {"N": 8, "K": 4}.items()


def test_a_long_line_of_many_numbers_is_gone_through_once():
    started = time.process_time()
    constants = find(f"X = ['{'-' * 4_000_000}', {'12345, ' * 20_000}]\n")
    assert time.process_time() - started < 5
    assert len(constants) == 20_000
