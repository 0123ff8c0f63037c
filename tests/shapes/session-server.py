# A server with sessions, each with a helper of its own, in the shape of one of three real ones; it forgets a session and
# leaves the helper behind, as they did.
#
# usage: session-server.py executor|docker-agent|mcp-debugger CONTROL REAPD SESSION...
#
# CONTROL is a directory: `port` and `SESSION.pid` are written there, `asked` gets a line for each request, and a session
# is forgotten once `SESSION.gone` is there. What `mode` says, if it is there, is answered to everything.
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

kind, control, reapd, *sessions = sys.argv[1:]


def at(name):
    return os.path.join(control, name)


def write(name, text):
    with open(at(name + ".new"), "w") as file:
        file.write(text)
    os.rename(at(name + ".new"), at(name))


def is_live(session):
    return session in sessions and not os.path.exists(at(session + ".gone"))


def mode():
    try:
        with open(at("mode")) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def rpc_error(code, message):
    return json.dumps({"jsonrpc": "2.0", "error": {"code": code, "message": message}, "id": None})


def executor(method, path, session, body):
    if path != "/mcp":
        return 404, "not found"
    if not is_live(session):
        return 404, rpc_error(-32001, "Session not found")
    assert method == "POST" and json.loads(body)["method"] == "ping"
    return 200, json.dumps({"result": {}, "jsonrpc": "2.0", "id": json.loads(body)["id"]})


def docker_agent(method, path, session, body):
    asked = path.removeprefix("/api/sessions/")
    if asked == path or not is_live(asked):
        return 404, json.dumps({"message": "session not found: session not found" if asked != path else "Not Found"})
    return 200, json.dumps({"id": asked, "title": "", "messages": []})


def mcp_debugger(method, path, session, body):
    held = [{"id": session, "name": session, "language": "mock", "state": "paused"} for session in sessions if is_live(session)]
    detail = {"id": "http-1", "openStreams": 1, "streamLost": False, "idleMs": 5, "debugSessions": held}
    empty = {"id": "http-2", "openStreams": 1, "streamLost": False, "idleMs": 7, "debugSessions": []}
    answer = {"status": "ok", "mode": "http", "connections": 2, "sessions": ["http-1", "http-2"]}
    if mode() != "old":
        answer["details"] = [detail, empty]
    return 200, json.dumps(answer)


answers = {"executor": executor, "docker-agent": docker_agent, "mcp-debugger": mcp_debugger}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        session = self.headers.get("mcp-session-id", "")
        with open(at("asked"), "a") as file:
            file.write(f"{self.command} {self.path} {session}\n")
        status, text = answers[kind](self.command, self.path, session, body)
        if mode() == "busy":
            status, text = 503, rpc_error(-32001, "Session not found")
        elif mode() == "locked":
            status, text = 401, rpc_error(-32001, "Unauthorized")
        elif mode() == "proxy":
            status, text = 404, "<html>no such site</html>"
        text = text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = handle_any


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
for session in sessions:
    if kind == "mcp-debugger":
        # The worker says itself whose it is.
        line = 'exec -a node "$PYTHON" "$0" --mcp-owner-pid=$PPID --mcp-session-id="$1"'
        words = ["bash", "-c", line, at("proxy-bootstrap.js"), session]
    else:
        # The launcher in front of the tool says whose it is; the tool itself is the lease's holder.
        line = 'exec "$0" run --exec --holder $$ --label "session=$1" -- sleep 600'
        words = ["sh", "-c", line, reapd, session]
    helper = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    write(session + ".pid", str(helper.pid))
write("port", str(server.server_address[1]))
server.serve_forever()
