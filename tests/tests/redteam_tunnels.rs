//! Rows 23 and 24 in HTTP/2, and tunnels that are not looked at.

use ringfence_tests::{Project, TestNet, each_user};
use serde_json::json;

use crate::bundles::SMALL;

/// One plain exchange in a tunnel: whether it came through shows in the body.
const PLAIN: &str = r##"
def through(case, authority):
    status, sock = connect(authority)
    body = b""
    if status == 200:
        sock.settimeout(5)
        host = authority.split(":")[0].encode()
        try:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
            while piece := sock.recv(4096):
                body += piece
        except OSError:
            pass
    sock.close()
    say(case, status=status, body=body.decode("latin-1"))
"##;

#[test]
fn only_a_host_that_is_declared_opaque_is_not_looked_at_and_everything_says_so() {
    each_user(|who| {
        let public = json!([TestNet::PUBLIC]);
        let net =
            TestNet::new(who, &[("db.example.com", public.clone()), ("plain.example.com", public)]);
        let mut project = Project::new(who);
        project.manifest(&format!(
            "{SMALL}\n[sandbox.network]\nallowed_hosts = [\"plain.example.com\", \
             {{ host = \"db.example.com:80\", opaque = true }}]\n"
        ));
        net.host(&mut project);
        project.lock();
        project.trust();
        let said = "db.example.com:80, allowed, opaque: what goes through is not looked at";
        let plan = project.ringfence(&["run", "--plan", "--", "true"]).ok().stdout;
        assert!(plan.contains(said), "{plan}");
        let checked = project.ringfence(&["validate"]).ok().stdout;
        assert!(checked.contains("sandbox.network.allowed_hosts[1].opaque"), "{checked}");
        assert!(checked.contains("without a look inside"), "{checked}");

        let script = format!(
            "{PLAIN}\nthrough('opaque', 'db.example.com:80')\n\
             through('other', 'plain.example.com:80')\n\
             try_connect('another port', 'db.example.com:443')\n"
        );
        let cases = project.agent(&script);
        assert!(cases.body("opaque").contains("plain host"), "{}", cases.get("opaque"));
        assert_eq!(cases.status("other"), 200);
        assert_eq!(cases.body("other"), "", "not one byte went on");
        assert_eq!(cases.status("another port"), 403);
        net.saw("http", "db.example.com");
        net.saw_no("http", "plain.example.com");
        let events = project.events();
        let decided =
            events.has("egress_decided", &[("host", "db.example.com"), ("outcome", "allowed")]);
        assert!(decided["steps"].to_string().contains("not looked at"), "{decided}");
        let other =
            events.has("egress_decided", &[("host", "plain.example.com"), ("outcome", "allowed")]);
        assert!(!other["steps"].to_string().contains("not looked at"), "{other}");

        // A machine can refuse it, and then nothing of the bundle starts.
        project.machine("[policy]\nallow_opaque = false\n");
        let refused = project.run(&["true"]);
        assert_ne!(refused.status, 0);
        assert!(refused.stderr.contains("machine.toml:2"), "{}", refused.stderr);
        assert!(refused.stderr.contains("db.example.com:80"), "{}", refused.stderr);
    });
}

/// A client of HTTP/2 as small as can be: no compression, one frame after the other.
const HTTP2: &str = r##"
import struct
def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
def number(prefix, bits, value):
    most = (1 << bits) - 1
    if value < most:
        return bytes([prefix | value])
    out, value = bytes([prefix | most]), value - most
    while value >= 128:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])
def fields(pairs):
    return b"".join(b"\x00" + number(0, 7, len(n)) + n + number(0, 7, len(v)) + v for n, v in pairs)

class Http2:
    def __init__(self):
        address, self.secret = proxy()
        self.sock = socket.create_connection(address, timeout=20)
        self.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        self.next = 1
    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise OSError("ended")
            data += piece
        return data
    def ask(self, pairs, ended=False, login=True):
        stream, self.next = self.next, self.next + 2
        if login:
            pairs = pairs + [(b"proxy-authorization", b"Basic " + self.secret.encode())]
        self.sock.sendall(frame(1, 4 | (1 if ended else 0), stream, fields(pairs)))
        return stream
    def data(self, stream, payload, ended=False):
        self.sock.sendall(frame(0, 1 if ended else 0, stream, payload))
    # The status's index in the static table of HPACK, or the text after it; then the body.
    def answer(self, stream, until_end=True):
        status, body = 0, b""
        while True:
            try:
                head = self.read(9)
            except OSError:
                return status, body
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            payload = self.read(length)
            if kind == 4 and not flags & 1:
                self.sock.sendall(frame(4, 1, 0, b""))
            if int.from_bytes(head[5:], "big") & 0x7fffffff != stream:
                continue
            if kind == 1:
                known = {0x88: 200, 0x89: 204, 0x8a: 206, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}
                status = known.get(payload[0]) or int(huffman_digits(payload))
                if not until_end:
                    return status, body
            if kind == 0:
                body += payload
            if kind == 3 or flags & 1:
                return status, body
# Digits of a status in RFC 7541, Appendix B: five bits for 0 to 2, six for 3 to 9.
def huffman_digits(payload):
    length = payload[1] & 0x7f
    raw = payload[2:2 + length]
    if not payload[1] & 0x80:
        return raw.decode()
    bits, text = "".join(f"{byte:08b}" for byte in raw), ""
    while len(text) < 3:
        if bits[:5] in ("00000", "00001", "00010"):
            text, bits = text + str(int(bits[:5], 2)), bits[5:]
        else:
            text, bits = text + str(int(bits[:6], 2) - 0b011001 + 3), bits[6:]
    return text

def h2(case, pairs, login=True, ended=False):
    client = Http2()
    try:
        status, body = client.answer(client.ask(pairs, ended=ended, login=login))
    except OSError:
        status, body = 0, b""
    say(case, status=status, body=body.decode("latin-1"))
CONNECT = (b":method", b"CONNECT")
def connect_h2(case, authority, login=True):
    client = Http2()
    try:
        status, body = client.answer(client.ask([CONNECT, (b":authority", authority)], login=login), until_end=False)
    except OSError:
        status = 0
    say(case, status=status)
def get(authority, path=b"/", scheme=b"http", more=[]):
    return [(b":method", b"GET"), (b":scheme", scheme), (b":authority", authority), (b":path", path)] + more

connect_h2("control connect", b"allowed.example.com:443")
h2("control get", get(b"allowed.example.com"), ended=True)
connect_h2("no token", b"allowed.example.com:443", login=False)
h2("get without token", get(b"allowed.example.com"), login=False, ended=True)
for name, authority in {
    "another name": b"refused.example.com:443",
    "another port": b"allowed.example.com:22",
    "no port": b"allowed.example.com",
    "userinfo": b"allowed.example.com@refused.example.com:443",
    "percent": b"refused%2eexample.com:443",
    "octal": b"013.026.041.054:443",
    "address": b"11.22.33.44:443",
    "loopback": b"127.0.0.1:443",
    "metadata": b"169.254.169.254:80",
}.items():
    connect_h2("connect " + name, authority)
    h2("get " + name, get(authority), ended=True)
h2("https", get(b"allowed.example.com", scheme=b"https"), ended=True)
h2("another Host", get(b"allowed.example.com", more=[(b"host", b"refused.example.com")]), ended=True)
h2("upgrade", get(b"allowed.example.com", more=[(b"upgrade", b"websocket")]), ended=True)
h2("websocket", [CONNECT, (b":protocol", b"websocket"), (b":scheme", b"http"), (b":authority", b"allowed.example.com"), (b":path", b"/")])
# One connection, one allowed stream, then another host: judged again.
client = Http2()
first = client.answer(client.ask(get(b"allowed.example.com"), ended=True))
second = client.answer(client.ask(get(b"refused.example.com"), ended=True))
say("second stream", status=second[0], body=f"{first[0]}")
# What is no TLS does not leave by a stream either.
client = Http2()
stream = client.ask([CONNECT, (b":authority", b"allowed.example.com:80")])
client.answer(stream, until_end=False)
client.data(stream, b"GET /fronted HTTP/1.1\r\nHost: fronted.example.com\r\n\r\n")
say("no TLS", body=client.answer(stream)[1].decode("latin-1"))
"##;

#[test]
fn http2_to_the_proxy_is_held_to_what_http1_is() {
    each_user(|who| {
        let public = json!([TestNet::PUBLIC]);
        let net = TestNet::new(
            who,
            &[("allowed.example.com", public.clone()), ("refused.example.com", public)],
        );
        let mut project = Project::new(who);
        project.manifest(&crate::bundles::hosts(&["allowed.example.com"]));
        net.host(&mut project);
        project.lock();
        project.trust();
        let cases = project.agent(HTTP2);
        assert_eq!(cases.status("control connect"), 200);
        assert_eq!(cases.status("control get"), 200, "{}", cases.get("control get"));
        assert!(cases.body("control get").contains("plain host"), "{}", cases.get("control get"));
        for case in cases.names().filter(|case| !case.starts_with("control")) {
            match case {
                "no token" | "get without token" => assert_eq!(cases.status(case), 407, "{case}"),
                // Malformed by RFC 9113, sections 8.2.2 and 8.3.1: the stream is reset, without an
                // answer.
                "upgrade" | "connect percent" | "get percent" => {
                    assert_eq!(cases.status(case), 0, "{case}");
                }
                "websocket" => assert_eq!(cases.status(case), 501, "{case}"),
                "second stream" => {
                    assert_eq!((cases.status(case), cases.body(case)), (403, "200"), "{case}");
                }
                "no TLS" => assert_eq!(cases.body(case), "", "{case}"),
                // A port may stay out of a plain request.
                "get no port" => assert_eq!(cases.status(case), 200, "{case}"),
                _ => {
                    let status = cases.status(case);
                    assert!(status == 400 || status == 403, "{case}: {}", cases.get(case));
                }
            }
        }
        for seen in net.sightings() {
            // A tunnel through which nothing has gone is a connection without a name.
            let fine = seen.name == "allowed.example.com" || seen.name.is_empty();
            assert!(fine, "the public side saw {seen:?}");
        }
        let events = project.events();
        for (method, outcome) in [("CONNECT", "allowed"), ("GET", "allowed"), ("GET", "refused")] {
            events.has("egress_decided", &[("method", method), ("outcome", outcome)]);
        }
    });
}
