"""A stdio MCP server that offers what `offer.json` beside it says: `instructions`, and `tools`, two a
page. The tool `turn` makes it offer what stands under `later`, and it says that its list changed.
If there is a FIFO `gate`, a list waits until somebody has written to it. Every line that it was sent
goes to stderr."""

import json
import os
import sys

NOW = json.load(open("offer.json"))


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method, params):
    if method == "initialize":
        hello = {"protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {"listChanged": True}}}
        hello["serverInfo"] = {"name": "offers", "version": "0"}
        if "instructions" in NOW:
            hello["instructions"] = NOW["instructions"]
        return hello
    if method == "tools/list":
        if os.path.exists("gate"):
            open("gate").read()
        start = int(params.get("cursor", 0))
        page = {"tools": NOW["tools"][start : start + 2]}
        if start + 2 < len(NOW["tools"]):
            page["nextCursor"] = str(start + 2)
        return page
    return {"content": [{"type": "text", "text": f"{params.get('name')} was called"}]}


for line in sys.stdin:
    message = json.loads(line)
    print(line.rstrip("\n"), file=sys.stderr, flush=True)
    if "id" in message and "method" in message:
        params = message.get("params") or {}
        if message["method"] == "tools/call" and params.get("name") == "turn":
            NOW = NOW["later"]
            send({"method": "notifications/tools/list_changed"})
        send({"id": message["id"], "result": answer(message["method"], params)})
