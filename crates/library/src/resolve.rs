//! Which bytes a source means now, and bringing those that a lock pins.

use std::collections::BTreeMap;

use ringfence_bundle::{
    Content, Diagnostic, Digest, Drift, Id, Kind, Lock, Origin, Pin, Reason, Resolved, Severity,
    Snapshot, Source,
};
use serde::Serialize;

use crate::linked::{Library, fits};
use crate::{Commit, Error, Git, Remote, Rev, Store};

#[cfg(test)]
mod tests;

/// The program git, and who hears which host is about to be contacted.
pub type Reach<'a> = (&'a Git, &'a dyn Fn(&Remote));

/// Kind and name.
type Name = (Kind, String);

/// What was brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its digest, which is the pin's.
    pub digest: Digest,
    /// Where from.
    pub origin: Origin,
}

/// Finds what library sources mean now, always, and what git sources mean now where there is a
/// `reach`; their bytes are in the store then. A git source that is a whole commit, pinned and in
/// the store, is not asked about again. A library source that no linked folder has is left out when
/// the lock pins it: what was pinned stays, if the store has it.
///
/// # Errors
/// [`ringfence_bundle::Error::Invalid`]: everything that could not be found, at its place in the
/// manifest; [`Error::Write`]: the store.
pub fn resolve(
    snapshot: &Snapshot,
    store: &Store,
    library: &Library,
    reach: Option<Reach<'_>>,
) -> Result<BTreeMap<Name, Resolved>, Error> {
    let mut found = BTreeMap::new();
    let mut findings = Vec::new();
    let mut git: BTreeMap<(&str, &str), Vec<Wanted<'_>>> = BTreeMap::new();
    for (kind, id, source) in snapshot.sources() {
        match source {
            Source::Path { .. } => {}
            Source::Git { git: address, rev, subpath } => {
                if reach.is_some() && !settled(snapshot, store, kind, id, source) {
                    let wanted = Wanted { kind, id, subpath: subpath.as_deref() };
                    git.entry((address, rev)).or_default().push(wanted);
                }
            }
            Source::Library { library: given } => match library.find(kind, given) {
                Ok(Some(it)) => {
                    let digest = store.deposit(kind, &it.content)?;
                    let origin = Origin::Library { library: given.clone() };
                    store.note_origin(kind, &digest, &origin)?;
                    found.insert((kind, id.to_string()), Resolved { digest, origin });
                }
                // It is there and refused: that is said. It is nowhere: what is pinned stays.
                Ok(None) | Err(Error::Library(_))
                    if pinned(snapshot, kind, id, source).is_some_and(|pin| has(store, pin)) => {}
                Ok(None) => {
                    let message = format!("{kind} `{id}`: no linked folder has `{given}`");
                    findings.push(finding(snapshot, kind, id, "not-in-library", message));
                }
                Err(error) => {
                    let message = format!("{kind} `{id}`: {error}");
                    findings.push(finding(snapshot, kind, id, "unpinnable", message));
                }
            },
        }
    }
    for ((address, rev), wanted) in git {
        let Some(reach) = reach else { continue };
        match of_git(store, reach, address, rev, &wanted) {
            Ok((commit, contents)) => {
                for (Wanted { kind, id, subpath }, content) in wanted.into_iter().zip(contents) {
                    match content {
                        Ok(content) => {
                            let digest = store.deposit(kind, &content)?;
                            let origin = Origin::Git {
                                git: address.to_owned(),
                                rev: rev.to_owned(),
                                subpath: subpath.map(str::to_owned),
                                commit: commit.to_string(),
                            };
                            store.note_origin(kind, &digest, &origin)?;
                            found.insert((kind, id.to_string()), Resolved { digest, origin });
                        }
                        Err(error) => {
                            let message = format!("{kind} `{id}`: {error}");
                            findings.push(finding(snapshot, kind, id, "unpinnable", message));
                        }
                    }
                }
            }
            Err(error) => findings.extend(wanted.iter().map(|Wanted { kind, id, .. }| {
                let message = format!("{kind} `{id}`: {error}");
                finding(snapshot, *kind, id, "not-fetched", message)
            })),
        }
    }
    if findings.is_empty() {
        return Ok(found);
    }
    Err(ringfence_bundle::Error::Invalid(findings).into())
}

/// Something that is wanted of a repository at a revision.
struct Wanted<'a> {
    kind: Kind,
    id: &'a Id,
    subpath: Option<&'a str>,
}

type Contents = Vec<Result<Content, Error>>;

fn of_git(
    store: &Store,
    (git, say): Reach<'_>,
    address: &str,
    rev: &str,
    wanted: &[Wanted<'_>],
) -> Result<(Commit, Contents), Error> {
    let (remote, rev) = (Remote::declared(address)?, Rev::parse(rev)?);
    let scratch = store.scratch()?;
    let bare = scratch.path().join("repository");
    say(&remote);
    let commit = git.fetch(&remote, &rev, &bare)?;
    let read = |it: &Wanted<'_>| content(git, &bare, &commit, it.kind, it.subpath);
    let contents = wanted.iter().map(read).collect();
    Ok((commit, contents))
}

fn content(
    git: &Git,
    bare: &std::path::Path,
    commit: &Commit,
    kind: Kind,
    subpath: Option<&str>,
) -> Result<Content, Error> {
    let content = git.content(bare, commit, subpath)?;
    fits(kind, subpath.unwrap_or("."), &content)?;
    Ok(content)
}

/// Brings the bytes of every row that the store lacks, has damaged, or has from elsewhere than the row
/// says: from git at the pinned
/// commit, from the library if it has exactly those bytes. The lock is not changed. Gives what was
/// brought, and how many rows from elsewhere were here already.
///
/// # Errors
/// [`Error::NotPinned`]: the bytes are not the pin's; [`Error::Git`], [`Error::Foreign`],
/// [`Error::Library`], [`Error::Write`]. What was brought before stays.
pub fn bring(
    snapshot: &Snapshot,
    lock: &Lock,
    store: &Store,
    library: &Library,
    (git, say): Reach<'_>,
) -> Result<(Vec<Brought>, usize), Error> {
    let mut brought = Vec::new();
    let mut here = 0;
    for (kind, id, source) in snapshot.sources() {
        let Some(pin) = lock.pin(kind, id.as_str()) else { continue };
        // A row for another source is the next lock's matter, not bytes to bring.
        let Some(origin) = pin.origin.as_ref().filter(|origin| origin.is_of(source)) else {
            continue;
        };
        // Bytes that are here for another's sake do not show that this repository has them.
        let known = match origin {
            Origin::Git { .. } => store.objects().came_from(kind, &pin.digest, origin),
            _ => true,
        };
        if known && has(store, pin) {
            here += 1;
            continue;
        }
        let content = match origin {
            Origin::Git { git: address, rev, subpath, commit } => {
                let (remote, rev) = (Remote::declared(address)?, Rev::parse(rev)?);
                let commit = Commit::parse(commit)?;
                let scratch = store.scratch()?;
                let bare = scratch.path().join("repository");
                say(&remote);
                git.fetch_pinned(&remote, &rev, &commit, &bare)?;
                content(git, &bare, &commit, kind, subpath.as_deref())?
            }
            Origin::Library { library: given } => {
                let found = library.find(kind, given)?;
                let missing = || {
                    Error::Library(format!(
                        "{kind} `{id}`: no linked folder here has `{given}`; link one that does"
                    ))
                };
                found.ok_or_else(missing)?.content
            }
        };
        let found = content.digest(kind);
        if found != pin.digest {
            return Err(Error::NotPinned {
                kind,
                name: id.to_string(),
                expected: pin.digest,
                found,
            });
        }
        store.deposit(kind, &content)?;
        store.note_origin(kind, &found, origin)?;
        let (name, digest, origin) = (id.to_string(), pin.digest, origin.clone());
        brought.push(Brought { kind, name, digest, origin });
    }
    Ok((brought, here))
}

/// The lock's row for this very source.
fn pinned<'a>(snapshot: &'a Snapshot, kind: Kind, id: &Id, source: &Source) -> Option<&'a Pin> {
    let pin = snapshot.lock.as_ref()?.pin(kind, id.as_str())?;
    pin.origin.as_ref().is_some_and(|origin| origin.is_of(source)).then_some(pin)
}

/// Whether the store has a pin's bytes, whole.
fn has(store: &Store, pin: &Pin) -> bool {
    matches!(store.objects().proved(pin.kind, &pin.digest), Ok(Some(found)) if found == pin.digest)
}

/// Whether a revision can mean nothing else than what is pinned and here.
fn settled(snapshot: &Snapshot, store: &Store, kind: Kind, id: &Id, source: &Source) -> bool {
    let Some(pin) = pinned(snapshot, kind, id, source) else { return false };
    match &pin.origin {
        Some(origin @ Origin::Git { rev, commit, .. }) => {
            let known = store.objects().came_from(pin.kind, &pin.digest, origin);
            rev == commit && known && has(store, pin)
        }
        _ => false,
    }
}

fn finding(
    snapshot: &Snapshot,
    kind: Kind,
    id: &Id,
    rule: &'static str,
    message: String,
) -> Diagnostic {
    let next = match rule {
        "not-in-library" => "ringfence library list",
        _ => "ringfence lock --fetch",
    };
    Diagnostic {
        severity: Severity::Error,
        rule,
        message,
        at: snapshot.manifest.places.find(&format!("{kind}s.{id}")),
        help: None,
        next: Some(next.to_owned()),
    }
}

/// What a new lock moves: what `drift` found, and for what was resolved the comparison of the old
/// row with what it means now.
#[must_use]
pub fn moved(
    drift: Vec<Drift>,
    before: Option<&Lock>,
    resolved: &BTreeMap<Name, Resolved>,
) -> Vec<Drift> {
    // What the store lacks of an old row does not matter where the source was asked anew.
    let asked = |row: &Drift| {
        matches!(row.reason, Reason::NotFetched | Reason::Changed)
            && resolved.contains_key(&(row.kind, row.name.clone()))
    };
    let mut all: Vec<Drift> = drift.into_iter().filter(|row| !asked(row)).collect();
    for ((kind, name), now) in resolved {
        let pinned = before.and_then(|lock| lock.digest(*kind, name));
        let listed = all.iter_mut().find(|row| row.kind == *kind && row.name == *name);
        if let Some(row) = listed {
            row.found = Some(now.digest);
        } else if pinned.is_some_and(|pinned| pinned != now.digest) {
            let (kind, name, found) = (*kind, name.clone(), Some(now.digest));
            all.push(Drift { kind, name, reason: Reason::Changed, pinned, found });
        }
    }
    all
}

/// A git source whose commit a new lock moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitMoved {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The commit that was pinned.
    pub from: String,
    /// The one that is pinned now.
    pub to: String,
}

/// The git sources of which another commit is pinned than before.
#[must_use]
pub fn commits_moved(before: Option<&Lock>, after: &Lock) -> Vec<CommitMoved> {
    let commit = |pin: &Pin| match &pin.origin {
        Some(Origin::Git { commit, .. }) => Some(commit.clone()),
        _ => None,
    };
    let moved = |pin: &Pin| {
        let (from, to) = (commit(before?.pin(pin.kind, &pin.name)?)?, commit(pin)?);
        let (kind, name) = (pin.kind, pin.name.clone());
        (from != to).then_some(CommitMoved { kind, name, from, to })
    };
    after.pins.iter().filter_map(moved).collect()
}
