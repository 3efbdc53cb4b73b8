//! Starting the agent, and the probe in its place before it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

use super::confine::Confinement;
use super::probe;
use crate::Probe;
use crate::error::{Error, Result, Step};
use crate::native::wire::{Blueprint, Failure, Targets};
use crate::sys::{self, Forked};

/// The agent before its start.
#[derive(Debug)]
pub(super) struct Agent {
    blueprint: Blueprint,
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    stdio: [OwnedFd; 3],
    confinement: Confinement,
}

impl Agent {
    pub(super) fn new(blueprint: Blueprint, stdio: [OwnedFd; 3], confinement: Confinement) -> Self {
        Self { blueprint, parts: Some(Parts { stdio, confinement }) }
    }

    /// Forks a process that is confined as the agent will be, and tries the sandbox from there.
    ///
    /// # Errors
    /// [`Error::Step`]: it could not be confined, or died.
    pub(super) fn probe(&mut self, targets: &Targets) -> Result<Vec<Probe>> {
        let (pid, answer) = self.fork(|blueprint, _| Ok(probe::run(blueprint, targets)))?;
        let answer = read_all(answer)?;
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        match serde_json::from_slice(&answer) {
            Ok(Answer::Probed(found)) => Ok(found),
            Ok(Answer::Failed(failure)) => Err(failure.into()),
            Err(error) => Err(io::Error::other(error)).step("read what the probe found"),
        }
    }

    /// Starts the program. Returns once it has been executed.
    ///
    /// # Errors
    /// [`Error::Step`]: it cannot be executed.
    pub(super) fn start(&mut self) -> Result<Pid> {
        let (pid, answer) = self.fork(|blueprint, stdio| Err(execute(blueprint, stdio)))?;
        // Only the agent holds its streams from now on.
        self.parts = None;
        let answer = read_all(answer)?;
        if answer.is_empty() {
            return Ok(pid);
        }
        match serde_json::from_slice(&answer) {
            Ok(Answer::Failed(failure)) => Err(Error::from(failure)),
            _ => Err(Error::Spec("the agent's process gave no answer".into())),
        }
    }

    /// Forks, confines the child, and runs `task` in it. The child's answer comes through the pipe.
    fn fork(
        &mut self,
        task: impl FnOnce(&Blueprint, &[OwnedFd; 3]) -> Result<Vec<Probe>>,
    ) -> Result<(Pid, OwnedFd)> {
        let step = "start the agent's process";
        let (answer, pipe) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step(step)?;
        match sys::fork_single_threaded().step(step)? {
            Forked::Parent(pid) => Ok((pid, answer)),
            Forked::Child => {
                drop(answer);
                let result = self.parts.take().ok_or_else(gone).and_then(|parts| {
                    let Parts { stdio, confinement } = parts;
                    confine(confinement)?;
                    task(&self.blueprint, &stdio)
                });
                let answer = match result {
                    Ok(found) => Answer::Probed(found),
                    Err(error) => Answer::Failed(error.into()),
                };
                let text = serde_json::to_vec(&answer).unwrap_or_default();
                let _ = fs::File::from(pipe).write_all(&text);
                sys::exit_now(127)
            }
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
enum Answer {
    Probed(Vec<Probe>),
    Failed(Failure),
}

fn gone() -> Error {
    Error::Spec("the agent has been started already".into())
}

/// The whole confinement: the same for the probe and the agent.
fn confine(confinement: Confinement) -> Result<()> {
    sys::default_signals();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    confinement.apply()
}

/// Becomes the agent's program. Returns only if that fails.
fn execute(blueprint: &Blueprint, stdio: &[OwnedFd; 3]) -> Error {
    let run = || -> Result<io::Error> {
        let program = text(&blueprint.program)?;
        let argv = blueprint.argv.iter().map(|word| text(word)).collect::<Result<Vec<_>>>()?;
        let pair = |(name, value): &(OsString, OsString)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            text(&pair)
        };
        let env = blueprint.env.iter().map(pair).collect::<Result<Vec<_>>>()?;
        let step = "connect the standard streams";
        rustix::stdio::dup2_stdin(&stdio[0]).step(step)?;
        rustix::stdio::dup2_stdout(&stdio[1]).step(step)?;
        rustix::stdio::dup2_stderr(&stdio[2]).step(step)?;
        sys::keep_only_stdio().step("close all other descriptors")?;
        Ok(sys::execve(&program, &argv, &env))
    };
    match run() {
        Err(error) => error,
        Ok(source) => {
            let hint = match source.raw_os_error() {
                Some(libc::ENOENT) => Some(
                    "the program, or the loader that it names, is not visible in the sandbox"
                        .into(),
                ),
                Some(libc::EACCES) => Some(
                    "the program must be readable and executable by everyone, or by the project's \
                     owner in the project"
                        .into(),
                ),
                _ => None,
            };
            let step = format!("execute {}", blueprint.program.display()).into();
            Error::Step { step, source, hint }
        }
    }
}

fn text(word: &OsStr) -> Result<CString> {
    CString::new(word.as_bytes())
        .map_err(|_| Error::Spec("a NUL byte in the command or its environment".into()))
}

fn read_all(pipe: OwnedFd) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    fs::File::from(pipe).read_to_end(&mut answer).step("read the answer of the agent's process")?;
    Ok(answer)
}
