//! `<home>/signins.json`: which sign-ins there are, without their values.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{SignIn, Stamp};
use crate::private::{List, of_version_1};

const LIST: List = List { name: "signins.json", lock: "signins.lock", most: 4 << 20 };
/// Sign-ins on one machine, at most.
const MAX: usize = 1000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    signins: Vec<SignIn>,
}

fn known(stored: Option<Stored>) -> Result<Vec<SignIn>, String> {
    let Some(Stored { version, signins }) = stored else { return Ok(Vec::new()) };
    of_version_1(LIST.name, version)?;
    Ok(signins)
}

pub(super) fn read(home: &Path) -> Result<Vec<SignIn>, String> {
    known(LIST.read(home)?)
}

/// Inode, size and time: another one when the file was written anew.
pub(super) fn stamp(home: &Path) -> Stamp {
    let found = std::fs::symlink_metadata(home.join(LIST.name)).ok()?;
    Some((found.ino(), found.size().cast_signed(), found.mtime(), found.mtime_nsec()))
}

/// Puts one in the place of what was there for the same server, or takes it away.
pub(super) fn change(home: &Path, server: &str, new: Option<&SignIn>) -> Result<(), String> {
    let change = |stored| {
        let mut signins = known(stored)?;
        signins.retain(|it| it.server != server);
        signins.extend(new.cloned());
        if signins.len() > MAX {
            return Err(format!("there are {MAX} sign-ins; `ringfence logout` takes some away"));
        }
        signins.sort_by(|a, b| a.server.cmp(&b.server));
        Ok(Some(Stored { version: 1, signins }))
    };
    LIST.change(home, change).map(drop)
}
