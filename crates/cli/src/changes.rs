//! Gathers both sides of a comparison, for what shows the lines that moved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringfence_bundle::{Digest, Drift, Form, Kind, Lock, Objects, Snapshot};
use ringfence_trust::Review;
use ringfence_trust::review::changes::{self, Change, Piece, Side};
use serde_json::json;

use crate::failure::Failure;

/// Most files that are shown.
const MOST: usize = 500;

/// Since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Since it was locked: pinned bytes alone.
    Locked,
    /// Since a person said yes: the three files too.
    Approved,
}

/// What moved, and since when.
pub(crate) struct Changes {
    since: Since,
    /// When a person said yes, where they did.
    at: Option<String>,
    /// Whether the three files of then are known.
    recorded: bool,
    /// Programs of the machine that are others.
    programs: Vec<ringfence_trust::Moved>,
    pub(crate) all: Vec<Change>,
}

/// What moved since a bundle was locked: `drift`, with its lines.
pub(crate) fn since_lock(
    snapshot: &Snapshot,
    drift: &[Drift],
    home: &Path,
) -> Result<Changes, Failure> {
    let (old, new) = sides(snapshot, drift, snapshot.lock.as_ref(), &Objects::of(home), true)?;
    let (since, all) = (Since::Locked, changes::between(&old, &new));
    Ok(Changes { since, at: None, recorded: true, programs: Vec::new(), all })
}

/// What moved since a person said yes. Nothing has, where nobody did.
pub(crate) fn since_yes(review: &Review, home: &Path) -> Result<Changes, Failure> {
    let since = Since::Approved;
    let (mut recorded, mut all) = (true, Vec::new());
    let granted = review.granted();
    if let Some(grant) = granted {
        all = approved(review, home, grant.consent, &Objects::of(home), &mut recorded)?;
    }
    let at = granted.map(|grant| grant.at.clone());
    Ok(Changes { since, at, recorded, programs: review.moved(), all })
}

fn approved(
    review: &Review,
    home: &Path,
    consent: Digest,
    objects: &Objects,
    recorded: &mut bool,
) -> Result<Vec<Change>, Failure> {
    let snapshot = review.snapshot();
    let now = three(snapshot);
    let before = if consent == snapshot.consent_digest() {
        Some(now.clone())
    } else {
        // Damaged bytes are as good as none: what is shown must be what was approved.
        let three = ringfence_library::Store::of(home).approved(&consent).ok().flatten();
        three.map(|(manifest, local, lock)| [Some(manifest), local, lock])
    };
    let Some(before) = before else {
        *recorded = false;
        return Ok(Vec::new());
    };
    let name = Path::new(".ringfence/ringfence.lock");
    let lock = before[2].as_ref().and_then(|bytes| Lock::parse(name, bytes).ok());
    let (mut old, mut new) = sides(snapshot, review.drift(), lock.as_ref(), objects, false)?;
    old.files = before;
    new.files = now;
    Ok(changes::between(&old, &new))
}

/// What moved since a person said yes in a bundle that cannot be used as it is: its manifest does not
/// parse, or a folder holds what nobody may pin. What cannot be read is left out: the error says it.
/// `None` where nobody said yes, or what was approved was not kept.
pub(crate) fn despite_errors(project: &Path, home: &Path) -> Option<Changes> {
    let project = project.canonicalize().ok()?;
    let grant = ringfence_trust::Store::new(home).grants().ok()?.remove(&project)?;
    let before = ringfence_library::Store::of(home).approved(&grant.consent).ok().flatten()?;
    let now = ringfence_bundle::read_three(&project).ok()?;
    let side = |(manifest, local, lock): ringfence_bundle::Three| Side {
        files: [Some(manifest), local, lock],
        pieces: BTreeMap::new(),
    };
    let (mut old, mut new) = (side(before), side(now));
    let lock = old.files[2].as_ref();
    let lock =
        lock.and_then(|bytes| Lock::parse(Path::new(".ringfence/ringfence.lock"), bytes).ok());
    if let (Some(lock), Ok(snapshot)) = (lock, Snapshot::read(&project)) {
        let objects = Objects::of(home);
        for pin in lock.pins.iter().filter(|pin| pin.kind.form() != Form::Definition) {
            let Ok(Some(was)) = objects.read(pin.kind, &pin.digest) else { continue };
            let Ok(is) = snapshot.content(pin.kind, &pin.name, &objects) else { continue };
            let place = snapshot.place_of(pin.kind, &pin.name);
            let piece = |content| Piece {
                file: place.file.to_string_lossy().into_owned(),
                line: place.line,
                digest: None,
                content: Some(content),
            };
            let key = (pin.kind, pin.name.clone());
            new.pieces.extend(is.map(|content| (key.clone(), piece(content))));
            old.pieces.insert(key, piece(was));
        }
    }
    let all = changes::between(&old, &new);
    let (since, at) = (Since::Approved, Some(grant.at));
    Some(Changes { since, at, recorded: true, programs: Vec::new(), all })
}

fn three(snapshot: &Snapshot) -> [Option<Vec<u8>>; 3] {
    [
        Some(snapshot.manifest_bytes.clone()),
        snapshot.local_bytes.clone(),
        snapshot.lock_bytes.clone(),
    ]
}

/// Pinned things that differ between a lock and what is there now. Definitions are left out where the
/// manifest itself is compared.
fn sides(
    snapshot: &Snapshot,
    drift: &[Drift],
    lock: Option<&Lock>,
    objects: &Objects,
    definitions: bool,
) -> Result<(Side, Side), Failure> {
    let pins = |lock: Option<&Lock>| -> BTreeMap<(Kind, String), Digest> {
        let pins = lock.into_iter().flat_map(|lock| &lock.pins);
        pins.map(|pin| ((pin.kind, pin.name.clone()), pin.digest)).collect()
    };
    let before = pins(lock);
    let mut now: BTreeMap<_, Option<Digest>> =
        pins(snapshot.lock.as_ref()).into_iter().map(|(key, digest)| (key, Some(digest))).collect();
    for row in drift {
        now.insert((row.kind, row.name.clone()), row.found);
    }
    let drifted: BTreeSet<_> = drift.iter().map(|row| (row.kind, row.name.as_str())).collect();
    let keys: BTreeSet<_> = before.keys().chain(now.keys()).cloned().collect();
    let (mut old, mut new) = (Side::default(), Side::default());
    for key in keys {
        let (was, is) = (before.get(&key).copied(), now.get(&key).copied().flatten());
        if was == is || (!definitions && key.0.form() == Form::Definition) {
            continue;
        }
        let place = snapshot.place_of(key.0, &key.1);
        let piece = |digest, content| Piece {
            file: place.file.to_string_lossy().into_owned(),
            line: place.line,
            digest,
            content,
        };
        if let Some(digest) = was {
            // Damaged bytes are as good as none: what is shown must be what was pinned.
            let content = objects.read(key.0, &digest).ok().flatten();
            old.pieces.insert(key.clone(), piece(Some(digest), content));
        }
        if is.is_some() || drifted.contains(&(key.0, key.1.as_str())) {
            let content = snapshot.content(key.0, &key.1, objects)?;
            if is.is_some() || content.is_some() {
                new.pieces.insert(key, piece(is, content));
            }
        }
    }
    Ok((old, new))
}

impl Changes {
    /// Whether nothing moved.
    pub(crate) fn none(&self) -> bool {
        self.all.is_empty() && self.programs.is_empty() && self.recorded
    }

    /// As lines for a person; none where nothing moved.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.none() {
            return lines;
        }
        lines.push(match (self.since, &self.at) {
            (Since::Approved, Some(at)) => format!("Moved since you said yes, {at}"),
            _ => "Moved since it was locked".to_owned(),
        });
        if !self.recorded {
            lines.push("  the bytes you approved were not recorded on this machine".to_owned());
        }
        for change in self.all.iter().take(MOST) {
            lines.extend(change.lines().into_iter().map(|line| format!("  {line}")));
        }
        let left = self.all.len().saturating_sub(MOST);
        if left > 0 {
            lines.push(format!("  … and {left} more, not shown here; --json shows all"));
        }
        lines.extend(self.programs.iter().map(|moved| format!("  program of {moved}")));
        lines
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({
            "since": match self.since { Since::Locked => "locked", Since::Approved => "approved" },
            "approved": self.at,
            "recorded": self.recorded,
            "files": self.all,
            "programs": self.programs,
        })
    }
}
