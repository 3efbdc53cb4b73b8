//! What was taken out of the library, until it is put back.

use std::fs;
use std::io;
use std::path::PathBuf;

use ringfence_bundle::{Blob, Id, Kind, read_content};
use ringfence_record::RunId;
use serde::{Deserialize, Serialize};

use super::change::{ASIDE, put, take_away, write_content};
use super::{Library, path_of};
use crate::{Error, private, store};

/// One thing in the trash, `<home>/trash/<id>/`: `entry.json` and `content`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trashed {
    /// When it was taken out, and which it is: `<utc yyyymmdd>-<hhmmss>-<8 hex>`.
    pub id: RunId,
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: Id,
    /// From which folder.
    pub source: Id,
    /// Its path there.
    pub path: String,
}

impl Library {
    /// Takes `<source>:<name>`, or a bare name where one folder alone has it, out of its folder and
    /// into the trash.
    ///
    /// # Errors
    /// [`Error::Library`]: it is not there, or two folders have it; [`Error::Bundle`],
    /// [`Error::Write`].
    pub fn remove(&self, kind: Kind, given: &str) -> Result<Trashed, Error> {
        let (only, name) = match given.split_once(':') {
            Some((source, name)) => (Some(self.source(source)?), name),
            None => (None, given),
        };
        let name = Id::parse(name).map_err(|e| Error::Library(e.to_string()))?;
        let mut found = Vec::new();
        for source in self.sources().iter().filter(|it| only.is_none_or(|only| only == *it)) {
            found.extend(path_of(source, kind, &name)?.map(|path| (source, path)));
        }
        let (source, path) = match found.as_slice() {
            [] => return Err(Error::Library(format!("no linked folder has {kind} `{name}`"))),
            [(source, path)] => (*source, path.clone()),
            [(first, _), (second, _), ..] => {
                return Err(Error::Library(format!(
                    "`{}` and `{}` have {kind} `{name}`: say which, `{}:{name}`",
                    first.name, second.name, first.name
                )));
            }
        };
        let gone = read_content(&source.folder, &path)?;
        let gone = gone.ok_or_else(|| Error::Library(format!("{path} is gone")))?;
        let id = RunId::fresh();
        let row = Trashed { id, kind, name, source: source.name.clone(), path };
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let place = self.place(&row.id);
        let write = || -> io::Result<()> {
            let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
            store::make(folder)?;
            let new = private::aside(folder, ASIDE)?;
            let entry = Blob { bytes: serde_json::to_vec(&row)?, executable: false };
            store::write_tree(new.path(), &[("entry.json".to_owned(), entry)].into())?;
            write_content(new.path(), &gone)?;
            fs::rename(new.path(), &place)?;
            new.keep();
            fs::File::open(folder)?.sync_all()
        };
        write().map_err(|source| Error::Write { path: place.clone(), source })?;
        take_away(&source.folder.join(&row.path))?;
        Ok(row)
    }

    /// What is in the trash, oldest first.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn trash(&self) -> Result<Vec<Trashed>, Error> {
        let folder = self.home.join("trash");
        let fail = |source| Error::Read { path: folder.clone(), source };
        let list = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut all = Vec::new();
        for entry in list {
            let path = entry.map_err(fail)?.path();
            let row = fs::read(path.join("entry.json")).ok();
            let row: Option<Trashed> = row.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            all.extend(row.filter(|row| path.ends_with(row.id.as_str())));
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Puts something back to where it was.
    ///
    /// # Errors
    /// [`Error::Library`]: there is no such thing in the trash, its folder is no longer linked, or
    /// something else is there now.
    pub fn restore(&self, id: &str) -> Result<Trashed, Error> {
        let row = self.trash()?.into_iter().find(|row| row.id.as_str() == id);
        let shown: String = id.chars().take(80).collect();
        let row = row.ok_or_else(|| {
            Error::Library(format!("nothing in the trash is `{}`", shown.escape_debug()))
        })?;
        let source = self.source(row.source.as_str())?;
        let fits = super::places(row.kind, &row.name)?.contains(&row.path);
        let place = self.place(&row.id);
        let content = if fits { read_content(&place, "content")? } else { None };
        let content =
            content.ok_or_else(|| Error::Library(format!("{} is damaged", place.display())))?;
        match path_of(source, row.kind, &row.name)? {
            None => put(source, &row.path, &content)?,
            // As it is when it was killed before it took this out of the trash.
            Some(path) if read_content(&source.folder, &path)? == Some(content) => {}
            Some(path) => {
                return Err(Error::Library(format!("`{}` has {path} again", source.name)));
            }
        }
        take_away(&place)?;
        Ok(row)
    }

    fn place(&self, id: &RunId) -> PathBuf {
        self.home.join("trash").join(id.as_str())
    }
}
