//! The list of commands, in the order of the work.

use clap::{Command, CommandFactory};

use crate::args::Args;

#[cfg(test)]
mod tests;

/// What a command is for, and the commands, in the order of their use.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Declare", &["init", "validate", "show", "set", "lock", "fetch", "diff", "schema"]),
    ("Trust", &["trust", "sign", "verify", "publisher", "share", "receive", "registry"]),
    ("Constrain", &["policy", "secret", "login", "logout"]),
    ("Run", &["run", "approvals", "spend", "webhook", "ps", "stop", "clean"]),
    ("Serve", &["mcp", "gateway"]),
    ("Prove", &["logs", "report", "audit"]),
    ("Keep", &["library", "store"]),
];

/// The command line, with its commands in groups.
pub(crate) fn command() -> Command {
    let command = Args::command();
    let list = list(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{list}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// One line a command: clap has one heading for all of them.
fn list(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        text.push_str(&format!("  {group}:\n"));
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(Command::get_about)
                .map(ToString::to_string)
                .unwrap_or_default();
            text.push_str(&format!("    {name:<10} {about}\n"));
        }
    }
    text
}
