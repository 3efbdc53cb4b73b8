"""A stdio MCP server of a revision with a handshake: `ask` asks its client for a word, and returns it."""

import json
import sys


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


waiting = {}
count = 0
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        say({"id": message["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "asking", "version": "0"}}})
    elif method == "tools/list":
        say({"id": message["id"], "result": {"tools": [{"name": "ask", "description": "asks", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        count += 1
        waiting[f"q{count}"] = message["id"]
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        say({"id": f"q{count}", "method": "elicitation/create", "params": {"message": "which word?", "requestedSchema": schema}})
    elif method is None and message.get("id") in waiting:
        word = json.dumps(message.get("result", message.get("error")))
        say({"id": waiting.pop(message["id"]), "result": {"content": [{"type": "text", "text": "word " + word}]}})
    elif "id" in message:
        say({"id": message["id"], "result": {}})
