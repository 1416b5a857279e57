"""The MCP server: the tools, published so that every host takes them, over stdio.

Both protocol eras are served from one object. Nothing here, and nothing imported here, imports torch or opens the
database: the first tools/list must not wait.
"""

import asyncio
import ctypes
import inspect
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from adaexplore_mcp import __version__
from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.prompts import render
from adaexplore_mcp.services import Services
from adaexplore_mcp.settings import Settings
from adaexplore_mcp.stdio import Wire
from adaexplore_mcp.tools import ToolEntry, tools_of
from adaexplore_mcp.tools.errors import check_arguments, check_tool, invalid_arguments, tool_error
from adaexplore_mcp.tools.schemas import bounded, published

__all__ = ["Server", "build_server", "hide_memory"]

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_DUMPABLE = 4

OnError = Callable[[Exception, str], None]
"""Told of each exception that ended a call, with the tool's name."""


def build_server(settings: Settings, services: Services, on_error: OnError | None = None) -> "Server":
    """Return the server with the tools of the chosen toolset.

    Args:
        settings: Of this process.
        services: What the tools work with; runs while a client is connected.
        on_error: Observes failed calls, for the command line.
    """
    return Server(settings, services, on_error)


class Server(MCPServer[Services]):
    """An MCP server that refuses what it does not understand and says why in one line."""

    def __init__(self, settings: Settings, services: Services, on_error: OnError | None = None) -> None:
        self._services = services
        self._on_error = on_error
        self._published = {entry.name: _tool(entry, settings) for entry in tools_of(settings.toolset)}
        super().__init__(
            "adaexplore",
            title="AdaExplore",
            version=__version__,
            instructions=render("instructions", target=settings.target, roots=_listed(settings.roots)),
            tools=list(self._published.values()),
            lifespan=self._running,
            log_level="WARNING",  # the SDK logs every request at INFO, and some hosts never read our stderr
            subscriptions=False,  # the list of tools never changes
        )

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Services, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; refuse unknown tools and arguments, which the SDK would name badly or ignore.

        Raises:
            ToolError: The call failed; its text is for the agent.
        """
        try:
            check_tool(name, list(self._published))
            tool = self._published[name]
            check_arguments(name, tool.parameters, tool.description.partition("\n")[0], arguments)
            return await super().call_tool(name, arguments, context)
        except RequestError as error:
            raise self._failure(error, name) from error
        except ToolError as error:
            # The SDK wraps whatever was raised; the text it makes of it is either noise or nothing.
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if isinstance(cause, ValidationError) and not isinstance(error, UnexpectedToolError):
                cause = invalid_arguments(cause, name, self._published[name].parameters)
            raise self._failure(cause, name) from error

    async def serve_stdio(self, wire: Wire) -> None:
        """Serve one client until it closes its end.

        A signal ends the workers and this process at once. So does a client that no longer reads, once the workers
        have ended: a normal exit would wait for the thread that blocks on standard input.
        """
        self.handle_signals()
        hide_memory()
        options = self._lowlevel_server.create_initialization_options()
        try:
            async with stdio_server(_Input(wire.stdin), anyio.wrap_file(wire.stdout)) as (read, write):
                await self._lowlevel_server.run(read, write, options)
        except* BrokenPipeError:
            os._exit(0)
        except* Exception:
            logger.critical("the server ends after a failure of its own", exc_info=True)
            os._exit(1)

    def handle_signals(self) -> None:
        """End the workers and this process on SIGTERM, SIGINT and SIGHUP; needs a running event loop."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._exit_now, number)

    def _exit_now(self, number: int) -> None:
        try:
            self._services.shutdown_now()
        finally:
            os._exit(128 + number)

    def _failure(self, error: Exception, tool: str) -> ToolError:
        if self._on_error is not None:
            self._on_error(error, tool)
        return tool_error(error, tool)

    @asynccontextmanager
    async def _running(self, _: MCPServer[Services]) -> AsyncIterator[Services]:
        async with self._services.running():
            yield self._services


def _listed(roots: Sequence[Path]) -> str:
    """Name the roots; hosts cut instructions at 2 KB."""
    text = ", ".join(map(str, roots))
    return text if len(text) <= 220 else f"{text[:200]}… ({len(roots)} folders)"


class _Input(anyio.AsyncFile[str]):
    """Standard input whose reader can be cancelled; the thread that blocks on it is left behind."""

    async def readline(self) -> str:
        return _without_surrogates(
            await anyio.to_thread.run_sync(self.wrapped.readline, abandon_on_cancel=True)
        )


def _without_surrogates(line: str) -> str:
    """Replace halves of characters, which some JSON writers escape and the SDK's reader refuses without an answer."""
    if "\\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except ValueError:
        return line
    whole: str = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\u2028", "\\u2028") + "\n"


def hide_memory() -> None:
    """Keep other processes of this user out of this one's memory and environment.

    The environment may hold API keys, and candidates are arbitrary code: without this they could read
    /proc/PID/environ where no stronger layer stops them.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("prctl: %s", os.strerror(ctypes.get_errno()))


def _tool(entry: ToolEntry, settings: Settings) -> Tool:
    """Return a tool as the SDK wants it, with schemas that every host takes."""
    tool = Tool.from_function(
        entry.function,
        description=inspect.cleandoc(entry.function.__doc__ or ""),
        annotations=entry.annotations,
    )
    tool.parameters = bounded(published(tool.parameters), settings)
    # Read at every use by the SDK, so that it may be set after the fact.
    tool.fn_metadata.output_schema = published(tool.fn_metadata.output_schema or {})
    return tool
