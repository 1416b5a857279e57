"""For which tasks and devices a rule holds, and when two measurements tell a kernel faster or slower."""

import pytest

from adaexplore_mcp.models import Speedup, Timing
from adaexplore_mcp.rules import Place, bound, compared, gpu_of, holds_at, narrowest, written

H200 = "cuda:0 (NVIDIA H200, driver 570.1)"


def timing(speedup, low, high, *, baseline="eager", device=H200):
    given = Speedup(baseline=baseline, speedup=speedup, low=low, high=high, conclusion="same")
    return Timing(effort="quick", device=device, speedups=[given])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("check:values", ("check:values@float16", Place("float16"))),
        ("check:precision_class", ("check:precision_class@float16", Place("float16"))),
        ("check:shape", ("check:shape", Place())),
        ("check:memory", ("check:memory@sm_90", Place(device="sm_90"))),
        ("check:deadline", ("check:deadline", Place())),
        (
            "out_of_resource:shared memory",
            ("out_of_resource:shared memory@sm_90", Place(device="sm_90")),
        ),
        ("numel_limit:block", ("numel_limit:block", Place())),
        ("performance:ab12", ("performance:ab12@float16/sm_90", Place("float16", "sm_90"))),
        ("unsupported_node:lambda", ("unsupported_node:lambda", Place())),
    ],
)
def test_comparisons_are_bound_to_a_dtype_resources_to_a_device_and_speed_to_both(key, expected):
    assert bound(key, Place("float16", "sm_90")) == expected


def test_what_is_bound_holds_nowhere_else():
    key, place = bound("check:values", Place("float16", "sm_90"))
    assert holds_at(key, place, dtype="float16", devices={"sm_86"})
    assert not holds_at(key, place, dtype="float32", devices={"sm_86"})
    assert holds_at(key, place, dtype=None, devices=set())
    key, place = bound("out_of_resource:registers", Place("float16", "sm_90"))
    assert holds_at(key, place, dtype="float32", devices={"sm_90", "NVIDIA H200"})
    assert not holds_at(key, place, dtype="float32", devices={"sm_86"})


def test_a_comparison_kept_before_dtypes_were_is_given_for_none_in_particular():
    assert not holds_at("check:values", Place(), dtype="float32", devices=set())
    assert holds_at("check:shape", Place(), dtype="float32", devices=set())


def test_the_narrowest_dtype_is_the_tasks():
    assert narrowest(["int64", "float32", "bfloat16"]) == "bfloat16"
    assert narrowest(["int64"]) == ""
    assert written(["x = torch.randn(3, dtype=torch.float16)"]) == "float16"
    assert written(["x = torch.randn(3).half()"]) == "float16"
    assert written(["x = torch.randn(3)"]) == "float32"


def test_a_step_is_slower_only_where_the_intervals_lie_apart():
    slower = compared(timing(0.8, 0.78, 0.82), timing(1.0, 0.97, 1.03))
    assert slower.sure
    assert str(slower) == "0.8 times as fast [0.757 to 0.845]"
    assert slower.device == "NVIDIA H200"
    assert not compared(timing(0.95, 0.9, 1.0), timing(1.0, 0.97, 1.03)).sure
    assert compared(timing(1.5, 1.4, 1.6), timing(1.0, 0.97, 1.03)).low > 1


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (None, timing(1, 1, 1), "it was not timed"),
        (timing(1, 1, 1), None, "its parent was not timed"),
        (timing(1, 1, 1), timing(1, 1, 1, baseline="own"), "against eager"),
        (timing(1, 1, 1), timing(1, 1, 1, device="cuda:1 (NVIDIA A100, driver 570.1)"), "NVIDIA A100"),
        (timing(1, 0, 1), timing(1, 1, 1), "speedup of 0"),
    ],
)
def test_what_cannot_be_compared_says_why(new, old, said):
    assert said in compared(new, old)


def test_the_name_of_a_gpu_is_taken_without_its_place_and_driver():
    assert gpu_of(H200) == "NVIDIA H200"
    assert gpu_of("stand-in") == "stand-in"
