//! What tests and benchmarks need from elsewhere: Debian, npm and Cargo packages, by name.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::sh::{Result, command, heading, quiet, repository, run, tools};

/// Debian packages and what for.
const DEBIAN: &[(&str, &str)] = &[
    ("build-essential", "C compiler and linker, for Rust"),
    ("git", "cases about .git"),
    ("bubblewrap", "benchmark, and srt"),
    ("iproute2", "the test network"),
    ("util-linux", "unshare, nsenter, setpriv, prlimit"),
    ("openssl", "cases about TLS"),
    ("curl", "an agent that downloads"),
    ("python3", "agents and servers in tests, the scripted model"),
    ("nodejs", "the reference decision endpoint"),
    ("procps", "looking at processes"),
    ("strace", "killing the program before each of its writes"),
    ("ripgrep", "srt needs it"),
    ("socat", "srt needs it"),
    ("dbus", "a session bus for the keychain"),
    ("gnome-keyring", "a real Secret Service, in cases about the keychain"),
];

/// Cargo tools, their versions, and whether a newer one that is already there will do.
const CARGO: &[(&str, &str)] = &[("cargo-nextest", "0.9.143"), ("cargo-deny", "0.20.2")];

/// Where the npm packages are.
pub(crate) struct Installed {
    /// The folder that holds `node_modules`.
    pub(crate) npm: PathBuf,
}

/// Installs whatever is missing; quick when nothing is.
pub(crate) fn everything() -> Result<Installed> {
    debian()?;
    let npm = npm()?;
    for (name, version) in CARGO {
        cargo(name, version)?;
    }
    Ok(Installed { npm })
}

fn debian() -> Result {
    heading("Debian packages");
    let list = |name: &str| {
        quiet(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status} ${Version}", name]))
    };
    if list("dpkg").is_none() {
        return Err("this is not Debian (no dpkg-query): install the packages by hand".into());
    }
    let mut missing = Vec::new();
    for (name, why) in DEBIAN {
        let found = list(name).and_then(|s| s.strip_prefix("installed ").map(str::to_owned));
        println!("{name:16} {:28} {why}", found.as_deref().unwrap_or("to be installed"));
        if found.is_none() {
            missing.push(*name);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let root = quiet(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    let prefix: &[&str] = if root {
        &[]
    } else if quiet(Command::new("sudo").args(["-n", "true"])).is_some() {
        &["sudo", "-n"]
    } else {
        let names = missing.join(" ");
        return Err(format!(
            "these Debian packages are missing, and neither root nor sudo is at hand: {names}\n\
             next: ask an administrator to run `apt-get install {names}`"
        ));
    };
    let apt = |args: &[&str]| {
        let mut words = prefix.to_vec();
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]);
        words.extend(args);
        run(&mut command(words[0], &words[1..]))
    };
    let mut install = vec!["install", "--no-install-recommends"];
    install.extend(&missing);
    // The list of packages may be missing or old: fetch it once, then try again.
    apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)))
}

fn npm() -> Result<PathBuf> {
    heading("npm packages (xtask/tools/package.json, no install scripts are run)");
    let from = repository().join("xtask/tools");
    let to = tools().join("npm");
    let read =
        |path: PathBuf| fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()));
    let wanted = read(from.join("package-lock.json"))?;
    let package: serde_json::Value =
        serde_json::from_str(&read(from.join("package.json"))?).map_err(|e| e.to_string())?;
    for (name, version) in package["dependencies"].as_object().into_iter().flatten() {
        println!("{name}@{}", version.as_str().unwrap_or("?"));
    }
    // The stamp is written last, so that an interrupted install is done again.
    let stamp = to.join("installed.lock");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(to);
    }
    fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(from.join(name), to.join(name)).map_err(|e| format!("{name}: {e}"))?;
    }
    let args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    run(command("npm", &args).current_dir(&to))?;
    fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(to)
}

/// `major.minor.patch` as numbers that compare.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-']).map_while(|n| n.parse().ok()).collect()
}

fn cargo(name: &str, version: &str) -> Result {
    heading(&format!("{name} {version} or newer"));
    let subcommand = name.trim_start_matches("cargo-");
    let found = quiet(&mut command("cargo", &[subcommand, "--version"]));
    let found = found.as_deref().and_then(|text| text.split_whitespace().nth(1));
    if let Some(found) = found.filter(|found| numbers(found) >= numbers(version)) {
        println!("{found} is there");
        return Ok(());
    }
    println!("building it takes a few minutes, once");
    let root = tools().join("cargo");
    let target = tools().join("build");
    let args = ["install", "--quiet", "--locked", name, "--version", version];
    // Outside the repository, whose own Cargo settings are not for other programs.
    let install = run(command("cargo", &args)
        .arg("--root")
        .arg(&root)
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(std::env::temp_dir()));
    let _ = fs::remove_dir_all(&target);
    install
}
