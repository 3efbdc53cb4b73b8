//! What is compared.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::own;
use super::wire::HOST;
use crate::Result;
use crate::bundle::Bundle;
use crate::gateway::process::{Running, Worker};

const SQUID: &str = "/usr/sbin/squid";

/// A proxy, and the client that uses it.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    /// The process whose memory counts.
    pub(super) process: u32,
    worker: Worker,
    _running: Option<Running>,
    _bundle: Option<Bundle>,
}

impl Contestant {
    pub(super) fn order(&mut self, order: &Value) -> Result<Value> {
        self.worker.order(order).map_err(|e| format!("{}: {e}", self.name))
    }
}

/// Debian's Squid. Its helper lets every password in, and what it said is remembered.
pub(super) fn squid(folder: &Path) -> Result<Contestant> {
    let at = folder.join("squid");
    fs::create_dir(&at).map_err(|e| e.to_string())?;
    // Started by root it works as another user.
    for (path, mode) in [(folder, 0o755), (at.as_path(), 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| e.to_string())?;
    }
    let port = 3128;
    let at = at.display();
    let text = format!(
        "http_port 127.0.0.1:{port}\npid_filename {at}/pid\ncache_log {at}/cache.log\n\
         access_log stdio:{at}/access.log\ncoredump_dir {at}\nnetdb_filename none\n\
         pinger_enable off\nshutdown_lifetime 1 seconds\ncache deny all\nworkers 1\n\
         max_filedescriptors 16384\nvisible_hostname bench\nvia off\nforwarded_for delete\n\
         auth_param basic program /usr/lib/squid/basic_fake_auth\nauth_param basic children 1\n\
         auth_param basic credentialsttl 12 hours\n\
         acl someone proxy_auth REQUIRED\nacl allowed dstdomain -n {HOST}\nacl ports port 443\n\
         acl tunnels method CONNECT\n\
         acl private dst 0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 \
         172.16.0.0/12 192.168.0.0/16 fc00::/7 fe80::/10\n\
         http_access deny !someone\nhttp_access deny !tunnels\nhttp_access deny !allowed\n\
         http_access deny !ports\nhttp_access deny private\nhttp_access allow all\n"
    );
    let file = folder.join("squid.conf");
    fs::write(&file, text).map_err(|e| e.to_string())?;
    let mut command = Command::new(SQUID);
    command.args(["--foreground", "-f"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut squid = Running::start("squid", &mut command)?;
    squid.listens("squid", port)?;
    // The one that works is a child of the one that was started.
    let process = child_of(squid.id())?;
    let mut command = Command::new(own()?);
    command.arg("egress-client");
    command.env("HTTPS_PROXY", format!("http://bench:secret@127.0.0.1:{port}"));
    let worker = Worker::start(&mut command)?;
    Ok(Contestant { name: "squid", process, worker, _running: Some(squid), _bundle: None })
}

fn child_of(process: u32) -> Result<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    match text.split_whitespace().next() {
        Some(child) => child.parse().map_err(|e| format!("{path}: {e}")),
        None => Ok(process),
    }
}

/// `ringfence run` with the client as its agent.
pub(super) fn ringfence(program: &Path) -> Result<Contestant> {
    let own = own()?.display().to_string();
    let manifest = format!(
        "version = 1\n\n[agent]\nname = \"bench\"\n\n[sandbox.network]\n\
         allowed_hosts = [\"{HOST}\"]\n\n[policy.filesystem]\nread = [\"**\", {own:?}]\n"
    );
    let bundle = Bundle::new(program, &manifest)?;
    let mut command = bundle.command(&["run", "--", &own, "egress-client"]);
    command.stderr(Stdio::null());
    let worker = Worker::start(&mut command)?;
    let process = worker.id();
    Ok(Contestant { name: "ringfence", process, worker, _running: None, _bundle: Some(bundle) })
}
