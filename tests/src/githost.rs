//! A git host on loopback, over TLS: git's own `http-backend` behind a few lines of HTTP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::Project;

/// The host. Its repositories go away with it.
#[derive(Debug)]
pub struct GitHost {
    folder: TempDir,
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl GitHost {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-git-")
            .tempdir()
            .expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
            .expect("our own folder");
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
            .expect("a certificate for an address");
        fs::write(folder.path().join("cert.pem"), made.cert.pem()).expect("our own file");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the key is the certificate's");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it listens");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (config, root, log) = (Arc::new(config), folder.path().to_owned(), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, root, log) = (Arc::clone(&config), root.clone(), Arc::clone(&log));
                std::thread::spawn(move || serve(stream, config, &root, &log));
            }
        });
        Self { folder, address, seen }
    }

    /// Lets git, as this project's program starts it, accept the host's certificate.
    pub fn known_to(&self, project: &mut Project) {
        let certificate = self.folder.path().join("cert.pem");
        project.env("GIT_SSL_CAINFO", &certificate.display().to_string());
    }

    /// The address of a repository.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("https://{}/{name}", self.address)
    }

    /// Commits these files in a repository, which is made when it is missing; gives the commit.
    ///
    /// # Panics
    /// When git does not.
    #[track_caller]
    pub fn commit(&self, name: &str, files: &[(&str, &str)]) -> String {
        let folder = self.folder(name);
        if !folder.exists() {
            fs::create_dir(&folder).expect("our own folder");
            self.git(name, &["init", "-q", "-b", "main"]);
        }
        for (path, text) in files {
            let file = folder.join(path);
            fs::create_dir_all(file.parent().expect("a file is in a folder"))
                .expect("our own folder");
            fs::write(file, text).expect("our own file");
        }
        self.git(name, &["add", "-A"]);
        self.git(name, &["commit", "-q", "--allow-empty", "-m", "more"]);
        self.git(name, &["rev-parse", "HEAD"])
    }

    /// Plain git in a repository.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn git(&self, name: &str, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=h", "-c", "user.email=h@example.com"])
            .args(words)
            .current_dir(self.folder(name))
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The folder of a repository.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The request lines so far.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for GitHost {
    fn default() -> Self {
        Self::new()
    }
}

type Tls = StreamOwned<ServerConnection, TcpStream>;

fn serve(stream: TcpStream, config: Arc<ServerConfig>, root: &Path, log: &Mutex<Vec<String>>) {
    let Ok(connection) = ServerConnection::new(config) else { return };
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    while let Some(answer) = answer(&mut stream, root, log) {
        let to = stream.get_mut();
        if to.write_all(&answer).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Answers one request; `None` when the client has gone.
fn answer(stream: &mut BufReader<Tls>, root: &Path, log: &Mutex<Vec<String>>) -> Option<Vec<u8>> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
    log.lock().unwrap_or_else(PoisonError::into_inner).push(line.trim().to_owned());
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let header = |name: &str| {
        headers.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str())
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REQUEST_METHOD", &method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let writer = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().ok()?;
    let _ = writer.join();
    let split = output.stdout.windows(4).position(|w| w == b"\r\n\r\n")?;
    let (head, body) =
        (String::from_utf8_lossy(&output.stdout[..split]), &output.stdout[split + 4..]);
    let status = head.lines().find_map(|l| l.strip_prefix("Status: ")).unwrap_or("200 OK");
    let rest: String = head
        .lines()
        .filter(|line| !line.starts_with("Status:"))
        .map(|line| format!("{line}\r\n"))
        .collect();
    let mut answer =
        format!("HTTP/1.1 {status}\r\n{rest}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    Some(answer)
}
