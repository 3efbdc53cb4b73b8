//! `ringfence logs`

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::ExitCode;

use ringfence_record::{Entry, Event};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::report::{no_end, words};
use super::run::line;
use super::{Done, find, home};
use crate::args::Logs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(logs: &Logs) -> Done {
    let home = home()?;
    let run = find(&home, &logs.run, "logs")?;
    let file = ringfence_record::run_file(&home, &run);
    // Before anything is read, so that nothing that is written meanwhile is missed.
    let watch = if logs.follow { Some(Watch::on(&file)?) } else { None };
    let mut entries = ringfence_record::read_run(&home, &run)?;
    let mut ended = false;
    // Asked first: what a recorder writes before it lets go is in what is read then.
    let mut recording = ringfence_record::is_recording(&home, &run)?;
    loop {
        for entry in entries.by_ref() {
            let entry = entry?;
            ended |= matches!(entry.event, Event::RunFinished { .. });
            show(&entry, logs.json);
        }
        let Some(watch) = watch.as_ref().filter(|_| recording) else { break };
        if watch.wait()? == Woken::Closed {
            // Whoever closes a file lets go of it a moment later.
            ringfence_record::wait_recorded(&home, &run)?;
            recording = false;
        }
        entries.again()?;
    }
    if logs.follow {
        // A record may fail long before its run is over.
        ringfence_run::wait_over(&home, &run)?;
    }
    let last = if recording {
        (!ended).then(|| no_end(true).to_owned())
    } else if !ringfence_record::is_sealed(&home, &run)? {
        let live = ringfence_run::list(&home)?.iter().any(|live| live.run == run);
        Some(unsealed(ended, live))
    } else {
        None
    };
    if let Some(last) = last {
        if logs.json {
            out::say(&last);
        } else {
            out::data(&last);
        }
        if !recording {
            out::say(&format!("next: ringfence audit verify --run {run}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said of a record that nobody writes any more and that has no seal.
fn unsealed(ended: bool, live: bool) -> String {
    match (ended, live) {
        (true, _) => {
            "no seal: the run has ended, and Ringfence was killed, or could not write, before its \
                      evidence was sealed"
                .to_owned()
        }
        (false, true) => {
            "no end: nothing more can be recorded, and the run is being ended; no seal".to_owned()
        }
        (false, false) => format!("{}; no seal", no_end(false)),
    }
}

fn show(entry: &Entry, json: bool) {
    if json {
        if let Ok(text) = serde_json::to_string(entry) {
            out::data(&text);
        }
        return;
    }
    if let Some(text) = words(&entry.event) {
        out::data(&format!("{}  {}", entry.at, escaped(&text)));
        return;
    }
    for row in ringfence_run::rows([&entry.event]) {
        out::data(&format!("{}  {}", entry.at, line(&row).trim_start()));
    }
}

/// Wakes when a file is written to, or its writer lets go of it, however it ended.
struct Watch(std::os::fd::OwnedFd);

impl Watch {
    fn on(file: &Path) -> Result<Self, Failure> {
        let fail = |error: rustix::io::Errno| {
            Failure::user(format!("{} cannot be followed: {error}", file.display()))
        };
        let watch = inotify::init(CreateFlags::CLOEXEC).map_err(fail)?;
        let what = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&watch, file, what).map_err(fail)?;
        Ok(Self(watch))
    }

    fn wait(&self) -> Result<Woken, Failure> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut space);
        let mut woken = Woken::Written;
        loop {
            match reader.next() {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(event) if event.events().contains(ReadFlags::CLOSE_WRITE) => {
                    woken = Woken::Closed;
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(Failure::user(format!("the record cannot be followed: {error}")));
                }
            }
            if reader.is_buffer_empty() {
                return Ok(woken);
            }
        }
    }
}

/// Why a watch woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// There is more to read.
    Written,
    /// Its writer has closed it: nothing more comes.
    Closed,
}
