# A real MCP server on stdio, made with the `mcp` package. It starts a helper of its own, as servers that drive a
# browser do, and leaves it behind when it ends.
import os
import subprocess
import sys

from mcp.server.mcpserver import MCPServer

helper = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
server = MCPServer("files")


@server.tool()
def echo(text: str) -> str:
    """Says a text back."""
    return text


@server.tool()
def pids() -> str:
    """Says who serves: this process, its parent and its helper."""
    return f"{os.getpid()} {os.getppid()} {helper.pid}"


if __name__ == "__main__":
    sys.exit(server.run("stdio"))
