"""An engine in a file: it answers from what was recorded, takes no filter to heart, and does whatever it is told.

usage: fake.py SOCKET RECORD LOG

RECORD is JSON: `list`, what a list says, ended containers among them; `inspect`, by id, what is said of one alone;
`images`, by id. Each line of LOG is METHOD PATH, without the version. Whoever is stopped, killed or removed is not listed
any more.
"""

import json
import os
import re
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

place, record, log = sys.argv[1:4]
with open(record, encoding="utf-8") as file:
    known = json.load(file)
calls = open(log, "a", buffering=1)


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Api-Version", "1.41")
        self.send_header("Ostype", "linux")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def call(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = re.sub(r"^/v[0-9.]+", "", urlsplit(self.path).path)
        calls.write(f"{self.command} {re.sub(r'^/v[0-9.]+', '', self.path)}\n")
        if path == "/_ping":
            return self.answer(200, "OK")
        if path == "/version":
            return self.answer(200, {"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12",
                                     "Os": "linux", "Arch": "amd64", "Components": [{"Name": "Engine", "Version": "20.10.24"}]})
        if path == "/containers/json":
            return self.answer(200, known["list"])
        if one := re.fullmatch(r"/containers/([^/]+)/json", path):
            found = known["inspect"].get(one[1])
            return self.answer(200, found) if found else self.answer(404, {"message": "No such container"})
        if one := re.fullmatch(r"/images/(.+)/json", path):
            found = known["images"].get(unquote(one[1]))
            return self.answer(200, found) if found else self.answer(404, {"message": "No such image"})
        one = re.fullmatch(r"/containers/([^/]+)(?:/(stop|kill))?", path)
        if one and self.command in ("POST", "DELETE"):
            known["list"] = [row for row in known["list"] if row["Id"] != one[1]]
            known["inspect"].pop(one[1], None)
            return self.answer(204)
        return self.answer(404, {"message": f"page not found: {path}"})

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = call

    def address_string(self):
        return "-"

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


server = Server(place + ".new", Engine)
os.chmod(place + ".new", 0o666)
os.rename(place + ".new", place)
server.serve_forever()
