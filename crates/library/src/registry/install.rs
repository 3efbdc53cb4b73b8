//! Taking a version of a registry into quarantine.

use super::{Registries, Release, index, seen};
use crate::archive::{Fault, check_named};
use crate::quarantine::{Quarantine, Received};
use crate::sign::Agent;
use crate::{Error, Git, Publishers, Remote, private};

/// Which version a person asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// `<name>@<version>`
    pub label: &'w str,
    /// From this registry alone.
    pub registry: Option<&'w str>,
    /// Whether a publisher who is not on the list will do.
    pub unlisted: bool,
}

impl Registries {
    /// Brings the registries up to date and takes one version into quarantine, if its archive is
    /// what the index says, the one that this machine saw before, and signed by a listed publisher.
    ///
    /// # Errors
    /// [`Error::Registry`]: no registry, or more than one, has it. [`Error::Distrusted`],
    /// [`Error::Archive`]: refused, and nothing of it was kept. [`Error::Git`].
    pub fn install(
        &self,
        git: &Git,
        wanted: Wanted<'_>,
        publishers: &Publishers,
    ) -> Result<Received, Error> {
        let (name, version) = parse(wanted.label)?;
        let _held = private::lock(&self.home, "registries")?;
        let mut found: Vec<(String, Release)> = Vec::new();
        for (registry, address) in self.some(wanted.registry)? {
            self.current(git, &registry, &Remote::typed(&address)?)?;
            match index::find(&self.folder(&registry), name, version) {
                None => {}
                Some(Ok(entry)) => {
                    if !seen::note(&self.home, &address, std::slice::from_ref(&entry))?.is_empty() {
                        return Err(Error::Distrusted(format!(
                            "{} of `{registry}` has other bytes now than when this machine first \
                             saw it; ask its publisher for a new version",
                            entry.label()
                        )));
                    }
                    found.push((registry, entry));
                }
                Some(Err(reason)) => {
                    return Err(Error::Distrusted(format!("`{registry}`: its index: {reason}")));
                }
            }
        }
        let (registry, entry) = match found.len() {
            1 => found.remove(0),
            0 => {
                let message = format!("no registry has {name}@{version}");
                return Err(Error::Registry { message, next: Some("ringfence registry search") });
            }
            _ => {
                let names: Vec<_> = found.into_iter().map(|(registry, _)| registry).collect();
                let message =
                    format!("{name}@{version} is in {}; say --registry", names.join(" and in "));
                return Err(Error::Registry { message, next: None });
            }
        };
        if publishers.name_of(&entry.did).is_none() && !wanted.unlisted {
            return Err(Error::Distrusted(format!(
                "{} is signed by {}, a key that you have not listed; `ringfence publisher add` it \
                 once you know from elsewhere whose it is, or say --unlisted",
                entry.label(),
                entry.did
            )));
        }
        let archive = self.folder(&registry).join(entry.archive());
        Quarantine::of(&self.home).receive_if(&archive, &|unpacked, snapshot| {
            let real = Release::of(unpacked, snapshot);
            if real == entry {
                return Ok(());
            }
            let what = "the registry's index says other things of it than the archive itself";
            Err(Fault::Bundle(format!("{what}: {}", differing(&entry, &real).join(", "))))
        })
    }
}

/// Which keys of two entries differ.
fn differing(said: &Release, real: &Release) -> Vec<&'static str> {
    [
        ("name", said.name != real.name),
        ("version", said.agent_version != real.agent_version),
        ("publisher", said.did != real.did),
        ("digest", said.sha256 != real.sha256),
        ("contents", said.contents != real.contents),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}

fn parse(label: &str) -> Result<(&str, &str), Error> {
    let fault = || Error::Registry {
        message: format!("`{}` is not <name>@<version>", label.escape_debug()),
        next: Some("ringfence registry search"),
    };
    let (name, version) = label.split_once('@').ok_or_else(fault)?;
    let agent = Agent { name: name.to_owned(), version: Some(version.to_owned()) };
    check_named(&agent).map_err(|_| fault())?;
    Ok((name, version))
}
