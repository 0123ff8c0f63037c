# Stands in for whatever a policy of the tests matches: it never ends by itself, and never reads its stdin.
# usage: server.py POLICY PIDFILE WORD...     (PIDFILE gets its pid, then those of the processes it started)
import os
import signal
import socket
import sys
import threading
import time

policy, file, words = sys.argv[1], sys.argv[2], sys.argv[3:]
started = []


def wait():
    while True:
        time.sleep(600)


def start(work):
    pid = os.fork()
    if pid == 0:
        work()
        wait()
    started.append(pid)


def ignore_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def listen(address):
    # Kept open for as long as the process lives.
    global listener
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(8)


def breed():
    # A child every few milliseconds, and each outlives the signal that asks. Bounded in number and time: when the
    # tests are killed, nobody is left to end it.
    ignore_term()
    for _ in range(2000):
        if os.fork() == 0:
            os.execv("/bin/sleep", ["newborn", "40"])
        time.sleep(0.005)
    time.sleep(60)


def daemon(work):
    os.setsid()
    work()


for word in words:
    name, _, value = word.partition("=")
    if name == "ignore-term":
        ignore_term()
    elif name == "deaf":
        # Caught, and never served: the handler of a busy loop that runs no other code.
        signal.signal(signal.SIGTERM, lambda *_: None)
    elif name == "catch-hup":
        signal.signal(signal.SIGHUP, lambda *_: None)
    elif name == "ignore-hup":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    elif name == "listen":
        listen(value)
    elif name == "child":
        start(ignore_term)
    elif name == "child-in":
        start(lambda: os.chdir(value))
    elif name == "session":
        # Leads a session and a group of its own.
        start(lambda: daemon(ignore_term))
    elif name == "daemon":
        # The same, and serves others too.
        start(lambda: daemon(lambda: listen(value)))
    elif name == "breed":
        start(breed)
    elif name == "double-fork":
        # In the session of its ancestor, and of no living parent.
        end, other = os.pipe()
        middle = os.fork()
        if middle == 0:
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                ignore_term()
                wait()
            os.write(other, b"%d" % pid)
            os._exit(0)
        os.waitpid(middle, 0)
        started.append(int(os.read(end, 16)))
        os.close(end)
        os.close(other)
    elif name == "zombies":
        for _ in range(int(value)):
            if os.fork() == 0:
                os._exit(0)
    elif name == "user":
        # As another user who may read it: who changes their user is undumpable, prctl(2) PR_SET_DUMPABLE.
        import ctypes

        os.setgroups([])
        os.setresgid(int(value), int(value), int(value))
        os.setresuid(int(value), int(value), int(value))
        assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0
    elif name == "undumpable":
        assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
    elif name == "run":
        # Runs a shell line within the tree.
        start(lambda: os.execv("/bin/sh", ["sh", "-c", value]))

with open(file + ".new", "w") as out:
    print(os.getpid(), *started, file=out)
os.rename(file + ".new", file)

if "leader-ends" in words:
    # The first thread ends and the others run on: state Z, and alive. Its environment reads empty then, so that nobody
    # finds it by its mark: it ends by itself.
    threading.Thread(target=lambda: (time.sleep(60), os._exit(0))).start()
    import ctypes

    ctypes.CDLL(None).pthread_exit(None)
while "spin" in words or "deaf" in words:
    pass
wait()
