//! Between Ringfence and an engine: sees every request before the engine does, and may change a word of
//! what it answers. For cases about what happens at one exact moment, and about engines that are other.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

/// What is done with a request, by its first bytes, before the engine gets it.
type Seen = dyn Fn(&str) + Send + Sync;

/// A socket that leads to an engine's.
pub struct Between {
    folder: TempDir,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Between {
    /// Listens in front of the engine at `host` (`unix://…`). In its answers each first of the pairs is
    /// replaced by the second, which must be as long.
    ///
    /// # Panics
    /// When it cannot listen, or a pair is not of one length.
    #[must_use]
    pub fn new(
        host: &str,
        pairs: &[(&str, &str)],
        seen: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        assert!(pairs.iter().all(|(from, to)| from.len() == to.len()), "lengths stay");
        let folder =
            tempfile::Builder::new().prefix("rf-between-").tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own");
        let engine =
            PathBuf::from(host.strip_prefix("unix://").expect("an engine of this machine"));
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).expect("our own folder");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("our own");
        let over = Arc::new(AtomicBool::new(false));
        let pairs: Arc<Vec<(Vec<u8>, Vec<u8>)>> = Arc::new(
            pairs.iter().map(|(a, b)| (a.as_bytes().into(), b.as_bytes().into())).collect(),
        );
        let (seen, ended): (Arc<Seen>, _) = (Arc::new(seen), Arc::clone(&over));
        let accepting = thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(behind) = UnixStream::connect(&engine) else { continue };
                carry(client, behind, Arc::clone(&seen), Arc::clone(&pairs));
            }
        });
        Self { folder, over, accepting: Some(accepting) }
    }

    /// Does something at the moment when the engine at `host` is asked for an agent's container: everything has
    /// been looked at by then, and nothing is mounted. Once.
    ///
    /// # Panics
    /// As [`Between::new`].
    #[must_use]
    pub fn at_creation(host: &str, act: impl Fn() + Send + Sync + 'static) -> Self {
        let done = AtomicBool::new(false);
        Self::new(host, &[], move |asked| {
            let now = asked.contains("/containers/create") && asked.contains("-agent");
            if now && !done.swap(true, Ordering::SeqCst) {
                act();
            }
        })
    }

    /// `DOCKER_HOST`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("s").display())
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // It waits for a client: this is the last one.
        let _ = UnixStream::connect(self.folder.path().join("s"));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Carries bytes both ways, each until its sender says that it is done.
fn carry(
    client: UnixStream,
    engine: UnixStream,
    seen: Arc<Seen>,
    pairs: Arc<Vec<(Vec<u8>, Vec<u8>)>>,
) {
    let (mut asks, mut answers) = (client.try_clone().expect("ours"), client);
    let (mut asked, mut answered) = (engine.try_clone().expect("ours"), engine);
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = asks.read(&mut buffer) {
            seen(&String::from_utf8_lossy(&buffer[..read]));
            if asked.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = asked.shutdown(Shutdown::Write);
    });
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut held = Vec::new();
        while let Ok(read @ 1..) = answered.read(&mut buffer) {
            held.extend_from_slice(&buffer[..read]);
            for (from, to) in pairs.iter() {
                while let Some(at) = held.windows(from.len()).position(|part| part == from) {
                    held[at..at + to.len()].copy_from_slice(to);
                }
            }
            // The beginning of what may be replaced waits for its end.
            let begun = |from: &[u8]| {
                let most = from.len().saturating_sub(1).min(held.len());
                (1..=most).rev().find(|length| held.ends_with(&from[..*length])).unwrap_or(0)
            };
            let kept = pairs.iter().map(|(from, _)| begun(from)).max().unwrap_or(0);
            let rest = held.split_off(held.len() - kept);
            if answers.write_all(&held).is_err() {
                break;
            }
            held = rest;
        }
        let _ = answers.write_all(&held);
        let _ = answers.shutdown(Shutdown::Write);
    });
}
