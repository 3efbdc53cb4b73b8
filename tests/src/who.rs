//! Who runs the program: every case runs as the user at hand and, under root, as an ordinary user.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// A user id that no distribution gives out: above the system range, below nobody.
const ORDINARY: u32 = 48_151;

/// Whose process the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The user who runs the suite, root or not.
    Itself,
    /// An ordinary user without a name, when root runs the suite.
    Ordinary,
}

impl Who {
    /// Whether the suite runs as root.
    #[must_use]
    pub fn suite_is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Whether this user is root.
    #[must_use]
    pub fn is_root(self) -> bool {
        self == Self::Itself && Self::suite_is_root()
    }

    /// The user id on the host.
    #[must_use]
    pub fn uid(self) -> u32 {
        match self {
            Self::Itself => rustix::process::geteuid().as_raw(),
            Self::Ordinary => ORDINARY,
        }
    }

    /// What stands before a command so that it runs as this user.
    #[must_use]
    pub fn prefix(self) -> Vec<String> {
        match self {
            Self::Itself => Vec::new(),
            Self::Ordinary => vec![
                "setpriv".into(),
                format!("--reuid={ORDINARY}"),
                format!("--regid={ORDINARY}"),
                "--clear-groups".into(),
                "--".into(),
            ],
        }
    }

    /// Gives a path and all below it to this user.
    ///
    /// # Panics
    /// When it cannot be given.
    pub fn own(self, path: &Path) {
        if self == Self::Itself {
            return;
        }
        std::os::unix::fs::lchown(path, Some(ORDINARY), Some(ORDINARY))
            .unwrap_or_else(|e| panic!("give {} to an ordinary user: {e}", path.display()));
        let is_dir = std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
        if is_dir {
            for entry in std::fs::read_dir(path).expect("a folder of our own is readable") {
                self.own(&entry.expect("a folder of our own is readable").path());
            }
        }
    }
}

/// Runs a case as the user at hand and, when that is root, once more as an ordinary user. A failure
/// says whose it was.
///
/// # Panics
/// When the case does.
#[expect(clippy::print_stderr, reason = "a failed case says whose it was")]
pub fn each_user(case: impl Fn(Who)) {
    let mut all = vec![Who::Itself];
    if Who::suite_is_root() {
        all.push(Who::Ordinary);
    }
    for who in all {
        eprintln!(
            "--- as {} (uid {})",
            if who.is_root() { "root" } else { "an ordinary user" },
            who.uid()
        );
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(who))) {
            eprintln!("--- failed as uid {}", who.uid());
            resume_unwind(panic);
        }
    }
}
