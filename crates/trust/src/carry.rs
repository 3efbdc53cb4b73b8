//! Trust carry: a write that only says where declared things land keeps the trust that was there.

use std::path::Path;

use ringfence_bundle::{Delivery, Manifest, Meta, Places, Snapshot, consent_of, parse_manifest};
use ringfence_record::MachineLog;

use crate::{Error, Grant, Review, State, Store};

#[cfg(test)]
mod tests;

/// Valid trust, held across one write of `[delivery]` or `[meta]`.
///
/// It never makes trust and never settles a change that waits for review: there is none of it but
/// for a bundle that is trusted before the write. It never blesses a race: what it records is the
/// digest of the bytes before the write with the caller's own put in their place, and nothing is
/// read again. And it is for the two layers of the manifest alone: a lock holds digests, and those
/// are a person's to accept.
#[derive(Debug)]
pub struct TrustCarry {
    before: Snapshot,
    grant: Grant,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// The grant is for the new bytes now.
    Yes,
    /// It is not, and the bundle reads as changed: why.
    No(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Manifest,
    Overlay,
}

impl TrustCarry {
    /// Holds the trust of what was read before the write; `None` unless that is trusted.
    #[must_use]
    pub fn capture(before: &Review) -> Option<Self> {
        match (before.state(), before.granted()) {
            (State::Trusted, Some(grant)) => {
                Some(Self { before: before.snapshot().clone(), grant: grant.clone() })
            }
            _ => None,
        }
    }

    /// Records the grant for the bundle with `written` in the place of `file`, whose path is
    /// absolute: if it is one of the two layers, if the two effective manifests differ in nothing but
    /// `[delivery]` and `[meta]`, and if the store still holds the very grant that was captured.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Write`], [`Error::Record`].
    pub fn carry(
        self,
        store: &Store,
        file: &Path,
        written: &[u8],
        log: &MachineLog,
    ) -> Result<Carried, Error> {
        let no = |reason: &str| Ok(Carried::No(reason.to_owned()));
        let Some(layer) = self.layer(file) else {
            return no("it is not one of the two layers of the manifest");
        };
        let (mut manifest, mut local) =
            (self.before.manifest_bytes.as_slice(), self.before.local_bytes.as_deref());
        match layer {
            Layer::Manifest => manifest = written,
            Layer::Overlay => local = Some(written),
        }
        let Some(after) = parse(manifest, local) else {
            return no("what was written is not a valid manifest");
        };
        if surface(&after) != surface(&self.before.manifest) {
            return no("more than [delivery] and [meta] differs");
        }
        let consent = consent_of(manifest, local, self.before.lock_bytes.as_deref());
        match store.exchange(&self.before.project, &self.grant, consent, log)? {
            true => Ok(Carried::Yes),
            false => no("trust was changed meanwhile"),
        }
    }

    fn layer(&self, file: &Path) -> Option<Layer> {
        let folder = self.before.folder();
        match file {
            file if file == folder.join("ringfence.toml") => Some(Layer::Manifest),
            file if file == folder.join("ringfence.local.toml") => Some(Layer::Overlay),
            _ => None,
        }
    }
}

fn parse(manifest: &[u8], local: Option<&[u8]>) -> Option<Manifest> {
    let manifest = std::str::from_utf8(manifest).ok()?;
    let local = local.map(std::str::from_utf8).transpose().ok()?;
    let (name, over) = (Path::new("ringfence.toml"), Path::new("ringfence.local.toml"));
    let parsed = parse_manifest(name, manifest, local.map(|local| (over, local)));
    parsed.ok().map(|(manifest, _)| manifest)
}

/// The reviewed surface: everything but where declared things land, and where in its file anything
/// stands.
fn surface(manifest: &Manifest) -> Manifest {
    let mut rest = Manifest {
        delivery: Delivery::default(),
        meta: Meta::default(),
        places: Places::default(),
        ..manifest.clone()
    };
    let policy = &mut rest.policy;
    let tables = [&mut policy.tools, &mut policy.egress, &mut policy.secrets];
    let files = &mut policy.filesystem;
    let lists = tables.into_iter().flat_map(|table| table.values_mut());
    let lists =
        lists.chain(files.read.as_mut()).chain(files.write.as_mut()).chain([&mut files.deny]);
    lists.flatten().for_each(|pattern| pattern.line = 0);
    rest
}
