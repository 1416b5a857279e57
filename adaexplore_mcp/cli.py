"""The command line: serve over stdio, call one tool, decide about rules, examine the installation, show a demonstration.

Nothing heavy is imported before the command is known: hosts give a server ten seconds, scripts less.
"""

import argparse
import base64
import importlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from adaexplore_mcp import __version__
from adaexplore_mcp.errors import AdaExploreError, RequestError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

    from adaexplore_mcp.models import Check
    from adaexplore_mcp.services import Services
    from adaexplore_mcp.settings import Settings
    from adaexplore_mcp.stdio import Wire

__all__ = ["main"]

OK, FAILED, BAD_REQUEST, NOT_JUDGED = 0, 1, 2, 3
"""Exit codes of `call`: the candidate is right (or there is none); it is not; ask differently; no verdict."""

STATUS_CODES = {
    "correct": OK,
    "plausible": OK,
    "incorrect": FAILED,
    "compile_error": FAILED,
    "runtime_error": FAILED,
    "timeout": FAILED,
    "out_of_memory": FAILED,
    "crashed": FAILED,
    "rejected": FAILED,
    "unsupported": NOT_JUDGED,
    "interrupted": NOT_JUDGED,
    "cancelled": NOT_JUDGED,
    "failed": NOT_JUDGED,
    "running": NOT_JUDGED,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if sys.platform != "linux":
        sys.exit("adaexplore-mcp runs on Linux; from elsewhere use: ssh gpu-box adaexplore-mcp serve")
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.command(arguments)
    except RequestError as error:
        _complain(error)
        return BAD_REQUEST
    except AdaExploreError as error:
        _complain(error)
        return NOT_JUDGED
    except KeyboardInterrupt:
        return 130
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line; the usage is a page of its own."""
        self.exit(BAD_REQUEST, f"{self.prog}: {message} (see {self.prog} --help)\n")


class _ToolHelp(argparse.Action):
    """`call --help` lists the tools, `call TOOL --help` shows one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,  # noqa: ARG002 - argparse's
        option_string: str | None = None,  # noqa: ARG002 - argparse's
    ) -> None:
        """Print the help and end."""
        sys.stdout.write(_about_tools(namespace, getattr(namespace, "tool", None), parser))
        parser.exit()


def _about_tools(arguments: argparse.Namespace, name: str | None, parser: argparse.ArgumentParser) -> str:
    """Return the help of a tool; without a name that of the command, with all tools."""
    import anyio  # noqa: PLC0415 - after the command is known

    from adaexplore_mcp.server import build_server  # noqa: PLC0415 - as above
    from adaexplore_mcp.tools.errors import check_tool  # noqa: PLC0415 - as above
    from adaexplore_mcp.tools.manual import index, page  # noqa: PLC0415 - as above

    settings = _settings(arguments, toolset="all")
    tools = {tool.name: tool for tool in anyio.run(build_server(settings, _services(settings)).list_tools)}
    if name is None:
        return f"{parser.format_help()}\ntools ({parser.prog} TOOL --help shows the parameters):\n{index([*tools.values()])}\n"
    check_tool(name, list(tools))
    called = f"{parser.prog} {name} '{{…}}'"
    waits = (
        " wait_seconds is as long as it takes, unless it is given."
        if _waits(tools[name].input_schema)
        else ""
    )
    return f"{page(tools[name])}\n\nCall it with {called}, parameters as one JSON object.{waits}\n"


def _waits(schema: Mapping[str, Any]) -> bool:
    return "wait_seconds" in schema.get("properties", {})


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="adaexplore-mcp",
        description="Compile, verify and remember the GPU kernels a coding agent writes.",
        epilog="serve, call, doctor and the actions of rules take their settings from flags or from the environment; a flag wins. The variable "
        "is ADAEXPLORE_ and the flag's name: --worker-python is ADAEXPLORE_WORKER_PYTHON. Two differ: --root is "
        "ADAEXPLORE_ROOTS, a list separated as PATH is, and --device is ADAEXPLORE_DEVICES, a list with commas. --toolset "
        "and --max-wait are for serve only; demo takes no flags.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve MCP over stdio", description="Serve MCP over stdio.")
    serve.set_defaults(command=_serve)
    serve.add_argument("--toolset", choices=["all", "core"], help="core: only what an optimizing agent needs")
    serve.add_argument("--max-wait", type=float, metavar="S", help="largest wait_seconds of a call (45)")

    call = commands.add_parser(
        "call",
        help="call one tool",
        add_help=False,
        description="Call one tool and print its answer as JSON. Exit code: 0 correct, plausible or done; 1 the "
        "candidate failed; 2 the request is wrong; 3 no verdict (unsupported, interrupted, cancelled, our fault).",
    )
    call.set_defaults(command=_call)
    call.add_argument(
        "-h",
        "--help",
        action=_ToolHelp,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show this and the tools; after TOOL, what it takes",
    )
    call.add_argument("tool", metavar="TOOL")
    call.add_argument(
        "arguments", nargs="?", default="{}", metavar="JSON", help="'{…}', @file.json or - (stdin)"
    )
    call.add_argument(
        "--kernel-file", type=Path, metavar="PATH", help="the candidate, any bytes: adds kernel_path"
    )
    call.add_argument(
        "--picture", type=Path, metavar="PATH", help="where to write a picture that is part of the answer"
    )
    call.add_argument(
        "--text", action="store_true", help="print progress and the answer as text on stderr too"
    )

    doctor = commands.add_parser(
        "doctor",
        help="examine the installation",
        description="Examine the installation; exit code 1 on a failure.",
    )
    doctor.set_defaults(command=_doctor)

    about = "Take a real task through the server: register it, submit four kernels, show each verdict, search a little."
    demo = commands.add_parser("demo", help="take a real task through the server", description=about)
    demo.set_defaults(command=_demo)

    _add_rules(commands)
    for command in (serve, call, doctor):
        _add_settings(command)
    return parser


def _add_rules(commands: Any) -> None:  # noqa: ANN401 - argparse does not export the type
    rules = commands.add_parser(
        "rules",
        help="decide about rules, import, export and probe them",
        description="The memory of rules that failures taught. Confirming and retiring is a person's, here.",
    )
    actions = rules.add_subparsers(required=True, metavar="ACTION")
    review = actions.add_parser("review", help="show what waits for a decision, or decide")
    review.set_defaults(command=_rules, action="review")
    review.add_argument("rule_id", nargs="?", default="", metavar="RULE_ID")
    review.add_argument(
        "decision",
        nargs="?",
        default="",
        choices=["", "confirm", "retire", "restore", "accept", "decline", "history"],
    )
    review.add_argument(
        "--who", default=os.environ.get("USER", "a person"), metavar="NAME", help="kept with the change"
    )
    take = actions.add_parser("import", help="take a set of rules as unverified: rule||count lines, or JSON")
    take.set_defaults(command=_rules, action="import")
    take.add_argument("file", type=Path, metavar="PATH")
    take.add_argument("--json", action="store_true", help="report as JSON, with every line that was left out")
    give = actions.add_parser("export", help="print all rules")
    give.set_defaults(command=_rules, action="export")
    give.add_argument("--format", choices=["json", "markdown"], default="json")
    probe = actions.add_parser("probe", help="run every probe with the installed Triton")
    probe.set_defaults(command=_rules, action="probe")
    for action in (review, take, give, probe):
        _add_settings(action)


def _add_settings(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("settings")
    group.add_argument("--home", type=Path, metavar="FOLDER", help="folder of the database; a local disk")
    group.add_argument(
        "--scratch", type=Path, metavar="FOLDER", help="folder for the workers' temporary files"
    )
    group.add_argument(
        "--root",
        "--roots",
        dest="roots",
        action="append",
        metavar="FOLDER",
        help="folder from which tasks and kernels may be read; may be repeated (the working folder)",
    )
    group.add_argument("--worker-python", type=Path, metavar="PATH", help="interpreter with torch and triton")
    group.add_argument(
        "--device",
        "--devices",
        dest="devices",
        action="append",
        metavar="GPU",
        help="GPU to use, by index or UUID; may be repeated, or a list with commas (all); none uses no GPU",
    )
    group.add_argument("--target", metavar="SM", help="what to compile for, such as sm_90")
    group.add_argument("--parallel", type=int, metavar="N", help="evaluations at once")
    group.add_argument("--memory-limit-mib", type=int, metavar="MIB", help="memory of a candidate")
    group.add_argument("--keep-workers-s", type=float, metavar="S", help="idle time after which workers end")
    group.add_argument(
        "--step-lease-s", type=float, metavar="S", help="time that an agent has for a step of a search"
    )


def _settings(arguments: argparse.Namespace, **overrides: Any) -> "Settings":  # noqa: ANN401 - values of settings
    from adaexplore_mcp.settings import Settings, load_settings  # noqa: PLC0415 - needs pydantic

    given = {name: getattr(arguments, name) for name in Settings.model_fields if hasattr(arguments, name)}
    return load_settings(given | overrides)


def _services(settings: "Settings") -> "Services":
    from adaexplore_mcp.services import Services  # noqa: PLC0415 - after the command is known

    def connect(settings: Any, store: Any) -> Any:  # noqa: ANN401 - as `Connect` has it
        from adaexplore_mcp.services.connect import connect  # noqa: PLC0415 - at the first use

        return connect(settings, store)

    return Services(settings, connect)


def _claimed() -> "Wire":
    from adaexplore_mcp.stdio import claim  # noqa: PLC0415 - only commands that own the streams

    try:
        return claim()
    except OSError as error:
        raise RequestError("Standard input or output is closed.", "Connect both.") from error


def _log() -> None:
    # Before the SDK sets up its own. Warnings only: some hosts never read our stderr, and a full pipe would stop us.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _serve(arguments: argparse.Namespace) -> int:
    wire = _claimed()  # before any other import: nothing may print on the wire
    import anyio  # noqa: PLC0415 - as above

    from adaexplore_mcp.server import build_server  # noqa: PLC0415 - as above

    _log()
    settings = _settings(arguments)
    anyio.run(build_server(settings, _services(settings)).serve_stdio, wire)
    return OK


def _call(arguments: argparse.Namespace) -> int:
    payload = _payload(arguments.arguments)
    wire = _claimed()
    import anyio  # noqa: PLC0415 - after the streams are claimed

    _log()
    overrides: dict[str, Any] = {"max_wait": 3600.0, "toolset": "all"}
    if arguments.kernel_file is not None:
        kernel = arguments.kernel_file.expanduser().resolve()
        if not kernel.is_file():
            raise RequestError(f"There is no file {str(kernel)!r}.", "Check --kernel-file.")
        payload["kernel_path"] = str(kernel)
        # Whoever may name a file on the command line may read it.
        overrides["roots"] = (*_settings(arguments).roots, kernel.parent)
    if arguments.picture is not None and not arguments.picture.absolute().parent.is_dir():
        raise RequestError(f"There is no folder for {str(arguments.picture)!r}.", "Check --picture.")
    code, answer, picture = anyio.run(
        _ask, _settings(arguments, **overrides), arguments.tool, payload, arguments.text
    )
    if picture and arguments.picture is not None:
        arguments.picture.write_bytes(picture)
    elif picture:
        sys.stderr.write("The picture of the answer was left out: --picture PATH writes it.\n")
    wire.stdout.write(json.dumps(answer, ensure_ascii=False, allow_nan=False) + "\n")
    wire.stdout.flush()
    if code in {OK, FAILED} and arguments.picture is not None and not picture:
        raise RequestError(
            f"The answer holds no picture, so {str(arguments.picture)!r} was not written.",
            "A picture is in the answer of get_run with view plot.",
        )
    return code


async def _ask(
    settings: "Settings", tool: str, payload: dict[str, Any], text: bool
) -> tuple[int, dict[str, Any], bytes]:
    """Call a tool of a server in this process, and follow its job to the end; return code, answer and picture."""
    from mcp import Client  # noqa: PLC0415 - after the streams are claimed

    from adaexplore_mcp.server import build_server, hide_memory  # noqa: PLC0415 - as above

    hide_memory()
    failures: list[Exception] = []
    server = build_server(settings, _services(settings), lambda error, _: failures.append(error))
    async with Client(server) as client:
        server.handle_signals()
        result = await _answer(client, tool, payload, text=text)
        while not result.is_error and _running(result) and "wait_seconds" not in payload:
            job = {"job_id": (result.structured_content or {})["job_id"]}
            result = await _answer(client, "job_status", job, text=text)
    said = "\n".join(block.text for block in result.content if block.type == "text")
    if result.is_error:
        _complain(said)
        ours = not (failures and isinstance(failures[-1], RequestError))
        return NOT_JUDGED if ours else BAD_REQUEST, {"error": said}, b""
    if text:
        sys.stderr.write(f"{said}\n")
    answer = dict(result.structured_content or {})
    judged = answer.get("result") or answer
    images = [base64.b64decode(block.data) for block in result.content if block.type == "image"]
    return STATUS_CODES.get(str(judged.get("status", "")), OK), answer, images[0] if images else b""


async def _answer(client: "Client", tool: str, payload: Mapping[str, Any], *, text: bool) -> "CallToolResult":
    schemas = {each.name: each.input_schema for each in (await client.list_tools()).tools}
    takes_wait = _waits(schemas.get(tool, {}))

    async def show(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001 - the SDK's
        if text:
            sys.stderr.write(f"… {message}\n")

    wait = {"wait_seconds": 3600} if takes_wait and "wait_seconds" not in payload else {}
    return await client.call_tool(tool, {**payload, **wait}, progress_callback=show)


def _running(result: "CallToolResult") -> bool:
    content = result.structured_content or {}
    return content.get("status") == "running" and "job_id" in content


def _payload(given: str) -> dict[str, Any]:
    """Read the arguments of a call: JSON text, @file or - for standard input."""
    try:
        text = given
        if given == "-":
            text = sys.stdin.read()
        elif given.startswith("@"):
            text = Path(given[1:]).read_text(encoding="utf-8")
        payload = json.loads(text)
    except (OSError, ValueError) as error:
        raise RequestError(
            f"The arguments cannot be read: {error}.", "Give '{…}', @file.json or -."
        ) from error
    if not isinstance(payload, dict):
        raise RequestError(
            f"The arguments are a JSON {type(payload).__name__}, not an object.", "Give '{…}'."
        )
    return payload


def _doctor(arguments: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - after the command is known

    checks = anyio.run(_examine, _settings(arguments))
    width = max(len(check.name) for check in checks)
    for check in checks:
        sys.stdout.write(f"{check.state:<5} {check.name:<{width}}  {check.detail}\n")
        if check.remedy:
            sys.stdout.write(f"{'':<5} {'':<{width}}  -> {check.remedy}\n")
    return FAILED if any(check.state == "fail" for check in checks) else OK


async def _examine(settings: "Settings") -> "list[Check]":
    from adaexplore_mcp.server import hide_memory  # noqa: PLC0415 - after the command is known
    from adaexplore_mcp.services.doctor import examine  # noqa: PLC0415 - as above

    hide_memory()
    services = _services(settings)
    async with services.running():
        return await examine(services)


def _rules(arguments: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - after the command is known

    return int(anyio.run(_with_rules, _settings(arguments), arguments))


async def _with_rules(settings: "Settings", arguments: argparse.Namespace) -> int:
    from adaexplore_mcp.server import hide_memory  # noqa: PLC0415 - after the command is known
    from adaexplore_mcp.services.rulecli import run  # noqa: PLC0415 - as above

    hide_memory()
    services = _services(settings)
    failed: AdaExploreError | None = None
    async with services.running():
        try:
            lines, good = await run(services, arguments.action, vars(arguments))
        except AdaExploreError as error:  # raised below: a task group would wrap it
            failed = error
    if failed is not None:
        raise failed
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return OK if good else FAILED


def _demo(_: argparse.Namespace) -> int:
    # By name: the demonstration is a client of the server, not a layer of it.
    return int(importlib.import_module("adaexplore_mcp.demo").main() or OK)


def _complain(error: object) -> None:
    """Say what is wrong in one line."""
    if sys.stderr is not None:  # closed by whoever started us
        sys.stderr.write(f"adaexplore-mcp: {' '.join(str(error).split())}\n")
