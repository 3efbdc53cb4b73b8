// The official SDK's client, unmodified: lists tools and calls two of them, over stdio or HTTP.
//   sdk_client.cjs NPM stdio COMMAND ARGS...
//   sdk_client.cjs NPM http URL TOKEN
// Prints one line of JSON: what the server says of itself, the names, and what each call gave.
const { createRequire } = require("node:module");
const [npm, kind, ...rest] = process.argv.slice(2);
const load = createRequire(`${npm}/x.js`);
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");

async function main() {
  const transport = kind === "stdio"
    ? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env, stderr: "inherit" })
    : new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers: { Authorization: `Bearer ${rest[1]}` } } });
  const client = new Client({ name: "case", version: "0" }, { capabilities: {} });
  await client.connect(transport);
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  const call = async (name, args) => {
    try {
      return await client.callTool({ name, arguments: args });
    } catch (error) {
      return { code: error.code, message: error.message, data: error.data };
    }
  };
  let steps = 0;
  const progress = await client.callTool(
    { name: "everything__trigger-long-running-operation", arguments: { duration: 1, steps: 3 } },
    undefined,
    { onprogress: () => { steps += 1; } },
  );
  const echo = await call("everything__echo", { message: "through the gate" });
  const refused = await call("everything__get-env", {});
  console.log(JSON.stringify({ server: client.getServerVersion(), names, echo, refused, progress, steps }));
  if (kind === "http") await transport.terminateSession();
  await client.close();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
