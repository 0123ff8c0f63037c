# Stands in for an MCP client: starts the command with pipes on its stdin and stdout, writes its pid, and waits.
# usage: client.py PIDFILE NAME ARGUMENT...      (the interpreter is this one, whatever NAME says)
import os
import subprocess
import sys
import time

child = subprocess.Popen(
    sys.argv[2:], executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}\n")
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    time.sleep(600)
