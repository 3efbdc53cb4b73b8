use std::path::{Path, PathBuf};

use ringfence_adapters::{Kind, Protected};
use ringfence_policy::FsScopes;
use ringfence_sandbox::{Missing, Mount, Rule};

use super::{Rules, mounts};
use crate::Error;

struct Case {
    dir: tempfile::TempDir,
    scopes: FsScopes,
    protected: Vec<Protected>,
    deny: Vec<&'static str>,
    literals: Vec<PathBuf>,
    below: Vec<&'static str>,
    programs: Vec<PathBuf>,
}

impl Case {
    fn new(write: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".ringfence")).unwrap();
        let scopes = FsScopes {
            write: write.iter().map(PathBuf::from).collect(),
            read_only: Vec::new(),
            read_outside: Vec::new(),
            read_inside: None,
        };
        Self {
            dir,
            scopes,
            protected: Vec::new(),
            deny: Vec::new(),
            literals: Vec::new(),
            below: Vec::new(),
            programs: Vec::new(),
        }
    }

    fn file(&self, path: &str) -> &Self {
        let full = self.dir.path().join(path);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(full, path).unwrap();
        self
    }

    fn mounts(&self) -> Result<Vec<Mount>, Error> {
        let project = self.dir.path().canonicalize().unwrap();
        mounts(&Rules {
            project: &project,
            scopes: &self.scopes,
            protected: &self.protected,
            literals: &self.literals,
            denied_below: !self.below.is_empty(),
            git_configs: &[self.dir.path().join("person.gitconfig")],
            programs: &self.programs,
            denied: &|relative, _| {
                self.below.contains(&relative)
                    || self.deny.iter().any(|d| Path::new(relative).file_name() == Some(d.as_ref()))
            },
        })
    }
}

fn rule_of(mounts: &[Mount], path: &str) -> Option<Rule> {
    mounts.iter().find(|m| m.path == Path::new(path)).map(|m| m.rule)
}

#[test]
fn what_a_server_runs_is_not_written_by_the_agent() {
    let mut case = Case::new(&[""]);
    case.file("server.py").file("tools/mcp/main.js").file("venv/real/python").file("data.db");
    let project = case.dir.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("real/python", project.join("venv/python")).unwrap();
    std::os::unix::fs::symlink("tools/mcp", project.join("linked")).unwrap();
    let found = |file: &str| {
        let found = super::programs(&project, &project.join(file));
        found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("/usr/bin/env"), [""; 0]);
    assert_eq!(found("server.py"), ["server.py"]);
    assert_eq!(found("./tools/mcp/../mcp/main.js"), ["tools/mcp/main.js"]);
    assert_eq!(found("linked/main.js"), ["linked", "tools/mcp/main.js"]);
    assert_eq!(found("./venv/python"), ["venv/python", "venv/real/python"]);

    case.programs = ["server.py", "tools/mcp/main.js", "venv/python"].map(PathBuf::from).to_vec();
    let mounts = case.mounts().unwrap();
    for (path, rule) in [
        ("server.py", Some(Rule::ReadOnly)),
        ("tools/mcp/main.js", Some(Rule::ReadOnly)),
        ("tools/mcp", Some(Rule::Pinned)),
        ("tools", Some(Rule::Pinned)),
        ("venv", Some(Rule::ReadOnly)),
        ("data.db", None),
    ] {
        assert_eq!(rule_of(&mounts, path), rule, "{path}");
    }
    // Under a name that git's objects have, too.
    for other in ["src/x.py", "src/objects/x.py"] {
        let other = project.join(other);
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        std::fs::hard_link(project.join("server.py"), &other).unwrap();
        assert!(matches!(case.mounts(), Err(Error::Project { .. })), "{}", other.display());
        std::fs::remove_file(other).unwrap();
        assert!(case.mounts().is_ok(), "control");
    }
    // A link at the top cannot be kept.
    case.programs = vec!["linked".into()];
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
    // Nothing is needed where the agent writes elsewhere.
    case.scopes.write = vec!["src".into()];
    case.file("src/x");
    assert!(rule_of(&case.mounts().unwrap(), "linked").is_none());
}

#[test]
fn a_repository_keeps_its_hooks_even_where_everything_is_writable() {
    let case = Case::new(&[""]);
    case.file(".git/HEAD").file(".git/config").file("deep/nested/.git/config").file("work/.git");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, ""), Some(Rule::Writable));
    assert_eq!(rule_of(&mounts, ".ringfence"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, ".git"), Some(Rule::Pinned));
    for name in ["hooks", "config", "info", "modules", "worktrees", "config.worktree", "commondir"]
    {
        for git in [".git", "deep/nested/.git"] {
            assert_eq!(
                rule_of(&mounts, &format!("{git}/{name}")),
                Some(Rule::ReadOnly),
                "{git}/{name}"
            );
        }
    }
    assert_eq!(rule_of(&mounts, "work/.git"), Some(Rule::ReadOnly));
    for parent in ["deep", "deep/nested", "work"] {
        assert_eq!(rule_of(&mounts, parent), Some(Rule::Pinned), "{parent}");
    }
    let order: Vec<_> = mounts.iter().map(|m| m.path.clone()).collect();
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(order, sorted, "parents come first");
}

#[test]
fn a_read_only_repository_needs_no_mounts() {
    let case = Case::new(&["src"]);
    case.file(".git/config").file("src/main.rs");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, "src"), Some(Rule::Writable));
    assert!(mounts.iter().all(|m| !m.path.starts_with(".git")));
}

#[test]
fn adapter_paths_are_protected_where_present_and_where_missing() {
    let mut case = Case::new(&[""]);
    case.protected = vec![
        Protected { path: ".mcp.json".into(), kind: Kind::Json },
        Protected { path: ".claude".into(), kind: Kind::Dir },
        Protected { path: ".github/hooks".into(), kind: Kind::Dir },
    ];
    case.file(".claude/settings.json").file("sub/.mcp.json");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, ".claude"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, "sub/.mcp.json"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, "sub"), Some(Rule::Pinned));
    let missing = mounts.iter().find(|m| m.path == Path::new(".mcp.json")).unwrap();
    assert_eq!(
        (&missing.rule, &missing.missing),
        (&Rule::ReadOnly, &Missing::File(b"{}\n".to_vec()))
    );
    let github = mounts.iter().find(|m| m.path == Path::new(".github")).unwrap();
    assert_eq!((&github.rule, &github.missing), (&Rule::Pinned, &Missing::Dir));
    assert_eq!(rule_of(&mounts, ".github/hooks"), Some(Rule::ReadOnly));
}

#[test]
fn a_protected_symlink_in_a_writable_folder_is_refused() {
    let mut case = Case::new(&[""]);
    case.protected = vec![Protected { path: ".mcp.json".into(), kind: Kind::Json }];
    case.file("other.json");
    assert!(case.mounts().is_ok(), "control: without the link it is fine");
    std::os::unix::fs::symlink("other.json", case.dir.path().join(".mcp.json")).unwrap();
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
}

#[test]
fn denied_paths_are_masked_with_what_they_point_to() {
    let mut case = Case::new(&[""]);
    case.deny = vec![".env", "secrets", "link"];
    case.file(".env").file("a/.env").file("secrets/key").file("target.txt").file("open.txt");
    std::os::unix::fs::symlink("target.txt", case.dir.path().join("link")).unwrap();
    let mounts = case.mounts().unwrap();
    for path in [".env", "a/.env", "secrets", "target.txt"] {
        assert_eq!(rule_of(&mounts, path), Some(Rule::Masked), "{path}");
    }
    assert_eq!(rule_of(&mounts, "open.txt"), None);
    assert_eq!(rule_of(&mounts, "secrets/key"), None, "its folder covers it");
}

#[test]
fn a_denied_file_with_another_name_refuses_the_run() {
    let mut case = Case::new(&[""]);
    case.deny = vec![".env", "also"];
    case.file(".env");
    assert!(case.mounts().is_ok(), "control: one name is fine");
    std::fs::hard_link(case.dir.path().join(".env"), case.dir.path().join("also")).unwrap();
    assert!(case.mounts().is_ok(), "control: all names denied is fine");
    std::fs::hard_link(case.dir.path().join(".env"), case.dir.path().join("open")).unwrap();
    assert!(matches!(case.mounts(), Err(Error::HardLink { links: 3, masked: 2, .. })));
}

#[test]
fn sockets_and_unreadable_paths_are_masked() {
    let mut case = Case::new(&[]);
    case.file("docs/a.md").file("docs/deep/b.md").file("src/main.rs");
    let _socket =
        std::os::unix::net::UnixListener::bind(case.dir.path().join("docs/s.sock")).unwrap();
    case.scopes.read_inside = Some(vec!["docs".into()]);
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, "docs/s.sock"), Some(Rule::Masked));
    assert_eq!(rule_of(&mounts, "src"), Some(Rule::Masked));
    assert_eq!(rule_of(&mounts, "docs"), None);
}

#[test]
fn a_missing_scope_becomes_a_folder_and_a_missing_file_is_an_error() {
    let case = Case::new(&["out"]);
    let mounts = case.mounts().unwrap();
    assert_eq!(mounts.iter().find(|m| m.path == Path::new("out")).unwrap().missing, Missing::Keep);
    assert!(matches!(Case::new(&["notes.md"]).mounts(), Err(Error::Project { .. })));
}

#[test]
fn guards_win_over_scopes() {
    let case = Case::new(&["", ".git/hooks", ".ringfence"]);
    case.file(".git/config").file(".git/hooks/pre-commit");
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, ".git/hooks"), Some(Rule::ReadOnly));
    assert_eq!(rule_of(&mounts, ".ringfence"), Some(Rule::ReadOnly));
}

#[test]
fn a_denied_path_that_is_missing_cannot_be_made() {
    let mut case = Case::new(&[""]);
    case.deny = vec!["deploy"];
    case.literals = vec!["ci/deploy".into()];
    let mounts = case.mounts().unwrap();
    let deploy = mounts.iter().find(|m| m.path == Path::new("ci/deploy")).unwrap();
    assert_eq!((&deploy.rule, &deploy.missing), (&Rule::Masked, &Missing::Dir));
    assert_eq!(rule_of(&mounts, "ci"), Some(Rule::Pinned));
    let read_only = Case::new(&[]);
    assert!(read_only.mounts().unwrap().iter().all(|m| m.rule != Rule::Masked));
}

fn link(case: &Case, target: &str, path: &str) {
    std::os::unix::fs::symlink(target, case.dir.path().join(path)).unwrap();
}

#[test]
fn a_denied_name_through_a_linked_folder_is_masked_where_it_really_is() {
    let mut case = Case::new(&["b"]);
    case.file("b/secret").file("b/x.key").file("b/deep/y.key").file("b/open");
    link(&case, "b", "a");
    link(&case, "a", "c");
    case.literals = vec!["a/secret".into(), "a/none".into()];
    let masked = |case: &Case| -> Vec<PathBuf> {
        let mounts = case.mounts().unwrap();
        mounts.into_iter().filter(|m| m.rule == Rule::Masked).map(|m| m.path).collect()
    };
    assert_eq!(masked(&case), [Path::new("b/none"), Path::new("b/secret")]);
    case.below = vec!["c/x.key", "c/deep/y.key"];
    assert_eq!(masked(&case), ["b/deep/y.key", "b/none", "b/secret", "b/x.key"].map(PathBuf::from));
    case.literals = vec!["all".into()];
    assert!(case.mounts().is_ok(), "control: a missing path");
    link(&case, ".", "all");
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
}

#[test]
fn a_symlink_does_not_count_as_another_name() {
    let mut case = Case::new(&[""]);
    case.deny = vec!["key", "also"];
    case.file("key");
    link(&case, "key", "also");
    assert!(case.mounts().is_ok(), "control: one name is fine");
    std::fs::hard_link(case.dir.path().join("key"), case.dir.path().join("open")).unwrap();
    assert!(matches!(case.mounts(), Err(Error::HardLink { links: 2, masked: 1, .. })));
}

#[test]
fn a_guard_opens_nothing_above_its_scope() {
    let mut case = Case::new(&["ci/out", ".github/hooks"]);
    case.file("ci/out/x").file("ci/build.sh");
    case.literals = vec!["ci/out/new/deploy".into()];
    case.protected = vec![Protected { path: ".github/hooks".into(), kind: Kind::Dir }];
    let mounts = case.mounts().unwrap();
    assert_eq!(rule_of(&mounts, "ci/out/new/deploy"), Some(Rule::Masked));
    assert_eq!(rule_of(&mounts, "ci/out/new"), Some(Rule::Pinned));
    assert_eq!(rule_of(&mounts, ".github/hooks"), Some(Rule::ReadOnly));
    for above in ["", "ci", ".github"] {
        assert_eq!(rule_of(&mounts, above), None, "{above}");
    }
}

#[test]
fn what_git_is_configured_to_run_is_read_only() {
    let case = Case::new(&[""]);
    case.file(".githooks/pre-commit").file("tools/clean.sh").file("src/main.rs");
    let config = "[core]\nhooksPath = .githooks\n[include]\npath = ../.gitconfig\n\
                  [filter \"x\"]\nclean = ./tools/clean.sh %f\nsmudge = ./new/smudge.sh\n";
    case.file(".git/HEAD").file("person.gitconfig");
    let rule = |path| rule_of(&case.mounts().unwrap(), path);
    assert_eq!((rule(".githooks"), rule("tools/clean.sh")), (None, None), "control: not named");
    std::fs::write(case.dir.path().join(".git/config"), config).unwrap();
    for path in [".githooks", ".gitconfig", "tools/clean.sh", "new/smudge.sh"] {
        assert_eq!(rule(path), Some(Rule::ReadOnly), "{path}");
    }
    assert_eq!((rule("tools"), rule("src/main.rs")), (Some(Rule::Pinned), None));
    assert_eq!(rule("hooks-of-mine"), None);
    let person = "[core]\nhooksPath = hooks-of-mine\n";
    std::fs::write(case.dir.path().join("person.gitconfig"), person).unwrap();
    assert_eq!(rule("hooks-of-mine"), Some(Rule::ReadOnly));
}

#[test]
fn a_read_only_file_with_a_writable_name_refuses_the_run() {
    let mut case = Case::new(&["", "docs"]);
    case.scopes.read_only = vec!["docs".into()];
    case.protected = vec![Protected { path: ".claude".into(), kind: Kind::Dir }];
    case.file(".claude/settings.json").file("docs/x").file("src/main.rs");
    let other = |path| {
        std::fs::hard_link(
            case.dir.path().join(".claude/settings.json"),
            case.dir.path().join(path),
        )
    };
    other("docs/same").unwrap();
    other(".claude/same").unwrap();
    assert!(case.mounts().is_ok(), "control: none of the names may be written");
    other("src/same").unwrap();
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
}

#[test]
fn a_protected_path_through_a_linked_folder_is_refused() {
    let mut case = Case::new(&[""]);
    case.protected = vec![Protected { path: ".github/hooks".into(), kind: Kind::Dir }];
    case.file("cfg/hooks/x");
    assert!(case.mounts().is_ok(), "control: without the link it is fine");
    link(&case, "cfg", ".github");
    assert!(matches!(case.mounts(), Err(Error::Project { .. })));
}

#[test]
fn a_scope_below_a_guarded_path_opens_nothing() {
    let mut case = Case::new(&[".git/hooks/mine", ".git/config", ".claude/commands", "out"]);
    case.protected = vec![Protected { path: ".claude".into(), kind: Kind::Dir }];
    case.file(".git/HEAD").file(".git/config").file(".git/hooks/mine/x").file("out/x");
    let mounts = case.mounts().unwrap();
    for path in [".git/hooks", ".git/config", ".claude"] {
        assert_eq!(rule_of(&mounts, path), Some(Rule::ReadOnly), "{path}");
    }
    let open: Vec<_> = mounts.iter().filter(|m| m.rule == Rule::Writable).collect();
    assert_eq!(open.len(), 1, "control: the scope elsewhere is open: {mounts:?}");
    assert_eq!(rule_of(&mounts, ".git"), None, "a guard does not open its folder");
}
