"""A server that listens on a Unix socket: PIDFILE SOCKET."""
import os, socket, sys, time

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[2])
listener.listen()
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    time.sleep(600)
