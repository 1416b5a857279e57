"""The end of the demonstration: a short search by a scripted agent that fails, mends, repeats itself and improves."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MOVES", "Move", "search"]

Call = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Say = Callable[[str], None]
RIGHT = ("correct", "plausible")


@dataclass(frozen=True)
class Move:
    """What the scripted agent sends.

    Args:
        idea: Its one sentence.
        expected: Status it must get.
        old: Text of the right kernel to replace; empty for the right kernel itself.
        new: What to put there.
        duplicate: Whether the server knows this kernel already.
    """

    idea: str
    expected: str
    old: str = ""
    new: str = ""
    duplicate: bool = False


MOVES = (
    Move(
        "Skip rows of zeros with an if.",
        "compile_error",
        "    weight = tl.load(",
        "    if total > 0.0:\n        total = total * 1.0\n    weight = tl.load(",
    ),
    Move("Take the branch out: every row is normalised.", "correct"),
    Move(
        "Divide by the padded width, which the compiler knows.",
        "incorrect",
        "tl.sum(total * total, axis=0) / hidden + epsilon",
        "tl.sum(total * total, axis=0) / BLOCK + epsilon",
    ),
    Move(
        "Go back to the row's own width.",
        "correct",
        "    inside = column < hidden\n",
        "    inside = column < hidden  # the row's own width\n\n",
        duplicate=True,
    ),
    Move(
        "Fewer warps for a row: each thread loads more at once.",
        "correct",
        "num_warps=min(max(block // 512, 1), 16)",
        "num_warps=min(max(block // 1024, 1), 8)",
    ),
)


async def search(call: Call, task_id: str, right: str, say: Say) -> bool:
    """Drive a search to its end, saying what happens; tell whether every move got the expected answer.

    Args:
        call: Calls a tool and returns its structured content.
        task_id: What to search a kernel for.
        right: A right kernel of the task.
        say: Shows a line.
    """
    steps = sum(not move.duplicate for move in MOVES)
    answer = await call("search_step", {"task_id": task_id, "max_steps": steps, "seed": 2, "agent": "demo"})
    run_id = str(answer["run_id"])
    texts: dict[str, str] = {}
    good = True
    for move in MOVES:
        kernel = right.replace(move.old, move.new, 1) if move.old else right
        asked = f"{answer['kind']} step" + (f" from {answer['parent']}" if answer.get("parent") else "")
        sent = (
            _as_edits(texts.get(str(answer.get("parent", ""))), kernel) if answer["kind"] == "small" else None
        )
        say(f"{asked}; the agent sends {'edits' if sent else 'a whole kernel'}: {move.idea}")
        kernel_or_edits = {"edits": [sent]} if sent else {"kernel": kernel}
        submitted = {"run_id": run_id, "step_id": answer["step_id"], "idea": move.idea, "wait_seconds": 45}
        answer = await call("search_step", {**submitted, **kernel_or_edits, "agent": "demo"})
        texts.setdefault(str(answer.get("node_id", "")), kernel)  # a duplicate keeps the text it had first
        say(f"  {answer['status']}: {answer['summary']}")
        good &= answer["status"] == move.expected and bool(answer.get("duplicate")) == move.duplicate
    seen = await call("get_run", {"run_id": run_id, "view": "history"})
    say(str(seen["summary"]))
    for row in seen["nodes"]:
        speed = f" {row['speedup']:.2f}x" if row.get("speedup") else ""
        of = f" from node {row['parent']}" if row["parent"] else ""
        say(f"  node {row['node']} ({row['kind']} step{of}): {row['status']}{speed}; {row['change']}")
    taken = await call("get_kernel", {"run_id": run_id, "format": "standalone"})
    say(
        f"get_kernel gives {taken['node_id']}, {len(str(taken['text']).splitlines())} lines: {taken['summary']}"
    )
    return good and taken["status"] in RIGHT


def _as_edits(parent: str | None, kernel: str) -> dict[str, str] | None:
    """Return the one edit that turns a parent into a kernel, with a line around it; None where there is none."""
    if parent is None or parent == kernel:
        return None
    old, new = parent.splitlines(keepends=True), kernel.splitlines(keepends=True)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    first, last = max(head - 1, 0), max(tail - 1, 0)
    edit = {
        "old": "".join(old[first : len(old) - last]),
        "new": "".join(new[first : len(new) - last]),
    }
    return edit if edit["old"] and parent.count(edit["old"]) == 1 else None
