//! What a sandbox refuses of a bundle that asks for what it does not give.

use std::path::PathBuf;

use super::{Backend, Plan};
use crate::{Error, shadow};

/// Whether a plan's sandbox can be what its manifest says. `typed`: the command is a person's own.
///
/// # Errors
/// [`Error`]: which setting, in which file, and what to do.
pub(super) fn check(plan: &Plan, typed: bool) -> Result<(), Error> {
    if plan.backend.is_container() && plan.image().is_none() {
        return Err(Error::NoImage { backend: plan.backend.name() });
    }
    if let (false, Some(runtime)) = (plan.backend.is_container(), &plan.manifest().sandbox.runtime)
    {
        return Err(Error::Backend(format!(
            "{}: [sandbox] runtime = \"{}\" is for containers, and the {} sandbox has this machine's \
             kernel: use `--sandbox docker`, or take the line away",
            plan.project().join(".ringfence/ringfence.toml").display(),
            runtime.escape_debug(),
            plan.backend.name()
        )));
    }
    if plan.backend.is_container() && plan.engine() == ringfence_bundle::Engine::Squid {
        let file = plan.project().join(".ringfence/ringfence.toml");
        return Err(Error::Backend(format!(
            "{}: [sandbox.network] engine = \"squid\": the proxy beside a container is the built-in \
             one; use `--sandbox native`, or take the line away",
            file.display()
        )));
    }
    let granted = |folder: &PathBuf| plan.program.file.starts_with(folder);
    if plan.backend.is_container() && !typed && plan.read.iter().any(granted) {
        return Err(Error::Project {
            path: plan.program.file.clone(),
            reason: "lies in a folder that is mounted for reading only; in a container name a \
                     program of the image, or one of the project"
                .into(),
        });
    }
    if plan.backend == Backend::Lockdown {
        lockdown(plan)?;
    }
    Ok(())
}

/// What a run under lockdown is not started with: servers whose tools nobody pinned, and configurations in
/// the project by which an agent program would find servers that are not the gate's.
fn lockdown(plan: &Plan) -> Result<(), Error> {
    let ids = plan.manifest().servers.keys();
    let unpinned = ids.filter(|id| plan.bundle.snapshot().tool_pins(id).is_none());
    let servers: Vec<_> = unpinned.map(ToString::to_string).collect();
    if !servers.is_empty() {
        return Err(Error::UnpinnedTools { servers, rule: "the sandbox `lockdown`".into() });
    }
    let files = ringfence_adapters::mcp_files();
    match shadow::search(plan.project(), &plan.mounts, &files)? {
        Some(path) => Err(Error::Shadowed { path }),
        None => Ok(()),
    }
}
