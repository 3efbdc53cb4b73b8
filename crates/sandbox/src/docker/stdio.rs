//! The agent's standard streams, which the engine carries.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error as Failure;
use bollard::query_parameters::{AttachContainerOptions, ResizeContainerTTYOptions};
use futures_util::{Stream, StreamExt as _};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::engine::failed;
use crate::Streams;
use crate::error::{Result, Step};

/// Pieces of output that wait for whoever reads them.
const PIECES: usize = 16;
/// Bytes read at a time.
const PIECE: usize = 32 << 10;

/// What would make the engine let go of the streams when it is typed. There is no way to say "nothing": by
/// default it is Ctrl-P Ctrl-Q, which an agent's own keys may be.
const NOT_TYPED: &str =
    "ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^";

/// Our ends: from where the agent's input comes, and where its output goes.
#[derive(Debug)]
pub(super) struct Ends {
    input: File,
    output: File,
    error: File,
    /// A terminal of the agent's own, whose size counts.
    terminal: Option<OwnedFd>,
}

impl Ends {
    /// The supervisor's own streams, or the near side of a new terminal whose far side is given back.
    pub(super) fn of(streams: Streams) -> Result<(Self, Option<OwnedFd>)> {
        let step = "open the standard streams";
        let copy = |fd: std::os::fd::BorrowedFd<'_>| -> Result<File> {
            match rustix::io::fcntl_dupfd_cloexec(fd, 3) {
                Ok(fd) => Ok(fd.into()),
                // Closed: then the agent has nothing there either.
                Err(_) => File::options().read(true).write(true).open("/dev/null").step(step),
            }
        };
        if streams != Streams::Terminal {
            let input = copy(rustix::stdio::stdin())?;
            let output = copy(rustix::stdio::stdout())?;
            let error = copy(rustix::stdio::stderr())?;
            return Ok((Self { input, output, error, terminal: None }, None));
        }
        use rustix::pty::OpenptFlags;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let far = rustix::pty::openpt(flags).step(step)?;
        rustix::pty::grantpt(&far).step(step)?;
        rustix::pty::unlockpt(&far).step(step)?;
        let near = rustix::pty::ioctl_tiocgptpeer(&far, flags).step(step)?;
        let mut modes = rustix::termios::tcgetattr(&near).step(step)?;
        // The agent's own terminal, in the container, does what a terminal does.
        modes.make_raw();
        rustix::termios::tcsetattr(&near, rustix::termios::OptionalActions::Now, &modes)
            .step(step)?;
        let ends = Self {
            input: copy(near.as_fd())?,
            output: copy(near.as_fd())?,
            error: copy(near.as_fd())?,
            terminal: Some(near),
        };
        Ok((ends, Some(far)))
    }
}

/// The streams while they are carried.
#[derive(Debug)]
pub(super) struct Stdio {
    /// Told once the container has ended: how long the engine has for each piece that is still to come.
    over: watch::Sender<Option<Duration>>,
    written: Option<JoinHandle<()>>,
    /// Ends the thread that reads input when it is closed.
    _wake: OwnedFd,
}

impl Stdio {
    /// Attaches to a container that has not started.
    ///
    /// # Errors
    /// [`crate::Error::Step`].
    pub(super) async fn attach(docker: &Docker, name: &str, ends: Ends) -> Result<Self> {
        let step = "attach to the agent's container";
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            detach_keys: Some(NOT_TYPED.into()),
            ..AttachContainerOptions::default()
        };
        let attached = docker.attach_container(name, Some(options)).await.map_err(failed(step))?;
        let (wakes, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step(step)?;
        let (typed, input) = mpsc::channel(PIECES);
        let Ends { input: from, output, error, terminal } = ends;
        // Threads of their own: a read that nobody answers must hold up nothing when the run ends.
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || read_all(from, &wakes, &typed))
            .step(step)?;
        let (print, printed) = mpsc::channel(PIECES);
        let writer = tokio::task::spawn_blocking(move || write_all(output, error, printed));
        tokio::spawn(feed(attached.input, input));
        let (over, is_over) = watch::channel(None);
        let carrier = carry(attached.output, print, is_over);
        tokio::spawn(carrier);
        if let Some(terminal) = terminal {
            tokio::spawn(follow_size(docker.clone(), name.to_owned(), terminal));
        }
        Ok(Self { over, written: Some(writer), _wake: wake })
    }

    /// Waits until all output is written. The engine has `patience` for each piece of it; whoever reads it
    /// may take as long as they like, unless `killed` says that nobody waits for the rest: then `patience`
    /// is for both.
    pub(super) async fn finish(&mut self, patience: Duration, killed: &mut watch::Receiver<bool>) {
        let _ = self.over.send(Some(patience));
        let Some(written) = self.written.take() else { return };
        let given_up = async {
            if killed.wait_for(|killed| *killed).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            _ = written => {}
            () = given_up => {}
        }
    }
}

/// Passes the agent's output on, until the engine has let go of it.
async fn carry(
    mut from: Pin<Box<dyn Stream<Item = std::result::Result<LogOutput, Failure>> + Send>>,
    to: mpsc::Sender<LogOutput>,
    mut is_over: watch::Receiver<Option<Duration>>,
) {
    let mut patience = None;
    loop {
        let piece = match patience {
            Some(patience) => timeout(patience, from.next()).await.unwrap_or(None),
            None => tokio::select! {
                piece = from.next() => piece,
                told = is_over.wait_for(Option::is_some) => {
                    // Whoever would tell is gone: then nobody waits for the rest.
                    let Ok(told) = told else { return };
                    patience = *told;
                    continue;
                }
            },
        };
        let Some(Ok(piece)) = piece else { return };
        // Nobody reads any more: the agent's writes go nowhere, as in a closed pipe.
        if to.send(piece).await.is_err() {
            return;
        }
    }
}

/// Reads until the end, or until the other end of `wake` is closed.
fn read_all(mut from: File, wake: &OwnedFd, to: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut fds = [PollFd::new(&from, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let [ready, woken] = fds.map(|fd| !fd.revents().is_empty());
        if woken {
            return;
        }
        if !ready {
            continue;
        }
        let mut piece = vec![0; PIECE];
        match from.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                piece.truncate(read);
                if to.blocking_send(piece).is_err() {
                    return;
                }
            }
        }
    }
}

async fn feed(mut to: Pin<Box<dyn AsyncWrite + Send>>, mut from: mpsc::Receiver<Vec<u8>>) {
    while let Some(piece) = from.recv().await {
        if to.write_all(&piece).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    // The agent sees the end of its input.
    let _ = to.shutdown().await;
}

fn write_all(mut output: File, mut error: File, mut from: mpsc::Receiver<LogOutput>) {
    while let Some(piece) = from.blocking_recv() {
        let (to, bytes) = match piece {
            LogOutput::StdErr { message } => (&mut error, message),
            LogOutput::StdOut { message } | LogOutput::Console { message } => {
                (&mut output, message)
            }
            LogOutput::StdIn { .. } => continue,
        };
        // Whoever reads one stream may have gone, and the other may not.
        let _ = to.write_all(&bytes);
    }
}

/// Tells the engine how large the terminal is, now and whenever that changes.
async fn follow_size(docker: Docker, name: String, terminal: OwnedFd) {
    let Ok(mut changed) = signal(SignalKind::window_change()) else { return };
    let mut told = (0, 0);
    loop {
        if let Ok(size) = rustix::termios::tcgetwinsize(&terminal) {
            let now = (i32::from(size.ws_row), i32::from(size.ws_col));
            if now != told && now != (0, 0) {
                let options = ResizeContainerTTYOptions { h: now.0, w: now.1 };
                if docker.resize_container_tty(&name, options).await.is_ok() {
                    told = now;
                }
            }
        }
        // Whoever carries the terminal sets its size on the same signal: a moment later it is there.
        tokio::select! {
            changed = changed.recv() => if changed.is_none() { return },
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
        }
    }
}
