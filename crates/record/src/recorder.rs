//! Writing a run's evidence.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use ringfence_identity::Signer;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use tokio::sync::oneshot;

use crate::line::{self, Chain};
use crate::writer::{Failure, Refused, Shared, Waiter, Writer};
use crate::{Error, Event, MachineLog, RunId, paths};

/// Proof that an event is durable. Made only here; whoever needs evidence before an effect demands one.
#[derive(Debug)]
#[must_use]
pub struct Receipt {
    pub(crate) seq: u64,
}

impl Receipt {
    /// The event's sequence number in its file.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// What a sealed file ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Lines in the file.
    pub lines: u64,
    /// Hash of the last one.
    pub head: String,
}

/// Writes one run's `events.jsonl`. Clones share one writer thread that commits in groups.
///
/// When the last clone is dropped without [`Recorder::seal`], what was noted is still written, and
/// the file stays unsealed, as after a crash.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    run: RunId,
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<Writer, Failure>>>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            drop(thread.join());
        }
    }
}

impl Recorder {
    /// Makes `<home>/runs/<id>/` (0700) and its file (0600), exclusively, and chains
    /// [`Event::RunOpened`] into the machine log, so that a file that is taken away, put there or
    /// signed by another key is found. The file stays locked (`flock`) until it is sealed or the
    /// process ends: that is how a live run is told from one that crashed.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Folder`].
    pub fn create(
        home: &Path,
        run: &RunId,
        signer: Signer,
        machine: &MachineLog,
    ) -> Result<Self, Error> {
        let runs = paths::runs(home);
        paths::folder(home)?;
        let folder = paths::folder(&runs)?;
        let path = paths::run_file(home, run);
        let fail = |source: std::io::Error| Error::Write { path: path.clone(), source };

        // Made under a hidden name and renamed once it is locked: under its real name the file is
        // never seen unlocked before it is over.
        let hidden = format!(".{run}");
        let file = make(&folder, &hidden).map_err(|errno| fail(errno.into()))?;
        // A run's folder is never empty, and a folder that is not empty is not replaced.
        let renamed =
            fs::renameat(&folder, &hidden, &folder, run.as_str()).and_then(|()| fs::fsync(&folder));
        if let Err(errno) = renamed {
            drop(std::fs::remove_dir_all(runs.join(&hidden)));
            return Err(fail(errno.into()));
        }
        let key = signer.did().to_string();
        if let Err(error) = machine.append(Event::RunOpened { run: run.clone(), key }) {
            // Nobody knows of it, and it holds nothing.
            drop(std::fs::remove_dir_all(runs.join(run.as_str())));
            return Err(error);
        }
        Self::over(file, path, run, signer)
    }

    /// A recorder over an opened file.
    pub(crate) fn over(
        file: File,
        path: PathBuf,
        run: &RunId,
        signer: Signer,
    ) -> Result<Self, Error> {
        let shared = Shared::new();
        let chain = Chain::new(run.as_str());
        let writer = Writer { file, path: path.clone(), chain, signer, length: 0, span: None };
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("record".to_owned())
            .stack_size(256 << 10)
            .spawn(move || writer.work(&theirs))
            .map_err(|source| Error::Write { path: path.clone(), source })?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { inner: Arc::new(Inner { run: run.clone(), path, shared, thread }) })
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.inner.run
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Appends an event and returns when its group is signed and on disk. An event whose future is
    /// dropped while it waits may be recorded all the same.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Closed`], [`Error::TooLarge`].
    pub async fn commit(&self, event: Event) -> Result<Receipt, Error> {
        let shared = &self.inner.shared;
        let mut event = line::encode(&event)?;
        let (sender, receiver) = oneshot::channel();
        let mut waiter = Waiter::Task(sender);
        loop {
            // Listening begins before the attempt, so that room made in between is not missed.
            let space = shared.space_for_tasks.notified();
            tokio::pin!(space);
            space.as_mut().enable();
            match shared.push(event, waiter) {
                Ok(()) => break,
                Err(Refused::Closed) => return Err(Error::Closed),
                Err(Refused::Full(back, again)) => {
                    (event, waiter) = (back, again);
                    space.await;
                }
            }
        }
        receipt(receiver.await.ok())
    }

    /// [`Recorder::commit`] for code that is not async.
    ///
    /// # Errors
    /// As [`Recorder::commit`].
    pub fn commit_blocking(&self, event: Event) -> Result<Receipt, Error> {
        let shared = &self.inner.shared;
        let mut event = line::encode(&event)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let mut waiter = Waiter::Thread(sender);
        loop {
            match shared.push(event, waiter) {
                Ok(()) => break,
                Err(Refused::Closed) => return Err(Error::Closed),
                Err(Refused::Full(back, again)) => {
                    (event, waiter) = (back, again);
                    shared.wait_for_space();
                }
            }
        }
        receipt(receiver.recv().ok())
    }

    /// Appends an event that will be durable within 100 ms: the writer takes it with the next event
    /// that somebody waits for, or after 20 ms. Never waits. When more than 16,384 events or 16 MiB wait already, the
    /// record takes no more and fails once they are written: evidence that cannot keep up stops the
    /// run. Who notes what somebody else may cause without end waits for [`Recorder::room`] first.
    ///
    /// # Errors
    /// [`Error::Closed`] when an earlier append failed, [`Error::TooLarge`].
    pub fn note(&self, event: Event) -> Result<(), Error> {
        let event = line::encode(&event)?;
        match self.inner.shared.push(event, Waiter::Nobody) {
            Ok(()) => Ok(()),
            Err(Refused::Closed) => Err(Error::Closed),
            Err(Refused::Full(..)) => {
                self.inner.shared.overrun(&self.inner.path);
                Err(Error::Closed)
            }
        }
    }

    /// Waits while a thousand events wait to be written already.
    pub async fn room(&self) {
        loop {
            let space = self.inner.shared.space_for_tasks.notified();
            tokio::pin!(space);
            space.as_mut().enable();
            if !self.inner.shared.is_crowded() {
                return;
            }
            space.await;
        }
    }

    /// How much of the file is on disk, in bytes, so that a run whose record grows without end can
    /// be stopped.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.shared.durable.load(Ordering::Acquire)
    }

    /// Why evidence can no longer be written, once it cannot.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.inner.shared.failures().borrow().as_ref().map(|failure| failure.error())
    }

    /// Resolves, with the reason, when evidence can no longer be written: the run must be stopped.
    /// Pending for as long as all is well, and after a seal.
    pub async fn failed(&self) -> String {
        let mut failures = self.inner.shared.failures();
        let failure = match failures.wait_for(Option::is_some).await {
            Ok(failure) => failure.as_ref().map(|failure| failure.error().to_string()),
            Err(_) => None,
        };
        match failure {
            Some(reason) => reason,
            // The sender lives as long as this recorder, so this does not happen.
            None => std::future::pending().await,
        }
    }

    /// Commits what is left, closes the file and chains its seal into the machine log. The file
    /// stays locked until the seal is there. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Closed`].
    pub fn seal(&self, machine: &MachineLog) -> Result<Seal, Error> {
        self.inner.shared.close();
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = thread.ok_or(Error::Closed)?.join().map_err(|_| Error::Closed)?;
        let writer = ended.map_err(|failure| failure.error())?;
        let seal = Seal { lines: writer.chain.seq, head: line::text(&writer.chain.head) };
        let now = line::now();
        let (started, ended) = writer.span.unwrap_or_else(|| (now.clone(), now));
        let run = self.inner.run.clone();
        let (lines, head) = (seal.lines, seal.head.clone());
        let _receipt = machine.append(Event::RunSealed { run, lines, head, started, ended })?;
        drop(writer.file);
        Ok(seal)
    }
}

fn make(runs: &std::os::fd::OwnedFd, name: &str) -> rustix::io::Result<File> {
    fs::mkdirat(runs, name, Mode::RWXU)?;
    let make = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = fs::openat(runs, name, flags, Mode::empty())?;
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        let file = fs::openat(&folder, paths::EVENTS, flags, Mode::RUSR | Mode::WUSR)?;
        fs::flock(&file, FlockOperation::LockExclusive)?;
        fs::fsync(&folder)?;
        Ok(File::from(file))
    };
    make().inspect_err(|_| {
        // On a full disk the folder is made and the file is not.
        let _ = fs::unlinkat(runs, name, AtFlags::REMOVEDIR);
    })
}

fn receipt(outcome: Option<crate::writer::Outcome>) -> Result<Receipt, Error> {
    match outcome {
        Some(Ok(seq)) => Ok(Receipt { seq }),
        Some(Err(failure)) => Err(failure.error()),
        // The writer is gone without an answer: nothing is proven.
        None => Err(Error::Closed),
    }
}

#[cfg(test)]
mod tests;
