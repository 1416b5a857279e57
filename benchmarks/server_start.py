"""Compare the time to the first tools/list, and the memory then, of a bare SDK server and of ours.

    python benchmarks/server_start.py [RUNS]

Both are started over stdio in turns, so that a busy machine slows both alike. Goal: a ratio of the medians of at most
1.3, and at most 120 MiB.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARE = """
from mcp.server import MCPServer
server = MCPServer("bare")
@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
server.run()
"""
CLIENT = {"name": "benchmark", "version": "1"}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
MESSAGES = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
)


def first_list(command: list[str]) -> tuple[float, float, int]:
    """Start a server and return seconds to its first tools/list, MiB of memory then, and characters of the list."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in MESSAGES:
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        for line in server.stdout:
            answer = json.loads(line)
            if answer.get("id") == 2:
                break
        else:
            sys.exit(f"{command} ended without an answer")
        seconds = time.perf_counter() - began
        status = Path(f"/proc/{server.pid}/status").read_text()
        kib = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS:"))
        server.stdin.close()
    tools = answer["result"]["tools"]
    return seconds, kib / 1024, sum(len(json.dumps(tool, separators=(",", ":"))) for tool in tools)


def main() -> None:
    """Run both in turns and print a table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as home:
        commands = {
            "bare SDK": [sys.executable, "-c", BARE],
            "adaexplore-mcp": [sys.executable, "-m", "adaexplore_mcp", "serve", "--home", home],
        }
        figures: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
        for command in commands.values():
            first_list(command)  # fills the page cache and writes bytecode
        for _ in range(runs):
            for name, command in commands.items():
                figures[name].append(first_list(command))
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in figures.items()
    }
    print(f"{'server':<16} {'first tools/list':>18} {'memory':>10} {'list':>14}   ({runs} runs, medians)")
    for name, (seconds, mib, characters) in medians.items():
        print(f"{name:<16} {seconds * 1000:>15.0f} ms {mib:>6.0f} MiB {characters / 3.6:>7.0f} tokens")
    print(f"ratio {medians['adaexplore-mcp'][0] / medians['bare SDK'][0]:.2f} (goal: at most 1.30)")


if __name__ == "__main__":
    main()
