//! The three files of a bundle under their consent digest: what a person said yes to can be shown
//! beside what is there now.

use std::io;
use std::path::PathBuf;

use ringfence_bundle::{Blob, Content, Digest, Three, consent_of, read_content};

use super::{Store, write_tree};
use crate::Error;

/// The family's folder in the store.
pub(super) const FAMILY: &str = "consent";
const MANIFEST: &str = "manifest";
const OVERLAY: &str = "overlay";
const LOCK: &str = "lock";

impl Store {
    /// Keeps the bytes of manifest, overlay and lock.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn deposit_three(&self, (manifest, overlay, lock): &Three) -> Result<Digest, Error> {
        let consent = consent_of(manifest, overlay.as_deref(), lock.as_deref());
        let proved = || matches!(self.approved(&consent), Ok(Some(_)));
        self.place(&self.approved_place(&consent), proved, |new| {
            let files =
                [(MANIFEST, Some(manifest)), (OVERLAY, overlay.as_ref()), (LOCK, lock.as_ref())];
            let blobs = files.into_iter().filter_map(|(name, bytes)| {
                Some((name.to_owned(), Blob { bytes: bytes?.clone(), executable: false }))
            });
            write_tree(&new.join("content"), &blobs.collect())
        })?;
        Ok(consent)
    }

    /// The three files that have this consent digest; `None` where they were not kept. What is given
    /// back was read once and has the digest asked for.
    ///
    /// # Errors
    /// [`ringfence_bundle::Error::Object`]: they are damaged.
    pub fn approved(&self, consent: &Digest) -> Result<Option<Three>, Error> {
        let place = self.approved_place(consent);
        let damaged = |reason: &str| {
            let reason = reason.to_owned();
            Err(Error::from(ringfence_bundle::Error::Object { path: place.clone(), reason }))
        };
        let content = match read_content(&place, "content") {
            Err(ringfence_bundle::Error::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            other => other?,
        };
        let mut blobs = match content {
            None => return Ok(None),
            Some(Content::Tree(blobs)) => blobs,
            Some(Content::File(_)) => return damaged("it is a file, and a folder is expected"),
        };
        let mut take = |name: &str| blobs.remove(name).map(|blob| blob.bytes);
        let three = (take(MANIFEST).unwrap_or_default(), take(OVERLAY), take(LOCK));
        if consent_of(&three.0, three.1.as_deref(), three.2.as_deref()) == *consent {
            return Ok(Some(three));
        }
        damaged("its bytes are not those of its address; remove it")
    }

    pub(super) fn approved_place(&self, consent: &Digest) -> PathBuf {
        let hex = consent.hex();
        self.objects.root().join(FAMILY).join(&hex[..2]).join(&hex[2..])
    }
}
