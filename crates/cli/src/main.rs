//! The `ringfence` program: arguments in, words out, no decisions.

mod args;
mod changes;
mod commands;
mod escape;
mod failure;
mod help;
mod out;
mod project;

use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    // A sandbox's init is this same program; it must not look at arguments or files first.
    if ringfence_sandbox::native::is_init() {
        ringfence_sandbox::native::init_main();
    }
    if ringfence_sandbox::docker::is_init() {
        ringfence_sandbox::docker::init_main();
    }
    if ringfence_sandbox::host::is_keeper() {
        ringfence_sandbox::host::keeper_main();
    }
    if ringfence_egress::remote::is_sidecar() {
        ringfence_egress::remote::sidecar_main();
    }
    let parsed = help::command()
        .try_get_matches()
        .and_then(|matches| args::Args::from_arg_matches(&matches));
    let args = match parsed {
        Ok(args) => args,
        Err(error) => {
            // Help and version go to stdout with status 0, the rest to stderr with status 2.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let status = match commands::run(&args) {
        Ok(status) => status,
        Err(failure) => failure.report(args.json()),
    };
    if out::lost() { ExitCode::from(255) } else { status }
}
