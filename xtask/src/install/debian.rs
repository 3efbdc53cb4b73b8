//! Debian packages that are installed into the system.

use std::path::Path;
use std::process::Command;

use crate::sh::{Result, command, heading, quiet, run};

/// Debian packages and what for.
const PACKAGES: &[(&str, &str)] = &[
    ("build-essential", "C compiler and linker, for Rust"),
    ("git", "cases about .git"),
    ("bubblewrap", "benchmark, and srt"),
    ("iproute2", "the test network"),
    ("util-linux", "unshare, nsenter, setpriv, prlimit"),
    ("openssl", "cases about TLS"),
    ("curl", "an agent that downloads"),
    ("python3", "agents and servers in tests, the scripted model"),
    ("python3-venv", "real MCP servers in Python"),
    ("tzdata", "PostgreSQL reads time zones there"),
    ("procps", "looking at processes"),
    ("strace", "killing the program before each of its writes"),
    ("ripgrep", "srt needs it"),
    ("socat", "srt needs it"),
    ("dbus", "a session bus for the keychain"),
    ("gnome-keyring", "a real Secret Service, in cases about the keychain"),
    ("iptables", "a Docker engine's own networks"),
    ("nftables", "looking that the machine's own tables stay as they are"),
    ("squid", "the proxy that a team may require in place of the built-in one"),
];

/// The version of an installed package.
pub(super) fn installed(name: &str) -> Option<String> {
    let format = "-f=${db:Status-Status} ${Version}";
    quiet(Command::new("dpkg-query").args(["-W", format, name]))?
        .strip_prefix("installed ")
        .map(str::to_owned)
}

/// What stands before a command that changes the system; nothing where neither root nor sudo is
/// at hand.
fn prefix() -> Option<&'static [&'static str]> {
    if quiet(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0") {
        return Some(&[]);
    }
    quiet(Command::new("sudo").args(["-n", "true"])).map(|_| &["sudo", "-n"][..])
}

fn apt(prefix: &[&str], args: &[&str]) -> Result {
    let mut words = prefix.to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]);
    words.extend(args);
    run(&mut command(words[0], &words[1..]))
}

/// Fetches the list of packages.
pub(super) fn update() -> Result {
    let prefix = prefix().ok_or(
        "the list of Debian packages is missing or old, and neither root nor sudo is at hand\n\
         next: ask an administrator to run `apt-get update`",
    )?;
    apt(prefix, &["update"])
}

/// Installs the missing ones.
pub(super) fn install() -> Result {
    heading("Debian packages");
    if installed("dpkg").is_none() {
        return Err("this is not Debian (no dpkg-query): install the packages by hand".into());
    }
    let mut missing = Vec::new();
    for (name, why) in PACKAGES {
        let found = installed(name);
        println!("{name:16} {:28} {why}", found.as_deref().unwrap_or("to be installed"));
        if found.is_none() {
            missing.push(*name);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let Some(prefix) = prefix() else {
        let names = missing.join(" ");
        return Err(format!(
            "these Debian packages are missing, and neither root nor sudo is at hand: {names}\n\
             next: ask an administrator to run `apt-get install {names}`"
        ));
    };
    let mut install = vec!["install", "--no-install-recommends"];
    install.extend(&missing);
    without_services(prefix, &missing, || {
        // The list of packages may be missing or old: fetch it once, then try again.
        apt(prefix, &install).or_else(|_| update().and_then(|()| apt(prefix, &install)))
    })
}

/// Services of packages in the list above.
const SERVICES: &[&str] = &["squid.service"];

/// Installs, and has no service started by it, now or at the next boot: tests start their own.
///
/// Debian's scripts start nothing where no init system is at hand. Where systemd runs, the services
/// are masked for the while.
fn without_services(prefix: &[&str], missing: &[&str], install: impl FnOnce() -> Result) -> Result {
    let new: Vec<&str> = SERVICES
        .iter()
        .copied()
        .filter(|s| s.strip_suffix(".service").is_some_and(|name| missing.contains(&name)))
        .collect();
    if new.is_empty() || !Path::new("/run/systemd/system").is_dir() {
        return install();
    }
    let systemctl = |args: &[&str]| {
        let words = [prefix, &["systemctl", "--quiet"], args, &new].concat();
        run(&mut command(words[0], &words[1..]))
    };
    systemctl(&["mask", "--runtime"])?;
    let done = install();
    systemctl(&["unmask", "--runtime"])?;
    done?;
    systemctl(&["disable"])
}
