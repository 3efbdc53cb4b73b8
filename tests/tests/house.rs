//! The repository itself: edges, sizes, names. What a document says that a test can check is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use ringfence_tests::{Project, Who, repository, rust_files, test_functions};
use serde_json::Value;

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The cells of a Markdown table's rows, header and ruler left out.
fn rows(text: &str, header: &str) -> Vec<Vec<String>> {
    let start = text
        .lines()
        .position(|l| l.starts_with(header))
        .unwrap_or_else(|| panic!("no table {header:?}"));
    let table = text.lines().skip(start + 2).take_while(|l| l.starts_with('|'));
    table.map(|l| l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect()).collect()
}

/// Words in back quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// Our crates by room, with the rooms that each one really depends on.
fn real_edges() -> BTreeMap<String, BTreeSet<String>> {
    let room = |name: &str| name.strip_prefix("ringfence-").map(str::to_owned);
    let ours = |p: &Value| p["manifest_path"].as_str().is_some_and(|m| m.contains("/crates/"));
    packages()
        .iter()
        .filter(|p| ours(p))
        .map(|p| {
            let to = p["dependencies"].as_array().into_iter().flatten();
            let to = to.filter_map(|d| room(d["name"].as_str()?)).collect();
            (
                room(p["name"].as_str().expect("a name"))
                    .expect("crates are named ringfence-<room>"),
                to,
            )
        })
        .collect()
}

#[test]
fn house_edges_are_the_ones_of_the_architecture_page() {
    let mut written = BTreeMap::new();
    for row in rows(&read("ARCHITECTURE.md"), "| room |") {
        let room = quoted(&row[0]).pop().expect("a room is in back quotes");
        let edges: BTreeSet<String> = quoted(&row[2]).into_iter().collect();
        assert!(written.insert(room.clone(), edges).is_none(), "{room} is in the table twice");
    }
    let real = real_edges();
    let names =
        |map: &BTreeMap<String, BTreeSet<String>>| map.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&written), names(&real), "rooms in ARCHITECTURE.md and crates/ differ");
    for (room, edges) in &real {
        let allowed = &written[room];
        let extra: Vec<_> = edges.difference(allowed).collect();
        assert!(
            extra.is_empty(),
            "`{room}` depends on {extra:?}, which ARCHITECTURE.md does not allow"
        );
        let unused: Vec<_> = allowed.difference(edges).collect();
        assert!(
            unused.is_empty(),
            "`{room}` does not depend on {unused:?}, which ARCHITECTURE.md lists"
        );
    }
}

#[test]
fn house_every_enforcement_cell_names_a_test() {
    let mut tests = test_functions(&repository().join("tests/tests"));
    tests.extend(test_functions(&repository().join("crates")));
    assert!(
        tests.contains("house_every_enforcement_cell_names_a_test"),
        "control: this very test is found"
    );
    let text = read("ENFORCEMENT.md");
    let table = rows(&text, "| dimension |");
    assert!(table.len() > 10);
    for row in table {
        for cell in &row[1..] {
            if cell == "-" {
                continue;
            }
            let named = quoted(cell);
            assert!(!named.is_empty(), "{}: the cell {cell:?} names no test", row[0]);
            for name in named {
                assert!(tests.contains(&name), "{}: there is no test `{name}`", row[0]);
            }
        }
    }
}

#[test]
fn house_every_figure_names_a_benchmark() {
    let benches: String = rust_files(&repository().join("benches"))
        .iter()
        .map(|p| std::fs::read_to_string(p).expect("readable"))
        .collect();
    for row in rows(&read("PERFORMANCE.md"), "| figure |") {
        for name in quoted(&row[2]) {
            assert!(
                benches.contains(&format!("\"{name}\"")),
                "{}: there is no benchmark `{name}`",
                row[0]
            );
        }
        assert!(!quoted(&row[2]).is_empty(), "{}: no benchmark is named", row[0]);
    }
}

#[test]
fn house_no_file_is_two_files() {
    for file in rust_files(&repository().join("crates")) {
        let lines = std::fs::read_to_string(&file).expect("readable").lines().count();
        assert!(lines <= 520, "{} has {lines} lines: past 500 a file is two rooms", file.display());
    }
}

#[test]
fn house_every_module_says_what_it_is() {
    for folder in ["crates", "tests", "xtask", "benches"] {
        for file in rust_files(&repository().join(folder)) {
            let text = std::fs::read_to_string(&file).expect("readable");
            let is_test = file.file_stem().is_some_and(|s| s.to_string_lossy().ends_with("tests"))
                || file.components().any(|c| {
                    c.as_os_str() == "tests" && !file.starts_with(repository().join("tests"))
                });
            assert!(
                is_test || text.starts_with("//!"),
                "{} does not begin with a `//!` line",
                file.display()
            );
        }
    }
}

#[test]
fn house_every_test_file_is_compiled() {
    let folder = repository().join("tests/tests");
    let main = read("tests/tests/main.rs");
    for file in rust_files(&folder) {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(
            name == "main" || main.contains(&format!("mod {name};")),
            "tests/tests/main.rs forgets {name}"
        );
    }
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = Project::new(Who::Itself).ringfence(&["--help"]).ok().stdout;
    let list = help.split("Commands:").nth(1).expect("help lists the commands");
    list.lines()
        .skip(1)
        .take_while(|l| l.starts_with("  "))
        // Two spaces are a group, four a command in it.
        .filter_map(|l| l.strip_prefix("    "))
        .filter_map(|l| l.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn house_every_command_has_a_test_file() {
    let commands = commands();
    assert_eq!(commands.len(), 33, "{commands:?}");
    for command in commands {
        let file = repository().join(format!("tests/tests/cmd_{command}.rs"));
        assert!(file.exists(), "`ringfence {command}` has no {}", file.display());
        let text = std::fs::read_to_string(&file).expect("readable");
        assert!(text.contains(&format!("\"{command}\"")), "{} does not run it", file.display());
    }
}

/// The TOML examples of a page.
fn examples(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn house_the_examples_of_the_documents_hold() {
    let readme = examples("README.md");
    let [manifest, machine] = &readme[..] else { panic!("a manifest and a machine.toml") };
    for machine in [machine.clone(), examples("docs/machine.md").remove(0)] {
        let project = Project::new(Who::Itself);
        project.manifest(manifest);
        project.file(".ringfence/skills/review/SKILL.md", "Look twice.\n");
        project.ringfence(&["validate"]).ok().says(&["the manifest is valid\n"]).done();
        project.machine(&machine);
        project.ringfence(&["policy", "presets"]).ok().done();
        let explain = ["policy", "explain", "agent", "host", "api.anthropic.com:443"];
        project.ringfence(&explain).ok().done();
        project.ringfence(&["lock"]).ok().done();
        // Its syntax: a key that is not known is refused.
        project.machine(&format!("{machine}\nunknown = 1\n"));
        project.ringfence(&explain).expect(1).done();
    }
}

#[test]
fn house_the_documents_name_commands_that_are_there() {
    let known: BTreeSet<String> = commands().into_iter().collect();
    let mut named = BTreeSet::new();
    for page in ["README.md", "docs/machine.md", "docs/library.md", "docs/sharing.md"] {
        let text = read(page);
        let code = quoted(&text).into_iter();
        let code =
            code.chain(text.lines().filter_map(|l| l.strip_prefix("    ")).map(str::to_owned));
        for line in code {
            let mut words = line.split_whitespace();
            let (Some("ringfence"), Some(word)) = (words.next(), words.next()) else { continue };
            if !word.starts_with('-') {
                assert!(known.contains(word), "{page} names `ringfence {word}`");
                named.insert(word.to_owned());
            }
        }
    }
    assert!(named.len() > 15, "{named:?}");
}

#[test]
fn house_every_attack_row_has_a_case() {
    let rows = [
        (1, "tools"),
        (2, "tools"),
        (3, "tools"),
        (4, "tools"),
        (5, "requests"),
        (8, "oauth"),
        (9, "oauth"),
        (10, "clone"),
        (11, "programs"),
        (12, "own_policy"),
        (13, "git"),
        (15, "denied_files"),
        (16, "archives"),
        (17, "content"),
        (18, "archives"),
        (21, "hosts"),
        (22, "resolve"),
        (25, "raw_network"),
        (26, "environment"),
        (29, "unavailable"),
        (30, "secrets"),
        (31, "evidence"),
        (36, "killed"),
    ];
    for (row, name) in rows {
        let text = read(&format!("tests/tests/redteam_{name}.rs"));
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let head = head.join(" ").replace("//! ", "").replace("rows", "row").replace("Rows", "Row");
        let said: BTreeSet<u32> = head
            .split(['R', 'r'])
            .filter_map(|part| part.strip_prefix("ow "))
            .flat_map(|part| part.split([':', '.']).next().unwrap_or_default().split(" and "))
            .filter_map(|number| number.trim().parse().ok())
            .collect();
        assert!(said.contains(&row), "redteam_{name}.rs is not about row {row}: {said:?}");
        assert!(text.contains("ontrol"), "redteam_{name}.rs has no positive control");
    }
}

#[test]
fn house_no_test_is_skipped() {
    for file in rust_files(&repository()) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mark = concat!("#[", "ignore");
        assert!(!text.contains(mark), "{} skips a test", file.display());
    }
}

#[test]
fn help_snapshot() {
    let project = Project::new(Who::Itself);
    let mut all = project.ringfence(&["--help"]).ok().stdout;
    for command in [
        "init",
        "validate",
        "show",
        "lock",
        "fetch",
        "schema",
        "trust",
        "diff",
        "set",
        "secret",
        "login",
        "logout",
        "run",
        "policy",
        "ps",
        "stop",
        "report",
        "audit",
        "store",
        "library",
        "clean",
        "sign",
        "verify",
        "publisher",
        "share",
        "receive",
        "registry",
    ] {
        all += &format!(
            "\n$ ringfence {command} --help\n{}",
            project.ringfence(&[command, "--help"]).ok().stdout
        );
    }
    insta::assert_snapshot!("help", all);
}
