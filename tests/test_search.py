"""Searches as a client drives them, through the tools; a stand-in judges and times."""

import base64
import io
import json
import statistics

import anyio
import pytest
from mcp_client import call, connected_to
from search_stand_ins import kernel, services_of

from adaexplore_mcp.models import CompiledKernel, Facts

pytestmark = pytest.mark.anyio

SOURCE = "def f(x):\n    return 2 * x\n"


@pytest.fixture(params=["auto", "legacy"])
def mode(request):
    return request.param


def connected(settings, mode="auto", *, times=True):
    return connected_to(services_of(settings, times=times), settings, mode, limit_s=110)


async def refused(client, tool, /, **arguments):
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    text = result.content[0].text
    assert "\n" not in text
    assert len(text) < 1200
    return text


async def registered(client):
    task = await call(client, "register_task", source=SOURCE, name="double", format="function", entry="f")
    return task["task_id"]


async def test_a_search_from_its_task_to_its_result(settings, mode):
    async with connected(settings, mode) as client:
        answer = await call(client, "search_step", task_id=await registered(client), max_steps=4, agent="a")
        run_id = answer["run_id"]
        assert answer["text"].startswith("## Step 1 of 4: a large step, at the root")
        assert "return 2 * x" in answer["text"]
        for number, verdict in enumerate(("compile_error", "correct 1.5", "correct 2.5", "incorrect")):
            answer = await call(
                client,
                "search_step",
                run_id=run_id,
                step_id=answer["step_id"],
                kernel=kernel(verdict, body=str(number)),
                idea=f"idea {number}",
            )
            assert answer["status"] == verdict.split()[0]
        assert answer["stop_reason"] == "budget"
        seen = await call(client, "get_run", run_id=run_id)
        assert seen["best"].endswith("_3")
        assert seen["counts"] == {"correct": 2, "compile_error": 1, "incorrect": 1}
        assert "The best is node 3, timed again: 2.5x" in seen["result"]
        history = await call(client, "get_run", run_id=run_id, view="history", limit=3)
        assert [row["node"] for row in history["nodes"]] == [1, 2, 3]
        assert history["nodes"][0]["detail"] == "line 2: no such name: foo"
        assert history["nodes"][0]["idea"] == "idea 0"
        rest = await call(client, "get_run", run_id=run_id, view="history", cursor=history["next_cursor"])
        assert [row["node"] for row in rest["nodes"]] == [4]
        pool = await call(client, "get_run", run_id=run_id, view="pool")
        assert pool["nodes"][0]["node"] == 3
        best = await call(client, "get_kernel", run_id=run_id)
        assert (best["text"], best["speedup"]) == (kernel("correct 2.5", body="2"), 2.5)
        (row,) = (await call(client, "get_run"))["runs"]
        assert (row["run_id"], row["nodes"], row["status"]) == (run_id, 4, "stopped")
        judged = await call(client, "compile_and_verify", task_id=seen["task_id"], node_id=best["node_id"])
        assert judged["status"] == "correct"


async def test_the_text_says_what_the_structured_content_says(settings):
    async with connected(settings) as client:
        result = await client.call_tool("search_step", {"task_id": await registered(client)})
        assert result.structured_content["text"] in result.content[0].text
        assert result.structured_content["next_step"] in result.content[0].text


async def test_bad_input_is_named_and_says_what_to_call(settings, mode):
    async with connected(settings, mode) as client:
        task_id = await registered(client)
        first = await call(client, "search_step", task_id=task_id, max_steps=2)
        run_id, step_id = first["run_id"], first["step_id"]
        for arguments, said in (
            ({}, "Neither task_id nor run_id"),
            ({"run_id": "run_222222222222"}, "There is no run 'run_222222222222'"),
            ({"run_id": run_id, "step_id": "step_22"}, "There is no step 'step_22'"),
            ({"run_id": run_id, "step_id": step_id}, "waits for a kernel"),
            ({"run_id": run_id, "step_id": step_id, "kernel": " \n"}, "The kernel is empty"),
            ({"run_id": run_id, "step_id": step_id, "kernel": "x", "kernel_path": "y"}, "Both kernel and"),
            ({"run_id": run_id, "step_id": step_id, "kernel_path": "/etc/passwd"}, "outside the folders"),
            ({"run_id": run_id, "step_id": step_id, "kernel": "x" * (1 << 20 | 1)}, "1048576"),
            ({"run_id": run_id, "step_id": step_id, "edits": [{"old": "a"}]}, "is a large step"),
            ({"run_id": run_id, "step_id": step_id, "edits": [{"old": ""}]}, "edits[0].old"),
            ({"run_id": run_id, "kernel": "x"}, "without step_id"),
            ({"task_id": task_id, "max_steps": -1}, "max_steps"),
            ({"task_id": task_id, "start_paths": ["nothing.py"]}, "There is no file"),
        ):
            assert said in await refused(client, "search_step", **arguments), arguments
        assert (await call(client, "search_step", run_id=run_id))["step_id"] == step_id
        assert "There is no node" in await refused(client, "get_kernel", node_id="node_x_1")
        assert "nodes 1 to 0" in await refused(client, "get_kernel", node_id=f"node_{run_id[4:]}_9")
        assert "No kernel of run" in await refused(client, "get_kernel", run_id=run_id)


async def test_a_long_evaluation_becomes_a_job_whose_result_is_the_answer(settings):
    async with connected(settings) as client:
        first = await call(client, "search_step", task_id=await registered(client))
        asked = {"run_id": first["run_id"], "step_id": first["step_id"]}
        running = await call(client, "search_step", **asked, kernel=kernel("gated"), wait_seconds=0.1)
        assert running["status"] == "running"
        client.services.evaluations.gate.set()
        done = await call(client, "job_status", job_id=running["job_id"])
        assert done["result"]["status"] == "correct"
        assert done["result"]["text"].startswith("## Step 2")


async def test_a_submission_whose_job_is_cancelled_is_given_up_and_its_step_is_open_again(settings):
    async with connected(settings) as client:
        first = await call(client, "search_step", task_id=await registered(client), max_steps=5, agent="ann")
        asked = {"run_id": first["run_id"], "agent": "ann"}
        sent = {**asked, "step_id": first["step_id"], "kernel": kernel("gated"), "wait_seconds": 0.1}
        running = await call(client, "search_step", **sent)
        cancelled = await call(client, "cancel_job", job_id=running["job_id"])
        assert cancelled["status"] == "cancelled"
        assert f"no node, no step used; step {first['step_id']} is open again" in cancelled["summary"]
        assert f"step_id '{first['step_id']}', agent 'ann' and another kernel" in cancelled["next_step"]
        client.services.evaluations.gate.set()
        plain = await call(client, "search_step", **asked)
        assert (plain["step_id"], plain["status"], plain["steps_left"]) == (first["step_id"], "open", 5)
        assert client.services.evaluations.judged == [kernel("gated").encode()]
        answer = await call(client, "search_step", **(sent | {"wait_seconds": 20}))
        assert (answer["status"], answer["steps_left"]) == ("correct", 4)


async def test_a_kernel_that_another_call_waits_for_is_not_given_up_with_a_cancelled_job(settings):
    async with connected(settings) as client:
        first = await call(client, "search_step", task_id=await registered(client), max_steps=5)
        sent = {"run_id": first["run_id"], "step_id": first["step_id"], "kernel": kernel("gated")}
        one, two = [await call(client, "search_step", **sent, wait_seconds=0.1) for _ in range(2)]
        cancelled = await call(client, "cancel_job", job_id=one["job_id"])
        assert "Another call goes on with the kernel" in cancelled["summary"]
        client.services.evaluations.gate.set()
        done = await call(client, "job_status", job_id=two["job_id"], wait_seconds=20)
        assert (done["result"]["status"], done["result"]["steps_left"]) == ("correct", 4)


async def test_twelve_calls_at_once_with_two_kernels_make_two_nodes(settings):
    """Answers in any order; the same kernel is answered from its node, whoever sends it."""
    async with connected(settings) as client:
        run_id = (await call(client, "search_step", task_id=await registered(client), agent="a0"))["run_id"]
        answers = []

        async def work(number):
            name = f"a{number}"
            step = await call(client, "search_step", run_id=run_id, agent=name)
            source = kernel("correct 1.5") if number < 6 else kernel("incorrect", body="2")
            answers.append(
                await call(
                    client, "search_step", run_id=run_id, step_id=step["step_id"], kernel=source, agent=name
                )
            )

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(work, number)
        assert len(answers) == 12
        assert sum(answer.get("duplicate", False) for answer in answers) == 10
        tree = await call(client, "get_run", run_id=run_id, view="tree")
        assert [row["visits"] for row in tree["nodes"]] == [1, 1]


# --- what it costs a conversation ------------------------------------------------------------------------


def long_kernel(number):
    lines = "\n".join(f"    y = y + {number} * tl.load(pointer + {line}, mask=inside)" for line in range(40))
    return f'IS = "correct {1 + number % 7 / 10}"\n\n\ndef f(x):\n    y = {number}\n{lines}\n    return y\n'


SEEN = Facts(
    own_share=1.0,
    source=[f"Line {line}: an except that goes on without the kernel." for line in (12, 40, 90, 91)],
    shape_specialised="fails at TOKENS=63, HIDDEN=4000: 1,204 of 252,000 elements lie outside the bound: out at [3, 17] is 0.77",
    notes=["Kernel idle (line 9) is defined and was not launched.", "tl.dot multiplied tf32 operands."],
)
BUILT = [
    CompiledKernel(kernel=f"part_{number}", registers=64, num_warps=4, num_stages=3) for number in range(4)
]


@pytest.mark.parametrize("update", [{}, {"facts": SEEN, "compiled": BUILT}], ids=["plain", "with facts"])
async def test_thirty_steps_cost_a_conversation_little(settings, update):
    """At 4 characters a token: median 1,500, 95 % below 3,500, thirty below 50,000."""
    async with connected(settings) as client:
        verify = client.services.evaluations._verify

        async def verified(request, report):
            return (await verify(request, report)).model_copy(update=update)

        client.services.evaluations._verify = verified
        answer = await call(client, "search_step", task_id=await registered(client), max_steps=40, seed=3)
        sizes = [len(json.dumps(answer)) / 4]
        for number in range(30):
            arguments = {"kernel": long_kernel(number)}
            if answer["kind"] == "small":
                arguments = {"edits": [{"old": "    return y", "new": f"    y = y * {number}\n    return y"}]}
            answer = await call(
                client,
                "search_step",
                run_id=answer["run_id"],
                step_id=answer["step_id"],
                idea="x" * 90,
                **arguments,
            )
            sizes.append(len(json.dumps(answer)) / 4)
        assert statistics.median(sizes) <= 1500
        assert statistics.quantiles(sizes, n=20)[-1] <= 3500
        assert sum(sizes) <= 50_000


async def test_another_agent_is_shown_what_it_has_not_seen_and_a_lost_context_everything(settings):
    async with connected(settings) as client:
        answer = await call(client, "search_step", task_id=await registered(client), agent="a", max_steps=60)
        run_id, number = answer["run_id"], 0
        while answer["kind"] != "small":
            number += 1
            answer = await call(
                client,
                "search_step",
                run_id=run_id,
                step_id=answer["step_id"],
                kernel=long_kernel(number),
                agent="a",
            )
        assert "```" not in answer["text"]
        full = await call(client, "search_step", run_id=run_id, agent="a", context="full")
        assert "tl.load" in full["text"]
        assert "return 2 * x" in full["text"]
        ids = await call(client, "search_step", run_id=run_id, agent="a", context="ids")
        assert "```" not in ids["text"]
        fresh = await call(client, "search_step", run_id=run_id, agent="b")
        assert "return 2 * x" in fresh["text"]
        assert "tl.load" in fresh["text"]
        again = await call(client, "search_step", run_id=run_id, agent="b")
        assert "```" not in again["text"]


async def test_a_very_long_kernel_is_cut_and_says_where_all_of_it_is(settings):
    async with connected(settings) as client:
        task_id = await registered(client)
        path = settings.roots[0] / "long.py"
        path.write_text(kernel() + "# filler line of some length\n" * 2000)
        answer = await call(client, "search_step", task_id=task_id, start_paths=["long.py"], agent="a")
        while answer["kind"] != "small":
            answer = await call(
                client, "search_step", run_id=answer["run_id"], step_id=answer["step_id"], agent="a",
                kernel=kernel("incorrect", body=answer["step_id"]),
            )  # fmt: skip
            assert len(json.dumps(answer)) / 4 <= 3500
            if "Cut after" in answer["text"]:
                break
        fresh = await call(client, "search_step", run_id=answer["run_id"], agent="b", context="full")
        assert len(json.dumps(fresh)) / 4 <= 14_000


# --- what is taken away ----------------------------------------------------------------------------------


@pytest.mark.parametrize("repository", ["none", ".", ".."])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "none"])
async def test_a_patch_applies_with_git_outside_of_a_repository_at_its_top_and_below(
    settings, ends, repository
):
    name = "pkg/my kérnel.py"
    if repository != "none":
        top = (settings.roots[0] / repository).resolve()
        await anyio.run_process(["git", "init", "--quiet", str(top)])
    file = settings.roots[0] / name
    file.parent.mkdir()
    text = kernel("correct 1.2") + "\n\n# tail\nZ = 1\n"
    old = text.rstrip("\n") if ends == "none" else text.replace("\n", ends)
    file.write_bytes(old.encode())
    async with connected(settings) as client:
        answer = await call(
            client, "search_step", task_id=await registered(client), start_paths=[name], max_steps=30
        )
        run_id, number = answer["run_id"], 0
        while answer["kind"] != "small" or not answer["parent"].endswith("_1"):
            number += 1
            answer = await call(
                client, "search_step", run_id=run_id, step_id=answer["step_id"],
                kernel=kernel("incorrect", body=str(number)),
            )  # fmt: skip
        edits = [{"old": "correct 1.2", "new": "correct 2.0"}, {"old": "Z = 1", "new": "Z = 2"}]
        answer = await call(client, "search_step", run_id=run_id, step_id=answer["step_id"], edits=edits)
        taken = await call(client, "get_kernel", node_id=answer["node_id"], format="patch")
        assert client.services.evaluations.efforts[-1] == "full"
        assert f"in {settings.roots[0]} with `git apply`" in taken["next_step"]
        for arguments in (["apply", "--check", "-"], ["apply", "-"]):
            await anyio.run_process(
                ["git", *arguments],
                cwd=settings.roots[0],
                input=taken["text"].encode(),
            )
        assert file.read_bytes() == old.replace("1.2", "2.0").replace("Z = 1", "Z = 2").encode()
        alone = await call(client, "get_kernel", node_id=answer["node_id"], format="standalone")
        compile(alone["text"], "alone.py", "exec")
        assert "receipt rcpt_" in alone["text"]
        same = await refused(client, "get_kernel", node_id=f"node_{run_id[4:]}_1", format="patch")
        assert "nothing to patch" in same


async def test_a_run_without_a_start_kernel_has_no_patch(settings):
    async with connected(settings) as client:
        answer = await call(client, "search_step", task_id=await registered(client))
        answer = await call(
            client, "search_step", run_id=answer["run_id"], step_id=answer["step_id"], kernel=kernel()
        )
        text = await refused(client, "get_kernel", node_id=answer["node_id"], format="patch")
        assert "start_paths" in text


@pytest.mark.parametrize("times", [True, False])
async def test_a_run_is_drawn(settings, times):
    from PIL import Image

    async with connected(settings, times=times) as client:
        answer = await call(client, "search_step", task_id=await registered(client), max_steps=12)
        for number in range(13):
            drawn = await client.call_tool("get_run", {"run_id": answer["run_id"], "view": "plot"})
            picture = next(block for block in drawn.content if block.type == "image")
            image = Image.open(io.BytesIO(base64.b64decode(picture.data)))
            assert (image.format, image.width > 500) == ("PNG", True)
            if not answer.get("step_id"):
                break
            verdict = "incorrect" if number % 3 == 0 else f"correct {1 + number / 5}"
            answer = await call(
                client, "search_step", run_id=answer["run_id"], step_id=answer["step_id"],
                kernel=kernel(verdict, body=str(number)),
            )  # fmt: skip
        assert answer["stop_reason"] == "budget"
        assert len(image.getcolors()) > 4
