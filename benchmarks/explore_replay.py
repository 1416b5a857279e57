"""Replay recorded searches through the product's own search code, and compare every choice that was not left to chance.

    python benchmarks/explore_replay.py FILE… [--expand-ratio R]

A file holds `steps`: the root, then for each step `node_id`, `parent_node_id`, `action` (small_step or large_step),
`context_node_ids`, `compiled`, `correct`, `speedup` and `best_node_id`. Recorded parents, actions and contexts are forced,
so that one difference does not hide those after it. Where more kernels than a pool holds were candidates, any choice of
them matches. The expand ratio is 0.5 for files with `-l3-` in their name, else 1.0. Exits with 1 unless everything matches.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from adaexplore_mcp.search import ROOT, Node, NodeStatus, Search, SearchSettings

ASPECTS = ("parents", "small contexts", "pools", "forced large steps", "best nodes")


def main() -> int:
    """Replay the files that the command line names, and print what matched."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--expand-ratio", type=float)
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    matched: Counter[str] = Counter()
    for file in options.files:
        steps = json.loads(file.read_text(encoding="utf-8"))["steps"]
        level = 3 if "-l3-" in file.name else 2
        settings = SearchSettings.preset("paper", level=level)
        if options.expand_ratio is not None:
            settings = settings.with_changes(expand_ratio=options.expand_ratio)
        for aspect, step, recorded, ours in replay(steps, settings):
            seen[aspect] += 1
            matched[aspect] += ours == recorded
            if ours != recorded:
                print(f"{file.name} step {step}: {aspect} recorded {recorded}, ours {ours}")
    for aspect in ASPECTS:
        print(f"{aspect} {matched[aspect]}/{seen[aspect]}")
    return 0 if matched == seen and seen else 1


def replay(steps: list[dict[str, Any]], settings: SearchSettings) -> list[tuple[str, int, Any, Any]]:
    """Return (aspect, step, recorded, ours) for every choice of a recorded search."""
    search = Search(settings, seed=0)
    compared: list[tuple[str, int, Any, Any]] = []
    for step in steps:
        if step["parent_node_id"] is None:  # the root, whatever its id
            continue
        number, parent, action = step["step"], step["parent_node_id"], step["action"]
        context = list(step["context_node_ids"])
        compared.append(("parents", number, parent, search.select()))
        if search.forced_large(parent):
            compared.append(("forced large steps", number, action, "large_step"))
        if action == "small_step":
            compared.append(("small contexts", number, context, list(search.working_memory(parent))))
        else:
            compared.append(("pools", number, context, _pool(search, parent, context)))
        search.record(
            Node(
                id=step["node_id"],
                parent=parent,
                kind="small" if action == "small_step" else "large",
                status=_status(step),
                step=number,
                speedup=step["speedup"] if step["correct"] else None,
            )
        )
        compared.append(("best nodes", number, step["best_node_id"], search.leader))
    return compared


def _pool(search: Search, parent: int, recorded: list[int]) -> list[int]:
    """Return the pool that the search would show: the recorded one, if it is among those that a draw may give."""
    candidates = list(search.pool_candidates(parent))
    size = search.settings.pool_size
    if len(candidates) <= size:
        return candidates
    drawn = len(recorded) == len(set(recorded)) == size and set(recorded) <= set(candidates)
    return recorded if drawn else candidates


def _status(step: dict[str, Any]) -> NodeStatus:
    if not step["compiled"]:
        return "compile_error"
    return "correct" if step["correct"] else "incorrect"


if __name__ == "__main__":
    assert ROOT == 0, "recorded searches number their root 0"
    sys.exit(main())
