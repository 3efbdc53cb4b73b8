//! Is what was unpacked a bundle, and only that?

use std::collections::BTreeSet;
use std::path::Path;

use ringfence_bundle::{Error as Bundle, Kind, Lock, Objects, Resolved, Snapshot};

use crate::archive::{About, BUNDLE, Fault, STORE};
use crate::sign::sha256;

/// Reads the bundle of an unpacked archive and compares it with what was stated: manifest and lock
/// are the ones named, the lock holds against the bytes, and no file is there that it does not pin.
pub(crate) fn bundle(folder: &Path, about: &About) -> Result<Snapshot, Fault> {
    let snapshot = Snapshot::read(&folder.join(BUNDLE)).map_err(said)?;
    let lock_bytes = snapshot.lock_bytes.as_deref();
    let Some((lock, lock_bytes)) = snapshot.lock.as_ref().zip(lock_bytes) else {
        return Err(Fault::Bundle("it has no lock".to_owned()));
    };
    if sha256(lock_bytes) != about.lock || sha256(&snapshot.manifest_bytes) != about.manifest {
        let what = "its manifest or its lock is not the one that its attestation names";
        return Err(Fault::Bundle(what.to_owned()));
    }
    let agent = snapshot.manifest.agent.as_ref();
    if agent.map(|it| (&it.name, &it.version)) != Some((&about.agent.name, &about.agent.version)) {
        let what = "the manifest's agent and version are not those of its attestation";
        return Err(Fault::Bundle(what.to_owned()));
    }
    if snapshot.local_bytes.is_some() {
        return Err(Fault::Bundle("it has an overlay, which is never shared".to_owned()));
    }
    undeclared(&snapshot, lock, about)?;
    let objects = Objects::of(folder);
    let drift = snapshot.drift(&objects).map_err(said)?;
    if !drift.is_empty() {
        return Err(Fault::Drifted(drift));
    }
    // Whatever may not be locked may not be received.
    let resolved = lock.pins.iter().filter_map(|pin| {
        let origin = pin.origin.clone()?;
        Some(((pin.kind, pin.name.clone()), Resolved { digest: pin.digest, origin }))
    });
    Lock::compute(&snapshot, &objects, &resolved.collect()).map_err(said)?;
    Ok(snapshot)
}

/// Every member is the manifest, the lock, or something that they pin.
fn undeclared(snapshot: &Snapshot, lock: &Lock, about: &About) -> Result<(), Fault> {
    let mut places: BTreeSet<String> = ["toml", "lock"]
        .map(|extension| format!("{BUNDLE}.ringfence/ringfence.{extension}"))
        .into();
    places.extend(snapshot.declared_paths().map(|(_, path)| format!("{BUNDLE}{path}")));
    for pin in &lock.pins {
        if pin.origin.is_some() {
            let hex = pin.digest.hex();
            places.insert(format!("{STORE}{}/{}/{}/content", pin.kind, &hex[..2], &hex[2..]));
        } else if pin.kind == Kind::Program {
            places.insert(format!("{BUNDLE}{}", pin.name));
        }
    }
    for row in &about.members {
        let folders = row.path.match_indices('/').map(|(at, _)| &row.path[..at]);
        if !folders.chain([row.path.as_str()]).any(|place| places.contains(place)) {
            let reason = "neither the manifest declares it nor the lock pins it".to_owned();
            return Err(Fault::Member { path: row.path.clone(), reason });
        }
    }
    Ok(())
}

/// What the bundle's own reader found, each at its place.
fn said(error: Bundle) -> Fault {
    let Bundle::Invalid(findings) = error else { return Fault::Bundle(error.to_string()) };
    let line = |finding: &ringfence_bundle::Diagnostic| match &finding.at {
        Some(at) => format!("{}:{}: {}", at.file.display(), at.line, finding.message),
        None => finding.message.clone(),
    };
    let lines: Vec<String> = findings.iter().take(8).map(line).collect();
    Fault::Bundle(format!("it is not a valid bundle:\n{}", lines.join("\n")))
}
