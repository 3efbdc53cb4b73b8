"""A stdio MCP server that answers calls of `wait` only when as many have come as its argument says, the
last one first; and `slow` never. Shows that calls are not lined up before it."""

import json
import sys

MANY = int(sys.argv[1])
held = []


def say(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)


def text(message):
    return {"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments"))}]}


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        say(message["id"], {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "barrier", "version": "0"}})
    elif method == "tools/list":
        schema = {"type": "object"}
        say(message["id"], {"tools": [{"name": n, "description": n, "inputSchema": schema} for n in ("wait", "slow")]})
    elif method == "tools/call" and message["params"]["name"] == "wait":
        held.append(message)
        if len(held) == MANY:
            for one in reversed(held):
                say(one["id"], text(one))
            held = []
    elif "id" in message and method != "tools/call":
        say(message["id"], {})
