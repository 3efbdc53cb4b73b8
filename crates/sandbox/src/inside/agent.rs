//! Starting the agent, and the probe in its place before it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use super::confine::Confinement;
use super::probe;
use super::wire::{Blueprint, Failure, Targets};
use crate::Probe;
use crate::error::{Error, Result, Step};
use crate::sys::{self, Forked};

/// The agent before its start.
#[derive(Debug)]
pub(crate) struct Agent {
    blueprint: Blueprint,
    parts: Option<Parts>,
    waiting: Option<Waiting>,
}

/// The agent's process: confined, and not the agent's program yet.
#[derive(Debug)]
struct Waiting {
    pid: Pid,
    /// One byte lets it go on; its end ends it.
    go: OwnedFd,
    /// What it has to say, each answer behind its length; closed by the start of the program.
    answer: fs::File,
}

#[derive(Debug)]
struct Parts {
    stdio: [OwnedFd; 3],
    confinement: Confinement,
}

impl Agent {
    pub(crate) fn new(blueprint: Blueprint, stdio: [OwnedFd; 3], confinement: Confinement) -> Self {
        Self { blueprint, parts: Some(Parts { stdio, confinement }), waiting: None }
    }

    /// Makes the agent's process, confined for good, and tries the sandbox from it. It is the process
    /// that becomes the agent, so that what was tried is what the agent gets.
    ///
    /// # Errors
    /// [`Error::Step`]: it could not be confined, or died.
    pub(crate) fn probe(&mut self, targets: &Targets) -> Result<Vec<Probe>> {
        let mut waiting = self.fork(Some(targets))?;
        let found = match receive(&mut waiting.answer)? {
            Some(Answer::Probed(found)) => found,
            Some(Answer::Failed(failure)) => return Err(failure.into()),
            None => return Err(Error::Spec("the agent's process ended while it tried".into())),
        };
        self.waiting = Some(waiting);
        Ok(found)
    }

    /// Starts the program. Returns once it has been executed.
    ///
    /// # Errors
    /// [`Error::Step`]: it cannot be executed.
    pub(crate) fn start(&mut self) -> Result<Pid> {
        let waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => self.fork(None)?,
        };
        // Only the agent holds its streams from now on.
        self.parts = None;
        let Waiting { pid, go, mut answer } = waiting;
        fs::File::from(go).write_all(b"g").step("let the agent's process go on")?;
        match receive(&mut answer)? {
            None => Ok(pid),
            Some(Answer::Failed(failure)) => Err(Error::from(failure)),
            Some(Answer::Probed(_)) => {
                Err(Error::Spec("the agent's process gave another answer".into()))
            }
        }
    }

    /// Forks and confines the child, which tries the sandbox where it is told to, waits to be let go
    /// on, and becomes the program.
    fn fork(&mut self, targets: Option<&Targets>) -> Result<Waiting> {
        let step = "start the agent's process";
        let (answer, mut said) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map(|(read, write)| (fs::File::from(read), fs::File::from(write)))
            .step(step)?;
        let (wait, go) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step(step)?;
        match sys::fork_single_threaded().step(step)? {
            Forked::Parent(pid) => Ok(Waiting { pid, go, answer }),
            Forked::Child => {
                drop((answer, go));
                let failure = self.child(targets, wait, &mut said);
                if let Some(error) = failure.err() {
                    let _ = send(&mut said, &Answer::Failed(error.into()));
                }
                sys::exit_now(127)
            }
        }
    }

    /// What the child does. Comes back with the reason when the program cannot be executed, and
    /// without one when nobody waits for it any more.
    fn child(
        &mut self,
        targets: Option<&Targets>,
        wait: OwnedFd,
        said: &mut fs::File,
    ) -> Result<()> {
        let Parts { stdio, confinement } = self.parts.take().ok_or_else(gone)?;
        if self.blueprint.own_session {
            own_session(self.blueprint.terminal.and_then(|which| stdio.get(usize::from(which))))?;
        }
        confine(confinement)?;
        if let Some(targets) = targets {
            let found = probe::run(&self.blueprint, targets);
            send(said, &Answer::Probed(found)).step("report what was tried")?;
        }
        match fs::File::from(wait).read_exact(&mut [0]) {
            Ok(()) => Err(execute(&self.blueprint, &stdio)),
            Err(_) => Ok(()),
        }
    }
}

/// An answer at most this long is taken, in bytes.
const ANSWER_MAX: u32 = 4 << 20;

fn send(pipe: &mut fs::File, answer: &Answer) -> io::Result<()> {
    let text = serde_json::to_vec(answer)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    pipe.write_all(&length.to_le_bytes())?;
    pipe.write_all(&text)
}

/// The next answer; `None` when the pipe was closed instead.
fn receive(pipe: &mut fs::File) -> Result<Option<Answer>> {
    let step = "read the answer of the agent's process";
    let mut length = [0; 4];
    match pipe.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other.step(step)?,
    }
    let length = u32::from_le_bytes(length);
    if length > ANSWER_MAX {
        return Err(Error::Spec("the agent's process said too much".into()));
    }
    let mut text = vec![0; length as usize];
    pipe.read_exact(&mut text).step(step)?;
    serde_json::from_slice(&text).map_err(io::Error::other).step(step).map(Some)
}

#[derive(serde::Serialize, serde::Deserialize)]
enum Answer {
    Probed(Vec<Probe>),
    Failed(Failure),
}

fn gone() -> Error {
    Error::Spec("the agent has been started already".into())
}

/// Leaves the supervisor's session, and with it the supervisor's terminal: `/dev/tty` is this one
/// from now on, or none.
fn own_session(terminal: Option<&OwnedFd>) -> Result<()> {
    rustix::process::setsid().step("give the agent a session of its own")?;
    match terminal {
        Some(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal).step("give the agent a terminal of its own")
        }
        None => Ok(()),
    }
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
