#!/usr/bin/env node
import { createInterface } from "node:readline";

const tools = [{ name: "add_note" }, { name: "find_notes" }];
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method } = JSON.parse(line);
  if (method === "tools/list") console.log(JSON.stringify({ jsonrpc: "2.0", id, result: { tools } }));
}
