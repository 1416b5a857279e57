from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

from adaexplore_mcp.evaluation.workers.trees import holds_tensors, leaves, map_leaves

NESTED = {"b": [1, (2, 3)], "a": {2: 4, 1: 5}}


def test_leaves_are_named_by_their_paths():
    assert list(leaves(OrderedDict(NESTED), "out")) == [
        ("out['b'][0]", 1),
        ("out['b'][1][0]", 2),
        ("out['b'][1][1]", 3),
        ("out['a'][2]", 4),
        ("out['a'][1]", 5),
    ]


def test_mapping_visits_in_the_order_of_leaves():
    seen = []
    mapped = map_leaves(lambda path, leaf: seen.append((path, leaf)) or -leaf, NESTED)
    assert seen == list(leaves(NESTED))
    assert mapped == {"b": [-1, (-2, -3)], "a": {2: -4, 1: -5}}
    assert list(mapped) == ["b", "a"]


def test_subclasses_become_what_they_hold():
    pair = namedtuple("pair", "x y")  # noqa: PYI024 - as in a task
    assert map_leaves(lambda _, leaf: leaf, pair(1, 2)) == (1, 2)


def test_what_holds_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(RecursionError, match="deeper than 32"):
        list(leaves(loop))
    with pytest.raises(RecursionError, match="deeper than 32"):
        map_leaves(lambda _, leaf: leaf, loop)


class Packed:
    def __init__(self, value):
        self.value = {"kept": [value]}


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def closing_over(value):
    return lambda: value


@pytest.mark.parametrize("hold", [Packed, Slotted, closing_over, lambda value: (value,)])
def test_a_tensor_is_found_wherever_an_object_keeps_it(hold):
    assert holds_tensors(hold(torch.ones(2)))
    assert not holds_tensors(hold(1.0))


def test_a_module_holds_what_it_has_and_not_what_its_class_and_its_globals_have():
    assert holds_tensors(nn.Sequential(nn.Linear(2, 2)))
    assert not holds_tensors(nn.Sequential(nn.ReLU(), nn.Dropout(0.1)))
