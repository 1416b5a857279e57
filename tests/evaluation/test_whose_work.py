"""Who did the work, and at which sizes it holds: facts of an outcome, from the real evaluator."""

import pytest
from court import ADD, IMPORTS, RIGHT, add

pytestmark = pytest.mark.anyio

FORBID = add(policy={"library_ops": "forbid"})
BY_TORCH = RIGHT.replace("def op(x, y):", "def by_kernel(x, y):") + "\ndef op(x, y):\n    return x + y\n"
DECOY = (
    RIGHT.replace("def op(x, y):", "def by_kernel(x, y):")
    + "\ndef op(x, y):\n    by_kernel(x, y)\n    return x + y\n"
)
COPY = (
    IMPORTS
    + """
@triton.jit
def scratch(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + o, tl.load(x_ptr + o, mask=o < n, other=0.0), mask=o < n)
"""
)


async def test_a_kernel_that_does_it_all_has_all_of_the_work(court):
    facts = (await court.verdict(ADD, RIGHT)).facts
    assert facts.own_share == 1.0
    assert facts.source == []
    assert not any("do not rest" in note or "not launched" in note for note in facts.notes)


async def test_a_kernel_that_is_defined_and_not_launched_is_named_with_its_line(court):
    outcome = await court.verdict(ADD, BY_TORCH)
    assert outcome.status == "correct"
    assert outcome.facts.own_share == 0.0
    line = RIGHT.splitlines().index("@triton.jit") + 2
    assert any(f"(line {line}) is defined and was not launched" in note for note in outcome.facts.notes)


async def test_a_kernel_whose_output_nobody_uses_is_named_and_forbidden_where_torch_is(court):
    outcome = await court.verdict(ADD, DECOY)
    assert outcome.status == "correct"
    assert any(note.startswith("Without the launches of") for note in outcome.facts.notes)
    outcome = await court.verdict(FORBID, DECOY)
    assert (outcome.status, outcome.check) == ("rejected", "library_ops")


async def test_one_unused_kernel_among_others_is_named_alone(court):
    source = RIGHT.replace(IMPORTS, COPY).replace(
        "    return z", "    scratch[(1,)](x, torch.empty_like(x), x.numel(), BLOCK=128)\n    return z"
    )
    outcome = await court.verdict(ADD, source)
    assert outcome.status == "correct", outcome.summary
    assert any(note.startswith("Without the launches of scratch its") for note in outcome.facts.notes)


async def test_a_kernel_that_runs_in_the_first_call_only_is_not_called_unused(court):
    source = RIGHT.replace(IMPORTS, COPY + "\nPACKED = []\n").replace(
        "    return z",
        "    if not PACKED:\n        PACKED.append(torch.empty_like(x))\n"
        "        scratch[(1,)](x, PACKED[0], x.numel(), BLOCK=128)\n    return z",
    )
    outcome = await court.verdict(ADD, source)
    assert outcome.status == "correct", outcome.summary
    assert not any(note.startswith("Without") for note in outcome.facts.notes)


async def test_a_way_round_the_kernel_is_told_with_its_line(court):
    source = RIGHT.replace("def op(x, y):", "def op(x, y):\n    if x.numel() < 9:\n        return x + y")
    outcome = await court.verdict(ADD, source)
    line = source.splitlines().index("    if x.numel() < 9:") + 1
    assert outcome.facts.source == [f"Line {line}: a kernel is launched or not by x.numel() < 9."]


async def test_a_kernel_made_for_one_size_is_told_at_which_other_it_fails(court):
    outcome = await court.verdict(ADD, RIGHT)
    assert outcome.facts.shape_specialised == ""
    special = RIGHT.replace(
        "z = torch.empty_like(x)", "assert x.numel() == 96, 'only 96'\n    z = torch.empty_like(x)"
    )
    outcome = await court.verdict(ADD, special)
    assert outcome.status == "correct", outcome.summary
    assert outcome.facts.shape_specialised.startswith("fails at N=83: ")
    assert "only 96" in outcome.facts.shape_specialised


async def test_the_size_at_which_it_fails_is_told_of_a_task_with_several_workloads_too(court):
    task = add(workloads={"small": {"N": 96}, "large": {"N": 128}})
    special = RIGHT.replace(
        "z = torch.empty_like(x)", "assert x.numel() in (96, 128)\n    z = torch.empty_like(x)"
    )
    outcome = await court.verdict(task, special)
    assert outcome.status == "correct", outcome.summary
    assert outcome.facts.shape_specialised.startswith("fails at N=83: AssertionError")


async def test_misconduct_at_other_sizes_alone_counts(court):
    source = RIGHT.replace(
        "z = torch.empty_like(x)",
        "if x.numel() != 96: torch.allclose = lambda *a, **k: True\n    z = torch.empty_like(x)",
    )
    outcome = await court.verdict(ADD, source)
    assert (outcome.status, outcome.check) == ("rejected", "patched")


async def test_what_a_left_out_launch_leads_to_is_not_blamed_on_other_sizes(court):
    source = "import os\n" + RIGHT.replace(
        "    return z", "    bool(z.abs().max() < 1e6) or os._exit(3)\n    return z"
    )
    outcome = await court.verdict(ADD, source)
    assert outcome.facts.shape_specialised == ""


async def test_trials_of_which_a_failure_at_other_sizes_could_tell_are_used_no_more(court):
    special = RIGHT.replace(
        "z = torch.empty_like(x)",
        "if x.numel() != 96: raise ValueError(SEEN)\n    SEEN.append(float(x[0]))\n    z = torch.empty_like(x)",
    )
    evaluation = await court.evaluation(ADD, "SEEN = []\n" + special)
    assert evaluation.outcome.facts.shape_specialised
    told = evaluation.receipt["workloads"]["default"]["trials"]
    other = await court.evaluation(ADD, RIGHT)
    assert other.receipt["workloads"]["default"]["trials"] != told
