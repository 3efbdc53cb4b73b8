//! The project's `.env`: the part of the format on which every reader agrees. Nothing in it is
//! expanded or executed; a value that others would expand is refused when it is asked for.

use std::path::{Path, PathBuf};

use ringfence_bundle::SecretName;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use crate::source::{Answer, Asked, Source};
use crate::{Reach, beneath};

mod parse;

use parse::Entry;

const NAME: &str = ".env";

/// The file `.env` in the project folder. Read at most once, at the first question.
pub struct DotEnv {
    project: PathBuf,
    reach: Reach,
    read: OnceCell<Result<Vec<Entry>, String>>,
}

impl std::fmt::Debug for DotEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DotEnv").field("project", &self.project).finish_non_exhaustive()
    }
}

impl DotEnv {
    /// The file of this project, whose bundle must be trusted. `reach` says what the agent can do
    /// with it: it is asked for nothing that the agent can read or write.
    #[must_use]
    pub fn new(project: &Path, reach: Reach) -> Self {
        Self { project: project.to_owned(), reach, read: OnceCell::new() }
    }

    fn load(&self) -> Result<Vec<Entry>, String> {
        let folder = beneath::folder(&self.project)?;
        let Some(bytes) = beneath::read(&folder, NAME)? else { return Ok(Vec::new()) };
        let reached = (self.reach)(NAME);
        if reached.write {
            return Err(
                "the agent may write `.env`, or could have made it: name the folders that \
                        it may write, or deny `.env` by its full name in [policy.filesystem]"
                    .to_owned(),
            );
        }
        if reached.read {
            return Err("the agent may read `.env`: deny it in [policy.filesystem], \
                        `deny = [\".env*\"]`"
                .to_owned());
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| "`.env` is not UTF-8".to_owned())?;
        parse::entries(text).map_err(|problem| format!("`.env` {problem}"))
    }
}

impl Source for DotEnv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn find<'a>(&'a self, name: &'a SecretName) -> Asked<'a> {
        Box::pin(async {
            let entries = match self.read.get_or_init(|| async { self.load() }).await {
                Ok(entries) => entries,
                Err(reason) => return Answer::Failed(reason.clone()),
            };
            let mut lines = entries.iter().filter(|entry| entry.name == name.as_str());
            match (lines.next(), lines.next()) {
                (None, _) => Answer::Missing,
                (Some(_), Some(second)) => {
                    Answer::Failed(format!("`.env` line {}: it is set twice", second.line))
                }
                (Some(Entry { value: Ok(value), .. }), None) => {
                    Answer::found(Zeroizing::new(value.as_bytes().to_vec()))
                }
                (Some(Entry { value: Err(why), line, .. }), None) => {
                    Answer::Failed(format!("`.env` line {line}: {why}"))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
