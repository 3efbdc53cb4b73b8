//! What a run has on this machine for its containers: the project under the agent's ids, and the folder with
//! the sockets.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::mount::MoveMountFlags;

use super::{GATE_SOCKET, INIT_SOCKET, Wanted};
use crate::Spec;
use crate::error::{Result, Step};
use crate::ground::ids::Identity;
use crate::ground::journal::Journal;
use crate::ground::tree::{self, Held};

/// As whom the agent runs, and how the project becomes its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whom {
    /// Under these ids, to which the project belongs.
    Owner(u32, u32),
    /// Under ids that nobody has, the project id-mapped: it is root's, and the agent must not be.
    Mapped(Identity),
}

impl Whom {
    pub(super) fn choose(project: &Held) -> Result<Self> {
        match Identity::choose()? {
            Identity::Own { uid, gid } => Ok(Self::Owner(uid, gid)),
            Identity::Other { .. } if project.uid != 0 => Ok(Self::Owner(project.uid, project.gid)),
            other @ Identity::Other { .. } => Ok(Self::Mapped(other)),
        }
    }

    pub(super) fn ids(self) -> (u32, u32) {
        match self {
            Self::Owner(uid, gid)
            | Self::Mapped(Identity::Own { uid, gid } | Identity::Other { uid, gid }) => (uid, gid),
        }
    }

    /// Whose the placeholders are to be, where we are root.
    pub(super) fn owner(self, project: &Held) -> Option<(u32, u32)> {
        rustix::process::geteuid().is_root().then_some((project.uid, project.gid))
    }

    /// The project as it is to be mounted.
    pub(super) fn source(
        self,
        project: &Held,
        spec: &Spec,
        folder: &Folder,
        journal: &mut Journal,
    ) -> Result<PathBuf> {
        let Self::Mapped(identity) = self else { return Ok(spec.project.clone()) };
        let place = folder.file("project");
        fs::DirBuilder::new().mode(0o755).create(&place).step("make a place for the project")?;
        journal.entries.mounts.push(place.clone().into_os_string());
        journal.write()?;
        let mapped = project.detach()?;
        tree::map_owner(&mapped, project, identity)?;
        rustix::mount::move_mount(
            &mapped,
            c"",
            rustix::fs::CWD,
            &place,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .step("mount the project under the agent's ids")?;
        Ok(place)
    }
}

/// What a run has on this machine for its containers.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

pub(super) struct Listeners {
    pub(super) control: UnixListener,
    pub(super) gate: UnixListener,
    pub(super) init: UnixListener,
}

/// Nobody listens there: a lookup fails at once, or after a second in C libraries that do not hear of it.
const NAMES: &str = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";

impl Folder {
    pub(super) fn make(spec: &Spec) -> Result<Self> {
        let step = "make the folder for the containers";
        let folder = Self(spec.run_dir.join(super::sweep::FOLDER));
        // The run's own folder is shut: who is not its owner gets no further.
        for (path, mode) in [(folder.0.clone(), 0o711), (folder.sockets(), 0o711)] {
            fs::DirBuilder::new().mode(mode).create(&path).step(step)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).step(step)?;
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        for (name, mode) in [("empty", 0o000), ("door", 0o644), ("names", 0o644)] {
            let file = options.mode(mode).open(folder.file(name)).step(step)?;
            file.set_permissions(fs::Permissions::from_mode(mode)).step(step)?;
        }
        fs::write(folder.file("names"), NAMES).step(step)?;
        fs::DirBuilder::new().mode(0o000).create(folder.file("shut")).step(step)?;
        Ok(folder)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn sockets(&self) -> PathBuf {
        self.0.join("sockets")
    }

    pub(super) fn listen(&self, wanted: &Wanted) -> Result<Listeners> {
        let bind = |name: &str| -> Result<UnixListener> {
            let path = self.sockets().join(name);
            let step = || format!("listen on {}", path.display());
            // By its folder's descriptor: a path of a socket is at most 107 bytes long.
            let folder = fs::File::open(self.sockets()).step(step())?;
            let short = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
            let listener = UnixListener::bind(short).step(step())?;
            // The sidecar is nobody.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).step(step())?;
            Ok(listener)
        };
        Ok(Listeners {
            control: bind(wanted.control_socket)?,
            gate: bind(GATE_SOCKET)?,
            init: bind(INIT_SOCKET)?,
        })
    }
}
