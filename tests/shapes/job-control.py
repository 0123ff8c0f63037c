"""A person at a shell with job control: COMMAND... is typed, stopped, continued and interrupted. Prints what was seen."""
import os, pty, select, signal, sys, time

words = sys.argv[1:]
pid, master = pty.fork()
if pid == 0:
    os.environ.update(PS1="$ ", TERM="dumb", HISTFILE="")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
seen = b""


def until(text, seconds=20):
    global seen
    end = time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([master], [], [], max(0, end - time.monotonic()))
        if not ready:
            print("waited in vain for", text, "in", seen)
            os.kill(pid, signal.SIGKILL)
            sys.exit(1)
        seen += os.read(master, 4096)
    seen = seen.split(text, 1)[1]


def types(text):
    os.write(master, text.encode())


quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
types(quoted + "\n")
until(b"READY tty tty")
types("\x1a")
until(b"Stopped")
types("jobs; echo after-$((1+1))\n")
until(b"after-2")
types("fg\n")
until(b"CONTINUED")
types("hello\n")
until(b"read hello")
types("\x03")
until(b"interrupted 1 time")
types("echo code-$?\n")
until(b"code-42")
types("exit\n")
os.waitpid(pid, 0)
print("well")
