// A reference decision endpoint for Ringfence's approval webhooks. Node 18 or later, nothing else.
//
//   node endpoint.mjs --key approver.pem --ringfence whpk_… --rules rules.json [--listen 127.0.0.1:8787]
//
// It verifies that a request comes from this Ringfence and is fresh, decides by rules.json, and signs the
// decision. What no rule decides waits in --pending, a folder: put a file <question>.approve or
// <question>.deny there (its text is the reason). docs/approvals.md describes both messages.
import { createHash, createPrivateKey, createPublicKey, sign, verify } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const options = {};
for (let at = 2; at < process.argv.length; at += 2) {
  options[process.argv[at].replace(/^--/, "")] = process.argv[at + 1];
}
for (const name of ["key", "ringfence"]) {
  if (!options[name]) {
    console.error(`missing --${name}; see the first lines of endpoint.mjs`);
    process.exit(2);
  }
}

const MOST = 256 * 1024; // bytes of a request
const FRESH = 300; // seconds that a request's time may be away from ours
const SECONDS = 2; // asked again after so long, while nobody has decided

const base58 = (bytes) => {
  const letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
  let number = BigInt("0x" + Buffer.from(bytes).toString("hex"));
  let text = "";
  for (; number > 0n; number /= 58n) text = letters[Number(number % 58n)] + text;
  return text;
};

const approver = createPrivateKey(readFileSync(options.key));
const raw = createPublicKey(approver).export({ format: "der", type: "spki" }).subarray(-32);
const approverKey = "z" + base58(Buffer.concat([Buffer.from([0xed, 0x01]), raw]));

const spki = Buffer.from("302a300506032b6570032100", "hex");
const whpk = Buffer.from(options.ringfence.replace(/^whpk_/, ""), "base64");
const ringfence = createPublicKey({ key: Buffer.concat([spki, whpk]), format: "der", type: "spki" });

// Standard Webhooks: any of the signatures, over id, time and body.
const authentic = (headers, body) => {
  const id = headers["webhook-id"] ?? "";
  const time = headers["webhook-timestamp"] ?? "";
  if (!/^\d+$/.test(time) || Math.abs(Date.now() / 1000 - Number(time)) > FRESH) return false;
  const signed = Buffer.concat([Buffer.from(`${id}.${time}.`), body]);
  return (headers["webhook-signature"] ?? "").split(" ").some((one) => {
    const [version, signature] = one.split(",");
    return version === "v1a" && verify(null, signed, ringfence, Buffer.from(signature ?? "", "base64"));
  });
};

// rules.json: [{"server": "pay", "tool": "send", "verdict": "deny", "reason": "never"}], the first that
// fits. Arguments are for a person: here they are text, escaped, and may be cut.
const rules = options.rules ? JSON.parse(readFileSync(options.rules)) : [];
const pending = options.pending;
if (pending) mkdirSync(pending, { recursive: true, mode: 0o700 });

const decide = (data) => {
  const rule = rules.find((rule) => rule.server === data.server && rule.tool === data.tool);
  if (rule) return { verdict: rule.verdict, reason: rule.reason };
  if (!pending || !/^[a-z0-9-]{1,32}$/.test(data.question)) return null;
  for (const verdict of ["approve", "deny"]) {
    // Taken away as it is read: it is for this question and no later one.
    const file = join(pending, `${data.question}.${verdict}`);
    if (existsSync(file)) {
      renameSync(file, `${file}d`);
      return { verdict, reason: readFileSync(`${file}d`, "utf8").trim() || undefined };
    }
  }
  writeFileSync(join(pending, `${data.question}.json`), JSON.stringify(data, null, 2), { mode: 0o600 });
  return null;
};

const decision = (data, { verdict, reason }) => {
  const hash = createHash("sha256").update(reason ?? "").digest("hex");
  const lines = ["ringfence-approval-decision-v1", data.question, data.digest, data.nonce, data.expires, verdict, hash, approverKey];
  const signature = sign(null, Buffer.from(lines.join("\n") + "\n"), approver).toString("base64");
  const { question, digest, nonce, expires } = data;
  return { version: 1, question, digest, nonce, expires, verdict, ...(reason && { reason }), key: approverKey, signature };
};

const server = createServer((request, response) => {
  const answer = (status, value, headers = {}) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(value ? JSON.stringify(value) : "");
  };
  if (request.method !== "POST") return answer(405);
  const pieces = [];
  let length = 0;
  request.on("data", (piece) => {
    length += piece.length;
    if (length > MOST) request.destroy();
    else pieces.push(piece);
  });
  request.on("end", () => {
    const body = Buffer.concat(pieces);
    if (!authentic(request.headers, body)) return answer(401, { error: "not signed by this Ringfence, or not fresh" });
    let data;
    try {
      ({ data } = JSON.parse(body));
    } catch {
      return answer(400, { error: "not JSON" });
    }
    if (data?.version !== 1 || Date.parse(data.expires) <= Date.now()) return answer(400, { error: "of another version, or expired" });
    const decided = decide(data);
    if (!decided) return answer(202, null, { "retry-after": String(SECONDS) });
    answer(200, decision(data, decided));
  });
});

const listen = options.listen ?? "127.0.0.1:8787";
const colon = listen.lastIndexOf(":");
server.listen(Number(listen.slice(colon + 1)), listen.slice(0, colon), () => {
  console.log(`listening on ${server.address().address}:${server.address().port} as ${approverKey}`);
});
