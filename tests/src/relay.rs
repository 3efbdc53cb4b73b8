//! Debian's nginx in front of the gateway, for clients that cannot send a token: it adds the token
//! and passes everything on as it comes, event by event.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::house::repository;

/// A port that was free a moment ago.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until something listens on a port of loopback.
///
/// # Panics
/// When nothing does within a minute, or the process has ended.
#[expect(clippy::disallowed_methods, reason = "loopback, from outside the program")]
pub fn wait_for(port: u16, child: &mut Child) {
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = child.try_wait().expect("it is our child");
        assert!(ended.is_none(), "it ended before it listened: {ended:?}");
        assert!(start.elapsed() < Duration::from_secs(60), "nothing listens on {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A relay that ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    child: Child,
    _folder: TempDir,
}

impl Relay {
    /// Passes what comes to `port` on to `gateway`, with this token.
    ///
    /// # Panics
    /// When nginx is not installed or does not start.
    #[must_use]
    pub fn start(port: u16, gateway: u16, token: &str) -> Self {
        let nginx = repository().join("target/tools/debian/bin/nginx");
        assert!(nginx.exists(), "{} is missing: run `cargo xtask install`", nginx.display());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = folder.path().display();
        let text = format!(
            "daemon off;\npid {at}/pid;\nerror_log stderr error;\nworker_processes 1;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n  access_log off;\n  client_body_temp_path {at}/body;\n\
             proxy_temp_path {at}/proxy;\n  fastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi;\n  scgi_temp_path {at}/scgi;\n\
             server {{ listen 127.0.0.1:{port}; location / {{\n\
             proxy_pass http://127.0.0.1:{gateway};\n  proxy_http_version 1.1;\n\
             proxy_buffering off;\n  proxy_request_buffering off;\n  proxy_read_timeout 300s;\n\
             proxy_set_header Connection \"\";\n  proxy_set_header Host $http_host;\n\
             proxy_set_header Authorization \"Bearer {token}\";\n }} }}\n}}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).expect("our own folder");
        let mut child = Command::new(nginx)
            .args(["-e", "stderr", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx can be started");
        wait_for(port, &mut child);
        Self { child, _folder: folder }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It ends its worker by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
