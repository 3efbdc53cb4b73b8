"""A stdio MCP server that shows what it was sent: every tool returns the raw line it received,
and `environment` returns its variables."""

import json
import os
import sys

TOOLS = ["raw", "environment", "secret_tool"]


def answer(message, line):
    method = message.get("method")
    if method == "initialize":
        version = message["params"].get("protocolVersion", "2025-06-18")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "mirror", "version": "0"}}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": n, "description": n, "inputSchema": schema} for n in TOOLS]}
    if method == "tools/call":
        name = message["params"]["name"]
        text = json.dumps(dict(os.environ)) if name == "environment" else line
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    print(line.rstrip("\n"), file=sys.stderr, flush=True)
    if "id" in message and "method" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message, line.rstrip("\n"))}
        print(json.dumps(reply), flush=True)
