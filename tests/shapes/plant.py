# Plants the shapes of the public cases, all of one family at once, and writes DIRECTORY/planted when they stand.
# usage: plant.py DIRECTORY FAMILY
#
# Each shape has a starter of its own, in a session of its own. `@leaves`: the starter ends, as an agent does that is
# killed. `@stays`: it lives on.
import fcntl
import os
import socket
import subprocess
import sys
import termios
import time

directory, family = sys.argv[1], sys.argv[2]
server = os.path.join(directory, "server.py")
shapes = []


def path(name):
    return os.path.join(directory, name)


def leaves(shape):
    shapes.append((shape, False))
    return shape


def leaves_as_root(shape):
    """What only root can make (a mount) is not planted for anybody else."""
    return leaves(shape) if os.geteuid() == 0 else shape


def stays(shape):
    shapes.append((shape, True))
    return shape


def until(condition):
    end = time.monotonic() + 25
    while not condition():
        if time.monotonic() > end:
            sys.exit("waited in vain")
        time.sleep(0.002)


def ready(name):
    until(lambda: os.path.exists(path(name + ".pid")))


def serve(name, policy, *words, stdin=None, stdout=None, argv0="node", cwd=None, session=False, terminal=None):
    """Starts the server with these descriptors and nothing else of ours open, and waits until it is ready."""
    pid = os.fork()
    if pid != 0:
        ready(name)
        return pid
    null = os.open("/dev/null", os.O_RDWR)
    if session or terminal is not None:
        os.setsid()
    if terminal is not None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    # Copies first: either may be what the other is to become.
    ends = [os.dup(null if end is None else end) for end in (stdin, stdout, null)]
    for number, end in enumerate(ends):
        os.dup2(end, number)
    os.closerange(3, 256)
    if cwd:
        os.chdir(cwd)
    os.execv(sys.executable, [argv0, server, policy, path(name + ".pid"), *words])


def pipes(name, policy, *words, **how):
    """The same with pipes; returns the ends that a client holds: to write to it, and to read from it."""
    stdin, write = os.pipe()
    read, stdout = os.pipe()
    for word in words:
        if word.startswith("user="):
            # As if that user had made them.
            for end in (stdin, write, read, stdout):
                os.fchown(end, int(word.removeprefix("user=")), -1)
    serve(name, policy, *words, stdin=stdin, stdout=stdout, **how)
    os.close(stdin)
    os.close(stdout)
    return write, read


def workspace(name):
    os.makedirs(path(name), exist_ok=True)
    return path(name)


# --- streams: nobody holds the other end of stdin or reads the output -------------------------------------------


if family == "streams":

    @leaves
    def a02_one_run():
        pipes("a02-one-run", "streams", "same")

    @leaves
    def a02_another_run():
        pipes("a02-another-run", "streams", "same")

    @stays
    def a02_running():
        return pipes("a02-running", "streams", "same")

    @stays
    def a10_closed_and_reads_on():
        write, read = pipes("a10-closed-and-reads-on", "streams")
        os.close(write)
        return read

    @stays
    def a10_closed_both():
        # The starter lives, as a client does that forgot to wait for its server.
        for end in pipes("a10-closed-both", "streams"):
            os.close(end)

    @leaves
    def a16_spins():
        pipes("a16-spins", "streams", "ignore-term", "spin")

    @leaves
    def a25_login_shell():
        pipes("a25-login-shell", "streams", argv0="-bash")

    @leaves
    def b03_reachable():
        pipes("b03-reachable", "streams", "listen=" + path("b03.sock"))

    @leaves
    def b03_client():
        # The twin of a client: somebody is connected to what the policy names private.
        pipes("b03-client", "private", "listen=" + path("private-b03.sock"))

    @stays
    def b03_clients_end():
        ready("b03-client")
        client = socket.socket(socket.AF_UNIX)
        client.connect(path("private-b03.sock"))
        return client

    @leaves
    def b03_nobody():
        pipes("b03-nobody", "private", "listen=" + path("private-nobody.sock"))

    @leaves
    def b05_http():
        stdin, write = os.pipe()
        serve("b05-http", "streams", "listen=" + path("http.sock"), stdin=stdin)

    @leaves
    def b53_log():
        stdin, write = os.pipe()
        log = os.open(path("b53.log"), os.O_WRONLY | os.O_CREAT)
        serve("b53-log", "streams", stdin=stdin, stdout=log)

    @leaves
    def f03_named_fifo():
        os.mkfifo(path("fifo"))
        stdin = os.open(path("fifo"), os.O_RDWR)
        read, stdout = os.pipe()
        serve("f03-named-fifo", "streams", stdin=stdin, stdout=stdout)

    @leaves
    def f03_listener():
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path("inetd.sock"))
        listener.listen(1)
        serve("f03-listener", "streams", stdin=listener.fileno(), stdout=listener.fileno())

    @leaves
    def f03_never_connected():
        lone = socket.socket(socket.AF_UNIX)
        serve("f03-never-connected", "streams", stdin=lone.fileno(), stdout=lone.fileno())

    @leaves
    def f03_socket_pair():
        ours, theirs = socket.socketpair()
        serve("f03-socket-pair", "streams", stdin=theirs.fileno(), stdout=theirs.fileno())

    @leaves
    def f03_unread():
        write, _ = pipes("f03-unread", "streams")
        os.write(write, b"a request that nobody has read yet\n")

    @leaves
    def f03_sibling_reads():
        _, read = pipes("f03-sibling-reads", "streams")
        # `... | server | jq > out`: what reads the answers outlives the starter.
        serve("f03-reader", "nobody", stdin=read)

    @leaves
    def f03_terminal():
        master, slave = os.openpty()
        stdin, write = os.pipe()
        read, stdout = os.pipe()
        serve("f03-terminal", "streams", stdin=stdin, stdout=stdout, terminal=slave)
        # Somebody else keeps the terminal open.
        serve("f03-terminal-server", "nobody", stdin=master)

    @leaves
    def c22_zombie_owner():
        # The owner is dead, and its parent does not wait for it.
        if os.fork() == 0:
            os.setsid()
            owner = os.fork()
            if owner == 0:
                pipes("c22-zombie-owner", "owner", f"--owner={os.getpid()}")
                os._exit(0)
            ready("c22-zombie-owner")
            while True:
                time.sleep(600)
        ready("c22-zombie-owner")

    @leaves
    def c22_living_owner():
        owner = serve("c22-owner", "nobody", session=True)
        pipes("c22-living-owner", "owner", f"--owner={owner}")

    @leaves
    def c24_owner_without_its_leader():
        # Its first thread has ended, the others run: it shows as a zombie, and is alive.
        owner = serve("c24-owner", "nobody", "leader-ends", session=True)
        pipes("c24-owner-without-its-leader", "owner", f"--owner={owner}")
        until(lambda: " Z " in open(f"/proc/{owner}/stat").read())

    @leaves
    def c24_without_its_leader():
        pipes("c24-without-its-leader", "streams", "leader-ends")

    @stays
    def c23_serves_with_zombies():
        return pipes("c23-serves-with-zombies", "streams", "zombies=40")

    @leaves
    def c23_abandoned_with_zombies():
        pipes("c23-abandoned-with-zombies", "streams", "zombies=40")


# --- terminals: the terminal was closed for good -----------------------------------------------------------------


def on_terminal(name, *words, stdout=None, leads=True):
    """Starts an agent on a terminal of its own; returns the master side once it is ready."""
    master, slave = os.openpty()
    out = slave if stdout is None else stdout
    how = {"terminal": slave} if leads else {"session": True}
    serve(name, "terminals", *words, stdin=slave, stdout=out, **how)
    os.close(slave)
    return master


if family == "terminals":

    @leaves
    def a37_closed():
        os.close(on_terminal("a37-closed", "catch-hup"))

    @leaves
    def a37_nohup():
        os.close(on_terminal("a37-nohup", "ignore-hup"))

    @leaves
    def a37_into_a_file():
        log = os.open(path("a37.log"), os.O_WRONLY | os.O_CREAT)
        os.close(on_terminal("a37-into-a-file", "catch-hup", stdout=log))

    @leaves
    def a37_work_below():
        os.close(on_terminal("a37-work-below", "catch-hup", "child"))

    @stays
    def b01_in_a_pane():
        # A multiplexer that no name protects; the policy fits it as well.
        return on_terminal("b01-in-a-pane", "catch-hup")

    @stays
    def b01_without_its_terminal_for_a_moment():
        # It left the session, so that no terminal is its own; the one on its stdin is there.
        return on_terminal("b01-for-a-moment", "catch-hup", leads=False)

    @leaves
    def b01_multiplexer():
        # Holds a terminal in which somebody works who is no child of it.
        master, slave = os.openpty()
        stdin, write = os.pipe()
        read, stdout = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.dup2(master, 3)
            os.set_inheritable(3, True)
            os.closerange(4, 256)
            os.execv(sys.executable, ["node", server, "streams", path("b01-multiplexer.pid")])
        serve("b01-pane", "nobody", "catch-hup", stdin=slave, stdout=slave, terminal=slave)
        ready("b01-multiplexer")

    @leaves
    def b01_multiplexer_without_panes():
        pipes("b01-without-panes", "streams", session=True)


# --- directories: the workspace was deleted ----------------------------------------------------------------------


def standing(name, policy="directories", *words, **how):
    where = workspace(name)
    serve(name, policy, f"--cwd={where}", *words, cwd=where, **how)
    return where


if family == "directories":

    @leaves
    def a21_busy_loop():
        os.rmdir(standing("a21-busy-loop", "directories", "spin"))

    @leaves
    def a21_there():
        standing("a21-there")

    @leaves
    def b32_living_parent():
        # Everything of it is deleted, and whoever started it is there.
        if os.fork() == 0:
            os.setsid()
            os.rmdir(standing("b32-living-parent"))
            while True:
                time.sleep(600)
        ready("b32-living-parent")
        until(lambda: not os.path.exists(path("b32-living-parent")))

    @leaves
    def b33_moved():
        where = standing("b33-moved")
        os.rename(where, path("b33-elsewhere"))

    @leaves
    def b33_moved_and_made_again():
        where = standing("b33-made-again")
        os.rename(where, path("b33-another-place"))
        os.mkdir(where)

    @leaves
    def b33_below_roots():
        # Where only the place counts: a renamed directory below the throw-away places, and a deleted one.
        where = workspace("throwaway/b33-renamed")
        serve("b33-renamed", "roots", cwd=where)
        os.rename(where, path("throwaway/b33-new-name"))

    @leaves
    def b33_deleted_below_roots():
        where = workspace("throwaway/b33-deleted")
        serve("b33-deleted", "roots", cwd=where)
        os.rmdir(where)

    @leaves
    def b33_deleted_elsewhere():
        where = workspace("elsewhere/b33-deleted")
        serve("b33-no-root", "roots", cwd=where)
        os.rmdir(where)

    @leaves
    def b34_made_again():
        where = standing("b34-made-again")
        os.rmdir(where)
        os.mkdir(where)

    @leaves
    def b34_terminal_of_a_member():
        # Deleted, and a person sits at a terminal within the tree.
        where = workspace("b34-terminal")
        master, slave = os.openpty()
        serve("b34-terminal", "directories", f"--cwd={where}", cwd=where, stdin=slave, terminal=slave)
        serve("b34-terminal-server", "nobody", stdin=master)
        os.rmdir(where)

    @leaves
    def b34_client():
        where = standing("b34-client", "directories", "listen=" + path("b34.sock"))
        os.rmdir(where)

    @stays
    def b34_clients_end():
        ready("b34-client")
        client = socket.socket(socket.AF_UNIX)
        client.connect(path("b34.sock"))
        return client

    def in_a_namespace(name, policy, volume, then, *words):
        """In a mount namespace of its own it stands on a volume, to which something happened before it began."""
        line = (
            f"mount -t tmpfs none {volume} && mkdir {volume}/project && cd {volume}/project"
            f' && {then} && exec -a node "$@"'
        )
        if os.fork() == 0:
            os.setsid()
            script = [sys.executable, server, policy, path(name + ".pid"), *words]
            os.execvp("unshare", ["unshare", "-m", "bash", "-c", line, "bash", *script])
        ready(name)

    @leaves_as_root
    def b35_unmounted():
        volume = workspace("volume")
        in_a_namespace(
            "b35-unmounted", "directories", volume, f"umount -l {volume}", f"--cwd={volume}/project"
        )

    @leaves_as_root
    def b35_below_roots():
        volume = workspace("throwaway/volume")
        in_a_namespace("b35-below-roots", "roots", volume, f"umount -l {volume}")

    @leaves_as_root
    def b35_deleted():
        # The twin: the directory was really deleted.
        volume = workspace("throwaway/private")
        in_a_namespace("b35-deleted", "roots", volume, f"rmdir {volume}/project")

    @leaves
    def b46_mosh_server():
        os.rmdir(standing("b46-mosh-server", argv0="mosh-server"))

    @leaves
    def b46_another_server():
        os.rmdir(standing("b46-another-server", argv0="most-server"))

    @leaves
    def b49_ssh_agent():
        where = workspace("throwaway/agent")
        said = subprocess.run(
            ["ssh-agent", "-a", path("agent.sock")], cwd=where, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        ).stdout
        pid = said.split(b"SSH_AGENT_PID=")[1].split(b";")[0]
        os.rmdir(where)
        with open(path("b49-ssh-agent.pid"), "wb") as out:
            out.write(pid)

    @leaves
    def b11_multiplexer():
        where = workspace("throwaway/tmux")
        tmux = ["tmux", "-S", path("tmux.sock"), "-f", "/dev/null"]
        subprocess.run([*tmux, "new-session", "-d", "sleep 600"], cwd=where, check=True)
        told = subprocess.run(
            [*tmux, "display-message", "-p", "#{pid} #{pane_pid}"], stdout=subprocess.PIPE, check=True
        ).stdout
        os.rmdir(where)
        with open(path("b11-multiplexer.pid"), "wb") as out:
            out.write(told)


# --- trees: who goes with a root, and how ------------------------------------------------------------------------


if family == "trees":

    @leaves
    def c01_breeds():
        pipes("c01-breeds", "streams", "breed", session=True)

    @leaves
    def c02_double_fork():
        pipes("c02-double-fork", "streams", "double-fork", session=True)

    @leaves
    def c03_own_session():
        pipes("c03-own-session", "streams", "session", "child", session=True)

    @leaves
    def c10_deaf():
        pipes("c10-deaf", "streams", "deaf", session=True)

    @leaves
    def c32_workers():
        # The root ends when asked; eight workers ignore it.
        pipes("c32-workers", "streams", *["child"] * 8, session=True)

    @leaves
    def b07_build_daemon():
        # The daemon was started for the workspace's job, in whose tree it still is, and serves others.
        os.rmdir(standing("b07-build-daemon", "directories", "child", "daemon=" + path("build.sock"), session=True))

    @leaves
    def b07_beside():
        # It bears every mark of the dead tree, and is nobody's child.
        serve("b07-beside", "nobody", session=True)

    @leaves
    def c20_watched():
        # Its parent sees every stop of it, and how it ended.
        if os.fork() != 0:
            ready("c20-watched")
            return
        os.setsid()
        stdin, write = os.pipe()
        read, stdout = os.pipe()
        pid = serve("c20-watched", "streams", "child", stdin=stdin, stdout=stdout)
        for end in (stdin, write, read, stdout):
            os.close(end)
        while True:
            _, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED)
            with open(path("c20.log"), "a") as log:
                print("ended" if os.WIFSIGNALED(status) or os.WIFEXITED(status) else "stopped", file=log)
            if os.WIFSIGNALED(status) or os.WIFEXITED(status):
                time.sleep(600)


if family == "within":

    @leaves
    def c36_sweeps_itself():
        pipes("c36-sweeps-itself", "streams", "run=" + open(path("within.sh")).read(), session=True)

    @leaves
    def c36_another():
        pipes("c36-another", "streams", session=True)


# --- owners: what an earlier look saw --------------------------------------------------------------------------------


if family == "owners":

    @stays
    def b44_first_master():
        # Ends once it was seen; the masters that it started go on.
        serve("b44-upgraded", "spawner", "listen=" + path("b44.sock"), session=True)
        serve("b44-left-behind", "spawner", "listen=" + path("b44-left.sock"), session=True)
        if os.fork() == 0:
            until(lambda: os.path.exists(path("go")))
            os.kill(os.getppid(), 9)
            os._exit(0)

    @stays
    def b44_client():
        ready("b44-upgraded")
        client = socket.socket(socket.AF_UNIX)
        client.connect(path("b44.sock"))
        return client

    @stays
    def b48_living_starter():
        serve("b48-service-child", "spawner", session=True)

    @leaves
    def b33_recorded():
        # They stand elsewhere: what the argument names was seen while it was there, and is gone later.
        for name in ("b33-recorded-deleted", "b33-recorded-moved"):
            where = workspace(name)
            below = [f"child-in={where}"] if name == "b33-recorded-moved" else []
            serve(name, "directories", f"--cwd={where}", *below, cwd=directory)


# --- users: as root, for another user ----------------------------------------------------------------------------


if family == "users":

    @leaves
    def b24_own():
        pipes("b24-own", "streams", "user=61234")

    @leaves
    def b24_hides_itself():
        pipes("b24-hides-itself", "streams", "user=61234", "undumpable")

    @leaves
    def b24_stands_somewhere():
        os.rmdir(standing("b24-stands-somewhere", "directories", "user=61234", "undumpable"))

    @leaves
    def b24_stands_in_the_open():
        os.rmdir(standing("b24-stands-in-the-open", "directories", "user=61234"))

    @leaves
    def b23_another_users():
        pipes("b23-another-users", "streams")


for shape, lives_on in shapes:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        held = shape()
        if not lives_on:
            os._exit(0)
        with open(path(shape.__name__ + ".stays"), "w"):
            pass
        while True:
            time.sleep(600)
    shape.pid = pid
for shape, lives_on in shapes:
    if lives_on:
        until(lambda: os.path.exists(path(shape.__name__ + ".stays")))
    elif os.waitpid(shape.pid, 0)[1] != 0:
        sys.exit(f"{shape.__name__} could not be planted")
with open(path("planted"), "w"):
    pass
