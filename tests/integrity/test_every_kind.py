"""Every known kind of attack has one here, or is said to have none."""

import importlib.util
import re
from pathlib import Path

KINDS = {
    "test_escaping_the_clock": range(1, 11),
    "test_not_computing": range(11, 21),
    "test_work_of_others": range(21, 28),
    "test_cheaper_arithmetic": range(28, 31),
    "test_state": range(31, 36),
    "test_honest_but_wrong": range(36, 39),
}


def module(name):
    specification = importlib.util.spec_from_file_location(
        f"table_of_{name}", Path(__file__).parent / f"{name}.py"
    )
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded


def kinds(rows):
    return {int(row.id.split()[0]) for row in rows}


TIMED = "test_while_it_is_timed"
"""Processes that are made up: attacks of any kind on times."""


def test_all_38_kinds_are_attacked_or_said_not_to_be():
    covered, waiting = kinds(module(TIMED).ATTACKS) | module(TIMED).KINDS, set()
    for name, numbers in KINDS.items():
        tables = module(name)
        on_a_gpu = [*getattr(tables, "ON_A_GPU", []), *getattr(tables, "TIMED_ON_A_GPU", [])]
        attacked = kinds([*tables.ATTACKS, *on_a_gpu])
        listed = re.search(r"Without an attack: ([\d, ]+)", tables.__doc__)
        postponed = set(map(int, re.findall(r"\d+", listed[1]))) if listed else set()
        assert attacked.isdisjoint(postponed), name
        assert attacked | postponed <= set(numbers), name
        assert kinds(tables.HONEST) <= set(numbers), name
        assert tables.HONEST, name
        covered |= attacked
        waiting |= postponed
    assert covered | waiting == set(range(1, 39))


def test_every_module_of_attacks_is_counted():
    found = {path.stem for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).stem}
    assert found == {*KINDS, TIMED}
