"""The server as a client sees it, in both protocol eras; stand-ins judge."""

import json
import re
from pathlib import Path

import anyio
import pytest
from mcp_client import call, connected_to
from stand_ins import SOURCE, kernel, services_of

from adaexplore_mcp import server as module
from adaexplore_mcp.prompts import render
from adaexplore_mcp.server import build_server
from adaexplore_mcp.settings import load_settings
from adaexplore_mcp.tools import TOOLS, tools_of

pytestmark = pytest.mark.anyio

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(params=["auto", "legacy"])
def mode(request):
    """Protocol 2026-07-28, and the handshake of 2025-11-25."""
    return request.param


def connected(settings, mode="auto"):
    return connected_to(services_of(settings), settings, mode)


async def refused(client, tool, /, **arguments):
    """Call a tool that must fail and return its text."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    text = result.content[0].text
    assert "\n" not in text
    assert not text.startswith("Error executing")
    assert len(text) < 1200
    return text


async def registered(client, **fields):
    return (await call(client, "register_task", source=SOURCE, name="softmax", **fields))["task_id"]


# --- what is published -----------------------------------------------------------------------------------


async def listed(settings):
    async with connected(settings) as client:
        tools = (await client.list_tools()).tools
    return {tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools}


@pytest.mark.parametrize("name", [entry.name for entry in TOOLS])
async def test_a_tool_looks_as_its_snapshot(settings, name, update_snapshots):
    file = SNAPSHOTS / f"{name}.json"
    text = json.dumps((await listed(settings))[name], indent=2, ensure_ascii=False) + "\n"
    if update_snapshots:
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, (
        "run pytest --update-snapshots and look at the difference"
    )


def test_every_snapshot_is_of_a_tool():
    assert {file.stem for file in SNAPSHOTS.glob("*.json")} == {entry.name for entry in TOOLS}


def parts(schema, path=""):
    if isinstance(schema, dict):
        yield path, schema
        for key, value in schema.items():
            yield from parts(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for number, value in enumerate(schema):
            yield from parts(value, f"{path}/{number}")


async def test_every_schema_is_one_that_strict_hosts_take(settings):
    for name, tool in (await listed(settings)).items():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,49}", name)  # with the server's name at most 60
        assert 0 < len(tool["description"].encode()) < 2048
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object"
            assert not {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys()
            for path, part in parts(schema):
                assert "$ref" not in part, (name, path)
                assert "$defs" not in part, (name, path)
                if part.get("type") == "array":
                    assert "items" in part, (name, path)
                if isinstance(part.get("description"), str):
                    assert len(part["description"].encode()) < 2048
        for field in tool["inputSchema"].get("required", []):
            assert field in tool["inputSchema"]["properties"]


async def test_the_list_costs_a_conversation_little(settings):
    """At 3.6 characters a token; all tools together, so each new one has to be short."""
    tokens = (
        sum(len(json.dumps(tool, separators=(",", ":"))) for tool in (await listed(settings)).values()) / 3.6
    )
    assert tokens < 4600


async def test_the_list_is_the_same_every_time_and_in_both_eras(settings):
    seen = set()
    for mode in ("auto", "legacy", "auto"):
        async with connected(settings, mode) as client:
            tools = [tool.model_dump() for tool in (await client.list_tools()).tools]
            seen.add(json.dumps(tools, sort_keys=True))
    assert len(seen) == 1


async def test_the_core_toolset_is_smaller_and_its_tools_are_the_same(settings):
    core = await listed(settings.model_copy(update={"toolset": "core"}))
    assert list(core) == [entry.name for entry in tools_of("core")]
    everything = await listed(settings)
    assert len(core) < len(everything)
    assert all(everything[name] == tool for name, tool in core.items())


async def test_the_longest_wait_is_the_servers_own(settings):
    tools = await listed(settings.model_copy(update={"max_wait": 10.0}))
    wait = tools["compile_and_verify"]["inputSchema"]["properties"]["wait_seconds"]
    assert (wait["maximum"], wait["default"]) == (10.0, 10.0)


async def test_every_optional_argument_has_a_default_and_hints_are_set(settings):
    for entry in TOOLS:
        hints = entry.annotations
        assert hints.open_world_hint is False
        assert hints.read_only_hint or hints.destructive_hint is not None
    assert (await listed(settings))["compile_and_verify"]["inputSchema"]["required"] == ["task_id"]


def test_the_instructions_are_short_and_complete():
    text = render("instructions", target="sm_90", roots="/work")
    assert len(text.encode()) < 2000
    assert "$" not in text
    assert "sm_90" in text
    with pytest.raises(ValueError, match=r"missing: \['roots'\]"):
        render("instructions", target="sm_90")
    with pytest.raises(ValueError, match=r"unused: \['more'\]"):
        render("instructions", target="sm_90", roots="", more="")


async def test_many_roots_do_not_make_the_instructions_too_long(settings, tmp_path):
    roots = [tmp_path / f"folder_{number:03}" for number in range(60)]
    server = build_server(settings.model_copy(update={"roots": roots}), services_of(settings))
    assert len(server.instructions.encode()) < 2048
    assert "(60 folders)" in server.instructions


async def test_the_server_names_itself_and_gives_instructions(settings, mode):
    async with connected(settings, mode) as client:
        assert client.server_info.name == "adaexplore"
        assert client.instructions.startswith("AdaExplore judges GPU kernels")


# --- verdicts --------------------------------------------------------------------------------------------


async def test_a_task_is_registered_found_and_a_kernel_judged(settings, mode):
    async with connected(settings, mode) as client:
        task = await call(
            client, "register_task", source=SOURCE, name="softmax", workloads=[{"name": "base"}]
        )
        assert task["task_id"] in task["summary"]
        assert task["task_id"] in task["next_step"]
        (row,) = (await call(client, "list_tasks", query="soft"))["tasks"]
        assert row == {
            "task_id": task["task_id"],
            "name": "softmax",
            "format": "kernelbench",
            "entry": "Model",
            "workloads": ["base"],
        }
        outcome = await call(client, "compile_and_verify", task_id=task["task_id"], kernel=kernel("correct"))
        assert outcome["status"] == "correct"
        again = await call(
            client, "compile_and_verify", task_id=task["task_id"], node_id=outcome["candidate_id"]
        )
        assert again["candidate_id"] == outcome["candidate_id"]
        assert again["receipt_id"] != outcome["receipt_id"]


async def test_equal_content_gives_an_equal_id_and_another_policy_another(settings):
    async with connected(settings) as client:
        first = await registered(client)
        assert await registered(client) == first
        assert await registered(client, policy={"precision": "relaxed"}) != first


async def test_the_text_says_what_the_structured_content_says(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        result = await client.call_tool(
            "compile_and_verify", {"task_id": task_id, "kernel": kernel("incorrect")}
        )
        text = result.content[0].text
        assert text.startswith("incorrect: Wrong.")
        for value in result.structured_content.values():
            assert str(value) in text


@pytest.mark.parametrize(("response_format", "fits"), [("concise", True), ("detailed", False)])
async def test_an_answer_is_concise_unless_asked_otherwise(settings, response_format, fits):
    async with connected(settings) as client:
        task_id = await registered(client)
        result = await client.call_tool(
            "compile_and_verify",
            {"task_id": task_id, "kernel": kernel("long"), "response_format": response_format},
        )
        structured = json.dumps(result.structured_content, ensure_ascii=False)
        assert (len(structured) <= 2100) == (len(result.content[0].text) <= 2100) == fits


async def test_no_number_that_json_lacks_leaves(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        result = await client.call_tool("compile_and_verify", {"task_id": task_id, "kernel": kernel("nan")})
        json.dumps(result.structured_content, allow_nan=False)
        assert result.structured_content["status"] == "incorrect"


async def test_eight_calls_at_once_are_all_answered(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        answers = []

        async def ask():
            answers.append(await call(client, "compile_and_verify", task_id=task_id, kernel=kernel("slow 1")))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask)
        assert [answer["status"] for answer in answers] == ["correct"] * 8
        assert len({answer["candidate_id"] for answer in answers}) == 1


async def test_json_looking_source_is_taken_as_text(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        outcome = await call(client, "compile_and_verify", task_id=task_id, kernel='{"a": [1, 2]}')
        source = await client.services.store.evaluations.candidate(outcome["candidate_id"])
        assert source == b'{"a": [1, 2]}'


async def test_a_candidate_by_path_may_be_any_bytes(settings):
    (root,) = settings.roots
    (root / "kernel.py").write_bytes(b"# latin-1: \xe9\n# do: correct\nf = abs\n")
    async with connected(settings) as client:
        task_id = await registered(client)
        outcome = await call(client, "compile_and_verify", task_id=task_id, kernel_path="kernel.py")
        source = await client.services.store.evaluations.candidate(outcome["candidate_id"])
        assert source == b"# latin-1: \xe9\n# do: correct\nf = abs\n"


async def test_a_task_is_registered_by_path_and_entry(settings):
    (root,) = settings.roots
    (root / "pkg").mkdir()
    (root / "pkg" / "ops.py").write_text("def fused(x): return x\n")
    async with connected(settings) as client:
        task = await call(
            client,
            "register_task",
            entry="pkg/ops.py:fused",
            import_root=str(root),
            format="function",
            workloads=[
                {"name": "a", "sizes": {"N": 8, "eps": 1e-5, "causal": True}},
                {"name": "b", "weight": 2},
            ],
            vary={"N": {"min": 1, "max": 64, "multiple_of": 4}},
            domains={"index": "index(64)"},
            mutates=["residual"],
        )
        assert task["entry"] == "fused"
        assert task["mutates"] == ["residual"]
        assert "function fused" in task["next_step"]


async def test_tasks_are_listed_page_by_page(settings):
    async with connected(settings) as client:
        for number in range(3):
            await call(client, "register_task", source=f"{SOURCE}# {number}", name=f"task {number}")
        page = await call(client, "list_tasks", limit=2)
        assert page["has_more"]
        rest = await call(client, "list_tasks", limit=2, cursor=page["next_cursor"])
        assert [task["name"] for task in page["tasks"] + rest["tasks"]] == ["task 2", "task 1", "task 0"]
        assert not rest["has_more"]
        assert "next_cursor" not in rest


async def test_a_long_text_is_read_page_by_page(settings):
    async with connected(settings) as client:
        task_id = await registered(client)
        outcome = await call(client, "compile_and_verify", task_id=task_id, kernel=kernel("compile_error"))
        (artifact,) = outcome["artifacts"]
        text, offset = "", 0
        while True:
            page = await call(
                client, "read_artifact", artifact_id=artifact["artifact_id"], offset=offset, limit=9000
            )
            text += page["text"]
            if not page.get("has_more"):
                break
            offset = page["next_offset"]
        assert text == "first line\n" + "x" * 20_000
        assert "offset cannot be 99999" in await refused(
            client, "read_artifact", artifact_id=artifact["artifact_id"], offset=99_999
        )


async def test_candidates_and_receipts_are_read_like_artifacts(settings):
    async with connected(settings) as client:
        task_id = await registered(client)
        source = kernel("correct")
        outcome = await call(client, "compile_and_verify", task_id=task_id, kernel=source)
        page = await call(client, "read_artifact", artifact_id=outcome["candidate_id"])
        assert (page["kind"], page["text"]) == ("candidate", source)
        page = await call(client, "read_artifact", artifact_id=task_id)
        assert (page["kind"], page["text"]) == ("task", SOURCE)
        page = await call(client, "read_artifact", artifact_id=outcome["receipt_id"])
        assert page["kind"] == "receipt"
        assert json.loads(page["text"])["outcome"]["status"] == "correct"
        said = await refused(client, "read_artifact", artifact_id=outcome["receipt_id"][:-1] + "~")
        assert f"Did you mean {outcome['receipt_id']}?" in said


async def test_the_machine_says_what_it_cannot_do(settings):
    async with connected(settings) as client:
        device = await call(client, "get_device")
        assert device["cannot"] == ["see races"]


# --- refusals --------------------------------------------------------------------------------------------


async def test_an_unknown_tool_is_named_with_the_nearest_and_all(settings, mode):
    async with connected(settings, mode) as client:
        text = await refused(client, "compile_and_verfy", reference="r", candidate="c")
        assert "'compile_and_verfy'" in text
        assert "Did you mean compile_and_verify?" in text
        assert all(entry.name in text for entry in TOOLS)
        assert await refused(client, "x" * 5000)


async def test_unknown_arguments_are_refused_with_the_nearest_and_all_valid_ones_in_order(settings, mode):
    async with connected(settings, mode) as client:
        text = await refused(client, "compile_and_verify", task_id="task_1", kernel_pth="k.py")
        assert (
            "takes no argument 'kernel_pth'. Did you mean kernel_path? It takes again, agent, device, kernel, "
            in text
        )
        assert "timeout_seconds" in text
        two = await refused(client, "search_step", runid="r", kern="k", nothing_like_it=1)
        assert "Did you mean run_id and kernel?" in two


@pytest.mark.parametrize("tool", ["compile_and_verify", "benchmark_kernel", "profile_kernel"])
async def test_a_file_without_code_is_refused_and_nothing_is_judged(settings, tool):
    async with connected(settings) as client:
        task_id = await registered(client)
        for source, said in (
            ("# the kernel\n\n    # goes here\n", "The kernel holds comments alone, no code."),
            (" \n\t\n", "The kernel is empty."),
        ):
            assert said in await refused(client, tool, task_id=task_id, kernel=source)
        assert client.services.evaluations.begun == 0


async def test_a_call_without_a_candidate_says_so(settings, mode):
    async with connected(settings, mode) as client:
        text = await refused(client, "compile_and_verify", reference="class Model: ...")
        assert "candidate" in text
        assert "It needs task_id." in text
        task_id = await registered(client)
        text = await refused(client, "compile_and_verify", task_id=task_id)
        assert "candidate" in text
        assert "kernel_path" in text
        text = await refused(client, "compile_and_verify", task_id=task_id, kernel="k", node_id="cand_1")
        assert "exactly one" in text
        assert client.services.evaluations.begun == 0


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("compile_and_verify", {}, "task_id is missing"),
        (
            "compile_and_verify",
            {"task_id": "t", "target": "sm_70"},
            "'target' cannot be 'sm_70': must be '', 'sm_80'",
        ),
        (
            "compile_and_verify",
            {"task_id": "t", "timeout_seconds": 0},
            "'timeout_seconds' cannot be 0: must be greater",
        ),
        ("compile_and_verify", {"task_id": "t", "wait_seconds": 46}, "wait_seconds cannot be 46: at most 45"),
        ("compile_and_verify", {"task_id": "t", "wait_seconds": "soon"}, "'wait_seconds' cannot be 'soon'"),
        ("compile_and_verify", {"task_id": 7}, "'task_id' cannot be 7: must be a valid string"),
        ("register_task", {"format": "flashinfer"}, "must be 'kernelbench' or 'function'"),
        (
            "register_task",
            {"policy": {"presicion": "match"}},
            "there is no 'policy.presicion'; it takes atol, library_ops, ",
        ),
        ("register_task", {"policy": {"atol": 0.1}}, "need precision 'custom', not 'match'"),
        ("register_task", {"workloads": [{"name": "a", "weight": 0}]}, "'workloads[0].weight' cannot be 0"),
        ("register_task", {"workloads": [{}]}, "workloads[0].name is missing"),
        ("register_task", {"vary": {"N": {"min": 9, "max": 8}}}, "lies between 9 and 8"),
        (
            "register_task",
            {"domains": {"x": "index(0)"}},
            "keep, normal, nonnegative, probability or index(N)",
        ),
        ("register_task", {"source": "s", "source_path": "p"}, "There is no file 'p'"),
        ("register_task", {"source": "s", "baseline": "b", "baseline_path": "p"}, "Give one of them"),
        ("register_task", {}, "Give source (its text) or source_path (a file)"),
        ("register_task", {"source": "s", "entry": "a b"}, "does not name a class or function"),
        (
            "register_task",
            {"source": "s", "workloads": [{"name": "a"}, {"name": "a"}]},
            "Two workloads are named 'a'",
        ),
        ("register_task", {"source_path": "/etc/passwd"}, "outside the folders"),
        ("register_task", {"source": "not a task"}, "The reference defines no class Model. Define it"),
        ("list_tasks", {"limit": 0}, "'limit' cannot be 0"),
        ("list_tasks", {"cursor": "task_unknown"}, "There is no cursor 'task_unknown'"),
        ("read_artifact", {"artifact_id": "../../etc/passwd"}, "There is no artifact '../../etc/passwd'"),
        ("job_status", {"job_id": "job_nothing"}, "There is no job 'job_nothing'"),
        ("cancel_job", {"job_id": "a\0b"}, "There is no job"),
    ],
)
async def test_a_bad_request_is_answered_in_one_line_with_value_and_remedy(settings, tool, arguments, said):
    async with connected(settings) as client:
        assert said in await refused(client, tool, **arguments)


@pytest.mark.parametrize("odd", ["a\0b", "x" * 5000, "../../etc/passwd", "' OR 1=1", "é\u202e"])
async def test_an_unknown_id_is_looked_up_and_named_in_short(settings, odd):
    async with connected(settings) as client:
        task_id = await registered(client)
        assert "no task" in await refused(client, "compile_and_verify", task_id=odd, kernel="k")
        assert "no candidate" in await refused(client, "compile_and_verify", task_id=task_id, node_id=odd)
        assert "no artifact" in await refused(client, "read_artifact", artifact_id=odd)
        assert "no job" in await refused(client, "job_status", job_id=odd)
        assert "no file" in await refused(
            client, "compile_and_verify", task_id=task_id, kernel_path=f"missing{odd[:3]}"
        )


async def test_the_nearest_id_is_offered(settings):
    async with connected(settings) as client:
        task_id = await registered(client)
        outcome = await call(client, "compile_and_verify", task_id=task_id, kernel=kernel("correct"))
        wrong = outcome["candidate_id"][:-1]
        text = await refused(client, "compile_and_verify", task_id=task_id, node_id=wrong)
        assert f"Did you mean {outcome['candidate_id']}" in text


async def test_a_crash_of_ours_gives_an_incident_and_no_secret(settings, mode, caplog):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        text = await refused(client, "compile_and_verify", task_id=task_id, kernel=kernel("crash"))
        assert "secret" not in text
        incident = re.search(r"incident ([0-9a-f]{8})", text)[1]
        (record,) = [record for record in caplog.records if incident in record.getMessage()]
        assert "secret detail" in str(record.exc_info[1])
        text = await refused(client, "compile_and_verify", task_id=task_id, kernel=kernel("lost"))
        assert "the judge ended" in text
        assert "Nobody's kernel is to blame" in text


async def test_a_broken_database_is_named_with_the_remedy(settings):
    settings.home.mkdir()
    settings.database.write_bytes(b"no database at all" * 300)
    async with connected(settings) as client:
        assert "is damaged" in await refused(client, "job_status")


async def test_every_domain_is_made_at_its_first_use(settings):
    async with connected(settings) as client:
        await client.list_tools()
        assert not client.services._connected
        await call(client, "get_device")
        assert client.services._connected
    assert client.services.evaluations.closed


# --- jobs ------------------------------------------------------------------------------------------------


async def test_a_long_call_becomes_a_job_with_the_result_its_tool_would_have_returned(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        view = await call(
            client, "compile_and_verify", task_id=task_id, kernel=kernel("gated"), wait_seconds=0
        )
        assert view["status"] == "running"
        jobs = await call(client, "job_status")
        assert jobs["jobs"][0]["job_id"] == view["job_id"]
        assert (await call(client, "job_status", job_id=view["job_id"], wait_seconds=0))[
            "status"
        ] == "running"
        client.services.evaluations.gate.set()
        done = await call(client, "job_status", job_id=view["job_id"])
        assert done["status"] == "done"
        assert done["result"]["status"] == "correct"
        assert done["result"]["task_id"] == task_id
        result = await client.call_tool("job_status", {"job_id": view["job_id"]})
        assert "  correct: Agrees with the reference." in result.content[0].text


async def test_what_a_rule_says_of_a_source_stands_in_the_first_answer_and_while_it_runs(settings):
    source = (
        "# do: gated\nimport triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef k(x):\n    y = tl.tanh(x)\n\n"
        "class ModelNew:\n    def forward(self, x):\n        k[(1,)](x)\n"
    )
    async with connected(settings) as client:
        task_id = await registered(client)
        for tool in ("compile_and_verify", "benchmark_kernel"):
            view = await call(client, tool, task_id=task_id, kernel=source, wait_seconds=0)
            assert view["status"] == "running"
            assert ", tl.tanh: You cannot use tanh" in view["warnings"][0]
            seen = await call(client, "job_status", job_id=view["job_id"], wait_seconds=0)
            assert seen["warnings"] == view["warnings"]
        view = await call(
            client, "compile_and_verify", task_id=task_id, kernel=kernel("gated"), wait_seconds=0
        )
        assert "warnings" not in view
        client.services.evaluations.gate.set()


async def test_a_registration_can_become_a_job_too(settings):
    async with connected(settings) as client:
        view = await call(client, "register_task", source=f"{SOURCE}# do: slow 2\n", wait_seconds=0)
        done = await call(client, "job_status", job_id=view["job_id"])
        assert done["result"]["task_id"].startswith("task_")
        assert done["result"]["summary"].startswith("Registered")


async def test_a_job_is_cancelled_and_everything_is_free_again(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        view = await call(
            client, "compile_and_verify", task_id=task_id, kernel=kernel("endless"), wait_seconds=0
        )
        cancelled = await call(client, "cancel_job", job_id=view["job_id"])
        assert cancelled["status"] == "cancelled"
        assert "node_id" in cancelled["next_step"]
        assert client.services.evaluations.cancelled.is_set()
        assert client.services.jobs.in_progress == 0


async def test_a_cancelled_request_cancels_its_evaluation_and_nothing_is_recorded(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        evaluations = client.services.evaluations
        begun = anyio.Event()

        async def heard(progress, total, message):
            if message.startswith("running"):
                begun.set()

        async with anyio.create_task_group() as group:
            group.start_soon(
                lambda: client.call_tool(
                    "compile_and_verify",
                    {"task_id": task_id, "kernel": kernel("endless")},
                    progress_callback=heard,
                )
            )
            await begun.wait()
            group.cancel_scope.cancel()
        await evaluations.cancelled.wait()
        outcome = await call(client, "compile_and_verify", task_id=task_id, kernel=kernel("correct"))
        assert outcome["status"] == "correct"
        assert len(await client.services.store.evaluations.outcomes(task_id)) == 1


async def test_progress_increases_and_none_comes_without_being_asked_for(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        heard = []

        async def remember(progress, total, message):
            heard.append((progress, message))

        arguments = {"task_id": task_id, "kernel": kernel("slow 4")}
        await client.call_tool("compile_and_verify", arguments, progress_callback=remember)
        figures = [progress for progress, _ in heard]
        assert len(figures) >= 2
        assert figures == sorted(set(figures))
        count = len(heard)
        await client.call_tool("compile_and_verify", arguments)
        assert len(heard) == count


def test_hiding_memory_is_one_call_to_the_kernel(monkeypatch):
    calls = []

    class Library:
        def prctl(self, *arguments):
            calls.append(arguments)
            return 0

    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: Library())
    module.hide_memory()
    assert calls == [(4, 0, 0, 0, 0)]


def test_the_targets_of_the_setting_are_those_of_the_tool():
    from typing import get_args

    from adaexplore_mcp.models import Target

    for target in get_args(Target):
        assert load_settings({"target": target}, {}).target == target
