# Stands in for the broker of the codex plugin (argv, session, groups and children as it has them), in Python
# because the file's name is what its argument vector shows.
# usage: app-server-broker.mjs serve --endpoint unix:SOCKET --cwd DIR --pid-file FILE
#
# The broker leads a session; under it "codex app-server" in the same group, and below that two MCP servers, each
# leading a group of its own with a helper in it. The second server's helper ignores TERM.
import os
import signal
import socket
import sys

arguments = sys.argv[2:]
options = dict(zip(arguments[0::2], arguments[1::2]))
endpoint = options["--endpoint"].removeprefix("unix:")
children = []


def spawn(name, work):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        os.execv("/bin/sleep", [name, "600"])
    children.append(pid)
    return pid


def helper(stubborn):
    if os.fork() == 0:
        if stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execv("/bin/sleep", ["mcp-helper", "600"])


def server(stubborn):
    os.setpgid(0, 0)
    helper(stubborn)


def codex():
    for stubborn in (False, True):
        if os.fork() == 0:
            server(stubborn)
            os.execv("/bin/sleep", ["mcp-server", "600"])


def stop(*_):
    for child in children:
        os.kill(child, signal.SIGTERM)
    os._exit(0)


os.chdir(options["--cwd"])
signal.signal(signal.SIGTERM, stop)
spawn("codex", codex)
listener = socket.socket(socket.AF_UNIX)
listener.bind(endpoint)
listener.listen(8)
with open(options["--pid-file"], "w") as file:
    file.write(f"{os.getpid()}\n")
while True:
    connection, _ = listener.accept()
    children.append(connection)
