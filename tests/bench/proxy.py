"""FastMCP's proxy before one server on stdio: `proxy.py http|stdio COMMAND [ARGUMENT ...]`.

Over HTTP it says where it listens before it does, and ends with its input.
"""

import os
import socket
import sys
import threading

from fastmcp.server import create_proxy

front, command, *args = sys.argv[1:]
config = {"mcpServers": {"bench": {"command": command, "args": args}}}
# The server behind it speaks one era only.
proxy = create_proxy(config, mode="auto")


def end_with_input():
    sys.stdin.buffer.read()
    os._exit(0)


if front == "stdio":
    proxy.run(transport="stdio", show_banner=False)
else:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"listening http://127.0.0.1:{port}/mcp", flush=True)
    threading.Thread(target=end_with_input, daemon=True).start()
    proxy.run(
        transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="error"
    )
