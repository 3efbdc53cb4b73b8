//! Debian's servers, unpacked into `target/tools/debian` and not installed: nothing is started,
//! no cluster is made, and an ordinary user can do it.
//!
//! Each program is called through a small script in `target/tools/debian/bin`, which shows it the
//! libraries that were unpacked beside it and then becomes that program; one that is linked
//! statically is a link there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{debian, empty, read, write};
use crate::sh::{Result, command, heading, quiet, run};

/// One server.
struct Server {
    folder: &'static str,
    why: &'static str,
    /// Packages; the first one may only name the real one, with its version.
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    /// Asks the first program for its version.
    version: &'static str,
}

const SERVERS: &[Server] = &[
    Server {
        folder: "postgresql",
        why: "one budget for many hosts",
        packages: &["postgresql", "postgresql-client"],
        programs: &["postgres", "initdb", "pg_ctl", "psql"],
        version: "--version",
    },
    Server {
        folder: "nginx",
        why: "benchmark: a proxy that inspects nothing",
        packages: &["nginx"],
        programs: &["nginx"],
        version: "-v",
    },
    Server {
        folder: "docker",
        why: "a Docker engine of each test's own",
        packages: &["docker.io", "containerd", "runc", "tini"],
        programs: &[
            "dockerd",
            "docker",
            "docker-proxy",
            "docker-init",
            "containerd",
            "containerd-shim-runc-v2",
            "runc",
        ],
        version: "--version",
    },
];

/// Only for queries that are compiled; hundreds of MiB.
const LEFT_OUT: &str = "libllvm";

/// Unpacks what is missing.
pub(super) fn install(tools: &Path) -> Result {
    heading("Debian packages that are unpacked and not installed");
    let root = tools.join("debian");
    for server in SERVERS {
        let folder = root.join(server.folder);
        // The stamp is written last, so that an interrupted install is done again.
        let stamp = folder.join("installed");
        let main = root.join("bin").join(server.programs[0]);
        let answers = || quiet(Command::new(&main).arg(server.version)).is_some();
        if !(stamp.is_file() && answers()) {
            unpack(server, &root, &folder)?;
            if !answers() {
                return Err(format!("{} {} fails", main.display(), server.version));
            }
        }
        println!("{:16} {:28} {}", server.folder, read(&stamp)?.trim(), server.why);
    }
    Ok(())
}

/// The packages that these name as needed, the first of each choice.
pub(super) fn needs(packages: &[&str]) -> Vec<String> {
    let mut command = Command::new("apt-cache");
    command.args(["depends", "--important"]).args(packages).env("LC_ALL", "C");
    let mut chosen = false;
    let mut all = Vec::new();
    for line in quiet(&mut command).unwrap_or_default().lines() {
        let Some((kind, name)) = line.trim().split_once("epends: ") else { continue };
        if !chosen && !name.starts_with('<') {
            all.push(name.to_owned());
        }
        chosen = kind.starts_with('|');
    }
    all
}

/// A package, or the one with a version in its name that it stands for.
fn real(package: &str) -> String {
    let versioned = |name: &String| {
        name.strip_prefix(package)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|version| version.bytes().all(|b| b.is_ascii_digit()))
    };
    needs(&[package]).into_iter().find(versioned).unwrap_or_else(|| package.to_owned())
}

/// These packages, and what they need of those that are wanted.
pub(super) fn closure(first: &[String], wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut new = first.to_vec();
    while !new.is_empty() {
        all.extend(new.iter().cloned());
        let mut next = needs(&new.iter().map(String::as_str).collect::<Vec<_>>());
        next.retain(|p| wanted(p) && !all.contains(p));
        new = next;
    }
    all
}

/// Downloads packages into a folder, with a fresh list of packages if the one at hand is too old.
pub(super) fn download(folder: &Path, packages: &BTreeSet<String>) -> Result {
    let download = || {
        let mut command = command("apt-get", &["-q", "-o", "APT::Sandbox::User=root", "download"]);
        run(command.args(packages).current_dir(folder))
    };
    download().or_else(|_| debian::update().and_then(|()| download()))
}

fn unpack(server: &Server, root: &Path, folder: &Path) -> Result {
    if needs(&server.packages[..1]).is_empty() {
        debian::update()?;
    }
    let first: Vec<String> = server.packages.iter().map(|p| real(p)).collect();
    let library = |p: &str| (p.starts_with("lib") && !p.starts_with(LEFT_OUT)) || p == "zlib1g";
    let packages = closure(&first, |p| library(p) && debian::installed(p).is_none());
    empty(folder)?;
    download(folder, &packages)?;
    let main = &first[0];
    let mut version = String::new();
    for archive in files(folder)? {
        let name = archive.display().to_string();
        run(&mut command("dpkg-deb", &["-x", &name, &folder.display().to_string()]))?;
        let says = |field| quiet(&mut command("dpkg-deb", &["-f", &name, field]));
        if says("Package").is_some_and(|p| p.trim() == main.as_str()) {
            version = says("Version").unwrap_or_default();
        }
        fs::remove_file(&archive).map_err(|e| format!("{name}: {e}"))?;
    }
    let scripts = root.join("bin");
    fs::create_dir_all(&scripts).map_err(|e| format!("{}: {e}", scripts.display()))?;
    for program in server.programs {
        script(&scripts, folder, program)?;
    }
    write(&folder.join("installed"), &version)
}

pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(all.flatten().map(|e| e.path()).filter(|p| p.is_file()).collect())
}

/// Writes the script that becomes a program.
fn script(scripts: &Path, folder: &Path, program: &str) -> Result {
    let mut places = vec![folder.join("usr/sbin"), folder.join("usr/bin")];
    if let Ok(versions) = fs::read_dir(folder.join("usr/lib/postgresql")) {
        places.splice(0..0, versions.flatten().map(|v| v.path().join("bin")));
    }
    let real = places
        .iter()
        .map(|place| place.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{program} is not in {}", folder.display()))?;
    let libraries = format!(
        "{0}/usr/lib/{1}-linux-gnu:{0}/lib/{1}-linux-gnu",
        folder.display(),
        std::env::consts::ARCH
    );
    let mut ldd = Command::new("ldd");
    ldd.arg(&real).env("LD_LIBRARY_PATH", &libraries);
    let path = scripts.join(program);
    let _ = fs::remove_file(&path);
    let Some(lacks) = quiet(&mut ldd) else {
        // It is linked statically, and may be shown to others, who do not have those libraries.
        let real = real.canonicalize().map_err(|e| format!("{}: {e}", real.display()))?;
        return symlink(real, &path).map_err(|e| format!("{}: {e}", path.display()));
    };
    if let Some(line) = lacks.lines().find(|line| line.contains("not found")) {
        return Err(format!("{}: {}", real.display(), line.trim()));
    }
    let text = format!(
        "#!/bin/sh\nexport LD_LIBRARY_PATH='{libraries}'\nexec '{}' \"$@\"\n",
        real.display()
    );
    write(&path, &text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("{}: {e}", path.display()))
}
