//! The native backend against the real kernel, as root and as an ordinary user.
//!
//! The test program is three things: the test runner, the supervisor of one sandbox (in a process
//! of its own, so that it can be an ordinary user and can be killed), and a sandbox's init.

#![allow(unreachable_pub, reason = "one test program of several files")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on fails; a harness of its own is not known as a test to clippy"
)]

mod files;
mod kernel;
mod lifecycle;
mod limits;
mod network;
mod programs;
mod supervisor;
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use support::User;

type Test = (&'static str, fn(User));

fn main() -> ExitCode {
    if ringfence_sandbox::native::is_init() {
        ringfence_sandbox::native::init_main();
    }
    if std::env::args().nth(1).as_deref() == Some("supervise") {
        return supervisor::main();
    }
    let arguments = Arguments::from_args();
    let tests = [
        files::TESTS,
        kernel::TESTS,
        lifecycle::TESTS,
        limits::TESTS,
        network::TESTS,
        programs::TESTS,
    ];
    let mut trials = Vec::new();
    for user in User::all() {
        for (name, test) in tests.iter().copied().flatten() {
            trials.push(Trial::test(format!("{user}::{name}"), move || {
                test(user);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
