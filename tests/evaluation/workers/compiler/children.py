"""Run candidates, each in a child forked from one warm process that has no TRITON_INTERPRET: `python children.py`.

A request is a line of JSON: {"file", "target", "fake", "session": {...}, "statement"}; the answer is one too. The file
defines the kernels and `run()`, and runs inside a stand-in and a session.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
import traceback
import types
import warnings
from pathlib import Path

import torch
import triton

from adaexplore_mcp.evaluation.workers import compiler, standin
from adaexplore_mcp.evaluation.workers.targets import target


def work(request):
    file, cache = request["file"], request["cache"]
    os.environ["TRITON_CACHE_DIR"] = cache
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="temporary-")
    kind = target(request.get("target", "sm_90"))
    world = standin.StandIn(kind, [file], fake=request.get("fake", True))
    installed = compiler.Compiler.install(kind, world.on_device)
    answer = {"triton": triton.__version__, "error": None, "value": None}
    try:
        with installed.session(files=[file], **request.get("session", {})) as session:
            try:
                with world, torch.no_grad():
                    module = types.ModuleType("candidate")
                    module.__file__ = file
                    sys.modules["candidate"] = module
                    exec(compile(Path(file).read_text(), file, "exec"), module.__dict__)
                    answer["value"] = module.run()
            except Exception as error:  # noqa: BLE001 - a candidate raises anything; it becomes the answer
                answer["raised"] = type(error).__name__
                answer["error"] = dataclasses.asdict(compiler.explain(error, [file]))
        answer["builds"] = [dataclasses.asdict(build) for build in session.builds]
        answer["launches"] = [dataclasses.asdict(launch) for launch in session.launches]
        answer["session_notes"] = session.notes
        answer["skipped"] = session.skipped_configurations
        answer["tuned"] = session.tuned()
        answer["notes"] = world.notes
        answer["refused"] = [refusal.what for refusal in world.refused]
        left = [*Path(cache).glob("assemble-*"), *Path(cache).glob("*.*"), *Path(tempfile.tempdir).iterdir()]
        answer["left_behind"] = [path.name for path in left]
    finally:
        shutil.rmtree(tempfile.tempdir)
    return answer


def main():
    warnings.simplefilter("ignore")
    compiler.warm_up()
    standin.warm_up()
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"threads": len(list(Path("/proc/self/task").iterdir()))}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryDirectory(prefix="kernels-") as cache:
            child = os.fork()
            if child == 0:
                os.dup2(printed.fileno(), 1)
                try:
                    answer = work(request | {"cache": cache})
                except BaseException:  # noqa: BLE001 - the outermost frame of a child
                    answer = {"crashed": traceback.format_exc()}
                sys.stdout.flush()
                printed.seek(0)
                answer["printed"] = printed.read().decode()
                answers.write(json.dumps(answer, default=str) + "\n")
                answers.flush()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if status:
                said = compiler.last_words(cache, [request["file"]])
                answer = {"died": status, "said": said and dataclasses.asdict(said), "error": None}
                print(json.dumps(answer | {"builds": [], "launches": []}), file=answers, flush=True)


if __name__ == "__main__":
    main()
