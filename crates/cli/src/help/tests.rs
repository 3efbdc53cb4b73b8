use std::collections::BTreeSet;

use clap::CommandFactory;

use super::{GROUPS, command, list};
use crate::args::Args;

#[test]
fn every_command_is_in_one_group() {
    let args = Args::command();
    let there: BTreeSet<&str> =
        args.get_subcommands().filter(|it| !it.is_hide_set()).map(|it| it.get_name()).collect();
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), there);
    assert_eq!(grouped.len(), there.len(), "one is in two groups");
}

#[test]
fn each_has_one_line_that_fits() {
    for line in list(&Args::command()).lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.ends_with(':') || line.len() > 16, "says nothing: {line}");
    }
}

#[test]
fn the_help_is_whole() {
    let help = command().render_help().to_string();
    for part in [
        "One control plane",
        "Usage: ringfence",
        "  Prove:\n    logs ",
        "    report ",
        "--project",
        "Exit status",
    ] {
        assert!(help.contains(part), "{part}\n{help}");
    }
    assert_eq!(help.matches("Commands:").count(), 1);
}
