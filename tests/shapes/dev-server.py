# Stands in for a development server: serves the directory it stands in, detached, its streams at files.
# usage: dev-server.py DIRECTORY PIDFILE
import http.server
import os
import sys

server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
os.chdir(sys.argv[1])
with open(sys.argv[2] + ".new", "w") as file:
    file.write(f"{os.getpid()}\n")
os.rename(sys.argv[2] + ".new", sys.argv[2])
server.serve_forever()
