//! `/etc`: a few named files of the host that anyone may read, and a few written here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::root::{HOME, Root};
use crate::error::{Result, Step};
use crate::ground::ids::INSIDE;

/// Taken from the host, when there and readable by all. Nothing here holds secrets: linker and
/// locale settings, certificates, protocol tables, and the settings of interpreters.
const TAKEN: [&str; 17] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust",
    "localtime",
    "timezone",
    "protocols",
    "services",
    "mime.types",
    "os-release",
    "perl",
];

/// Interpreters whose folders carry a version.
const TAKEN_PREFIXES: [&str; 2] = ["python3", "java-"];

/// Bytes up to which a file is copied, which is cheaper than a mount.
const COPY_MAX: u64 = 1 << 20;

/// Fills `/etc`.
///
/// # Errors
/// [`crate::Error::Step`].
pub(super) fn fill(root: &Root) -> Result<()> {
    for name in TAKEN {
        take(root, name)?;
    }
    for entry in fs::read_dir("/etc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if TAKEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            take(root, name)?;
        }
    }
    let passwd = format!(
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         agent:x:{INSIDE}:{INSIDE}:agent:{HOME}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\nagent:x:{INSIDE}:\nnogroup:x:65534:\n");
    let hosts = "127.0.0.1 localhost\n";
    let switch =
        "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n";
    for (name, text) in [
        ("passwd", passwd.as_str()),
        ("group", group.as_str()),
        ("hosts", hosts),
        ("nsswitch.conf", switch),
        ("resolv.conf", ""),
        ("hostname", "sandbox\n"),
    ] {
        root.write(&Path::new("/etc").join(name), text.as_bytes())?;
    }
    Ok(())
}

fn take(root: &Root, name: &str) -> Result<()> {
    let path = Path::new("/etc").join(name);
    let Ok(meta) = fs::symlink_metadata(&path) else { return Ok(()) };
    if meta.is_symlink() {
        let target = fs::read_link(&path).step(format!("read {}", path.display()))?;
        return root.link(&path, target.as_os_str());
    }
    let needed = if meta.is_dir() { 0o005 } else { 0o004 };
    if meta.mode() & needed != needed || !(meta.is_dir() || meta.is_file()) {
        return Ok(());
    }
    if meta.is_dir() || meta.len() > COPY_MAX {
        return root.bind(&path);
    }
    match fs::read(&path) {
        Ok(content) => root.write(&path, &content),
        // Removed meanwhile, or a parent folder is shut: then it is not there.
        Err(_) => Ok(()),
    }
}
