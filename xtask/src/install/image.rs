//! Images for the tests of the Docker backend, made of Debian packages without a registry:
//! `target/tools/image/agent.tar`, with what agents and probes in tests use, and `busybox.tar`.
//!
//! Packages are unpacked and not installed: no script of theirs is run, and an ordinary user can do
//! it. What their scripts would have made and a program needs is made here.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::unpacked::{closure, download, files, needs};
use super::{debian, empty, read, write};
use crate::sh::{Result, command, heading, quiet, run};

/// One image.
struct Image {
    name: &'static str,
    why: &'static str,
    packages: &'static [&'static str],
}

const IMAGES: &[Image] = &[
    Image {
        name: "agent",
        why: "agents in Python, and what probes of the red team call",
        packages: &[
            "bash",
            "ca-certificates",
            "coreutils",
            "curl",
            "dash",
            "findutils",
            "git",
            "grep",
            "gzip",
            "hostname",
            "iproute2",
            "libc-bin",
            "mawk",
            "mount",
            "netbase",
            "openssl",
            "procps",
            "python3",
            "sed",
            "tar",
            "util-linux",
        ],
    },
    Image { name: "busybox", why: "the smallest one", packages: &["busybox-static"] },
];

/// Changed when images are to be made anew: how they are made is part of what they are.
const RECIPE: u32 = 1;

/// Not needed by any program that is called: half of the bytes.
const LEFT_OUT: &[&str] = &[
    "./usr/include",
    "./usr/lib/python3*/idlelib",
    "./usr/lib/python3*/lib2to3",
    "./usr/lib/python3*/pydoc_data",
    "./usr/lib/*-linux-gnu/gconv",
    "./usr/lib/*-linux-gnu/perl*",
    "./usr/share/bash-completion",
    "./usr/share/bug",
    "./usr/share/doc",
    "./usr/share/info",
    "./usr/share/lintian",
    "./usr/share/locale",
    "./usr/share/man",
    "./usr/share/perl*",
    "./var/lib/dpkg",
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// Makes what is missing.
pub(super) fn install(tools: &Path) -> Result {
    heading("images for the Docker backend, of unpacked Debian packages");
    let folder = tools.join("image");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for image in IMAGES {
        let wanted = format!("recipe {RECIPE}\n{}\n", image.packages.join("\n"));
        // The stamp is written last, so that an interrupted install is done again.
        let stamp = folder.join(format!("{}.made", image.name));
        let tar = folder.join(format!("{}.tar", image.name));
        if !(tar.is_file() && fs::read_to_string(&stamp).is_ok_and(|have| have == wanted)) {
            make(image, &folder, &tar)?;
            write(&stamp, &wanted)?;
        }
        let bytes = fs::metadata(&tar).map_or(0, |m| m.len());
        println!("{:16} {:28} {}", image.name, format!("{} MiB", bytes >> 20), image.why);
    }
    Ok(())
}

fn make(image: &Image, folder: &Path, tar: &Path) -> Result {
    if needs(&["bash"]).is_empty() {
        debian::update()?;
    }
    let first: Vec<String> = image.packages.iter().map(|&p| p.to_owned()).collect();
    let all = closure(&first, |p| {
        (p.starts_with("lib") && !p.contains("perl")) || p.starts_with("python3") || p == "zlib1g"
    });
    let (archives, root) = (folder.join("archives"), folder.join("root"));
    empty(&archives)?;
    empty(&root)?;
    download(&archives, &all)?;
    // Debian's packages still name folders that are links in a system.
    for name in ["bin", "sbin", "lib", "lib64"] {
        let below = root.join("usr").join(name);
        fs::create_dir_all(&below).map_err(|e| format!("{}: {e}", below.display()))?;
        link(Path::new("usr").join(name).as_path(), &root.join(name))?;
    }
    for archive in files(&archives)? {
        unpack(&archive, &root)?;
    }
    finish(image, &root)?;
    let part = tar.with_extension("part");
    let mut pack = command("tar", &["--create", "--sort=name", "--mtime=@0", "--numeric-owner"]);
    pack.args(["--owner=0", "--group=0", "--directory"]).arg(&root).arg("--file").arg(&part);
    pack.arg("--wildcards").args(LEFT_OUT.iter().map(|path| format!("--exclude={path}")));
    run(pack.arg("."))?;
    fs::rename(&part, tar).map_err(|e| format!("{}: {e}", tar.display()))?;
    for folder in [archives, root] {
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(())
}

/// As dpkg does: what is a link to a folder stays one.
fn unpack(archive: &Path, root: &Path) -> Result {
    let fail = |e: std::io::Error| format!("{}: {e}", archive.display());
    let mut open = Command::new("dpkg-deb");
    open.arg("--fsys-tarfile").arg(archive).stdout(Stdio::piped());
    let mut open = open.spawn().map_err(fail)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--no-same-owner", "--keep-directory-symlink", "--directory"]);
    let tar = tar.arg(root).stdin(open.stdout.take().ok_or("no pipe")?).status();
    let opened = open.wait().map_err(fail)?;
    if opened.success() && tar.map_err(fail)?.success() {
        return Ok(());
    }
    Err(format!("{} cannot be unpacked", archive.display()))
}

/// Makes what the scripts of packages would have made.
fn finish(image: &Image, root: &Path) -> Result {
    let folders = ["dev", "etc", "proc", "root", "run", "sys", "tmp", "var/tmp", "work"];
    for name in folders {
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mode = if name.ends_with("tmp") { 0o1777 } else { 0o755 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    for (name, text) in [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)] {
        write(&root.join("etc").join(name), text)?;
    }
    if image.name == "busybox" {
        let busybox = root.join("bin/busybox");
        let applets = quiet(Command::new(&busybox).arg("--list"))
            .ok_or_else(|| format!("{} --list fails", busybox.display()))?;
        for applet in applets.lines().filter(|name| *name != "busybox") {
            link(Path::new("busybox"), &root.join("bin").join(applet))?;
        }
        return Ok(());
    }
    // `sh` and `awk` are made by scripts or by alternatives.
    for (name, target) in [("sh", "dash"), ("awk", "mawk")] {
        let path = root.join("bin").join(name);
        if fs::symlink_metadata(&path).is_err() {
            link(Path::new(target), &path)?;
        }
    }
    authorities(root)
}

/// All of the authorities in the file where programs look.
fn authorities(root: &Path) -> Result {
    let mut all = files(&root.join("usr/share/ca-certificates/mozilla"))?;
    all.sort();
    let mut text = String::new();
    for path in all {
        text.push_str(&read(&path)?);
    }
    let folder = root.join("etc/ssl/certs");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    write(&folder.join("ca-certificates.crt"), &text)
}

fn link(target: &Path, path: &Path) -> Result {
    symlink(target, path).map_err(|e| format!("{}: {e}", path.display()))
}
