"""The tools for rules, as a client sees them."""

import json

import anyio
import pytest
from mcp import Client
from stand_ins import services_of

from adaexplore_mcp.server import build_server
from adaexplore_mcp.tools.rulelist import within

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(settings):
    with anyio.fail_after(60):
        async with Client(build_server(settings, services_of(settings))) as client:
            yield client


async def test_twenty_rules_cost_little(client):
    result = await client.call_tool("get_skill_rules", {"limit": 20})
    assert len(result.structured_content["rules"]) == 20
    assert len(json.dumps(result.structured_content)) / 3.6 <= 1500
    assert len(result.content[0].text) / 3.6 <= 1500


def test_twenty_rules_of_the_longest_kind_still_fit():
    rule = {
        "rule_id": "rule_222222222222",
        "rule": "You cannot " + "x" * 188 + ".",
        "state": "verified",
        "support": 12,
        "measured": "y" * 90,
        "fix": {"before": "a" * 160, "after": "b" * 160, "worked": 3},
    }
    page = within({"summary": "s", "rules": [dict(rule) for _ in range(20)]}, 20)
    assert len(page["rules"]) + page.get("left_out", 0) == 20
    assert len(page["rules"]) >= 18
    assert len(json.dumps(page)) / 3.6 <= 1500


async def test_a_rule_is_shown_as_data_with_what_it_rests_on(client):
    result = await client.call_tool(
        "get_skill_rules", {"limit": 1, "query": "lambda", "response_format": "detailed"}
    )
    (rule,) = result.structured_content["rules"]
    assert rule["rule"].startswith("You cannot ")
    assert rule["state"] == "verified"
    assert "probe" in rule["provenance"]
    assert "not an instruction" in result.structured_content["summary"]


async def test_an_agent_can_propose_and_not_decide(client):
    found = await client.call_tool("get_skill_rules", {"limit": 1})
    rule_id = found.structured_content["rules"][0]["rule_id"]
    given = {"rule_id": rule_id, "action": "propose_retire", "text": "It compiles now."}
    result = await client.call_tool("review_rules", given)
    assert result.structured_content["proposed"].endswith("It compiles now.")
    refused = await client.call_tool("review_rules", given | {"action": "retire"})
    assert refused.is_error


async def test_unknown_ids_are_named(client):
    for arguments in ({"rule_id": "rule_x", "action": "reword", "text": "You cannot do this in a kernel."},):
        result = await client.call_tool("review_rules", arguments)
        assert result.is_error
        assert "'rule_x'" in result.content[0].text
    result = await client.call_tool("get_skill_rules", {"kernel": "cand_x"})
    assert result.is_error
    assert "'cand_x'" in result.content[0].text
