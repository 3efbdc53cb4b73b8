//! The few system calls that no safe wrapper offers. The only `unsafe` of the workspace is here.
#![allow(unsafe_code, reason = "raw clone, fork, exec and a few calls without a safe wrapper")]

mod dies;
mod exec;
mod ids;
mod mount;
mod signal;
mod spawn;
mod watch;

pub(crate) use dies::{dies_with_us, inherited};
pub(crate) use exec::{
    Forked, execve, exit_now, fork_single_threaded, hear_errors, keep_only_stdio, trace,
};
pub(crate) use ids::FileIds;
pub(crate) use mount::{Attributes, loopback_up, mount_setattr};
pub(crate) use signal::{
    child_signal_fd, default_signals, ignore_terminal_stops, keeper_signal_fd, next_signal,
};
pub(crate) use spawn::{Child, INIT_NAME, control_channel, spawn_holder, spawn_init, unshare};
pub(crate) use watch::watch_readable;
