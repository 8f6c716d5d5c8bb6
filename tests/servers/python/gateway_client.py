"""The Python SDK 2.x as a client of a gateway: `gateway_client.py MODE http URL` or `gateway_client.py MODE stdio COMMAND …`.

MODE is `legacy` or a modern revision. Lists, calls, follows progress and cancels, and says `done` if all is as it should be.
"""

import asyncio
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

mode, transport, *rest = sys.argv[1:]


async def main():
    target = rest[0] if transport == "http" else stdio_client(StdioServerParameters(command=rest[0], args=rest[1:]))
    async with Client(target, mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"everything_echo", "time_convert_time"} <= names, names
        echo = await client.call_tool("everything_echo", {"message": "hello"})
        assert echo.content[0].text == "Echo: hello", echo
        zone = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        time = await client.call_tool("time_convert_time", zone)
        assert not time.is_error and "21:00" in time.content[0].text, time

        steps = []

        async def report(progress, total, message):
            steps.append((progress, total))

        slow = {"duration": 1, "steps": 4}
        await client.call_tool("everything_trigger-long-running-operation", slow, progress_callback=report)
        assert len(steps) >= 3 and steps[-1][1] == 4, steps

        forever = {"duration": 60, "steps": 2}
        call = asyncio.create_task(client.call_tool("everything_trigger-long-running-operation", forever))
        await asyncio.sleep(0.3)
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            pass
        echo = await client.call_tool("everything_echo", {"message": "next"})
        assert echo.content[0].text == "Echo: next", echo
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert "everything_simple-prompt" in prompts, prompts
        assert (await client.list_resources()).resources
    print("done", flush=True)


asyncio.run(asyncio.wait_for(main(), 60))
