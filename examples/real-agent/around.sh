#!/bin/bash
# A child process of the agent asks the gate for `get-env` itself, past the agent's MCP client.
set -eu
gate=$RINGFENCE_MCP_EVERYTHING_URL
head=$HOME/around.head
post() {
    curl -sS --noproxy '*' -D "$head" -H 'Content-Type: application/json' \
        -H 'Accept: application/json, text/event-stream' "${session[@]}" -d "$1" "$gate"
}
session=(-H 'X-Client: around')
post '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"around","version":"0"}}}' >/dev/null
id=$(sed -n 's/^mcp-session-id: *\([^[:space:]]*\).*/\1/Ip' "$head")
session=(-H 'MCP-Protocol-Version: 2025-06-18')
[ -z "$id" ] || session+=(-H "Mcp-Session-Id: $id")
post '{"jsonrpc":"2.0","method":"notifications/initialized"}' >/dev/null
post '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get-env","arguments":{}}}'
