"""A client of the server in this process, as the tests of tools need it."""

from contextlib import asynccontextmanager

import anyio
from mcp import Client

from adaexplore_mcp.server import build_server


@asynccontextmanager
async def connected_to(services, settings, mode="auto", *, limit_s=60):
    with anyio.fail_after(limit_s):
        async with Client(build_server(settings, services), mode=mode) as client:
            client.services = services
            yield client


async def call(client, tool, /, **arguments):
    """Call a tool that must succeed and return its structured content."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content
