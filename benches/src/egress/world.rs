//! The public side: addresses that look public, a name server, and a server that takes hellos.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::wire::{ANSWER, FLOOD, hello};
use crate::Result;
use crate::gateway::process::{Running, ended};

const SERVER: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 44);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2a00, 0x1234, 0, 0, 0, 0, 0, 0x44);
const NAMES: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 53);

fn ip(args: &str) -> Result {
    let status = Command::new("ip").args(args.split(' ')).status();
    match status.map_err(|e| format!("ip: {e}"))?.success() {
        true => Ok(()),
        false => Err(format!("ip {args}")),
    }
}

/// Connects this side with the public one, and waits until it serves.
pub(super) fn join(world: &mut Running, folder: &Path) -> Result {
    let fail = |e: std::io::Error| e.to_string();
    if world.line()? != "made" {
        return Err("the public side could not be made".to_owned());
    }
    ip("link set lo up")?;
    ip(&format!("link add side type veth peer name world netns {}", world.id()))?;
    ip("addr add 11.22.33.1/24 dev side")?;
    ip("addr add 2a00:1234::1/64 dev side nodad")?;
    ip("link set side up")?;
    let resolv = folder.join("resolv.conf");
    std::fs::write(&resolv, format!("nameserver {NAMES}\n")).map_err(fail)?;
    let real = std::fs::canonicalize("/etc/resolv.conf").map_err(fail)?;
    rustix::mount::mount_bind(&resolv, &real).map_err(|e| format!("{}: {e}", real.display()))?;
    // The other end is there now; it takes its addresses by itself.
    let begun = std::time::Instant::now();
    while std::net::TcpStream::connect((SERVER, 443)).is_err()
        || std::net::TcpStream::connect((SERVER6, 443)).is_err()
    {
        if begun.elapsed().as_secs() > 10 {
            return Err("the public side does not answer".to_owned());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}

/// The public side, until standard input ends.
pub(super) fn main() -> Result {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| e.to_string())?;
    println!("made");
    while ip("link set world up").is_err() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ip("link set lo up")?;
    ip(&format!("addr add {SERVER}/24 dev world"))?;
    ip(&format!("addr add {NAMES}/24 dev world"))?;
    ip(&format!("addr add {SERVER6}/64 dev world nodad"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(async {
        let fail = |e: std::io::Error| e.to_string();
        let names = UdpSocket::bind((NAMES, 53)).await.map_err(fail)?;
        let four = TcpListener::bind((SERVER, 443)).await.map_err(fail)?;
        let six = TcpListener::bind((SERVER6, 443)).await.map_err(fail)?;
        tokio::select! {
            () = answer_questions(names) => {}
            () = accept(four) => {}
            () = accept(six) => {}
            () = ended() => {}
        }
        Ok(())
    })
}

/// Answers every name with both addresses, for an hour.
async fn answer_questions(socket: UdpSocket) {
    let mut query = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut query).await {
        if let Some(reply) = reply(&query[..length]) {
            let _ = socket.send_to(&reply, from).await;
        }
    }
}

fn reply(query: &[u8]) -> Option<Vec<u8>> {
    let mut end = 12;
    while *query.get(end)? != 0 {
        end += 1 + usize::from(query[end]);
    }
    let address: Option<IpAddr> = match query.get(end + 1..end + 3)? {
        [0, 1] => Some(SERVER.into()),
        [0, 28] => Some(SERVER6.into()),
        _ => None,
    };
    let mut reply = query[..2].to_vec();
    reply.extend([0x81, 0x80, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    reply.extend(query.get(12..end + 5)?);
    if let Some(address) = address {
        let kind = if address.is_ipv4() { 1 } else { 28 };
        reply.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 14, 16]);
        let bytes = match address {
            IpAddr::V4(four) => four.octets().to_vec(),
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        reply.extend([0, u8::try_from(bytes.len()).ok()?]);
        reply.extend(bytes);
    }
    Some(reply)
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Takes a hello, answers it, and does what it is told.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut hello = vec![0; hello().len()];
    stream.read_exact(&mut hello).await?;
    stream.write_all(&ANSWER).await?;
    if stream.read_u8().await? == FLOOD {
        let bytes = vec![7; 256 * 1024];
        loop {
            stream.write_all(&bytes).await?;
        }
    }
    let _ = stream.read_u8().await;
    Ok(())
}
