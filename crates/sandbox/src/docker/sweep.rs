//! What a run has left in an engine, taken away by the run's id.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptions, ListNetworksOptions, RemoveContainerOptions,
};
use tokio::time::timeout;

use super::LABEL;
use super::engine::{failed, local, open};
use crate::error::{Error, Result, Step};
use crate::ground::journal::Contained;
use crate::sweep::After;

/// In a run's folder: what is there for its containers.
pub(crate) const FOLDER: &str = "docker";
/// How often nothing must be found after a crash, and how long it waits each time.
const QUIET: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// How long an engine has for all of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removes a run's containers and networks, and says how many of each. Blocks.
///
/// # Errors
/// [`Error::Step`]: the engine cannot be reached, or something of the run is left in it.
pub(crate) fn remove(left: &Contained, after: After) -> Result<(usize, usize)> {
    let left = left.clone();
    // A thread of its own: the caller may stand in a runtime already.
    let work = std::thread::spawn(move || {
        let step = "take away what a run left in its engine";
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().step(step)?;
        runtime.block_on(async {
            timeout(PATIENCE, remove_all(&left, after))
                .await
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))
                .step(step)?
        })
    });
    work.join()
        .unwrap_or_else(|_| Err(Error::Spec("the engine's answers were not understood".into())))
}

async fn remove_all(left: &Contained, after: After) -> Result<(usize, usize)> {
    let docker = open(&local(Some(&left.host))?)?;
    let docker = docker.negotiate_version().await.map_err(failed("reach the engine"))?;
    let mut found = remove_now(&docker, &left.run).await?;
    let mut all = found;
    if after == After::End {
        return Ok(all);
    }
    // An engine goes on with what it was asked for, though nobody waits for it any more, and tells
    // nobody when it is done.
    let mut quiet = 0;
    while quiet < QUIET {
        tokio::time::sleep(PAUSE).await;
        quiet = if found == (0, 0) { quiet + 1 } else { 0 };
        found = remove_now(&docker, &left.run).await?;
        all = (all.0 + found.0, all.1 + found.1);
    }
    Ok(all)
}

/// Removes what is there now. How many containers and networks that were.
async fn remove_now(docker: &Docker, run: &str) -> Result<(usize, usize)> {
    let of_run = HashMap::from([("label".to_owned(), vec![format!("{LABEL}={run}")])]);
    let options = ListContainersOptions {
        all: true,
        filters: Some(of_run.clone()),
        ..ListContainersOptions::default()
    };
    let found = docker.list_containers(Some(options)).await.map_err(failed("list containers"))?;
    let ids = found.into_iter().filter_map(|container| container.id);
    let removals = ids.map(|id| remove_container(docker, id));
    let containers = futures_util::future::join_all(removals).await;
    let options = ListNetworksOptions { filters: Some(of_run) };
    let found = docker.list_networks(Some(options)).await.map_err(failed("list networks"))?;
    let ids = found.into_iter().filter_map(|network| network.id);
    let removals = ids.map(|id| remove_network(docker, id));
    let networks = futures_util::future::join_all(removals).await;
    let found = (containers.len(), networks.len());
    containers.into_iter().chain(networks).collect::<Result<()>>()?;
    Ok(found)
}

async fn remove_container(docker: &Docker, id: String) -> Result<()> {
    let options =
        RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
    gone(docker.remove_container(&id, Some(options)).await, "remove a container")
}

async fn remove_network(docker: &Docker, id: String) -> Result<()> {
    gone(docker.remove_network(&id).await, "remove a network")
}

/// What somebody else has removed meanwhile is gone as well.
fn gone(done: std::result::Result<(), bollard::errors::Error>, step: &'static str) -> Result<()> {
    match done {
        Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        done => done.map_err(failed(step)),
    }
}

/// Removes what stands in a run's folder for its containers.
pub(crate) fn remove_folder(run_dir: &Path) {
    let folder = run_dir.join(FOLDER);
    // The project was mounted there: a mount that is left would be gone into.
    if folder.join("project").exists() {
        let _ = std::fs::remove_dir(folder.join("project"));
    }
    let _ = std::fs::remove_dir_all(folder.join("sockets"));
    let _ = std::fs::remove_dir(folder.join("shut"));
    for file in ["empty", "door", "names"] {
        let _ = std::fs::remove_file(folder.join(file));
    }
    let _ = std::fs::remove_dir(folder);
}
