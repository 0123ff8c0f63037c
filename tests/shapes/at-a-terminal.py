"""Runs at a terminal: says what its streams are, counts interrupts, reads a line."""
import os, signal, sys, time

count = [0]


def interrupted(*_):
    count[0] += 1


def continued(*_):
    os.write(1, b"CONTINUED\n")


signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGCONT, continued)
print("READY", *("tty" if os.isatty(fd) else "no" for fd in (0, 1)), flush=True)
print("read", sys.stdin.readline().strip(), flush=True)
while not count[0]:
    time.sleep(0.02)
# Whoever sends it twice does so at once.
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.05)
print("interrupted", count[0], "time" if count[0] == 1 else "times", flush=True)
sys.exit(42)
