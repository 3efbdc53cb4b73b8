//! Which project is meant.

use std::path::{Path, PathBuf};

use ringfence_bundle::{Nearest, nearest};

use crate::args::Args;
use crate::escape::escaped;
use crate::out::{self, Colour};

impl Args {
    /// The project folder: the one that was named, or the nearest with a bundle, and then it is said
    /// which, once. Only for commands that are about a project.
    pub(crate) fn project(&self) -> &Path {
        self.given.as_deref().unwrap_or_else(|| self.found.get_or_init(find))
    }

    /// The folder that was named, or the current one.
    pub(crate) fn here(&self) -> &Path {
        self.given.as_deref().unwrap_or(Path::new("."))
    }
}

fn find() -> PathBuf {
    let here = PathBuf::from(".");
    let Ok(start) = std::env::current_dir() else { return here };
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    match nearest(&start, home.as_deref()) {
        Nearest::Here => here,
        Nearest::Above(project) => {
            let shown = escaped(&project.to_string_lossy());
            out::say(&out::paint(Colour::Dim, &format!("ringfence: project {shown}")));
            project
        }
        Nearest::Foreign(project) => {
            let shown = escaped(&project.to_string_lossy());
            let warning = out::paint(Colour::Yellow, "warning");
            out::say(&format!(
                "{warning}: the bundle in {shown} is another user's and is not taken"
            ));
            out::say(&format!("  next: name it, if it is meant: ringfence -C {shown} …"));
            here
        }
    }
}
