import pytest

from adaexplore_mcp.evaluation.workers.targets import DEFAULT_TARGET, TARGETS, target


def test_the_targets_are_the_five_that_kernels_are_compiled_for():
    assert list(TARGETS) == ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"]
    assert [each.arch for each in TARGETS.values()] == [80, 86, 89, 90, 100]
    assert DEFAULT_TARGET.name == "sm_90"


def test_an_unknown_target_is_refused_with_the_names_that_are_known():
    with pytest.raises(ValueError, match=r"'sm_75': the targets are sm_80, sm_86, sm_89, sm_90, sm_100"):
        target("sm_75")


@pytest.mark.parametrize(
    ("name", "optin", "per_multiprocessor"),
    [
        ("sm_80", 166912, 167936),
        ("sm_86", 101376, 102400),
        ("sm_90", 232448, 233472),
        ("sm_100", 232448, 233472),
    ],
)
def test_shared_memory_is_that_of_the_programming_guide(name, optin, per_multiprocessor):
    assert target(name).shared_bytes_per_block_optin == optin
    assert target(name).shared_bytes_per_multiprocessor == per_multiprocessor


def test_a_device_name_cannot_be_taken_for_a_real_device():
    assert all("stand-in" in each.device_name and "no GPU" in each.device_name for each in TARGETS.values())
