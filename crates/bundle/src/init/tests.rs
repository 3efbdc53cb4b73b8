use std::path::Path;

use super::{agent_name, first_manifest};
use crate::parse_manifest;

#[test]
fn the_first_manifest_is_valid_and_quiet() {
    let (manifest, warnings) =
        parse_manifest(Path::new("m"), &first_manifest("My Project"), None).expect("valid");
    assert_eq!(warnings, []);
    assert_eq!(manifest.agent.expect("an agent").name, "my-project");
}

#[test]
fn what_it_teaches_in_comments_is_valid_too() {
    let text: String = first_manifest("x")
        .lines()
        .map(|line| {
            let code = line
                .strip_prefix("# ")
                .filter(|rest| rest.starts_with('[') || rest.contains(" = "));
            code.unwrap_or(line).to_owned() + "\n"
        })
        .collect();
    let (manifest, _) = parse_manifest(Path::new("m"), &text, None)
        .unwrap_or_else(|found| panic!("{found:#?}\n{text}"));
    assert_eq!(manifest.servers.len(), 2);
    assert_eq!(manifest.approvals.require.len(), 1);
    assert_eq!(manifest.sandbox.command.len(), 2);
}

#[test]
fn any_folder_gives_a_name() {
    for (folder, name) in [
        ("invoice-processor", "invoice-processor"),
        ("My Project (2)", "my-project-2"),
        ("日本", "agent"),
        ("", "agent"),
        ("..", "agent"),
        ("--x--", "x"),
    ] {
        assert_eq!(agent_name(folder), name);
    }
    assert!(agent_name(&"a".repeat(200)).len() <= 63);
}
