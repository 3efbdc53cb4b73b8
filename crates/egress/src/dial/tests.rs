use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use super::{DialError, dial};
use crate::address::CheckedAddr;

fn addresses(texts: &[&str]) -> Vec<CheckedAddr> {
    texts
        .iter()
        .map(|text| CheckedAddr::unchecked_in_test(text.parse::<IpAddr>().unwrap()))
        .collect()
}

#[tokio::test]
async fn the_first_that_answers_is_taken_without_waiting_for_a_refused_one() {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let begun = Instant::now();
    let stream = dial(&addresses(&["127.0.0.3", "127.0.0.2", "127.0.0.4"]), port).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().ip(), Ipv4Addr::new(127, 0, 0, 2));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_not_waited_for() {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // A listener whose queue is full: the kernel drops what comes, like a host that is not there.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind((Ipv4Addr::new(127, 0, 0, 5), port).into()).unwrap();
    let silent = silent.listen(1).unwrap();
    let mut queued = Vec::new();
    let wait = Duration::from_millis(200);
    while let Ok(stream) = timeout(wait, TcpStream::connect(silent.local_addr().unwrap())).await {
        queued.push(stream.unwrap());
        assert!(queued.len() < 100, "the queue does not fill");
    }
    let stream = dial(&addresses(&["127.0.0.5", "127.0.0.2"]), port).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().ip(), Ipv4Addr::new(127, 0, 0, 2));
}

#[tokio::test]
async fn when_none_answers_the_last_error_is_told() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(dial(&addresses(&["127.0.0.1"]), port).await.is_ok());
    for texts in [&["127.0.0.3"][..], &["127.0.0.3", "127.0.0.4"], &[]] {
        let refused = dial(&addresses(texts), port).await;
        assert!(matches!(refused, Err(DialError::Failed(_))), "{refused:?}");
    }
}

/// What keeps "only a checked address is dialled" true: one function connects, and it takes nothing
/// else. Beside it, the relay to Squid connects to Squid's own port of loopback.
#[test]
fn nothing_else_in_this_crate_connects() {
    fn visit(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, found);
            } else if !path.to_string_lossy().contains("tests") && !path.ends_with("support.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for line in text.lines().filter(|line| {
                    line.contains("TcpStream::connect") || line.contains("TcpSocket")
                }) {
                    found.push(format!("{}: {}", path.file_name().unwrap().display(), line.trim()));
                }
            }
        }
    }
    let mut found = Vec::new();
    visit(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found.sort();
    let [dial, relay] = &found[..] else { panic!("{found:#?}") };
    assert!(dial.starts_with("dial.rs: "), "{found:#?}");
    let squid = "relay.rs: let squid = TcpStream::connect((Ipv4Addr::LOCALHOST, peer.port)).await;";
    assert_eq!(relay, squid);
}
