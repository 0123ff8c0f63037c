# A small MCP gateway: it opens a real MCP server on stdio for every session, and can forget a session as real gateways
# do: the session is dropped from its table, and the server's pipe stays open in a process that lives on.
#
# usage: gateway.py SERVER [REAPD]      orders on stdin, one answer a line on stdout
#   open NAME bare                      no record of who owns it
#   open NAME ttl SECONDS               a lease for the session, renewed while the gateway knows it
#   open NAME held                      a lease that lives with the gateway, until it is released
#   open NAME run ARGUMENT...           behind `reapd run ARGUMENT... --`
#   call NAME TEXT                      asks the session's server, and says what it answers
#   forget NAME                         drops the session, with nothing else done
#   release NAME                        the same, and writes its lease's end
import asyncio
import json
import os
import sys

from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

server, reapd = sys.argv[1], (sys.argv + [None])[2]
sessions = {}
forgotten = []


def lease_path(name):
    return os.path.join(os.environ["REAPD_LEASES"], name + ".json")


def write_lease(name, **members):
    """What any program writes in a few lines: beside the place, and then into it."""
    os.makedirs(os.environ["REAPD_LEASES"], mode=0o700, exist_ok=True)
    lease = {"v": 1, "id": name, "holder": {"pid": os.getpid()}, "covers": {"env": name}, **members}
    with open(lease_path("." + name), "x") as file:
        json.dump(lease, file)
    os.rename(lease_path("." + name), lease_path(name))


async def renew(name, seconds):
    while name in sessions:
        os.utime(lease_path(name))
        await asyncio.sleep(seconds / 4)


async def hold(name, parameters, ready):
    """Keeps one server's streams open for good; the session's table entry is another matter."""
    async with stdio_client(parameters) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            ready.set_result(session)
            await asyncio.Event().wait()


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    return result.content[0].text


async def open_session(name, kind, *words):
    command, arguments = sys.executable, [server]
    keep = ["REAPD_TEST_NONCE", "PYTHONHOME", "REAPD_LEASES", "REAPD_CONFIG"]
    environment = {key: os.environ[key] for key in keep if key in os.environ}
    if kind == "ttl":
        write_lease(name, ttl=int(words[0]))
    elif kind == "held":
        write_lease(name)
    elif kind == "run":
        place = ["--config", os.environ["REAPD_CONFIG"], "--state-dir", os.environ["REAPD_STATE"]]
        command, arguments = reapd, ["run", *place, *words, "--", sys.executable, server]
    if kind in ("ttl", "held"):
        environment["REAPD_LEASE"] = name
    parameters = StdioServerParameters(command=command, args=arguments, env=environment)
    ready = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(hold(name, parameters, ready))
    sessions[name] = (task, await ready)
    if kind == "ttl":
        asyncio.create_task(renew(name, int(words[0])))
    return await call(sessions[name][1], "pids")


async def obey(order):
    verb, name, *words = order.split()
    if verb == "open":
        return await open_session(name, *words)
    if verb == "call":
        return await call(sessions[name][1], "echo", text=words[0])
    forgotten.append(sessions.pop(name))
    if verb == "release":
        with open(lease_path(name)) as file:
            lease = json.load(file)
        write_lease(name, **{key: lease[key] for key in lease if key in ("ttl", "note")}, released=True)
    return "forgotten"


async def main():
    loop = asyncio.get_running_loop()
    while order := await loop.run_in_executor(None, sys.stdin.readline):
        print(await obey(order), flush=True)


asyncio.run(main())
