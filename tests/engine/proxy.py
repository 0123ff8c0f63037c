"""Stands before an engine, writes down each call, and falls silent at the first that it is told to.

usage: proxy.py SOCKET ENGINE LOG [REGEX]

Each line of LOG is METHOD PATH, without the version. A call that REGEX fits is written down and never passed on; nothing
is on its connection afterwards.
"""

import os
import re
import socket
import sys
import threading

place, engine, log = sys.argv[1:4]
silent = re.compile(sys.argv[4]) if len(sys.argv) > 4 else None
head = re.compile(rb"^(GET|HEAD|POST|PUT|DELETE) (?:/v[0-9.]+)?(\S+) HTTP/1\.1\r\n")
calls = open(log, "a", buffering=1)


def relay(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client):
    upstream = socket.socket(socket.AF_UNIX)
    upstream.connect(engine)
    threading.Thread(target=relay, args=(upstream, client), daemon=True).start()
    try:
        while data := client.recv(65536):
            if call := head.match(data):
                line = f"{call[1].decode()} {call[2].decode()}"
                calls.write(line + "\n")
                if silent and silent.search(line):
                    threading.Event().wait()
            upstream.sendall(data)
        upstream.shutdown(socket.SHUT_WR)
    except OSError:
        pass


listener = socket.socket(socket.AF_UNIX)
listener.bind(place + ".new")
os.chmod(place + ".new", 0o666)
listener.listen(64)
os.rename(place + ".new", place)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
