//! A small trusted bundle in a folder that goes away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::Result;

/// The bundle, and how to call the program on it.
pub(crate) struct Bundle {
    root: TempDir,
    program: PathBuf,
    home: PathBuf,
}

impl Bundle {
    /// Writes, locks and trusts.
    pub(crate) fn new(program: &Path, manifest: &str) -> Result<Self> {
        Self::with(program, manifest, |_| Ok(()))
    }

    /// As [`Bundle::new`], with more files in the bundle's folder.
    pub(crate) fn with(
        program: &Path,
        manifest: &str,
        fill: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Self> {
        Self::at(program, manifest, fill, None)
    }

    fn at(
        program: &Path,
        manifest: &str,
        fill: impl FnOnce(&Path) -> std::io::Result<()>,
        home: Option<&Path>,
    ) -> Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("ringfence-bench-")
            .tempdir()
            .map_err(|e| e.to_string())?;
        let folder = root.path().join("project/.ringfence");
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        fs::write(folder.join("ringfence.toml"), manifest).map_err(|e| e.to_string())?;
        fill(&folder).map_err(|e| e.to_string())?;
        let home = home.map_or_else(|| root.path().join("home"), Path::to_owned);
        let bundle = Self { root, program: program.to_owned(), home };
        bundle.must(&["lock"])?;
        bundle.trust()?;
        Ok(bundle)
    }

    /// As [`Bundle::new`], with what its servers offer pinned, and the machine's folder elsewhere.
    pub(crate) fn pinned(program: &Path, manifest: &str, home: Option<&Path>) -> Result<Self> {
        let bundle = Self::at(program, manifest, |_| Ok(()), home)?;
        // Status 1 says that it wants a yes to what it pinned, which comes next.
        let mut command = bundle.command(&["lock", "--tools"]);
        let output = command.output().map_err(|e| e.to_string())?;
        let words = String::from_utf8_lossy(&output.stderr);
        if words.contains("not pinned") {
            return Err(format!("ringfence lock --tools: {words}"));
        }
        bundle.trust()?;
        Ok(bundle)
    }

    fn trust(&self) -> Result {
        let preview = self.must(&["trust", "--preview", "--json"])?;
        let preview: serde_json::Value =
            serde_json::from_str(&preview).map_err(|e| e.to_string())?;
        let digest = preview["review_digest"].as_str().ok_or("the preview names no digest")?;
        self.must(&["trust", "--yes", "--consented", digest]).map(|_| ())
    }

    /// The project folder.
    pub(crate) fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// The machine's folder.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The program on this bundle.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(self.project()).args(args);
        command.env("RINGFENCE_HOME", &self.home).stdin(Stdio::null());
        command
    }

    pub(crate) fn must(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!(
                "ringfence {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
