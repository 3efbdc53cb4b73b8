//! What a run starts: the agent's command and the servers'.

use std::path::{Path, PathBuf};

use ringfence_bundle::{Id, Manifest, Transport, Who, named, resolve_program};
use ringfence_trust::TrustedBundle;

use super::{Program, Request, real};
use crate::{Error, project};

/// Whether the manifest's command is a file of the project, by a path.
pub(super) fn of_project(manifest: &Manifest, project: &Path) -> bool {
    let Some(word) = manifest.sandbox.command.first().filter(|word| word.contains('/')) else {
        return false;
    };
    // By its name, whatever is there now: it may be exchanged. Or by what it leads to.
    let named = std::path::absolute(project.join(word));
    let named = named.map(|path| path.components().collect::<PathBuf>());
    named.is_ok_and(|named| named.starts_with(project))
        || real(&project.join(word)).starts_with(project)
}

/// The command as it is: its program is looked up in the image.
pub(super) fn words(request: &Request, manifest: &Manifest) -> Result<Program, Error> {
    let words =
        if request.command.is_empty() { &manifest.sandbox.command } else { &request.command };
    let name = words.first().ok_or(Error::NoCommand)?;
    Ok(Program { file: name.into(), args: words.clone() })
}

pub(super) fn command(
    request: &Request,
    manifest: &Manifest,
    project: &Path,
) -> Result<Program, Error> {
    let words =
        if request.command.is_empty() { &manifest.sandbox.command } else { &request.command };
    let name = words.first().ok_or(Error::NoCommand)?;
    let file = resolve_program(name, project, request.path.as_deref())?;
    Ok(Program { file, args: words.clone() })
}

/// Stdio servers whose program is not there are found out now, not in the middle of a run.
pub(super) fn servers(
    request: &Request,
    manifest: &Manifest,
    project: &Path,
) -> Result<Vec<(Id, Program)>, Error> {
    let mut found = Vec::new();
    for (id, server) in &manifest.servers {
        if let Transport::Stdio { command, .. } = &server.transport {
            let file = resolve_program(command, project, request.path.as_deref())?;
            found.push((id.clone(), Program { file, args: vec![command.clone()] }));
        }
    }
    Ok(found)
}

/// What of the project servers run.
pub(super) fn programs(
    bundle: &TrustedBundle,
    servers: &[(Id, Program)],
    project: &Path,
) -> Vec<PathBuf> {
    let manifest = &bundle.snapshot().manifest;
    let named = named(manifest, project).into_iter().map(|(who, path, _)| (who, path));
    let found = bundle.programs().iter().map(|it| (it.who.clone(), it.path.clone()));
    let files = named.chain(found).filter(|(who, _)| *who != Who::Agent).map(|(_, path)| path);
    let files = files.chain(servers.iter().map(|(_, program)| program.file.clone()));
    files.flat_map(|path| project::programs(project, &path)).collect()
}
