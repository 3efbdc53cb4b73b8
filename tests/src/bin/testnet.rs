//! Holds a test network: the supervisor's side in one namespace, public hosts in another.
//!
//! `hold <folder>` runs inside fresh net and mount namespaces; it starts `serve <folder>` in a net
//! namespace of its own and joins the two with a veth pair. Both end when their stdin does, and with
//! their parent. `serve` answers DNS from `zone.json`, TLS on 443, HTTP on 80 and UDP on 443 at every
//! address, and writes what it sees to `log.jsonl`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the protocol with the parent is on standard output")]
#![allow(clippy::unwrap_used, reason = "a test network that cannot be built must end at once")]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use ringfence_tests::Authority;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};
use simple_dns::rdata::{A, AAAA, PTR, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

const SIDE: &[&str] = &["11.22.33.1/24", "10.66.0.1/24", "2a00:1234::1/64", "169.254.169.1/24"];
const HOSTS: &[&str] = &[
    "11.22.33.44/24",
    "11.22.33.45/24",
    "11.22.33.53/24",
    "10.66.0.44/24",
    "169.254.169.254/24",
    "2a00:1234::44/64",
    "2a00:1234::53/64",
];

fn main() {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap();
    let folder = PathBuf::from(args.next().unwrap());
    if what == "hold" { hold(&folder) } else { serve(&folder) }
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().unwrap();
    assert!(status.success(), "ip {args}");
}

fn until_stdin_ends() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn hold(folder: &Path) {
    let me = std::env::current_exe().unwrap();
    let mut public = Command::new("unshare")
        .arg("--net")
        .args([me.as_os_str(), "serve".as_ref(), folder.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(public.stdout.take().unwrap()).lines();
    assert_eq!(says.next().unwrap().unwrap(), "made");
    ip("link set lo up");
    ip(&format!("link add side type veth peer name world netns {}", public.id()));
    for address in SIDE {
        let flag = if address.contains("::") { " nodad" } else { "" };
        ip(&format!("addr add {address} dev side{flag}"));
    }
    ip("link set side up");
    rustix::mount::mount_bind(
        folder.join("resolv.conf"),
        std::fs::canonicalize("/etc/resolv.conf").unwrap(),
    )
    .unwrap();
    let mut orders = public.stdin.take().unwrap();
    orders.write_all(b"go\n").unwrap();
    assert_eq!(says.next().unwrap().unwrap(), "serving");
    // Through the world, so that a raw packet to any address would arrive somewhere that looks.
    ip("route add default via 11.22.33.44");
    ip("-6 route add default via 2a00:1234::44");
    println!("ready");
    until_stdin_ends();
    let _ = public.kill();
    let _ = public.wait();
}

/// The log, and what is answered.
struct World {
    log: Mutex<File>,
    zone: HashMap<String, Value>,
    asked: Mutex<HashMap<String, usize>>,
    tls: Arc<rustls::ServerConfig>,
    /// Speaks at every host, where `authority.json` says how.
    authority: Authority,
    folder: PathBuf,
}

impl World {
    fn note(&self, kind: &str, name: &str, at: SocketAddr) {
        let line = json!({"kind": kind, "name": name, "at": at.to_string()});
        self.log.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Whether it is to speak here, and has. Each request is a sighting with all of it.
    fn authority(&self, stream: &mut (impl Read + Write), scheme: &str, at: SocketAddr) -> bool {
        let Ok(script) = std::fs::read_to_string(self.folder.join("authority.json")) else {
            return false;
        };
        self.authority.script(&serde_json::from_str(&script).unwrap());
        if let Some(asked) = self.authority.serve(stream, scheme) {
            let what =
                format!("{} {scheme}://{}{}", asked.method, asked.header("host"), asked.path);
            self.note("asked", &what, at);
            let token = asked.header("authorization");
            if !token.is_empty() {
                self.note("authorization", &format!("{} {token}", asked.header("host")), at);
            }
        }
        true
    }

    /// The addresses for this question, counting how often it was asked.
    fn addresses(&self, name: &str, kind: &str) -> Option<Vec<String>> {
        let list = self.zone.get(name)?.as_array()?.clone();
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        if !list.first().is_some_and(Value::is_array) {
            return Some(list.iter().map(text).collect());
        }
        let mut asked = self.asked.lock().unwrap();
        let count = asked.entry(format!("{name} {kind}")).or_default();
        let now = &list[(*count).min(list.len() - 1)];
        *count += 1;
        Some(now.as_array()?.iter().map(text).collect())
    }
}

fn serve(folder: &Path) {
    println!("made");
    assert_eq!(std::io::stdin().lock().lines().next().unwrap().unwrap(), "go");
    ip("link set lo up");
    for address in HOSTS {
        let flag = if address.contains("::") { " nodad" } else { "" };
        ip(&format!("addr add {address} dev world{flag}"));
    }
    ip("link set world up");
    let log = OpenOptions::new().create(true).append(true).open(folder.join("log.jsonl")).unwrap();
    let zone =
        serde_json::from_str(&std::fs::read_to_string(folder.join("zone.json")).unwrap()).unwrap();
    let world = Arc::new(World {
        log: Mutex::new(log),
        zone,
        asked: Mutex::default(),
        tls: certificate(folder),
        authority: Authority::default(),
        folder: folder.to_owned(),
    });
    for address in HOSTS {
        let address: IpAddr = address.split('/').next().unwrap().parse().unwrap();
        tcp(&world, (address, 443).into(), tls);
        tcp(&world, (address, 80).into(), plain);
        udp(&world, (address, 443).into(), echo);
        udp(&world, (address, 53).into(), dns);
    }
    println!("serving");
    until_stdin_ends();
}

fn certificate(folder: &Path) -> Arc<rustls::ServerConfig> {
    let names = vec!["*.example.com".to_owned(), "11.22.33.44".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    Arc::new(config)
}

fn tcp(world: &Arc<World>, at: SocketAddr, handle: fn(&World, TcpStream, SocketAddr)) {
    let listener = TcpListener::bind(at).unwrap_or_else(|e| panic!("listen on {at}: {e}"));
    let world = Arc::clone(world);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let world = Arc::clone(&world);
            thread::spawn(move || handle(&world, stream, at));
        }
    });
}

fn udp(
    world: &Arc<World>,
    at: SocketAddr,
    handle: fn(&World, &[u8], SocketAddr) -> Option<Vec<u8>>,
) {
    let socket = UdpSocket::bind(at).unwrap_or_else(|e| panic!("listen on udp {at}: {e}"));
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            if let Some(reply) = handle(&world, &buffer[..length], at) {
                let _ = socket.send_to(&reply, peer);
            }
        }
    });
}

fn tls(world: &World, mut stream: TcpStream, at: SocketAddr) {
    let mut connection = rustls::ServerConnection::new(Arc::clone(&world.tls)).unwrap();
    let greeted = connection.complete_io(&mut stream).is_ok();
    let name = connection.server_name().unwrap_or("").to_owned();
    world.note("tls", &name, at);
    if greeted {
        let mut both = rustls::Stream::new(&mut connection, &mut stream);
        if world.authority(&mut both, "https", at) {
            connection.send_close_notify();
            let _ = connection.complete_io(&mut stream);
            return;
        }
        answer(&mut both, &format!("tls host, sni={name}"), |_| {});
        connection.send_close_notify();
        let _ = connection.complete_io(&mut stream);
    }
}

fn plain(world: &World, mut stream: TcpStream, at: SocketAddr) {
    let mut copy = stream.try_clone().unwrap();
    if world.authority(&mut copy, "http", at) {
        return;
    }
    // Each request on a kept-alive connection is a sighting of its own.
    while answer(&mut copy, "plain host", |host| world.note("http", host, at)) {}
    let _ = stream.flush();
}

/// Reads one request's head and answers. False when there was none.
fn answer(stream: &mut (impl Read + Write), words: &str, note: impl Fn(&str)) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 65_536 {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let host =
        text.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("host:").map(str::to_owned));
    if !head.is_empty() {
        note(host.as_deref().unwrap_or("").trim());
    }
    if !head.ends_with(b"\r\n\r\n") {
        return false;
    }
    let body = format!("{words}\n");
    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(reply.as_bytes()).is_ok() && stream.flush().is_ok()
}

fn echo(world: &World, bytes: &[u8], at: SocketAddr) -> Option<Vec<u8>> {
    world.note("udp", &String::from_utf8_lossy(bytes), at);
    Some(bytes.to_vec())
}

fn dns(world: &World, bytes: &[u8], at: SocketAddr) -> Option<Vec<u8>> {
    let query = Packet::parse(bytes).ok()?;
    let question = query.questions.first()?;
    let name = question.qname.to_string().to_ascii_lowercase();
    let kind = match question.qtype {
        QTYPE::TYPE(TYPE::A) => "A",
        QTYPE::TYPE(TYPE::AAAA) => "AAAA",
        QTYPE::TYPE(TYPE::PTR) => "PTR",
        _ => "other",
    };
    world.note("dns", &name, at);
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::RECURSION_DESIRED | PacketFlag::RECURSION_AVAILABLE);
    reply.questions.push(question.clone());
    match world.addresses(&name, kind) {
        None => *reply.rcode_mut() = RCODE::NameError,
        Some(list) if list.iter().any(|a| a == "SERVFAIL") => {
            *reply.rcode_mut() = RCODE::ServerFailure
        }
        Some(list) => {
            for address in &list {
                let data = match (kind, address.parse()) {
                    ("A", Ok(IpAddr::V4(v4))) => RData::A(A::from(v4)),
                    ("AAAA", Ok(IpAddr::V6(v6))) => RData::AAAA(AAAA::from(v6)),
                    ("PTR", Err(_)) => RData::PTR(PTR(Name::new_unchecked(address).into_owned())),
                    _ => continue,
                };
                reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, 0, data));
            }
        }
    }
    reply.build_bytes_vec().ok()
}
