//! Row 21: every spelling of a host. Malformed ones are refused, good ones have one canonical form,
//! suffixes match at label boundaries, and no refused name is ever looked up.

use ringfence_tests::{Project, TestNet, Wall, each_wall};
use serde_json::json;

use crate::bundles::hosts;

const SCRIPT: &str = r##"
https("control exact", "allowed.example.com:443")
https("control capitals", "ALLOWED.Example.COM:443", sni="allowed.example.com")
https("control dot", "allowed.example.com.:443", sni="allowed.example.com")
https("control suffix", "a.wild.example.com:443")
https("control deep suffix", "a.b.wild.example.com:443")

spellings = {
    "another name": "refused.example.com:443",
    "look-alike in front": "evilallowed.example.com:443",
    "look-alike behind": "allowed.example.com.evil.example.org:443",
    "look-alike suffix": "evilwild.example.com:443",
    "parent": "example.com:443",
    "two dots behind": "allowed.example.com..:443",
    "dot in front": ".allowed.example.com:443",
    "empty label": "allowed..example.com:443",
    "percent": "allowed%2eexample.com:443",
    "percent letter": "%61llowed.example.com:443",
    "NUL": b"allowed.example.com\0.evil.example.org:443",
    "NUL behind": b"allowed.example.com\0:443",
    "space": "allowed.example.com .evil.example.org:443",
    "tab": "allowed.example.com\t:443",
    "userinfo": "allowed.example.com@evil.example.org:443",
    "userinfo with port": "allowed.example.com:443@evil.example.org:443",
    "fragment": "evil.example.org#allowed.example.com:443",
    "slash": "evil.example.org/allowed.example.com:443",
    "backslash": "evil.example.org\\allowed.example.com:443",
    "query": "evil.example.org?allowed.example.com:443",
    "two ports": "allowed.example.com:443:80",
    "no port": "allowed.example.com",
    "empty port": "allowed.example.com:",
    "port zero": "allowed.example.com:0",
    "another port": "allowed.example.com:8443",
    "port 22": "allowed.example.com:22",
    "port beyond": "allowed.example.com:65979",
    "signed port": "allowed.example.com:+443",
    "port with zero in front of another": "allowed.example.com:0x1bb",
    "underscore look-alike": "allowed_example.com:443",
    "soft hyphen": "allowed\u00ad.evil.example.org:443",
    "full-width dot": "allowed\uff0eevil.example.org:443",
    "ideographic dot": "allowed\u3002evil.example.org:443",
    "Cyrillic a": "\u0430llowed.example.com:443",
    "punycode of it": "xn--llowed-2fg.example.com:443",
    "broken punycode": "xn--\u0430.example.com:443",
    "bidirectional": "\u202eallowed.example.com:443",
    "zero width": "al\u200blowed.example.com.evil.example.org:443",
    "not UTF-8": b"allowed\xff.example.com:443",
    "label of 64": "a" * 64 + ".wild.example.com:443",
    "name of 300": ".".join(["a" * 60] * 5) + ".wild.example.com:443",
    "star": "*.wild.example.com:443",
    "brackets around a name": "[allowed.example.com]:443",
    "empty": ":443",
    "IPv4": "11.22.33.44:443",
    "IPv4 dot": "11.22.33.44.:443",
    "octal": "013.026.041.054:443",
    "hexadecimal": "0x0b.0x16.0x21.0x2c:443",
    "one hexadecimal number": "0x0b16212c:443",
    "one number": "185999660:443",
    "short": "11.22.8492:443",
    "shorter": "11.1450284:443",
    "loopback": "127.0.0.1:443",
    "short loopback": "127.1:443",
    "octal loopback": "0177.0.0.1:443",
    "zero": "0:443",
    "zero address": "0.0.0.0:443",
    "localhost": "localhost:443",
    "localhost below": "allowed.example.com.localhost:443",
    "metadata": "169.254.169.254:80",
    "IPv6": "[2a00:1234::44]:443",
    "IPv6 loopback": "[::1]:443",
    "IPv6 bare": "::1:443",
    "mapped": "[::ffff:11.22.33.44]:443",
    "mapped loopback": "[::ffff:7f00:1]:443",
    "compatible": "[::127.0.0.1]:443",
    "zone": "[fe80::1%25eth0]:443",
    "zone on a name": "allowed.example.com%eth0:443",
    "NAT64": "[64:ff9b::7f00:1]:443",
    "host gateway": "host.docker.internal:443",
}
for case, authority in spellings.items():
    try_connect(case, authority)
# The Host header of a CONNECT is not what is judged.
try_connect("Host header", "refused.example.com:443", host=b"allowed.example.com:443")
# The same over plain HTTP.
def plain(case, target, host=None):
    raw_proxy(case, b"GET " + target + b" HTTP/1.1\r\nHost: " + (host or b"allowed.example.com") + b"\r\nProxy-Authorization: Basic {login}\r\nConnection: close\r\n\r\n")
plain("control plain", b"http://allowed.example.com/")
plain("plain another", b"http://refused.example.com/")
plain("plain userinfo", b"http://allowed.example.com@refused.example.com/")
plain("plain backslash", b"http://refused.example.com\\@allowed.example.com/")
plain("plain percent", b"http://refused%2eexample.com/")
plain("plain scheme", b"ftp://allowed.example.com/")
plain("plain relative", b"/")
plain("plain https", b"https://refused.example.com/")
"##;

#[test]
fn one_canonical_host_and_no_lookup_of_a_refused_one() {
    each_wall(&[21], |who, wall| {
        let public = json!([TestNet::PUBLIC]);
        let names = [
            "allowed.example.com",
            "a.wild.example.com",
            "a.b.wild.example.com",
            // Everything below would be reached if it were looked up.
            "refused.example.com",
            "example.com",
            "evilallowed.example.com",
            "evilwild.example.com",
            "allowed.example.com.evil.example.org",
            "evil.example.org",
            "xn--llowed-2fg.example.com",
            "host.docker.internal",
        ];
        let zone: Vec<_> = names.iter().map(|n| (*n, public.clone())).collect();
        let net = TestNet::new(who, &zone);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["allowed.example.com", ".wild.example.com"]));
        project.lock();
        project.trust();
        let cases = project.agent(SCRIPT);
        for case in cases.names() {
            if case == "control plain" && wall == Wall::Lockdown {
                // There nothing passes but TLS.
                assert_eq!(cases.status(case), 403, "{case}: {}", cases.get(case));
                assert!(cases.body(case).contains("TLS"), "{case}: {}", cases.get(case));
            } else if case.starts_with("control") {
                assert_eq!(cases.status(case), 200, "{case}: {}", cases.get(case));
                assert!(
                    cases.body(case).contains("host"),
                    "{case} did not arrive: {}",
                    cases.get(case)
                );
            } else {
                assert!(cases.status(case) >= 400, "{case} must be refused: {}", cases.get(case));
            }
        }
        assert!(cases.names().count() > 75);
        net.saw("dns", "allowed.example.com");
        net.saw("tls", "a.b.wild.example.com");
        if wall != Wall::Lockdown {
            net.saw("http", "allowed.example.com");
        }
        let fine =
            |name: &str| name == "allowed.example.com" || name.ends_with(".wild.example.com");
        for seen in net.sightings() {
            assert!(fine(&seen.name) && !seen.name.contains('*'), "the public side saw {seen:?}");
        }
        let events = project.events();
        events.has("egress_decided", &[("host", "allowed.example.com"), ("outcome", "allowed")]);
        let refused = events
            .has("egress_decided", &[("host", "refused.example.com"), ("outcome", "refused")]);
        assert!(!refused["steps"].as_array().expect("steps").is_empty(), "{refused}");
        // Hostile bytes are in the record only escaped.
        let raw = std::fs::read(project.last_run().join("events.jsonl")).expect("the record");
        assert!(
            raw.iter().all(|b| *b == b'\n' || (*b >= 0x20 && *b != 0x7f)),
            "control characters in the record"
        );
    });
}

#[test]
fn the_name_in_tls_must_be_the_name_that_was_judged() {
    each_wall(&[23], |who, wall| {
        let public = json!([TestNet::PUBLIC]);
        let net = TestNet::new(
            who,
            &[("allowed.example.com", public.clone()), ("fronted.example.com", public)],
        );
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["allowed.example.com"]));
        project.lock();
        project.trust();
        let cases = project.agent(
            "https('control', 'allowed.example.com:443')\n\
             https('fronted', 'allowed.example.com:443', sni='fronted.example.com')\n\
             https('no name', 'allowed.example.com:443', sni='')\n\
             https('an address', 'allowed.example.com:443', sni='11.22.33.44')\n\
             status, sock = connect('allowed.example.com:443')\n\
             sock.sendall(b'GET / HTTP/1.1\\r\\nHost: fronted.example.com\\r\\n\\r\\n')\n\
             say('not TLS', status=status, body=sock.recv(1000).decode('latin-1'))\n",
        );
        assert!(cases.body("control").contains("tls host"), "{}", cases.get("control"));
        for case in ["fronted", "no name", "an address", "not TLS"] {
            assert!(!cases.body(case).contains("host"), "{case}: {}", cases.get(case));
        }
        net.saw("tls", "allowed.example.com");
        net.saw_no("tls", "fronted");
        let events = project.events();
        let closed = events.with("egress_closed", &[]);
        for reason in ["sni-mismatch", "no-sni", "not-tls"] {
            let found =
                closed.iter().any(|e| ringfence_tests::field(e, "reason").starts_with(reason));
            assert!(found, "no {reason} among {closed:#?}");
        }
    });
}

#[test]
fn without_the_runs_token_the_proxy_says_407() {
    each_wall(&[25], |who, wall| {
        let net = TestNet::new(who, &[("allowed.example.com", json!([TestNet::PUBLIC]))]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["allowed.example.com"]));
        project.lock();
        project.trust();
        let cases = project.agent(
            "https('control', 'allowed.example.com:443')\n\
             try_connect('no login', 'allowed.example.com:443', login=False)\n\
             try_connect('wrong', 'allowed.example.com:443', login=b'Basic cmluZ2ZlbmNlOndyb25n')\n\
             try_connect('empty', 'allowed.example.com:443', login=b'Basic cmluZ2ZlbmNlOg==')\n\
             try_connect('bearer', 'allowed.example.com:443', login=b'Bearer x')\n\
             raw_proxy('plain', b'GET http://allowed.example.com/ HTTP/1.1\\r\\nHost: allowed.example.com\\r\\nConnection: close\\r\\n\\r\\n')\n",
        );
        assert!(cases.body("control").contains("tls host"));
        for case in ["no login", "wrong", "empty", "bearer", "plain"] {
            assert_eq!(cases.status(case), 407, "{case}: {}", cases.get(case));
        }
    });
}

#[test]
fn each_request_of_a_connection_is_judged_alone() {
    each_wall(&[24], |who, wall| {
        let public = json!([TestNet::PUBLIC]);
        let zone = [("allowed.example.com", public.clone()), ("refused.example.com", public)];
        let net = TestNet::new(who, &zone);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["allowed.example.com"]));
        project.lock();
        project.trust();
        let cases = project.agent(
            r##"
def ask(target, host, more=b""):
    return b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nProxy-Authorization: Basic {login}\r\n" + more + b"\r\n"
def one(case, target=b"http://allowed.example.com/", host=b"allowed.example.com", more=b""):
    raw_proxy(case, ask(target, host, b"Connection: close\r\n" + more))
https("control tls", "allowed.example.com:443")
one("control")
one("another Host", host=b"refused.example.com")
one("two Hosts", more=b"Host: refused.example.com\r\n")
one("Upgrade", more=b"Upgrade: websocket\r\n")
one("two lengths", more=b"Content-Length: 1\r\nContent-Length: 2\r\n")
one("length and chunks", more=b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")
one("odd coding", more=b"Transfer-Encoding: gzip, chunked\r\n")
# A second request on a connection that was good for the first.
address, login = proxy()
sock = socket.create_connection(address, timeout=10)
sock.sendall(ask(b"http://allowed.example.com/", b"allowed.example.com").replace(b"{login}", login.encode()))
first = until_blank(sock)
say("first of two", status=int(first.split()[1]))
rest = b""
try:
    sock.sendall(ask(b"http://refused.example.com/", b"refused.example.com").replace(b"{login}", login.encode()))
    while b"HTTP/1.1 403" not in rest and len(rest) < 65536:
        piece = sock.recv(4096)
        if not piece: break
        rest += piece
except OSError: pass
say("second of two", status=403 if b"HTTP/1.1 403" in rest else 0)
"##,
        );
        assert!(cases.body("control tls").contains("tls host"), "{}", cases.get("control tls"));
        // Under lockdown nothing passes but TLS: there is no second request then.
        let plain = if wall == Wall::Lockdown { 403 } else { 200 };
        for case in ["control", "first of two"] {
            assert_eq!(cases.status(case), plain, "{case}: {}", cases.get(case));
        }
        let mut others = vec!["control", "first of two", "control tls"];
        if wall == Wall::Lockdown {
            others.push("second of two");
            net.saw_no("http", "allowed");
        } else {
            net.saw("http", "allowed.example.com");
        }
        for case in cases.names().filter(|case| !others.contains(case)) {
            assert!(cases.status(case) >= 400, "{case} must be refused: {}", cases.get(case));
        }
        assert_eq!(cases.names().count(), 10);
        net.saw_no("http", "refused");
        net.saw_no("dns", "refused");
    });
}
