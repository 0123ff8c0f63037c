# Stands in for `codex app-server`, as the broker of the codex plugin starts it, and for npm's launcher in front of it.
# usage: codex app-server (a file of this content is called `app-server`); node BIN/codex app-server
#
# Each `thread/start` begins a set of MCP servers, each leading a group of its own with a helper in it, with an
# environment that holds nothing but what codex lets through, and the mark of the tests. REAPD_STAND_IN holds words:
# servers=N (3), deaf-codex (ignores the end of its input and TERM), deaf-helper (the last server's helper ignores
# TERM), wait-for=FILE (answers `initialize` only when that file is there).
import json
import os
import select
import signal
import sys
import time

words = os.environ.get("REAPD_STAND_IN", "").split()
values = dict(word.split("=", 1) for word in words if "=" in word)
PASSED = ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ", "REAPD_TEST_NONCE")


def launch():
    """npm's launcher: its child has its streams, and gets its signals."""
    os.dup2(os.open(".", os.O_DIRECTORY), 9)
    os.set_inheritable(9, True)
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    pid = os.fork()
    if pid == 0:
        os.chdir(os.path.join(here, "../vendor"))
        os.execv(os.path.join(here, "../../runtime/codex"), ["codex", "app-server"])
    os.close(9)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)


servers = []


def start_server(stubborn):
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    stdin, ours = os.pipe()
    theirs, stdout = os.pipe()
    for fd in (ours, theirs):
        os.set_inheritable(fd, False)
    # Closed by the exec of the server.
    begun, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        if os.fork() == 0:
            if stubborn:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execve("/bin/sleep", ["mcp-helper", "600"], environment)
        os.execve("/bin/cat", ["mcp-server"], environment)
    for fd in (stdin, stdout, begins):
        os.close(fd)
    os.read(begun, 1)
    os.close(begun)
    servers.append((pid, ours, theirs))


def say(message):
    os.write(1, json.dumps(message, separators=(",", ":")).encode() + b"\n")


def serve():
    os.fchdir(9)
    os.close(9)
    wake, waker = os.pipe()
    for fd in (wake, waker):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(waker)
    ends = []
    deaf = "deaf-codex" in words
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    # Its servers are seen to end.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    unread = b""
    threads = 0
    turn = None
    inputs = [0, wake]
    while deaf or not ends:
        for fd in select.select(inputs, [], [], 0.05 if turn else None)[0]:
            if fd == wake:
                os.read(wake, 4096)
                continue
            came = os.read(0, 65536)
            if not came:
                ends.append(True)
                inputs = [wake]
            *lines, unread = (unread + came).split(b"\n")
            for line in lines:
                message = json.loads(line)
                number, method = message["id"], message["method"]
                if method == "initialize":
                    while "wait-for" in values and not os.path.exists(values["wait-for"]):
                        time.sleep(0.01)
                    say({"id": number, "result": {"userAgent": "codex"}})
                elif method == "thread/start":
                    count = int(values.get("servers", "3"))
                    for index in range(count):
                        start_server("deaf-helper" in words and index == count - 1)
                    threads += 1
                    say({"id": number, "result": {"thread": {"id": f"thread-{threads}"}}})
                elif method in ("turn/start", "review/start", "thread/compact/start"):
                    turn = message.get("params", {}).get("length", 1 << 40)
                    say({"id": number, "result": {"turn": {"id": "turn-1"}}})
                elif method == "turn/interrupt":
                    turn = 1
                    say({"id": number, "result": {}})
                elif method in ("thread/list", "thread/loaded/list"):
                    data = [f"thread-{index + 1}" for index in range(threads)]
                    say({"id": number, "result": {"data": data, "nextCursor": None}})
                else:
                    say({"id": number, "error": {"code": -32600, "message": f"Invalid request: {method}"}})
        if turn:
            turn -= 1
            say({"method": "item/agentMessage/delta", "params": {"delta": str(turn)}})
            if turn == 0:
                turn = None
                say({"method": "turn/completed", "params": {}})
    for pid, _, _ in servers:
        try:
            os.killpg(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    for pid, _, _ in servers:
        os.waitpid(pid, 0)
    # With servers it took the real one 1.1 to 1.9 seconds, without 60 milliseconds.
    if servers:
        time.sleep(1)


if os.path.basename(sys.argv[0]) == "codex":
    launch()
serve()
