use std::collections::BTreeSet;

use super::{Error, FILES, Kind, Protected, adapter, adapters, parse, protected};
use ringfence_bundle::Id;

#[test]
fn every_data_file_parses_and_is_listed() {
    let parsed = parse(&FILES).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(parsed, adapters());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let on_disk: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder of data files")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    let listed: BTreeSet<String> = FILES.iter().map(|(name, _)| format!("{name}.toml")).collect();
    assert_eq!(on_disk, listed);
}

#[test]
fn protected_paths_are_sorted_and_unique() {
    let paths = protected();
    assert!(paths.windows(2).all(|pair| pair[0].path < pair[1].path), "{paths:#?}");
    for (path, kind) in [
        (".claude", Kind::Dir),
        (".mcp.json", Kind::Json),
        (".codex", Kind::Dir),
        (".cursor", Kind::Dir),
        (".vscode", Kind::Dir),
        (".gemini", Kind::Dir),
        (".opencode", Kind::Dir),
        ("opencode.json", Kind::Json),
        (".github/hooks", Kind::Dir),
    ] {
        assert!(paths.contains(&Protected { path: path.to_owned(), kind }), "{path}");
    }
}

#[test]
fn instructions_stay_writable() {
    for file in
        ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github", ".github/copilot-instructions.md"]
    {
        assert!(protected().iter().all(|protected| protected.path != file), "{file}");
    }
}

#[test]
fn adapters_are_found_by_name() {
    let id = Id::parse("claude-code").expect("a name");
    assert_eq!(adapter(&id).expect("known").title, "Claude Code");
    assert_eq!(adapter(&Id::parse("nobody").expect("a name")), None);
}

#[test]
fn bad_data_is_refused() {
    let good = "name = \"x\"\ntitle = \"X\"\n[[protected]]\npath = \".x\"\nkind = \"dir\"\n";
    assert!(parse(&[("x", good)]).is_ok());
    for bad in [
        good.replace("title", "titel"),
        good.replace("\"dir\"", "\"folder\""),
        good.replace(".x", "../x"),
        good.replace("\".x\"", "\"/x\""),
        good.replace("name = \"x\"", "name = \"y\""),
        format!("{good}[[protected]]\npath = \".x\"\nkind = \"file\"\n"),
    ] {
        assert!(parse(&[("x", &bad)]).is_err(), "{bad}");
    }
    let two = good.replace("\"x\"", "\"y\"").replace("\"dir\"", "\"json\"");
    assert!(matches!(parse(&[("x", good), ("y", &two)]), Err(Error::Path { file: "y", .. })));
}

#[test]
fn the_manifest_knows_the_same_names() {
    let names: Vec<&str> = adapters().iter().map(|adapter| adapter.name.as_str()).collect();
    assert_eq!(names, ringfence_bundle::CLIS);
}
