"""A server on the Python SDK 1.x over HTTP: `server.py PORT [stateless]`.

With sessions it keeps its events, so that a stream which broke can be taken up again.
"""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventMessage, EventStore

port = int(sys.argv[1])
stateless = "stateless" in sys.argv[2:]


class Events(EventStore):
    """Everything that was sent on any stream, in order."""

    def __init__(self):
        self.sent = []

    async def store_event(self, stream_id, message):
        self.sent.append((stream_id, message))
        return str(len(self.sent))

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        if not 0 < last <= len(self.sent):
            return None
        stream_id = self.sent[last - 1][0]
        for number, (stream, message) in enumerate(self.sent[last:], last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


server = FastMCP(
    "mcp1-server",
    host="127.0.0.1",
    port=port,
    stateless_http=stateless,
    event_store=None if stateless else Events(),
    retry_interval=None if stateless else 100,
    log_level="WARNING",
)


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
async def part(ms: int, ctx: Context) -> str:
    """Closes its stream in good order and answers later, on the stream that takes it up"""
    await ctx.close_sse_stream()
    await asyncio.sleep(ms / 1000)
    return "parted and met again"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool and tells of it"""
    server.add_tool(lambda: name, name=name, description="Says its own name")
    await ctx.session.send_tool_list_changed()
    return f"added {name}"


server.run(transport="streamable-http")
