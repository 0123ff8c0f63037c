# Stands in for the broker of the codex plugin, in Python because the file's name is what its argument vector shows:
# argv, session, groups, socket, framing, who owns a stream, and every way of ending it as the real one has them.
# usage: node app-server-broker.mjs serve --endpoint unix:SOCKET --cwd DIR --pid-file FILE
#
# It writes its pid file, starts codex (tests/shapes/codex.py) over two socket pairs, waits for codex's `initialize`, and
# only then listens. REAPD_STAND_IN holds words that make it differ: backlog=N, launcher (codex behind npm's launcher),
# tells (writes into its log what it is asked; the real one's stays empty), slow (an answer costs 0.3 s of a processor),
# and those of codex. SIGUSR2 wedges its loop for ever: it is asleep, accepts nothing and answers nothing.
import errno
import json
import os
import select
import signal
import socket
import sys
import time

here = os.path.dirname(os.path.abspath(sys.argv[0]))
arguments = sys.argv[2:]
options = dict(zip(arguments[0::2], arguments[1::2]))
endpoint = options["--endpoint"].removeprefix("unix:")
words = os.environ.get("REAPD_STAND_IN", "").split()
backlog = next((int(word.removeprefix("backlog=")) for word in words if word.startswith("backlog=")), 511)
STREAMS = ("turn/start", "review/start", "thread/compact/start")


def start_codex():
    """Starts codex in this very session and group; returns its pid and our ends of its streams."""
    ours_in, its_in = socket.socketpair()
    ours_out, its_out = socket.socketpair()
    pid = os.fork()
    if pid != 0:
        its_in.close()
        its_out.close()
        return pid, ours_in, ours_out
    os.dup2(its_in.fileno(), 0)
    os.dup2(its_out.fileno(), 1)
    runtime = os.path.join(here, "../../runtime")
    if "launcher" in words:
        os.execv(os.path.join(runtime, "node"), ["node", os.path.join(here, "../bin/codex"), "app-server"])
    # Its argument vector is two bare words, so its script is found in the directory that it is started in, and it goes
    # back to the workspace by this descriptor.
    os.dup2(os.open(".", os.O_DIRECTORY), 9)
    os.set_inheritable(9, True)
    os.chdir(os.path.join(here, "../vendor"))
    os.execv(os.path.join(runtime, "codex"), ["codex", "app-server"])


class Client:
    """One connection, of a companion or of codex."""

    def __init__(self, connection):
        self.connection = connection
        self.unread = b""

    def lines(self):
        """What came, by line; nothing more will come after None."""
        try:
            came = self.connection.recv(65536)
        except OSError:
            came = b""
        if not came:
            return None
        *lines, self.unread = (self.unread + came).split(b"\n")
        return lines

    def say(self, message):
        try:
            self.connection.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF):
                raise


def wedge(*_):
    while True:
        time.sleep(600)


wake, waker = os.pipe()
os.set_blocking(waker, False)
os.set_blocking(wake, False)
signal.set_wakeup_fd(waker)
asked_to_end = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: asked_to_end.append(True))
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.signal(signal.SIGUSR2, wedge)

with open(options["--pid-file"], "w") as file:
    file.write(f"{os.getpid()}\n")
codex, codex_in, codex_out = start_codex()
upstream = Client(codex_in)
downstream = Client(codex_out)
upstream.say({"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "broker"}}})
while not downstream.lines():
    if os.waitpid(codex, os.WNOHANG)[0] == codex:
        sys.exit("codex ended before it said anything")

listener = socket.socket(socket.AF_UNIX)
listener.bind(endpoint)
os.chmod(endpoint, 0o755)
listener.listen(backlog)

clients = {}
asked = {}
request_of = stream_of = None
count = 0
codex_lives = True
ending = None
term_sent = False


def answer(client, line):
    """What the broker does with one line of a companion."""
    global request_of, stream_of, count
    try:
        message = json.loads(line)
        if "tells" in words:
            print(message.get("method"), flush=True)
    except ValueError:
        client.say({"id": None, "error": {"code": -32700, "message": "Parse error"}})
        return
    # As the real one: what is no object has no `id`, and that ends the broker with everything left behind.
    number = message.get("id")
    method = message.get("method")
    if number is None:
        return
    if method == "initialize":
        # As long as it takes on a machine that is busy: it computes, or waits for its turn to.
        work = time.process_time() + (0.3 if "slow" in words else 0)
        while time.process_time() < work:
            pass
        client.say({"id": number, "result": {"userAgent": "codex-companion-broker"}})
    elif method == "broker/shutdown":
        client.say({"id": number, "result": {}})
        asked_to_end.append(True)
    elif (request_of not in (None, client) or stream_of not in (None, client)) and method != "turn/interrupt":
        client.say({"id": number, "error": {"code": -32001, "message": "Shared Codex broker is busy."}})
    else:
        if method != "turn/interrupt":
            request_of = client
            if method in STREAMS:
                stream_of = client
        count += 1
        asked[count] = (client, number)
        # To a codex that is gone it is written in vain, and nobody ever answers.
        upstream.say({**message, "id": count})


def pass_on(line):
    """What the broker does with one line of codex."""
    global request_of, stream_of
    message = json.loads(line)
    if "id" in message:
        client, number = asked.pop(message["id"])
        if request_of is client:
            request_of = None
        client.say({**message, "id": number})
        return
    client = stream_of or request_of
    if client is not None:
        client.say(message)
    if message.get("method") == "turn/completed":
        stream_of = None


def forget(client):
    global request_of, stream_of
    if request_of is client:
        request_of = None
    if stream_of is client:
        stream_of = None
    clients.pop(client.connection.fileno()).connection.close()


poll = select.epoll()
for fd in (wake, listener.fileno(), codex_out.fileno()):
    poll.register(fd, select.EPOLLIN)
codex_fd = codex_out.fileno()
listener_fd = listener.fileno()
while True:
    if asked_to_end and ending is None:
        ending = time.monotonic()
        for client in clients.values():
            try:
                client.connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        codex_in.close()
    if ending is not None and codex_lives and not term_sent and time.monotonic() - ending >= 0.05:
        os.kill(codex, signal.SIGTERM)
        term_sent = True
    if ending is not None and not codex_lives:
        if listener is not None:
            poll.unregister(listener_fd)
            listener.close()
            listener = None
            # By its name, whatever stands there by now.
            if os.path.exists(endpoint):
                os.unlink(endpoint)
        if not clients:
            if os.path.exists(options["--pid-file"]):
                os.unlink(options["--pid-file"])
            sys.exit(0)
    pause = 0.05 if ending is not None and codex_lives and not term_sent else None
    for fd, _ in poll.poll(pause):
        if fd == wake:
            os.read(wake, 4096)
            while codex_lives and os.waitpid(codex, os.WNOHANG)[0] == codex:
                codex_lives = False
                codex_in.close()
                if codex_out.fileno() != -1:
                    poll.unregister(codex_out.fileno())
                    codex_out.close()
        elif listener is not None and fd == listener_fd:
            client = Client(listener.accept()[0])
            clients[client.connection.fileno()] = client
            poll.register(client.connection.fileno(), select.EPOLLIN)
        elif fd == codex_fd and codex_out.fileno() != -1:
            lines = downstream.lines()
            if lines is None:
                poll.unregister(fd)
                codex_out.close()
            for line in lines or []:
                pass_on(line)
        elif fd in clients:
            client = clients[fd]
            lines = client.lines()
            if lines is None:
                poll.unregister(fd)
                forget(client)
            for line in lines or []:
                answer(client, line)
