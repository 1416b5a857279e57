"""Serve scenarios: read one per line, fork, run it in the child, answer with its result.

This is how workers use the interpreter: a warm, single-threaded parent installs it and forks per candidate.
"""

import importlib.util
import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch

from adaexplore_mcp.evaluation.workers.interpreter import Interpreter

SCENARIO_LIMIT_S = 60


def run(file: str, name: str) -> dict[str, str]:
    """Import a scenario file and call one of its functions."""
    try:
        warnings.simplefilter("error", RuntimeWarning)  # numpy's must never surface
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        getattr(module, name)()
    except BaseException as error:  # noqa: BLE001 - the outermost frame of the child
        if type(error).__name__ == "Skipped":
            return {"status": "skipped", "text": str(error)}
        return {"status": "failed", "text": traceback.format_exc()}
    return {"status": "passed", "text": ""}


def run_in_child(file: str, name: str) -> dict[str, str]:
    """Do the same in a child with its own output file."""
    with tempfile.TemporaryFile("w+") as reply, tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            signal.alarm(SCENARIO_LIMIT_S)
            os.dup2(output.fileno(), 1)
            json.dump(run(file, name), reply)
            reply.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        reply.seek(0)
        output.seek(0)
        text = reply.read()
        result = (
            json.loads(text)
            if text
            else {"status": "failed", "text": f"the child ended with status {status}"}
        )
        return {**result, "output": output.read()}


def main() -> None:
    """Answer until stdin ends."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent / "scenarios"))
    Interpreter.install(90)
    for line in sys.stdin:
        print(json.dumps(run_in_child(**json.loads(line))), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
