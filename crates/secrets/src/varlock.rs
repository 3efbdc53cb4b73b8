//! varlock (npm `varlock`), for projects that have a `.env.schema`.
//!
//! varlock executes what such files say: `exec(...)`, `$(...)`, plug-ins. They are files of the
//! repository, and nothing pins them, so it is asked only when every file that it would load is inert:
//! a list of what computes and executes nothing, and nothing besides.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ringfence_bundle::SecretName;
use tokio::sync::OnceCell;

use crate::source::{Answer, Asked, Source};
use crate::{Reach, beneath};

mod ask;
mod inert;
mod reply;

const SCHEMA: &str = ".env.schema";

/// Names that varlock would take for files of its own, whether or not they are there yet.
const POSSIBLE: [&str; 4] = [".env", ".env.local", ".env.some", ".env.some.local"];

/// The program `varlock` on this machine, asked once about a project, at the first question.
pub struct Varlock {
    project: PathBuf,
    path: Option<OsString>,
    reach: Reach,
    loaded: OnceCell<Result<Option<Loaded>, String>>,
}

/// What the files say, and what varlock made of them.
struct Loaded {
    /// Names in the schema, each with why its value is not taken, if so.
    named: BTreeMap<String, Option<String>>,
    values: reply::Values,
}

impl std::fmt::Debug for Varlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Varlock").field("project", &self.project).finish_non_exhaustive()
    }
}

impl Varlock {
    /// varlock for this project, whose bundle must be trusted. `path` is where the program is looked
    /// up; what lies in the project is passed over. `reach` as for [`crate::DotEnv::new`].
    #[must_use]
    pub fn new(project: &Path, path: Option<OsString>, reach: Reach) -> Self {
        Self { project: project.to_owned(), path, reach, loaded: OnceCell::new() }
    }

    async fn load(&self) -> Result<Option<Loaded>, String> {
        let folder = beneath::folder(&self.project)?;
        let Some(schema) = beneath::read(&folder, SCHEMA)? else { return Ok(None) };
        let mut files = vec![(SCHEMA.to_owned(), schema)];
        for name in beneath::names(&folder)?.into_iter().filter(|name| name != SCHEMA) {
            if let Some(bytes) = beneath::read(&folder, &name)? {
                files.push((name, bytes));
            }
        }
        let names = files.iter().map(|(name, _)| name.as_str());
        if let Some(name) = names.clone().chain(POSSIBLE).find(|name| (self.reach)(name).write) {
            return Err(format!(
                "the agent may write `{}`, or could have made it, and varlock reads it: name the \
                 folders that it may write in [policy.filesystem]",
                name.escape_debug()
            ));
        }
        // The schema is for everybody to read.
        let mut values = names.filter(|name| *name != SCHEMA);
        if let Some(name) = values.find(|name| (self.reach)(name).read) {
            return Err(format!(
                "the agent may read `{}`: deny it in [policy.filesystem], `deny = [\".env*\"]`",
                name.escape_debug()
            ));
        }
        let mut named = BTreeMap::new();
        for (file, bytes) in &files {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| format!("`{}` is not UTF-8", file.escape_debug()))?;
            for item in inert::items(text).map_err(|(line, why)| {
                format!(
                    "`{}` line {line}: {why}; start it with `varlock run -- ringfence run` instead",
                    file.escape_debug()
                )
            })? {
                let why = item.composed.then(|| {
                    format!(
                        "`{}` line {} makes it of other values, which would get around the rules \
                         of who may have which",
                        file.escape_debug(),
                        item.line
                    )
                });
                if file == SCHEMA {
                    named.insert(item.name, why);
                } else if let (Some(why), Some(slot)) = (why, named.get_mut(&item.name)) {
                    slot.get_or_insert(why);
                }
            }
        }
        let reply = ask::ask(&self.project, self.path.as_deref()).await?;
        Ok(Some(Loaded { named, values: reply::values(&reply)? }))
    }
}

impl Source for Varlock {
    fn name(&self) -> &'static str {
        "varlock"
    }

    fn find<'a>(&'a self, name: &'a SecretName) -> Asked<'a> {
        Box::pin(async {
            let loaded = match self.loaded.get_or_init(|| self.load()).await {
                Ok(Some(loaded)) => loaded,
                Ok(None) => return Answer::Missing,
                Err(reason) => return Answer::Failed(reason.clone()),
            };
            match loaded.named.get(name.as_str()) {
                None => return Answer::Missing,
                Some(Some(why)) => return Answer::Failed(why.clone()),
                Some(None) => {}
            }
            match loaded.values.get(name.as_str()) {
                None | Some(None) => Answer::Missing,
                Some(Some(Ok(secret))) => Answer::Found(secret.clone()),
                Some(Some(Err(why))) => Answer::Failed((*why).to_owned()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
