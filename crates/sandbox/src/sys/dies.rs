//! A child that does not outlive us, for programs that run outside every sandbox.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Lets the kernel kill this command's process when the thread that starts it ends.
pub(crate) fn dies_with_us(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing. It runs
    // after the ids were changed, which would take the signal back.
    unsafe {
        command.pre_exec(move || {
            let kill = rustix::process::Signal::KILL;
            rustix::process::set_parent_process_death_signal(Some(kill))?;
            // We may have died before.
            match rustix::process::getppid() == Some(parent) {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
}
