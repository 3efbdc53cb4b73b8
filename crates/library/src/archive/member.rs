//! Which names a member may have.

use std::collections::BTreeMap;

use ringfence_bundle::first_invisible;
use unicode_normalization::UnicodeNormalization as _;

use super::Fault;

/// Before the project's own files.
pub(crate) const BUNDLE: &str = "bundle/";
/// Before objects of the content store.
pub(crate) const STORE: &str = "store/";

/// Most bytes of a member's path. A tar header holds 255, split at a slash.
const MAX_PATH: usize = 255;
/// Most components of a path.
const MAX_DEPTH: usize = 48;
/// Most folders of all members: a list of few members can name many more folders than members.
const MAX_FOLDERS: usize = 100_000;

/// Names of members seen so far, folded: no two may be one file where letter case or the form of a
/// letter does not count, and none may be a file and a folder.
#[derive(Default)]
pub(super) struct Names {
    /// Folded path of every folder and file, with how it was spelled and whether it is a file.
    seen: BTreeMap<String, (String, bool)>,
    /// How many of them are folders.
    folders: usize,
}

impl Names {
    /// Takes one more path.
    pub(super) fn add(&mut self, path: &str) -> Result<(), Fault> {
        let refuse = |reason: String| Err(Fault::Member { path: cut(path), reason });
        if let Err(reason) = check(path) {
            return refuse(reason.to_owned());
        }
        let ends = path.match_indices('/').map(|(at, _)| (at, false));
        let (mut key, mut begin) = (String::new(), 0);
        for (end, is_file) in ends.chain([(path.len(), true)]) {
            let part = &path[..end];
            key.push_str(&folded(&path[begin..end]));
            key.push('/');
            begin = end + 1;
            match self.seen.insert(key.clone(), (part.to_owned(), is_file)) {
                None if is_file => {}
                None if self.folders < MAX_FOLDERS => self.folders += 1,
                None => return Err(Fault::TooLarge("more than 100,000 folders".to_owned())),
                Some((before, _)) if before != part => {
                    let other = cut(&before);
                    return refuse(format!("`{other}` is the same name where case does not count"));
                }
                Some((_, was_file)) if !was_file && !is_file => {}
                Some(_) if is_file => {
                    return refuse("it is there twice, or as a folder too".to_owned());
                }
                Some((before, _)) => {
                    return refuse(format!("`{}` is a file, and it lies in it", cut(&before)));
                }
            }
        }
        Ok(())
    }
}

/// The rules for one path, whatever others there are.
fn check(path: &str) -> Result<(), &'static str> {
    if path.len() > MAX_PATH {
        return Err("its path is longer than 255 bytes");
    }
    if path.chars().any(|c| first_invisible(c.encode_utf8(&mut [0; 4])).is_some())
        || path.contains(['\t', '\n', '\r'])
    {
        return Err("its name holds a character that does not show");
    }
    if path.contains(['\\', ':']) {
        return Err("its name holds a backslash or a colon");
    }
    if path.starts_with('/') {
        return Err("its path is absolute");
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() > MAX_DEPTH {
        return Err("it lies more than 48 folders deep");
    }
    for part in &parts {
        match *part {
            ".." => return Err("`..` leads out of the archive"),
            "" | "." => return Err("its path has an empty or `.` component"),
            // Git would take what lies there for a repository's own: hooks, configuration.
            _ if matches!(folded(part).trim_end_matches(['.', ' ']), ".git" | "git~1") => {
                return Err("nothing of a git folder is shared");
            }
            _ => {}
        }
    }
    let inside = path.strip_prefix(BUNDLE).or_else(|| path.strip_prefix(STORE));
    match inside {
        None => Err("it is neither of the bundle nor of the store"),
        Some(below) if folded(below) == ".ringfence/ringfence.local.toml" => {
            Err("an overlay is personal and never shared")
        }
        Some(_) => Ok(()),
    }
}

/// One spelling for what some file systems take for the same name.
fn folded(part: &str) -> String {
    // Lower case can undo the normal form (U+0130, U+03F4), and the normal form lower case.
    let once: String = part.nfkc().flat_map(char::to_lowercase).collect();
    once.nfkc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfkc().collect()
}

/// For a message.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
