//! What to do about a step that the machine refuses.

use std::fs;
use std::io;

/// Why user namespaces may be refused here, and the setting to change.
pub(crate) fn user_namespaces(error: &io::Error) -> Option<String> {
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok();
    let is = |name: &str, value: &str| setting(name).is_some_and(|text| text.trim() == value);
    if is("kernel/unprivileged_userns_clone", "0") {
        return Some(
            "user namespaces are off for ordinary users: sysctl kernel.unprivileged_userns_clone=1"
                .into(),
        );
    }
    if is("user/max_user_namespaces", "0") {
        return Some("user namespaces are off: sysctl user.max_user_namespaces=15000".into());
    }
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return Some(
            "AppArmor restricts user namespaces: give ringfence a profile with `userns,`, or \
             sysctl kernel.apparmor_restrict_unprivileged_userns=0"
                .into(),
        );
    }
    match error.raw_os_error() {
        Some(libc::ENOSPC) => Some(
            "too many namespaces: raise user.max_user_namespaces, user.max_net_namespaces and \
             their like"
                .into(),
        ),
        Some(libc::EPERM | libc::EACCES) => Some(
            "namespaces are refused: in a container, start it with a seccomp profile that allows \
             clone and mount (for example --security-opt seccomp=unconfined)"
                .into(),
        ),
        Some(libc::ENOSYS) => Some("needs Linux 5.14 or later".into()),
        _ => None,
    }
}

/// Why a mount may be refused in our own namespaces.
pub(crate) fn mounts(error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => Some("needs Linux 5.14 or later".into()),
        Some(libc::EPERM | libc::EACCES) => user_namespaces(error),
        _ => None,
    }
}

/// Why our own `/proc` may be refused.
pub(crate) fn proc_mount(error: &io::Error) -> Option<String> {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)).then(|| {
        "a container runtime has masked parts of /proc, so no new one may be mounted: start the \
         container with --security-opt systempaths=unconfined, or use another backend"
            .into()
    })
}

/// Why a project may not be id-mapped.
pub(crate) fn id_mapping(error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Some(
            "the project's file system cannot be id-mapped: start ringfence as the ordinary user \
             who owns the project, or move it to ext4, xfs, btrfs or another that can"
                .into(),
        ),
        Some(libc::EPERM | libc::EACCES) => Some(
            "root may not map ids here (a container?): start ringfence as an ordinary user".into(),
        ),
        Some(libc::ENOSYS) => Some("needs Linux 5.14 or later".into()),
        _ => None,
    }
}
