"""A server on the Python SDK 2.x over HTTP, both eras: `mcp2_server.py PORT`."""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer

port = int(sys.argv[1])
server = MCPServer("mcp2-server", version="1")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


@server.tool()
def echo(text: str) -> str:
    """Returns the text"""
    return text


@server.tool()
async def slow(steps: int, ms: int, ctx: Context) -> str:
    """Tells of each step, then answers"""
    for step in range(1, steps + 1):
        await asyncio.sleep(ms / 1000)
        await ctx.report_progress(step, steps, f"step {step}")
    return f"took {steps} steps"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool and tells of it"""
    server.add_tool(lambda: name, name=name, description="Says its own name")
    # Listen streams are told in one way, and sessions of older clients in another.
    await ctx.notify_tools_changed()
    if ctx.protocol_version != "2026-07-28":
        await ctx.session.send_tool_list_changed()
    return f"added {name}"


server.run(transport="streamable-http", host="127.0.0.1", port=port)
