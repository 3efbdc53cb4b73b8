#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A deterministic, offline stand-in for two LLM wire protocols.

Python standard library only.  It lets a real coding-agent CLI be driven end to end without a
model: every reply is chosen by a script, every request is logged for assertions.

  Anthropic Messages      POST .../v1/messages                  (SSE or JSON), .../count_tokens
  OpenAI Responses        POST .../responses                    (SSE or JSON)
  (model lists)           GET  .../models

SCRIPT: a JSON list of steps.  The step that is played is number N, where N is the number of
tool-calling assistant turns already in the conversation that the client sends, so the server
keeps no state and parallel clients do not disturb each other.  Past the end, the last step is
repeated.  A step is one of
  {"tool": NAME, "args": {...}}               call one tool (+ optional "text" before the call)
  {"tools": [{"tool": NAME, "args": {...}}]}  several tool calls in one turn
  {"text": "..."}                             final answer
  {"status": 529, "error": "..."}             HTTP error
any of them with an optional "delay" in seconds.
NAME is resolved against the tools which the client really offered: exact name first, else a
unique offered tool that ends in a separator + NAME (mcp__srv__echo, srv_echo, ...), else, when it
is written /re/, the first offered tool whose full name matches.  Not offered -> the reply is the
text "MOCK: tool NAME not offered; offered: [...]", so a missing tool is visible in the output;
with "force": true the call is sent under NAME all the same (deferred or forbidden tools).
Text may use {result} (text of the last tool result), {results} (JSON list of all), {prompt}
(last user text), {tools} (offered names).

The script comes from --script FILE, from --tool/--args/--final, from POST /__script, or from the
prompt itself: the last user message with a line `#mock [ ...steps... ]`, or with the word
#mock:BASE64 (base64url of the same JSON; survives any quoting), wins and N counts from there.
Requests that offer no tools (title generation and other side calls) get the text of --side.

Inspect: GET /__log (JSON list), POST /__reset, --log FILE (JSON lines).
"""
import argparse, base64, http.server, json, re, ssl, sys, threading, time, uuid

SECRET = {"authorization", "x-api-key", "api-key", "proxy-authorization"}


# ---------------------------------------------------------------- reading requests
def text_of(x):
    """All the text inside any content shape (str, block list, function response, ...)."""
    if x is None:
        return ""
    if isinstance(x, str):
        return x
    if isinstance(x, list):
        return "\n".join(t for t in map(text_of, x) if t)
    if isinstance(x, dict):
        for k in ("text", "content", "output", "parts", "error"):
            if k in x and x[k] not in (None, ""):
                return text_of(x[k])
        return json.dumps(x, ensure_ascii=False)
    return str(x)


class Conv:
    """Protocol-neutral view: tools offered, list of events ('user', text) | ('call',) | ('result', text)."""
    def __init__(self):
        self.tools, self.events = [], []

    def add(self, *event):
        self.events.append(event)


def conv_anthropic(b):
    c = Conv()
    c.tools = [t.get("name") for t in b.get("tools") or []]
    for m in b.get("messages") or []:
        blocks = m["content"] if isinstance(m.get("content"), list) else [{"type": "text", "text": m.get("content")}]
        kinds = {x.get("type") for x in blocks}
        if m["role"] == "assistant":
            if "tool_use" in kinds:
                c.add("call")
            continue
        for x in blocks:
            if x.get("type") == "tool_result":
                c.add("result", text_of(x.get("content")))
        words = text_of([x for x in blocks if x.get("type") == "text"])
        if words:
            c.add("user", words)
    return c


def conv_responses(b):
    c = Conv()
    for t in b.get("tools") or []:
        if t.get("type") == "namespace":
            c.tools += [(t["name"], u["name"]) for u in t.get("tools", [])]
        elif t.get("type") in ("function", "custom") or "name" in t:
            c.tools.append(t.get("name"))
        else:
            c.tools.append(t.get("type"))
    items = b.get("input") or []
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    in_call = False
    for it in items:
        kind = it.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            if not in_call:
                c.add("call")
            in_call = True
        elif kind.endswith("call_output"):
            in_call = False
            c.add("result", text_of(it.get("output")))
        elif kind == "message" and it.get("role") == "user":
            in_call = False
            c.add("user", text_of(it.get("content")))
    return c


# ---------------------------------------------------------------- choosing the reply
def flat(tool):
    return "".join(tool) if isinstance(tool, tuple) else str(tool)


def resolve(name, tools):
    names = [flat(t) for t in tools]
    if name in names:
        return tools[names.index(name)]
    if len(name) > 2 and name[0] == name[-1] == "/":
        hits = [t for t, n in zip(tools, names) if re.search(name[1:-1], n)]
        return hits[0] if hits else None
    end = re.compile(r"(^|[_.\-/:])" + re.escape(name) + "$")
    hits = [t for t, n in zip(tools, names) if end.search(n) or (isinstance(t, tuple) and t[1] == name)]
    return hits[0] if len(hits) == 1 else None


MARK = re.compile(r"^[ \t]*#mock[ \t]+(\[.*\])[ \t]*$|#mock:([A-Za-z0-9_-]+=*)", re.M)


def marker(m):
    return json.loads(m.group(1) or base64.urlsafe_b64decode(m.group(2) + "=="))


def choose(conv, script, side):
    """-> ('text', str) | ('calls', text, [(tool, args)]) | ('error', status, str), delay, step number"""
    start, words = 0, ""
    for i, e in enumerate(conv.events):
        if e[0] == "user":
            words = e[1]
            m = MARK.search(e[1])
            if m:
                try:
                    script, start = marker(m), i
                except ValueError:
                    return ("text", "MOCK: bad #mock script in the prompt"), 0, -1
    if not conv.tools:
        return ("text", side), 0, -1
    results = [e[1] for e in conv.events[start:] if e[0] == "result"]
    n = sum(e[0] == "call" for e in conv.events[start:])
    step = script[min(n, len(script) - 1)]
    if n >= len(script) and ("tool" in step or "tools" in step):
        step = {"text": "MOCK: script is over"}
    delay = step.get("delay", 0)
    if "status" in step:
        return ("error", step["status"], step.get("error", "mock error")), delay, n
    fill = {"result": results[-1] if results else "", "results": json.dumps(results, ensure_ascii=False),
            "prompt": words, "tools": json.dumps([flat(t) for t in conv.tools])}
    say = re.sub(r"\{(result|results|prompt|tools)\}", lambda m: fill[m.group(1)], step.get("text", ""))
    wanted = step.get("tools") or ([step] if "tool" in step else [])
    if not wanted:
        return ("text", say), delay, n
    calls = []
    for w in wanted:
        t = resolve(w["tool"], conv.tools)
        if t is None and w.get("force"):
            t = w["tool"]
        if t is None:
            return ("text", "MOCK: tool %s not offered; offered: %s" % (w["tool"], fill["tools"])), delay, n
        calls.append((t, w.get("args", {})))
    return ("calls", say, calls), delay, n


# ---------------------------------------------------------------- writing replies
def uid(prefix):
    return prefix + uuid.uuid4().hex[:24]


def halves(s):
    """Two pieces, so that clients must really join deltas."""
    k = len(s) // 2
    return [p for p in (s[:k], s[k:]) if p]


def out_anthropic(b, r):
    blocks = []
    if r[1]:
        blocks.append({"type": "text", "text": r[1]})
    for t, a in (r[2] if r[0] == "calls" else []):
        blocks.append({"type": "tool_use", "id": uid("toolu_"), "name": flat(t), "input": a})
    stop = "tool_use" if r[0] == "calls" else "end_turn"
    msg = {"id": uid("msg_"), "type": "message", "role": "assistant", "model": b.get("model", "mock"), "content": blocks,
           "stop_reason": stop, "stop_sequence": None,
           "usage": {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}
    if not b.get("stream"):
        return msg, None
    ev = [("message_start", {"message": dict(msg, content=[], stop_reason=None)})]
    for i, x in enumerate(blocks):
        if x["type"] == "text":
            ev.append(("content_block_start", {"index": i, "content_block": {"type": "text", "text": ""}}))
            ev += [("content_block_delta", {"index": i, "delta": {"type": "text_delta", "text": p}}) for p in halves(x["text"])]
        else:
            ev.append(("content_block_start", {"index": i, "content_block": dict(x, input={})}))
            ev += [("content_block_delta", {"index": i, "delta": {"type": "input_json_delta", "partial_json": p}})
                   for p in halves(json.dumps(x["input"]))]
        ev.append(("content_block_stop", {"index": i}))
    ev.append(("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}}))
    ev.append(("message_stop", {}))
    return None, [(n, json.dumps(dict({"type": n}, **d))) for n, d in ev]


def out_responses(b, r):
    items = []
    if r[1]:
        items.append({"type": "message", "id": uid("msg_"), "status": "completed", "role": "assistant",
                      "content": [{"type": "output_text", "text": r[1], "annotations": []}]})
    for t, a in (r[2] if r[0] == "calls" else []):
        it = {"type": "function_call", "id": uid("fc_"), "status": "completed", "call_id": uid("call_"),
              "name": t[1] if isinstance(t, tuple) else t, "arguments": json.dumps(a)}
        if isinstance(t, tuple):
            it["namespace"] = t[0]
        items.append(it)
    resp = {"id": uid("resp_"), "object": "response", "created_at": int(time.time()), "status": "completed",
            "model": b.get("model", "mock"), "output": items, "error": None, "parallel_tool_calls": True, "tools": [],
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                      "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}}
    if not b.get("stream"):
        return resp, None
    ev = [("response.created", {"response": dict(resp, status="in_progress", output=[])})]
    for i, it in enumerate(items):
        at = {"output_index": i, "item_id": it["id"]}
        if it["type"] == "message":
            words = it["content"][0]["text"]
            ev.append(("response.output_item.added", {"output_index": i, "item": dict(it, status="in_progress", content=[])}))
            ev.append(("response.content_part.added", dict(at, content_index=0, part={"type": "output_text", "text": "", "annotations": []})))
            ev += [("response.output_text.delta", dict(at, content_index=0, delta=p)) for p in halves(words)]
            ev.append(("response.output_text.done", dict(at, content_index=0, text=words)))
            ev.append(("response.content_part.done", dict(at, content_index=0, part=it["content"][0])))
        else:
            ev.append(("response.output_item.added", {"output_index": i, "item": dict(it, status="in_progress", arguments="")}))
            ev += [("response.function_call_arguments.delta", dict(at, delta=p)) for p in halves(it["arguments"])]
            ev.append(("response.function_call_arguments.done", dict(at, arguments=it["arguments"])))
        ev.append(("response.output_item.done", {"output_index": i, "item": it}))
    ev.append(("response.completed", {"response": resp}))
    return None, [(n, json.dumps(dict({"type": n, "sequence_number": i}, **d))) for i, (n, d) in enumerate(ev)]


ROUTES = [  # (pattern, protocol, reader, writer)
    (re.compile(r"/messages$"), "anthropic", conv_anthropic, out_anthropic),
    (re.compile(r"/responses$"), "responses", conv_responses, out_responses),
]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def json(self, obj, status=200):
        data = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def sse(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in events:
            chunk = ((("event: %s\n" % name) if name else "") + "data: " + data + "\n\n").encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            data = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                data += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    break
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        enc = self.headers.get("Content-Encoding", "")
        if "gzip" in enc:
            import gzip
            data = gzip.decompress(data)
        try:
            return json.loads(data or b"{}")
        except ValueError:
            return {"_raw": data.decode("utf-8", "replace")[:2000]}

    def note(self, **kw):
        self.server.note(dict(kw, t=round(time.time(), 3), method=self.command, path=self.path,
                              headers={k.lower(): "***" if k.lower() in SECRET else v for k, v in self.headers.items()}))

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/__log":
            return self.json(self.server.entries)
        self.note(protocol="get")
        if path.endswith("/models"):
            ids = self.server.models
            return self.json({"object": "list", "has_more": False, "first_id": ids[0], "last_id": ids[-1],
                              "data": [{"id": i, "object": "model", "type": "model", "display_name": i, "created": 0, "owned_by": "mock"} for i in ids],
                              "models": [{"name": "models/" + i} for i in ids]})
        return self.json({"ok": True} if path == "/" else {"error": {"message": "mock: no such path", "type": "not_found_error"}},
                         200 if path == "/" else 404)

    def do_POST(self):
        path = self.path.split("?")[0]
        b = self.body()
        if path == "/__script":
            self.server.script = b
            return self.json({"ok": True})
        if path == "/__reset":
            self.server.entries.clear()
            return self.json({"ok": True})
        if path.endswith("count_tokens"):
            self.note(protocol="count")
            return self.json({"input_tokens": 10})
        for pattern, protocol, reader, writer in ROUTES:
            if not pattern.search(path):
                continue
            conv = reader(b)
            reply, delay, step = choose(conv, self.server.script, self.server.side)
            self.note(protocol=protocol, step=step, reply=[flat(t) for t, _ in reply[2]] if reply[0] == "calls" else list(reply[:2]),
                      tools=[flat(t) for t in conv.tools], results=[e[1] for e in conv.events if e[0] == "result"], body=b)
            time.sleep(delay)
            if reply[0] == "error":
                return self.json({"type": "error", "error": {"type": "api_error", "message": reply[2], "code": reply[1]}}, reply[1])
            obj, events = writer(b, reply)
            return self.json(obj) if events is None else self.sse(events)
        self.note(protocol="other", body=b)
        return self.json({"error": {"message": "mock: no such path", "type": "not_found_error"}}, 404)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that hangs up is normal
            super().handle_error(request, client_address)

    def __init__(self, addr, script, side="mock", models=("mock-model",), log=None):
        self.script, self.side, self.models = script, side, list(models)
        self.entries, self.lock, self.log = [], threading.Lock(), log
        super().__init__(addr, Handler)

    def note(self, entry):
        with self.lock:
            self.entries.append(entry)
            if self.log:
                with open(self.log, "a") as f:
                    f.write(json.dumps(entry, ensure_ascii=False) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0, help="0: any free port; the first line printed is the URL")
    p.add_argument("--script", help="JSON file with the list of steps")
    p.add_argument("--tool", help="short form: call this tool once ...")
    p.add_argument("--args", default="{}", help="... with these JSON arguments ...")
    p.add_argument("--final", default="FINAL: {result}", help="... then answer this")
    p.add_argument("--side", default="mock", help="answer to requests that offer no tools")
    p.add_argument("--model", action="append", help="model id to list (repeatable)")
    p.add_argument("--log", help="append every request to this file as JSON lines")
    p.add_argument("--tls-cert")
    p.add_argument("--tls-key")
    a = p.parse_args()
    if a.script:
        script = json.load(open(a.script))
    else:
        script = ([{"tool": a.tool, "args": json.loads(a.args)}] if a.tool else []) + [{"text": a.final}]
    s = Server((a.host, a.port), script, a.side, a.model or ["mock-model"], a.log)
    scheme = "http"
    if a.tls_cert:
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.load_cert_chain(a.tls_cert, a.tls_key)
        s.socket = ctx.wrap_socket(s.socket, server_side=True)
        scheme = "https"
    print("%s://%s:%d" % (scheme, a.host, s.server_address[1]), flush=True)
    try:
        s.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
