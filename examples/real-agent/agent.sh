#!/bin/bash
# Inside the sandbox: a coding agent's own program, unmodified, beside its scripted model.
#
#   agent.sh claude|codex PROGRAM
#
# The script: call `echo` of the server `everything`, then `get-env`, then have a child process ask
# for `get-env` past the program's own MCP client, and print what came back. Everything the program
# writes is in HOME, which the sandbox made for this run.
set -eu
cli=$1 program=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gate=$RINGFENCE_MCP_EVERYTHING_URL

# The model says where it listens, then serves until this script ends.
exec 3< <(exec /usr/bin/python3 "$here/scripted_model.py" --final 'NO SCRIPT')
model_pid=$!
trap 'kill "$model_pid" 2>/dev/null || true' EXIT
read -r model <&3

# The model and the gates are on loopback: not for the proxy.
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost
export DISABLE_AUTOUPDATER=1 DISABLE_TELEMETRY=1 DISABLE_ERROR_REPORTING=1 DO_NOT_TRACK=1
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1

# A prompt that carries its script.
prompt() { printf '#mock:%s' "$(printf '%s' "$1" | base64 -w0 | tr '+/' '-_')"; }
case $cli in
claude)
    cat >"$HOME/mcp.json" <<JSON
{"mcpServers": {"everything": {"type": "http", "url": "$gate"}}}
JSON
    export ANTHROPIC_BASE_URL=$model ANTHROPIC_API_KEY=not-a-key
    script='[{"tool":"mcp__everything__echo","force":true,"args":{"message":"through the gate"}},
        {"tool":"mcp__everything__get-env","force":true,"args":{}},
        {"tool":"Bash","args":{"command":"bash '"$here"'/around.sh"}},
        {"text":"DONE {results}"}]'
    "$program" -p "$(prompt "$script")" --mcp-config "$HOME/mcp.json" --strict-mcp-config \
        --allowedTools 'mcp__everything__echo,mcp__everything__get-env,Bash(bash:*)' </dev/null
    ;;
codex)
    mkdir -p "$HOME/.codex"
    cat >"$HOME/.codex/config.toml" <<TOML
model = "mock-model"
model_provider = "mock"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
[model_providers.mock]
name = "mock"
base_url = "$model/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.everything]
url = "$gate"
TOML
    export MOCK_KEY=not-a-key
    script='[{"tool":"mcp__everythingecho","force":true,"args":{"message":"through the gate"}},
        {"tool":"mcp__everythingget_env","force":true,"args":{}},
        {"tool":"exec_command","args":{"cmd":"bash '"$here"'/around.sh"}},
        {"text":"DONE {results}"}]'
    # The sandbox around it is the wall: its own would want namespaces that the wall refuses.
    "$program" exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox \
        "$(prompt "$script")" </dev/null
    ;;
*)
    echo "agent.sh: claude or codex, not $cli" >&2
    exit 2
    ;;
esac
