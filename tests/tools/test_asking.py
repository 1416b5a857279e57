"""A person is asked about a proposal through the host, where the host can ask."""

import anyio
import pytest
from mcp import Client
from mcp_types import ElicitResult
from stand_ins import services_of

from adaexplore_mcp.memory_store import NewRule
from adaexplore_mcp.models import Review
from adaexplore_mcp.server import build_server

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", ["auto", "legacy"])]

REASON = "It compiles now."


class Person:
    """Answers what the host shows, or does what `action` says."""

    def __init__(self, action, agreed=None):
        self.action, self.agreed, self.asked = action, agreed, []

    async def __call__(self, context, params):
        self.asked.append(params.message)
        content = None if self.agreed is None else {"agreed": self.agreed}
        return ElicitResult(action=self.action, content=content)


async def proposed(settings, mode, person, action="propose_retire", text=REASON):
    """Propose a change of a shipped rule; return the answer, and who did what to the rule, latest first."""
    services = services_of(settings)
    with anyio.fail_after(60):
        async with Client(build_server(settings, services), mode=mode, elicitation_callback=person) as client:
            found = await client.call_tool("get_skill_rules", {"limit": 1, "query": "lambda"})
            rule_id = found.structured_content["rules"][0]["rule_id"]
            given = {"rule_id": rule_id, "action": action, "text": text, "agent": "me"}
            result = await client.call_tool("review_rules", given)
            assert not result.is_error, result.content[0].text
            changes = await services.store.rules.changes(rule_id)
    done = [(change.action, change.agent) for change in changes if change.action not in {"made", "holds"}]
    return result.structured_content, done


async def test_a_person_who_agrees_decides_and_is_named(settings, mode):
    person = Person("accept", agreed=True)
    answer, done = await proposed(settings, mode, person)
    assert answer["state"] == "retired"
    assert "A person agreed" in answer["summary"]
    assert done == [("accept", "person via host"), ("propose_retire", "me")]
    (question,) = person.asked
    assert question.startswith("me proposes that a rule no longer be given out.")
    assert "You cannot use a lambda" in question
    assert "What it rests on: shipped" in question
    assert REASON in question


async def test_a_person_confirms_what_an_agent_proposes(settings, mode):
    answer, done = await proposed(settings, mode, Person("accept", agreed=True), "propose_confirm", "")
    assert answer["state"] == "confirmed"
    assert done[0] == ("accept", "person via host")


async def test_new_words_for_what_a_probe_confirms_are_asked_about(settings, mode):
    words = "You cannot define an anonymous function in a Triton kernel."
    answer, _ = await proposed(settings, mode, Person("accept", agreed=True), "reword", words)
    assert answer["rule"] == words
    assert answer["state"] == "verified"


async def test_a_person_who_disagrees_ends_the_proposal(settings, mode):
    answer, done = await proposed(settings, mode, Person("accept", agreed=False))
    assert answer["state"] == "verified"
    assert "proposed" not in answer
    assert done[0] == ("decline", "person via host")


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_does_not_answer_leaves_the_proposal_waiting(settings, mode, action):
    answer, done = await proposed(settings, mode, Person(action))
    assert "did not decide" in answer["summary"]
    assert answer["proposed"] == f"retire by me: {REASON}"
    assert done == [("propose_retire", "me")]


async def test_a_host_that_cannot_ask_is_told_the_command(settings, mode):
    answer, done = await proposed(settings, mode, None)
    assert "adaexplore-mcp rules review rule_" in answer["summary"]
    assert done == [("propose_retire", "me")]


async def test_nobody_is_asked_about_a_request_that_is_at_fault(settings, mode):
    person = Person("accept", agreed=True)
    with anyio.fail_after(60):
        server = build_server(settings, services_of(settings))
        async with Client(server, mode=mode, elicitation_callback=person) as client:
            for given in (
                {"rule_id": "rule_x", "action": "propose_retire", "text": REASON},
                {"rule_id": "rule_x", "action": "merge", "into": "rule_y"},
            ):
                result = await client.call_tool("review_rules", given)
                assert result.is_error
                assert "'rule_x'" in result.content[0].text
    assert person.asked == []


async def test_an_answer_that_is_none_changes_nothing(settings, mode):
    async def nonsense(context, params):
        return ElicitResult(action="accept", content={"agreed": "perhaps"})

    services = services_of(settings)
    with anyio.fail_after(60):
        async with Client(
            build_server(settings, services), mode=mode, elicitation_callback=nonsense
        ) as client:
            found = await client.call_tool("get_skill_rules", {"limit": 1, "query": "lambda"})
            rule_id = found.structured_content["rules"][0]["rule_id"]
            given = {"rule_id": rule_id, "action": "propose_retire", "text": REASON}
            result = await client.call_tool("review_rules", given)
            assert result.is_error
            rule = await services.store.rules.get(rule_id)
    assert (rule.state, rule.proposed) == ("verified", {})


async def test_a_person_confirms_nothing_but_what_was_shown(settings, mode):
    """While the person reads, another agent words the rule anew."""
    services = services_of(settings)
    shown, other = "You cannot frobnicate a block of memory.", "You cannot trust the results of any tl.dot."
    (rule,) = await services.store.rules.put([NewRule("message:frob", "other", shown, shown)], "server")

    async def slow(context, params):
        if shown in params.message:
            review = Review(rule_id=rule.rule_id, action="reword", text=other, agent="you")
            await services.rules.reviews.review(review)
        return ElicitResult(action="accept", content={"agreed": True})

    with anyio.fail_after(60):
        async with Client(build_server(settings, services), mode=mode, elicitation_callback=slow) as client:
            given = {"rule_id": rule.rule_id, "action": "propose_confirm", "agent": "me"}
            result = await client.call_tool("review_rules", given)
    now = await services.store.rules.get(rule.rule_id)
    if mode == "legacy":
        assert result.is_error
        assert "changed while the person was asked" in result.content[0].text
        assert now.state == "learned"
    else:  # the question is asked again, with the new words
        assert (now.state, now.text) == ("confirmed", other)
