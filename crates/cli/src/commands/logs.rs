//! `ringfence logs`

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::ExitCode;

use ringfence_record::{Entry, Event};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::report::{no_end, words};
use super::run::line;
use super::{Done, find, home};
use crate::args::Logs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(logs: &Logs) -> Done {
    let home = home()?;
    let run = find(&home, &logs.run)?;
    let file = ringfence_record::run_file(&home, &run);
    // Before anything is read, so that nothing that is written meanwhile is missed.
    let watch = if logs.follow { Some(Watch::on(&file)?) } else { None };
    let mut entries = ringfence_record::read_run(&home, &run)?;
    let mut ended = false;
    loop {
        // Asked first: a run that ends meanwhile has its end in what is read then.
        let live = ringfence_run::list(&home)?.iter().any(|live| live.run == run);
        for entry in entries.by_ref() {
            let entry = entry?;
            ended |= matches!(entry.event, Event::RunFinished { .. });
            show(&entry, logs.json);
        }
        if ended {
            break;
        }
        let Some(watch) = watch.as_ref().filter(|_| live) else {
            if !logs.json {
                out::data(no_end(live));
            }
            break;
        };
        watch.wait()?;
        entries.again()?;
    }
    Ok(ExitCode::SUCCESS)
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
        let what = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF;
        inotify::add_watch(&watch, file, what).map_err(fail)?;
        Ok(Self(watch))
    }

    fn wait(&self) -> Result<(), Failure> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut space);
        loop {
            match reader.next() {
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    return Err(Failure::user(format!("the record cannot be followed: {error}")));
                }
            }
        }
    }
}
