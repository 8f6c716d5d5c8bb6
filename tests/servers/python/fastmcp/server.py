"""A server on fastmcp over HTTP, both eras: `server.py PORT`, or `server.py PORT login` behind a login."""

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp.server.auth.auth import ClientRegistrationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp_types import ToolListChangedNotification

port = int(sys.argv[1])
login = None
if sys.argv[2:] == ["login"]:
    login = InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}",
        client_registration_options=ClientRegistrationOptions(enabled=True),
    )
server = FastMCP("fastmcp-server", version="1", auth=login)


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


@server.tool
def echo(text: str) -> str:
    """Returns the text"""
    return text


@server.tool
async def slow(steps: int, ms: int, ctx: Context) -> str:
    """Tells of each step, then answers"""
    for step in range(1, steps + 1):
        await asyncio.sleep(ms / 1000)
        await ctx.report_progress(step, steps, f"step {step}")
    return f"took {steps} steps"


@server.tool
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool and tells of it"""

    async def say() -> str:
        return name

    server.tool(say, name=name, description="Says its own name")
    await ctx.send_notification(ToolListChangedNotification())
    return f"added {name}"


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="warning")
