"""What a hostile or a well-behaved agent needs: raw proxy requests, raw MCP requests, file attempts.

Every attempt prints one JSON line {"case": name, ...} on standard output; the test reads them.
Standard library only: it runs inside the sandbox with Debian's Python.
"""

import base64
import errno
import json
import os
import socket
import ssl
import struct
import sys
import time
import urllib.parse


def say(case, **fields):
    print(json.dumps({"case": case, **fields}), flush=True)


def attempt(case, action):
    """Runs an action; says whether the kernel let it happen, and if not, with which error."""
    try:
        value = action()
        say(case, done=True, value=value if isinstance(value, (str, int, bool, list)) else None)
        return True
    except OSError as error:
        say(case, done=False, error=errno.errorcode.get(error.errno, str(error)))
        return False


def read(path):
    with open(path, "rb") as file:
        return file.read(65536).decode("utf-8", "replace")


def write(path, text="changed by the agent\n"):
    with open(path, "w") as file:
        file.write(text)
    return True


# ---------------------------------------------------------------- the proxy


def proxy():
    url = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    login = f"{url.username or ''}:{url.password or ''}".encode()
    return (url.hostname, url.port), base64.b64encode(login).decode()


def until_blank(sock):
    data = b""
    while b"\r\n\r\n" not in data and len(data) < 65536:
        piece = sock.recv(4096)
        if not piece:
            break
        data += piece
    return data


def status_of(data):
    parts = data.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1][:3].isdigit() else 0


def connect(authority, login=True, host=None):
    """A raw CONNECT; authority may be bytes. Gives (status, socket)."""
    address, secret = proxy()
    if isinstance(authority, str):
        authority = authority.encode("utf-8", "surrogateescape")
    sock = socket.create_connection(address, timeout=20)
    head = b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + (host or authority) + b"\r\n"
    if login is True:
        head += b"Proxy-Authorization: Basic " + secret.encode() + b"\r\n"
    elif login:
        head += b"Proxy-Authorization: " + login + b"\r\n"
    sock.sendall(head + b"\r\n")
    try:
        data = until_blank(sock)
    except OSError:
        data = b""
    return status_of(data), sock


def try_connect(case, authority, **how):
    status, sock = connect(authority, **how)
    sock.close()
    say(case, status=status)
    return status


def https(case, authority, sni=None, path="/", host=None):
    """CONNECT, TLS with this SNI (None: the authority's name), one GET. Says how far it came."""
    status, sock = connect(authority)
    if status != 200:
        sock.close()
        say(case, status=status, body="")
        return
    name = authority.rsplit(":", 1)[0].strip("[]") if sni is None else sni
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        tls = context.wrap_socket(sock, server_hostname=name or None)
        tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or name}\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while piece := tls.recv(4096):
            data += piece
        say(case, status=200, body=data.decode("latin-1"))
    except (OSError, ValueError) as error:
        say(case, status=200, body="", error=str(error))


def raw_proxy(case, data):
    """Sends bytes to the proxy as they are ({login} is filled in) and says what came back. Ask the
    other side to close, or wait five seconds."""
    address, secret = proxy()
    sock = socket.create_connection(address, timeout=20)
    sock.sendall(data.replace(b"{login}", secret.encode()))
    sock.settimeout(5)
    answer = b""
    try:
        while piece := sock.recv(4096):
            answer += piece
    except OSError:
        pass
    say(case, status=status_of(answer), body=answer.decode("latin-1"))


# ---------------------------------------------------------------- MCP


class Mcp:
    """One server's gate, spoken to with raw bodies."""

    def __init__(self, server, start=True):
        self.url = urllib.parse.urlsplit(os.environ[f"RINGFENCE_MCP_{server.upper().replace('-', '_')}_URL"])
        self.session = None
        self.protocol = None
        if start:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "case", "version": "0"}}
            status, _ = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
            if status == 200:
                self.protocol = "2025-06-18"
                self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, body, headers=None, method="POST", path=None):
        """Gives (HTTP status, text). `body` is bytes as they are, or a value."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = {
            "Host": self.url.netloc,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(data)),
            "Connection": "close",
        }
        if self.session:
            head["Mcp-Session-Id"] = self.session
        if self.protocol:
            head["MCP-Protocol-Version"] = self.protocol
        head.update(headers or {})
        lines = [f"{method} {path or self.url.path or '/'} HTTP/1.1"]
        lines += [f"{k}: {v}" for k, v in head.items() if v is not None]
        sock = socket.create_connection((self.url.hostname, self.url.port), timeout=20)
        try:
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        except OSError:
            pass
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
        except OSError:
            pass
        head, _, text = answer.partition(b"\r\n\r\n")
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"mcp-session-id":
                self.session = value.strip().decode()
        return status_of(answer), text.decode("utf-8", "replace")

    def send(self, case, body, **how):
        start = time.monotonic()
        status, text = self.post(body, **how)
        say(case, status=status, body=text, seconds=round(time.monotonic() - start, 3))

    def call(self, case, tool, arguments=None, number=7):
        params = {"name": tool, "arguments": arguments or {}}
        self.send(case, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


# ---------------------------------------------------------------- sockets without the proxy


def raw_tcp(case, address, port, payload=b"GET / HTTP/1.0\r\n\r\n"):
    def go():
        sock = socket.create_connection((address, port), timeout=3)
        sock.sendall(payload)
        return sock.recv(200).decode("latin-1")

    attempt(case, go)


def raw_udp(case, address, port, payload=b"ping"):
    def go():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.settimeout(2)
        sock.connect((address, port))
        sock.send(payload)
        return sock.recv(2000).decode("latin-1")

    attempt(case, go)


def dns_query(name):
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    return struct.pack(">HHHHHH", 4242, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
