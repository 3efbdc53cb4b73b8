//! A program on a terminal of its own: what it shows, and what is typed.

use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::Project;
use crate::output::PATIENCE;

/// Everything that was shown, and whether more may come.
#[derive(Debug, Default)]
struct Shown {
    bytes: Vec<u8>,
    over: bool,
}

/// A running `ringfence` that leads a session on this terminal. Killed when dropped.
#[derive(Debug)]
pub struct Screen {
    child: Child,
    master: Arc<OwnedFd>,
    shown: Arc<(Mutex<Shown>, Condvar)>,
}

impl Screen {
    /// Starts `ringfence -C <project>` with these arguments on a terminal of 100 columns and 40 rows.
    ///
    /// # Panics
    /// When there is no terminal to be had.
    #[must_use]
    pub fn start(project: &Project, args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let slave = ioctl_tiocgptpeer(&master, flags).expect("a terminal");
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a size");
        let (program, path) = (project.program().display().to_string(), project.path());
        let path = path.display().to_string();
        let mut words = vec!["setsid", "--ctty", "--wait", &program, "-C", &path];
        words.extend(args);
        let mut command = project.command(&words);
        command.env("TERM", "xterm-256color");
        let copy = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let child =
            command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("setsid is there");
        drop((command, slave));
        let (master, shown) = (Arc::new(master), Arc::<(Mutex<Shown>, Condvar)>::default());
        let (from, to) = (Arc::clone(&master), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0_u8; 4096];
            loop {
                let read = rustix::io::read(&*from, &mut bytes).unwrap_or(0);
                let mut shown = to.0.lock().unwrap_or_else(PoisonError::into_inner);
                shown.bytes.extend_from_slice(&bytes[..read]);
                shown.over = read == 0;
                to.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Self { child, master, shown }
    }

    /// Everything that was shown so far.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown.bytes).into_owned()
    }

    /// Waits until `wanted` finds something in all that was shown.
    ///
    /// # Panics
    /// When it does not in a minute and a half, or nothing more can come.
    #[track_caller]
    pub fn until<T>(&self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let text = String::from_utf8_lossy(&shown.bytes).into_owned();
            if let Some(found) = wanted(&text) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !shown.over, "never shown: {what}\n{text}\n{text:?}");
            shown = self
                .shown
                .1
                .wait_timeout(shown, left.min(Duration::from_secs(5)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until this was shown.
    #[track_caller]
    pub fn shows(&self, words: &str) {
        self.until(words, |text| text.contains(words).then_some(()));
    }

    /// Waits for the `number`th invitation to approve, and gives the code in it.
    #[track_caller]
    pub fn code(&self, number: usize) -> String {
        self.until("a code", |text| {
            let mut codes = text.split("\r\nType ").filter_map(|after| {
                let (code, rest) = after.split_once(' ')?;
                rest.starts_with("to approve, or no to deny, and Enter: ").then(|| code.to_owned())
            });
            codes.nth(number - 1)
        })
    }

    /// Types, or lets the terminal report.
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        let mut bytes = bytes.as_ref();
        while let Ok(written) = rustix::io::write(&*self.master, bytes) {
            bytes = &bytes[written..];
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Waits for its end: the status, and everything that was shown.
    ///
    /// # Panics
    /// When it has not ended after a minute and a half.
    #[track_caller]
    pub fn finish(mut self) -> (i32, String) {
        let end = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !shown.over {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "hung: {}", String::from_utf8_lossy(&shown.bytes));
            shown =
                self.shown.1.wait_timeout(shown, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(shown);
        let status = self.child.wait().expect("a child can be waited for");
        (status.code().unwrap_or(255), self.text())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
