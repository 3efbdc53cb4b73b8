//! Which file a command's name means.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::Error;

/// The absolute path of a program. A name without `/` is looked up on `path` (entries that are not
/// absolute are passed over); one with `/` is taken from the project. `ringfence` is always the
/// running program, so that no folder on the way can put another in its place.
///
/// # Errors
/// [`Error::NoProgram`].
pub(crate) fn resolve(name: &str, project: &Path, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let missing = |searched: Option<String>| Error::NoProgram {
        name: name.escape_debug().to_string(),
        searched,
    };
    if name == "ringfence" {
        return std::env::current_exe().map_err(|_| missing(None));
    }
    if name.contains('/') {
        let file = project.join(name);
        if file.is_file() && !executable(&file) {
            let reason = "may not be executed; `chmod +x` it, or name its interpreter first".into();
            return Err(Error::Project { path: file, reason });
        }
        return if executable(&file) { Ok(normal(&file)) } else { Err(missing(None)) };
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| executable(file))
        .ok_or_else(|| missing(Some(path.to_string_lossy().into_owned())))
}

fn executable(file: &Path) -> bool {
    file.is_file() && accessat(CWD, file, Access::EXEC_OK, AtFlags::empty()).is_ok()
}

/// Drops `.` and `//`; leaves `..` to the file system.
fn normal(file: &Path) -> PathBuf {
    file.components().filter(|c| !matches!(c, std::path::Component::CurDir)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Error, resolve};
    use std::ffi::OsStr;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_name_is_looked_up_on_absolute_entries_only() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool");
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        let path = std::env::join_paths([std::path::Path::new("."), dir.path()]).unwrap();
        // Not executable yet.
        assert!(matches!(resolve("tool", dir.path(), Some(&path)), Err(Error::NoProgram { .. })));
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(resolve("tool", dir.path(), Some(&path)).unwrap(), tool);
        assert!(resolve("tool", dir.path(), Some(OsStr::new("."))).is_err());
        assert_eq!(resolve("./tool", dir.path(), None).unwrap(), tool);
    }

    #[test]
    fn our_own_name_is_the_running_program() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str();
        let fake = dir.path().join("ringfence");
        std::fs::write(&fake, "").unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            resolve("ringfence", dir.path(), Some(path)).unwrap(),
            std::env::current_exe().unwrap()
        );
    }
}
