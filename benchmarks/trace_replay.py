"""Replays a published search, kernel by kernel, through the tools of a real server, as an agent would.

    python benchmarks/trace_replay.py TRACE.json OUT.jsonl [--precision match] [--agents 4] [--steps 20] [--home FOLDER] [-- FLAGS OF serve]

TRACE.json is a file of the showcase of AdaExplore's repository (`web/showcase/kb-l2-*.json`: a reference, and steps with code
and scores); it is not part of this one. Each recorded kernel is submitted to the step that the server proposes, so verdicts and
speedups can be compared, while the tree is the server's own. The budget is the number of different kernels: after the last one the
server times the best again. Every answer is a line of OUT.jsonl; started again with the same arguments it goes on where it ended.
The last lines say how verdicts compare, and how long it took.
"""

import argparse
import ast
import collections
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

RIGHT = ("correct", "plausible")


def main() -> None:
    """Replay, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--precision", default="match", choices=["match", "relaxed", "kernelbench", "paper"])
    parser.add_argument("--agents", type=int, default=1, help="who submit kernels at once")
    parser.add_argument("--steps", type=int, default=0, help="most steps of this call; 0: all")
    parser.add_argument("--home", type=Path, default=Path("trace-replay-home"))
    parser.add_argument("flags", nargs="*", help="of serve, after --")
    arguments = parser.parse_args()
    trace = json.loads(arguments.trace.read_text(encoding="utf-8"))
    anyio.run(_replay, trace, arguments)
    _summarise(_rows(arguments.out))


def _rows(out: Path) -> list[dict[str, Any]]:
    """Return what is written already; a last line that was cut off is left out."""
    rows = []
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


async def _replay(trace: dict[str, Any], arguments: argparse.Namespace) -> None:
    rows = _rows(arguments.out)
    arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = {row["step"] for row in rows}
    todo = [step for step in trace["steps"] if step.get("code") and step["step"] not in done]
    todo = todo[: arguments.steps or None]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "adaexplore_mcp", "serve", "--home", str(arguments.home), *arguments.flags],
        env=dict(os.environ),
    )
    began = time.monotonic()
    async with Client(stdio_client(server)) as client:
        run_id = rows[0]["run_id"] if rows else await _begin(client, trace, arguments.precision)
        left = collections.deque(todo)

        async def agent(name: str) -> None:
            while left:
                step = left.popleft()
                row = await _submitted(client, run_id, name, step, len(trace["steps"]))
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                mark = "" if _agrees(row) else "  <- differs"
                print(
                    f"step {row['step']}: {row['status']}, recorded {_recorded(row)}, {row['seconds']} s{mark}",
                    flush=True,
                )

        async with anyio.create_task_group() as group:
            for number in range(arguments.agents):
                group.start_soon(agent, f"agent-{number}" if number else "")
        if todo:
            print(f"{len(todo)} steps by {arguments.agents} agents in {time.monotonic() - began:.0f} s")
        seen = await ask(client, "get_run", run_id=run_id)
    print(seen["summary"])


async def _submitted(
    client: Client, run_id: str, agent: str, step: dict[str, Any], steps: int
) -> dict[str, Any]:
    """Submit a recorded kernel to the step that the server proposes, and return what became of it."""
    started = time.monotonic()
    proposal = await ask(client, "search_step", run_id=run_id, agent=agent)
    while not proposal.get("step_id"):
        if proposal["status"] == "stopped":
            more = {"resume": True, "max_steps": steps + 1000}
            proposal = await ask(client, "search_step", run_id=run_id, agent=agent, **more)
        else:  # the rest of the budget is out with other agents
            await anyio.sleep(1)
            proposal = await ask(client, "search_step", run_id=run_id, agent=agent)
    answer = await ask(
        client,
        "search_step",
        run_id=run_id,
        agent=agent,
        step_id=proposal["step_id"],
        kernel=step["code"],
    )
    return {
        "step": step["step"],
        "run_id": run_id,
        "node_id": answer.get("node_id", ""),
        "kind": proposal.get("kind", ""),
        "status": answer["status"],
        "duplicate": answer.get("duplicate", False),
        "outcome": answer.get("outcome", {}),
        "receipt_id": answer.get("receipt_id", ""),
        "recorded": step["score"],
        "recorded_error": str(step.get("error") or "")[:300],
        "seconds": round(time.monotonic() - started, 2),
    }


def _different(sources: list[str]) -> int:
    """Return how many kernels differ by more than layout and comments."""
    found = set()
    for source in sources:
        try:
            found.add(ast.dump(ast.parse(source)))
        except SyntaxError:
            found.add(source)
    return len(found)


async def _begin(client: Client, trace: dict[str, Any], precision: str) -> str:
    task = await ask(
        client,
        "register_task",
        name=trace.get("label", "trace")[:120],
        source=trace["reference_src"],
        policy={"precision": precision},
    )
    budget = _different([step["code"] for step in trace["steps"] if step.get("code")])
    begun = await ask(client, "search_step", task_id=task["task_id"], preset="paper", max_steps=budget)
    return str(begun["run_id"])


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool, and follow its job to the end."""
    result = await client.call_tool(tool, arguments)
    while True:
        if result.is_error or result.structured_content is None:
            raise SystemExit(" ".join(getattr(block, "text", "") for block in result.content))
        content = dict(result.structured_content)
        if content.get("status") == "done" and "result" in content:
            return dict(content["result"])
        if content.get("status") != "running":
            return content
        result = await client.call_tool(
            "job_status", {"job_id": content["job_id"], "response_format": "detailed"}
        )


def _recorded(row: dict[str, Any]) -> str:
    score = row["recorded"]
    if not score.get("compiled"):
        return "not compiled"
    return "correct" if score.get("correct") else "wrong"


def _agrees(row: dict[str, Any]) -> bool:
    ours = {"compile_error": "not compiled"}.get(
        row["status"], "correct" if row["status"] in RIGHT else "wrong"
    )
    return ours == _recorded(row)


def _summarise(rows: list[dict[str, Any]]) -> None:
    judged = [row for row in rows if row["status"] != "unsupported"]
    same = sum(map(_agrees, judged))
    right = sum((row["status"] in RIGHT) == (_recorded(row) == "correct") for row in judged)
    seconds = sorted(row["seconds"] for row in rows)
    print(
        f"answered {len(rows)}; not judged here {len(rows) - len(judged)}; duplicates {sum(row['duplicate'] for row in rows)}"
    )
    print(
        f"right or not as recorded: {right} of {len(judged)}; the kind of failure too: {same} of {len(judged)}"
    )
    for (ours, theirs), count in collections.Counter(
        (row["status"], _recorded(row)) for row in judged if not _agrees(row)
    ).most_common():
        print(f"  {count} x {ours}, recorded {theirs}")
    if seconds:
        print(
            f"seconds: {sum(seconds):.0f} in all, {seconds[len(seconds) // 2]:.1f} median, {seconds[-1]:.1f} at most"
        )


if __name__ == "__main__":
    main()
